//! Bounds on policies, and on how much is reported about one.

/// Maximum number of tables, and of lists of limits, in a policy.
pub const TABLES_MAX: usize = 1024;
/// Maximum number of tables with counters: a bit of a word for the source and one for the destination of each.
pub const COUNTED_MAX: usize = 32;
/// Maximum number of limit statements with their own buckets. Statements of different postures share buckets.
pub const LIMITERS_MAX: usize = 1024;
/// Maximum number of statements of a direction that add to tables, `exceed add` included.
pub const ADDITIONS_MAX: usize = 1024;
/// Maximum number of named postures in a policy.
pub const POSTURES_MAX: usize = 64;
/// Maximum number of matches in a rule.
pub const MATCHES_MAX: usize = 64;
/// Maximum number of statements in a rule.
pub const STATEMENTS_MAX: usize = 16;
/// Maximum number of ranges in a set of a rule. Compilers take minutes for the code of a larger set, and a table is
/// faster.
pub const SET_RANGES_MAX: usize = 4096;
/// Maximum number of ranges in a set of values of more than 64 bits, which are compared one after the other.
pub const WIDE_SET_RANGES_MAX: usize = 256;
/// Maximum depth of definitions inside one another.
pub const DEFINE_DEPTH_MAX: usize = 32;
/// Maximum number of elements in all sets of a policy, after each `$NAME` is replaced by its values.
pub const ELEMENTS_MAX: usize = 4 << 20;
/// Maximum number of reported errors, and of reported warnings.
pub const REPORTED_MAX: usize = 200;
