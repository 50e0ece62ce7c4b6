//! Facts about tables and lists of limits. The compiler opens no file: its caller implements [`Catalog`].

pub use weir_abi::Family;
use weir_abi::Layout;

/// The content of one table, after its files were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// Number of distinct prefixes.
    pub entries: usize,
    /// Number of prefixes of each length. The index is the length in bits; trailing zeros may be missing.
    pub by_length: Vec<usize>,
    /// Labels: `labels[i]` has the label id `i + 1`. Empty for a set.
    pub labels: Vec<String>,
}

/// The content of one list of limits, after its files were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitsFacts {
    /// Its IPv4 prefixes.
    pub v4: PrefixCounts,
    /// Its IPv6 prefixes.
    pub v6: PrefixCounts,
    /// Number of labels that have a limit.
    pub labels: usize,
    /// Number of distinct limits.
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
    /// Number of distinct prefixes.
    pub entries: usize,
    /// Number of prefixes of each length. The index is the length in bits; trailing zeros may be missing.
    pub by_length: Vec<usize>,
}

/// Size and lookup cost of an image in one layout. The caller measures images that it builds, so the estimates are for
/// the images that are loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageFacts {
    /// The layout.
    pub layout: Layout,
    /// Bytes of the image.
    pub bytes: usize,
    /// Words that a lookup of an address in the table reads one after the other, on average. A cache line that is
    /// compared as a whole counts as one word.
    pub words: f64,
    /// Distinct cache lines that these words are in, on average.
    pub lines: f64,
}

/// Describes tables, lists of limits, and their images in each layout.
pub trait Catalog {
    /// The facts of a table. `None` if it could not be read; the caller reports that error.
    fn table(&self, name: &str) -> Option<&TableFacts>;

    /// The facts of a list of limits. `None` if it could not be read; the caller reports that error.
    fn limits(&self, name: &str) -> Option<&LimitsFacts>;

    /// The image of a table, or of several sets that share an image. `None` if the layout cannot hold them.
    fn image(&self, tables: &[&str], layout: Layout) -> Option<ImageFacts>;

    /// The image of a list's prefixes of one family. `None` if the layout cannot hold them.
    fn limits_image(&self, list: &str, family: Family, layout: Layout) -> Option<ImageFacts>;
}
