//! The interfaces of a capture, and the units of their time stamps.

/// Nanoseconds in a second.
pub(super) const NS_PER_S: u64 = 1_000_000_000;

/// One interface of a capture. A pcap file has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// LINKTYPE number.
    pub link_type: u16,
    /// Maximum number of captured bytes per packet; 0 for no limit.
    pub snap_bytes: u32,
    /// Unit of the interface's time stamps.
    pub resolution: Resolution,
    /// Offset in seconds to add to every time stamp.
    pub offset_s: i64,
    /// Bytes of the check sequence at the end of each packet.
    pub fcs_bytes: u8,
    /// `if_name` as written in the file.
    pub name: Option<Vec<u8>>,
}

impl Interface {
    /// Converts a time stamp to nanoseconds since 1970, saturating.
    pub(super) fn to_ns(&self, stamp: u64) -> u64 {
        let ns = self.resolution.to_ns(stamp);
        if self.offset_s == 0 {
            return ns;
        }
        let shift = self.offset_s.unsigned_abs().saturating_mul(NS_PER_S);
        if self.offset_s > 0 { ns.saturating_add(shift) } else { ns.saturating_sub(shift) }
    }
}

/// Unit of time stamps: `if_tsresol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// A second divided by ten to this power.
    Decimal(u8),
    /// A second divided by two to this power.
    Binary(u8),
}

impl Resolution {
    /// Microseconds, the default of both formats.
    pub const MICROSECONDS: Resolution = Resolution::Decimal(6);
    /// Nanoseconds.
    pub const NANOSECONDS: Resolution = Resolution::Decimal(9);

    /// Parses `if_tsresol`.
    pub(super) fn from_option(value: u8) -> Self {
        match value & 0x80 {
            0 => Resolution::Decimal(value),
            _ => Resolution::Binary(value & 0x7f),
        }
    }

    /// Encodes `if_tsresol`.
    pub(super) fn to_option(self) -> u8 {
        match self {
            Resolution::Decimal(power) => power,
            Resolution::Binary(power) => power | 0x80,
        }
    }

    fn to_ns(self, stamp: u64) -> u64 {
        match self {
            Resolution::Decimal(9) => stamp,
            Resolution::Decimal(power @ 0..9) => stamp.saturating_mul(10u64.pow(u32::from(9 - power))),
            Resolution::Decimal(power) => 10u64.checked_pow(u32::from(power - 9)).map_or(0, |unit| stamp / unit),
            Resolution::Binary(power) => {
                let ns = (u128::from(stamp) * u128::from(NS_PER_S)).checked_shr(u32::from(power)).unwrap_or(0);
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }

    /// The resolution that a writer uses for times known in ns: the same power of ten, or ns for anything finer.
    pub(super) fn written(self) -> Self {
        match self {
            Resolution::Decimal(power) if power <= 9 => self,
            _ => Resolution::NANOSECONDS,
        }
    }

    /// The time stamp for a time in ns, in a resolution from [`Resolution::written`].
    pub(super) fn stamp(self, ns: u64) -> u64 {
        match self {
            Resolution::Decimal(power) if power < 9 => ns / 10u64.pow(u32::from(9 - power)),
            _ => ns,
        }
    }
}
