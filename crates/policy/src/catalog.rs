//! What the caller knows of the tables and lists of limits: the compiler opens no file, it asks the catalog.

pub use weir_abi::Family;
use weir_abi::Layout;

/// What one table holds, once its files have been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// Distinct prefixes.
    pub entries: usize,
    /// Prefixes of each length, index 0 to the family's bits; shorter when the rest is 0.
    pub by_length: Vec<usize>,
    /// Labels; label id `i + 1` is `labels[i]`. Empty for a set.
    pub labels: Vec<String>,
}

/// What one list of limits holds, once its files have been read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsFacts {
    /// Its IPv4 prefixes.
    pub v4: PrefixCounts,
    /// Its IPv6 prefixes.
    pub v6: PrefixCounts,
    /// Labels with a limit of their own.
    pub labels: usize,
    /// Limits that differ.
    pub rates: usize,
}

impl LimitsFacts {
    /// The prefixes of a family.
    pub fn of(&self, family: Family) -> &PrefixCounts {
        match family {
            Family::Ipv4 => &self.v4,
            Family::Ipv6 => &self.v6,
        }
    }
}

/// Prefixes of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixCounts {
    /// Distinct prefixes.
    pub entries: usize,
    /// Prefixes of each length, index 0 to the family's bits; shorter when the rest is 0.
    pub by_length: Vec<usize>,
}

/// What tables or a list of limits are as an image of a layout. The compiler builds none: whoever answers the catalog does, so that what is weighed
/// is what is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageFacts {
    /// The layout.
    pub layout: Layout,
    /// Bytes of the image.
    pub bytes: usize,
    /// Words that the mean lookup of an address in the table reads, one after the other; a line that is compared as a whole is one.
    pub words: f64,
    /// Cache lines among them that differ.
    pub lines: f64,
}

/// Answers what each table and each list of limits holds, and what their images would be.
pub trait Catalog {
    /// The facts of a table, or `None` if it could not be read, which the caller has reported.
    fn table(&self, name: &str) -> Option<&TableFacts>;

    /// The facts of a list of limits, or `None` if it could not be read, which the caller has reported.
    fn limits(&self, name: &str) -> Option<&LimitsFacts>;

    /// A table's image of a layout, or the one that several sets of addresses share; `None` if the layout cannot hold them.
    fn image(&self, tables: &[&str], layout: Layout) -> Option<ImageFacts>;

    /// The image of a list's prefixes of a family; `None` if the layout cannot hold them.
    fn limits_image(&self, list: &str, family: Family, layout: Layout) -> Option<ImageFacts>;
}
