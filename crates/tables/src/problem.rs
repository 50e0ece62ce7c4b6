//! What can be wrong with an element of a table or with a line of a list.

use weir_abi::{Family, LimitProblem};

/// Longest label in bytes.
pub const LABEL_BYTES_MAX: usize = 255;

/// Prefixes that a table can be given, duplicates included. Keeps a hostile list of IPv6 ranges, 254 prefixes each, in
/// memory.
pub const PREFIXES_MAX: usize = 1 << 24;

/// The family as messages name it.
pub fn family_name(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "IPv4",
        Family::Ipv6 => "IPv6",
    }
}

/// An octet with leading zeros, and its readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddedOctet {
    /// The octet as written.
    pub text: String,
    /// The decimal number.
    pub decimal: u32,
    /// The octal number, if it is another one.
    pub octal: Option<u32>,
}

fn padded_octet(PaddedOctet { text, decimal, octal }: &PaddedOctet) -> String {
    match octal {
        Some(octal) => format!(
            "`{text}` is {octal} (octal) to some programs and {decimal} to others: write the octet without leading zeros"
        ),
        None => format!("`{text}` has a leading zero: write `{decimal}`"),
    }
}

/// Why an element or a line was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No address, CIDR or range.
    #[error("not an {} address, prefix or range", family_name(*.0))]
    NotAnAddress(Family),
    /// An octet with leading zeros, which may be octal.
    #[error("{}", padded_octet(.0))]
    PaddedOctet(PaddedOctet),
    /// A prefix with bits set behind its length.
    #[error("bits are set behind the length: write `{network}` for the network, or `{address}` for the one address")]
    HostBits {
        /// The prefix without these bits.
        network: String,
        /// The address.
        address: String,
    },
    /// A mask that has ones behind zeros.
    #[error("`{0}` is no netmask: write the length of the prefix")]
    NoNetmask(String),
    /// A mask whose ones are at its end.
    #[error("`{mask}` is a wildcard mask: write the length of the prefix, `/{length}`")]
    Wildcard {
        /// The mask as written.
        mask: String,
        /// The length of the prefix that it leaves.
        length: u8,
    },
    /// A mask that is a netmask and a wildcard mask.
    #[error("`{0}` may be a netmask or a wildcard mask: write `/0` for every address, or the address alone")]
    TwoMasks(String),
    /// A CSV file of addresses and netmasks.
    #[error("the second field is a netmask, not the last address of a range: write prefixes such as `192.0.2.0/24`")]
    MaskColumn,
    /// An address of the other family; the table's family is named.
    #[error("address of the other family in an {} table", family_name(*.0))]
    OtherFamily(Family),
    /// Nothing after the slash.
    #[error("prefix length missing after `/`")]
    NoLength,
    /// A prefix length beyond the family's bits.
    #[error("prefix length above {}", .0.bits())]
    LongLength(Family),
    /// The range's end is below its start.
    #[error("range ends before it starts")]
    RangeBackwards,
    /// The table has labels, the line has none.
    #[error("label missing")]
    NoLabel,
    /// A label longer than [`LABEL_BYTES_MAX`].
    #[error("label longer than {LABEL_BYTES_MAX} bytes")]
    LongLabel,
    /// A label that is not UTF-8.
    #[error("label is not UTF-8 text")]
    LabelEncoding,
    /// A quoted field that does not end on its line, or goes on after its end.
    #[error("unbalanced quotes")]
    Quotes,
    /// A line of JSON that is no object of strings and numbers.
    #[error("not an object of strings and numbers on one line")]
    JsonLine,
    /// Another address where text may stand.
    #[error("a second address on the line: an entry has a line of its own, a comment begins with `#`")]
    SecondAddress,
    /// `start,end` in a set, without a header that says so.
    #[error("two addresses on the line: write a range as `first-last`, or name the columns in a header (`start,end`)")]
    TwoAddresses,
    /// A file of ranges has a line that is none.
    #[error("not the first and last address of a range, which the first line has")]
    NotARange,
    /// A line of a CSV file is longer or shorter than the first.
    #[error("{found} fields, where the first line has {expected}")]
    Columns {
        /// Fields of this line.
        found: usize,
        /// Fields of the first line that is no header.
        expected: usize,
    },
    /// `10.0.0.0 /8`
    #[error("a blank before `/`")]
    BlankInPrefix,
    /// A character that other programs take for a line end, or that shows as nothing.
    #[error("a control character, or a line end that is neither LF, CR LF nor CR")]
    Control,
    /// A line of an ipset file that is neither `create` nor `add`.
    #[error("not a `create` or `add` line of `ipset save`")]
    NotIpset,
    /// A set that holds more than addresses or nets.
    #[error("set type `{0}` not supported: only hash:ip, hash:net and bitmap:ip are lists of addresses")]
    SetType(String),
    /// A set whose entries stand for networks, without the length of a network in its entry.
    #[error("`netmask` and `bitmask` are not supported: each address of such a set stands for more than itself")]
    SetMask,
    /// An option of `create` or `add` that is not known, or another entry on the line.
    #[error("`{0}` is no option of `ipset save`")]
    SetOption(String),
    /// A line of a list of limits without a rate.
    #[error("rate missing after `,`")]
    NoRate,
    /// A rate or burst that cannot be.
    #[error(transparent)]
    Limit(#[from] LimitProblem),
    /// Another limit where text may stand.
    #[error("a second limit on the line: each has a line of its own, a comment begins with `#`")]
    SecondLimit,
    /// A range in a list of limits.
    #[error("a range is no prefix: give each of its prefixes a limit")]
    RangeLimited,
    /// An exception within a set of nets.
    #[error("`nomatch` entries are not supported: a table has no exceptions")]
    Nomatch,
}
