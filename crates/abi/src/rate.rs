//! Rates and bursts in text form, in policies and in lists: `20kpps`, `400/minute`, `10mbit`, burst `64kbytes`.

use crate::limit::{BYTE_SHIFT, LimitProfile, ROOM_MAX, TICKS_PER_S, room_of_bytes};
use std::fmt::{self, Display, Formatter};

/// Maximum rate in packets per second.
pub const PACKETS_PER_S_MAX: u64 = 250_000_000;
/// Minimum rate in bits per second, except for 0.
pub const BITS_PER_S_MIN: u64 = 8_000;
/// Maximum rate in bits per second.
pub const BITS_PER_S_MAX: u64 = 1_000_000_000_000;
/// The smallest burst in packets.
pub const BURST_PACKETS_MIN: u64 = 1;
/// The smallest burst in bytes: a full-size Ethernet packet.
pub const BURST_BYTES_MIN: u64 = 1514;
/// The default burst is at least this many packets of that size.
const BURST_DEFAULT_PACKETS: u64 = 10;

/// The unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Packets. The burst is also in packets.
    Packets,
    /// Bits on the wire, including the link header. The burst is in bytes.
    Bits,
}

/// The time unit of a packet rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Per {
    /// `20kpps`, `400/second`
    Second,
    /// `400/minute`
    Minute,
    /// `400/hour`
    Hour,
}

impl Per {
    const ALL: [(Per, &'static str, u64); 3] =
        [(Per::Second, "second", 1), (Per::Minute, "minute", 60), (Per::Hour, "hour", 3600)];

    const fn seconds(self) -> u64 {
        match self {
            Per::Second => 1,
            Per::Minute => 60,
            Per::Hour => 3600,
        }
    }
}

/// The amount that passes per time. A rate of 0 passes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    /// Packets.
    Packets {
        /// Number of packets, at most [`PACKETS_PER_S_MAX`] per second.
        count: u64,
        /// The time unit.
        per: Per,
    },
    /// Bits per second: 0, or [`BITS_PER_S_MIN`] to [`BITS_PER_S_MAX`].
    Bits(u64),
}

/// Why a rate or a burst is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitProblem {
    /// The text is not a rate.
    NoRate,
    /// The rate is too high or too low.
    RateOutOfBounds(Unit),
    /// The text is not a burst.
    NoBurst(Unit),
    /// The burst is in bytes and the rate in packets, or vice versa. The unit is the rate's.
    BurstUnit(Unit),
    /// The burst is less than one packet.
    SmallBurst(Unit),
    /// The rate needs more than 2^48 ns for the burst.
    LongBurst,
}

impl std::error::Error for LimitProblem {}

impl Display for LimitProblem {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            LimitProblem::NoRate => f.write_str("not a rate such as `500`, `20kpps`, `400/minute` or `10mbit`"),
            LimitProblem::RateOutOfBounds(Unit::Packets) => f.write_str("packet rates go from 1/hour to 250mpps"),
            LimitProblem::RateOutOfBounds(Unit::Bits) => f.write_str("bit rates go from 8kbit to 1tbit"),
            LimitProblem::NoBurst(Unit::Packets) => f.write_str("not a burst such as `100` or `100packets`"),
            LimitProblem::NoBurst(Unit::Bits) => f.write_str("not a burst such as `15000` or `64kbytes`"),
            LimitProblem::BurstUnit(Unit::Packets) => f.write_str("the burst of a packet rate is in packets"),
            LimitProblem::BurstUnit(Unit::Bits) => f.write_str("the burst of a bit rate is in bytes"),
            LimitProblem::SmallBurst(Unit::Packets) => f.write_str("a burst is at least one packet"),
            LimitProblem::SmallBurst(Unit::Bits) => {
                write!(f, "a burst is at least {BURST_BYTES_MIN} bytes, or longer packets would never pass")
            }
            LimitProblem::LongBurst => f.write_str("the rate takes more than 78 hours for the burst"),
        }
    }
}

impl Rate {
    /// The unit.
    pub const fn unit(self) -> Unit {
        match self {
            Rate::Packets { .. } => Unit::Packets,
            Rate::Bits(_) => Unit::Bits,
        }
    }

    /// Parses a rate without blanks.
    ///
    /// # Errors
    /// The text is not a rate, or the rate is out of bounds.
    pub fn parse(text: &str) -> Result<Self, LimitProblem> {
        let (number, unit) = split_number(text).ok_or(LimitProblem::NoRate)?;
        if let Some(word) = unit.strip_prefix('/') {
            let per = Per::ALL.into_iter().find(|&(_, name, _)| name == word);
            return Rate::packets(number, per.ok_or(LimitProblem::NoRate)?.0);
        }
        match unit {
            "" => return Rate::packets(number, Per::Second),
            _ if unit.ends_with("pps") => {
                let factor = factor(&unit[..unit.len() - 3]).ok_or(LimitProblem::NoRate)?;
                return Rate::packets(number.saturating_mul(factor), Per::Second);
            }
            _ => {}
        }
        let factor = unit.strip_suffix("bit").and_then(factor).ok_or(LimitProblem::NoRate)?;
        match number.saturating_mul(factor) {
            bits @ (0 | BITS_PER_S_MIN..=BITS_PER_S_MAX) => Ok(Rate::Bits(bits)),
            _ => Err(LimitProblem::RateOutOfBounds(Unit::Bits)),
        }
    }

    fn packets(count: u64, per: Per) -> Result<Self, LimitProblem> {
        if count > PACKETS_PER_S_MAX * per.seconds() {
            return Err(LimitProblem::RateOutOfBounds(Unit::Packets));
        }
        Ok(Rate::Packets { count, per })
    }

    /// The default burst: the amount that the rate passes in 10 ms, and at least ten packets.
    const fn burst_default(self) -> u64 {
        let (earned, least) = match self {
            Rate::Packets { count, per } => (count / per.seconds() / 100, BURST_DEFAULT_PACKETS),
            Rate::Bits(bits) => (bits / 8 / 100, BURST_DEFAULT_PACKETS * BURST_BYTES_MIN),
        };
        if earned > least { earned } else { least }
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Rate::Packets { count, per: Per::Second } => write_short(f, count, "pps"),
            Rate::Packets { count, per: Per::Minute } => write!(f, "{count}/minute"),
            Rate::Packets { count, per: Per::Hour } => write!(f, "{count}/hour"),
            Rate::Bits(bits) => write_short(f, bits, "bit"),
        }
    }
}

/// A rate and its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    rate: Rate,
    /// In packets or bytes.
    burst: u64,
}

impl Limit {
    /// A limit from a rate and a burst in text form without blanks, or with the rate's default burst.
    ///
    /// # Errors
    /// The burst is invalid for the rate.
    pub fn new(rate: Rate, burst: Option<&str>) -> Result<Self, LimitProblem> {
        let burst = match burst {
            Some(text) => parse_burst(text, rate.unit())?,
            None => rate.burst_default(),
        };
        let limit = Limit { rate, burst };
        if limit.charges().2 > u128::from(ROOM_MAX) { Err(LimitProblem::LongBurst) } else { Ok(limit) }
    }

    /// The rate.
    pub const fn rate(self) -> Rate {
        self.rate
    }

    /// The burst, in packets or bytes.
    pub const fn burst(self) -> u64 {
        self.burst
    }

    /// The rate and the burst as text: `10mbit` and `64kbytes`.
    pub fn parts(self) -> (impl Display, impl Display) {
        (self.rate, Burst { amount: self.burst, unit: self.rate.unit() })
    }

    /// The profile that buckets are charged by.
    pub fn profile(self) -> LimitProfile {
        if self.is_closed() {
            return LimitProfile::CLOSED;
        }
        let (per_packet, per_byte, room) = self.charges();
        let room = u64::try_from(room).expect("Limit::new bounds the room");
        LimitProfile { per_packet, per_byte, room, coarse: 0 }
    }

    /// Whether nothing passes.
    const fn is_closed(self) -> bool {
        matches!(self.rate, Rate::Packets { count: 0, .. } | Rate::Bits(0))
    }

    /// Ticks per packet, or per byte with [`BYTE_SHIFT`] fractional bits; rounded up.
    fn cost(self) -> u64 {
        let (ticks, events) = match self.rate {
            Rate::Packets { count, per } => (u128::from(TICKS_PER_S * per.seconds()), count),
            Rate::Bits(bits) => (u128::from(8 * TICKS_PER_S) << BYTE_SHIFT, bits),
        };
        u64::try_from(ticks.div_ceil(u128::from(events))).expect("the slowest rate costs less than 2^50 ticks")
    }

    /// Ticks per packet, ticks per byte, and the room.
    fn charges(self) -> (u64, u64, u128) {
        if self.is_closed() {
            return (0, 0, 0);
        }
        let cost = self.cost();
        match self.rate.unit() {
            Unit::Packets => (cost, 0, u128::from(self.burst) * u128::from(cost)),
            Unit::Bits => {
                let (per_packet, room) = room_of_bytes(self.burst, cost.into(), 0);
                (per_packet, cost, room)
            }
        }
    }
}

/// Prints `10mbit burst 64kbytes`, which parses back to the same limit.
impl Display for Limit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (rate, burst) = self.parts();
        write!(f, "{rate} burst {burst}")
    }
}

/// A burst as text: `64kbytes`.
struct Burst {
    amount: u64,
    unit: Unit,
}

impl Display for Burst {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.unit {
            Unit::Packets => write_short(f, self.amount, "packets"),
            Unit::Bits => write_short(f, self.amount, "bytes"),
        }
    }
}

/// Parses what [`Limit`] prints.
impl std::str::FromStr for Limit {
    type Err = LimitProblem;

    fn from_str(text: &str) -> Result<Self, LimitProblem> {
        let (rate, burst) = match text.split_once(" burst ") {
            Some((rate, burst)) => (rate, Some(burst)),
            None => (text, None),
        };
        Limit::new(Rate::parse(rate)?, burst)
    }
}

fn parse_burst(text: &str, unit: Unit) -> Result<u64, LimitProblem> {
    let (number, word) = split_number(text).ok_or(LimitProblem::NoBurst(unit))?;
    let (prefix, said) = match (word.strip_suffix("packets"), word.strip_suffix("bytes")) {
        (Some(prefix), _) => (prefix, Unit::Packets),
        (_, Some(prefix)) => (prefix, Unit::Bits),
        _ => (word, unit),
    };
    let factor = factor(prefix).ok_or(LimitProblem::NoBurst(unit))?;
    let least = match unit {
        _ if said != unit => return Err(LimitProblem::BurstUnit(unit)),
        Unit::Packets => BURST_PACKETS_MIN,
        Unit::Bits => BURST_BYTES_MIN,
    };
    match number.saturating_mul(factor) {
        burst if burst < least => Err(LimitProblem::SmallBurst(unit)),
        burst => Ok(burst),
    }
}

/// Splits a decimal number from the text after it. Numbers above `u64::MAX` become `u64::MAX`, which is out of bounds
/// everywhere.
fn split_number(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    // Some programs read a leading zero as octal, others as decimal.
    let plain = digits == 1 || digits > 1 && !number.starts_with('0');
    plain.then(|| (number.parse().unwrap_or(u64::MAX), unit))
}

fn factor(prefix: &str) -> Option<u64> {
    match prefix {
        "" => Some(1),
        "k" => Some(1_000),
        "m" => Some(1_000_000),
        "g" => Some(1_000_000_000),
        "t" => Some(1_000_000_000_000),
        _ => None,
    }
}

/// Prints a number with the largest unit prefix that divides it.
fn write_short(f: &mut Formatter<'_>, number: u64, unit: &str) -> fmt::Result {
    for prefix in ["t", "g", "m", "k"] {
        let factor = factor(prefix).expect("all of them are known");
        if number > 0 && number.is_multiple_of(factor) {
            return write!(f, "{}{prefix}{unit}", number / factor);
        }
    }
    write!(f, "{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Limit {
        text.parse().unwrap_or_else(|problem| panic!("{text}: {problem}"))
    }

    #[test]
    fn rates_are_read_as_written() {
        for (text, printed) in [
            ("1000", "1kpps"),
            ("1000pps", "1kpps"),
            ("20kpps", "20kpps"),
            ("1mpps", "1mpps"),
            ("1500", "1500pps"),
            ("400/second", "400pps"),
            ("400/minute", "400/minute"),
            ("1/hour", "1/hour"),
            ("64kbit", "64kbit"),
            ("10000bit", "10kbit"),
            ("100gbit", "100gbit"),
            ("1tbit", "1tbit"),
            ("0", "0pps"),
            ("0kbit", "0bit"),
            ("250mpps", "250mpps"),
        ] {
            let rate = Rate::parse(text).unwrap_or_else(|problem| panic!("{text}: {problem}"));
            assert_eq!(rate.to_string(), printed);
            assert_eq!(Rate::parse(printed), Ok(rate));
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in
            ["", "pps", "x", "1 pps", "-1", "1.5mbit", "10mbytes", "1000/day", "01", "0x10", "1Kpps", "10kppss", "5/"]
        {
            assert_eq!(Rate::parse(text), Err(LimitProblem::NoRate), "{text}");
        }
        let packets = Err(LimitProblem::RateOutOfBounds(Unit::Packets));
        let bits = Err(LimitProblem::RateOutOfBounds(Unit::Bits));
        for text in ["250000001", "1gpps", "99999999999999999999", "15000000001/minute", "99999999999tpps"] {
            assert_eq!(Rate::parse(text), packets, "{text}");
        }
        for text in ["7999bit", "1bit", "2tbit", "99999999999999999999tbit"] {
            assert_eq!(Rate::parse(text), bits, "{text}");
        }
    }

    #[test]
    fn bursts_go_with_their_rates() {
        assert_eq!((limit("1000").burst(), limit("10kpps").burst(), limit("1/hour").burst()), (10, 100, 10));
        assert_eq!((limit("8kbit").burst(), limit("100mbit").burst(), limit("0").burst()), (15_140, 125_000, 10));
        assert_eq!(
            (limit("5 burst 100packets"), limit("5 burst 1kpackets")),
            (limit("5 burst 100"), limit("5 burst 1000"))
        );
        assert_eq!(limit("1mbit burst 64kbytes").burst(), 64_000);
        let refused = |text: &str| text.parse::<Limit>().expect_err(text);
        assert_eq!(refused("5 burst 100bytes"), LimitProblem::BurstUnit(Unit::Packets));
        assert_eq!(refused("1mbit burst 100packets"), LimitProblem::BurstUnit(Unit::Bits));
        assert_eq!(refused("5 burst 0"), LimitProblem::SmallBurst(Unit::Packets));
        assert_eq!(refused("1mbit burst 1513"), LimitProblem::SmallBurst(Unit::Bits));
        assert_eq!(refused("5 burst many"), LimitProblem::NoBurst(Unit::Packets));
        assert_eq!(refused("1mbit burst 5kb"), LimitProblem::NoBurst(Unit::Bits));
        assert_eq!(refused("1/hour burst 79"), LimitProblem::LongBurst);
        assert_eq!(refused("8kbit burst 99999999999999999999"), LimitProblem::LongBurst);
        assert_eq!(limit("1/hour burst 78").to_string(), "1/hour burst 78packets");
        // At rate 0, a burst of any size is accepted.
        assert_eq!(limit("0 burst 18446744073709551615").profile(), LimitProfile::CLOSED);
    }

    #[test]
    fn limits_print_as_they_read() {
        for text in
            ["1kpps burst 10packets", "10mbit burst 64kbytes", "7/minute burst 1packets", "0bit burst 15140bytes"]
        {
            assert_eq!(limit(text).to_string(), text);
        }
    }

    #[test]
    fn profiles_never_allow_more_than_the_rate() {
        let profile = |text: &str| limit(text).profile();
        let packets = |per_packet, room| LimitProfile { per_packet, per_byte: 0, room, coarse: 0 };
        assert_eq!(profile("1000"), packets(256_000_000, 2_560_000_000));
        assert_eq!(profile("60/minute burst 1"), packets(TICKS_PER_S, TICKS_PER_S));
        assert_eq!(profile("250mpps burst 1"), packets(1024, 1024));
        assert_eq!(profile("3 burst 1"), packets(TICKS_PER_S / 3 + 1, TICKS_PER_S / 3 + 1), "rounded up");
        let bits = profile("1gbit burst 1514");
        // 8 ns per byte.
        assert_eq!((bits.per_packet, bits.per_byte, bits.room), (0, 8 << 24, 1514 * 8 * 256));
        assert_eq!(bits.cost(1514), bits.room);
    }
}
