//! Address families.

/// Address family of a table or an address field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// 32-bit addresses.
    Ipv4,
    /// 128-bit addresses.
    Ipv6,
}

impl Family {
    /// Number of bits of an address.
    pub const fn bits(self) -> u8 {
        match self {
            Family::Ipv4 => 32,
            Family::Ipv6 => 128,
        }
    }
}
