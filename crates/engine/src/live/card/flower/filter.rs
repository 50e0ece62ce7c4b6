//! Filters of TC flower as messages: drop the packets of one source, in hardware only.
//!
//! ```text
//! RTM_NEWTFILTER   struct tcmsg   u8 family | 3 bytes - | i32 index | u32 handle | u32 parent | u32 pref << 16 | Be16 protocol
//!   TCA_KIND "flower"
//!   TCA_OPTIONS
//!     TCA_FLOWER_ACT [ 1: "gact", a cookie, which counters, struct tc_gact { drop } ]
//!     TCA_FLOWER_FLAGS skip_sw
//!     TCA_FLOWER_KEY_ETH_TYPE, TCA_FLOWER_KEY_IPV4_SRC or TCA_FLOWER_KEY_IPV6_SRC, and its mask of ones
//! ```
//! Numbers are from linux/pkt_cls.h, linux/rtnetlink.h, linux/gen_stats.h and linux/tc_act/tc_gact.h. The filters of
//! one protocol share a preference in chain 0, the only chain in which every card supports filters. The cookie tells
//! whose filter it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::live::os::netlink::{Malformed, Message, attributes, number, word};

const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const CHAIN: u16 = 11;

const FLOWER_ACT: u16 = 3;
const FLOWER_ETH_TYPE: u16 = 8;
const FLOWER_IPV4_SRC: u16 = 10;
const FLOWER_IPV6_SRC: u16 = 14;
const FLOWER_FLAGS: u16 = 22;
const FLOWER_IN_HW_COUNT: u16 = 86;

const ACT_KIND: u16 = 1;
const ACT_OPTIONS: u16 = 2;
const ACT_STATS: u16 = 4;
const ACT_COOKIE: u16 = 6;
const ACT_HW_STATS: u16 = 8;
const GACT_TIME: u16 = 1;
const GACT_PARAMETERS: u16 = 2;

const STATS_BASIC: u16 = 1;
const STATS_BASIC_HW: u16 = 7;
const STATS_PACKETS64: u16 = 8;

/// `TCA_CLS_FLAGS_SKIP_SW`, `_IN_HW` and `_NOT_IN_HW`
const SKIP_SW: u32 = 1 << 1;
const IN_HW: u32 = 1 << 2;
const NOT_IN_HW: u32 = 1 << 3;
/// `TC_ACT_SHOT`
const DROP: u32 = 2;
/// `TC_H_CLSACT`, the number of its queueing discipline, and the hook for received packets.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
const INGRESS: u32 = 0xffff_fff2;
/// Bytes of `struct tcmsg`.
const BODY_BYTES: usize = 20;
/// The kernel counts idle time in hundredths of a second (`USER_HZ`).
const TICK_NS: u64 = 10_000_000;

/// The first half of the cookie of Weir's filters. The second one tells the process.
const COOKIE: [u8; 8] = *b"weircard";

/// Which counters the card has (`TCA_ACT_HW_STATS_IMMEDIATE`, `_DELAYED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// The counters are read from the card when the kernel is asked.
    Immediate,
    /// The driver reads them from time to time.
    Delayed,
}

/// Where filters are: an interface, and the preferences for both protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the interface.
    pub index: u32,
    /// The preference of IPv4 filters. IPv6 filters have the next one.
    pub pref: u16,
    /// A number of the process, which its filters have in their cookies.
    pub owner: u64,
}

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4
    Four,
    /// IPv6
    Six,
}

impl Version {
    /// Both versions.
    pub const BOTH: [Version; 2] = [Version::Four, Version::Six];

    /// The version of an address.
    pub fn of(source: IpAddr) -> Self {
        if source.is_ipv4() { Version::Four } else { Version::Six }
    }

    fn protocol(self) -> u16 {
        match self {
            Version::Four => 0x0800,
            Version::Six => 0x86dd,
        }
    }
}

impl Place {
    /// The preference of a version.
    pub fn pref_of(self, version: Version) -> u16 {
        self.pref + u16::from(version == Version::Six)
    }

    /// Where packets are received.
    pub fn hook(self) -> Message {
        let body = body(self.index, CLSACT_HANDLE, CLSACT, 0);
        let new = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        Message::new(libc::RTM_NEWQDISC, new, &body).put(KIND, b"clsact\0")
    }

    /// Adds a filter.
    pub fn add(self, handle: u32, source: IpAddr, counting: Counting) -> Message {
        let version = Version::of(source);
        let new = (libc::NLM_F_CREATE | libc::NLM_F_EXCL | libc::NLM_F_ECHO) as u16;
        let message = Message::new(libc::RTM_NEWTFILTER, new, &self.filters(handle, version));
        message.put(KIND, b"flower\0").nest(OPTIONS, |options| {
            let options =
                options.nest(FLOWER_ACT, |actions| actions.nest(1, |drop| action(drop, self.owner, counting)));
            let options = options.put(FLOWER_FLAGS, &SKIP_SW.to_ne_bytes());
            let options = options.put(FLOWER_ETH_TYPE, &version.protocol().to_be_bytes());
            match source {
                IpAddr::V4(source) => {
                    options.put(FLOWER_IPV4_SRC, &source.octets()).put(FLOWER_IPV4_SRC + 1, &[0xff; 4])
                }
                IpAddr::V6(source) => {
                    options.put(FLOWER_IPV6_SRC, &source.octets()).put(FLOWER_IPV6_SRC + 1, &[0xff; 16])
                }
            }
        })
    }

    /// Deletes a filter.
    pub fn delete(self, handle: u32, version: Version) -> Message {
        let body = self.filters(handle, version);
        Message::new(libc::RTM_DELTFILTER, libc::NLM_F_ECHO as u16, &body).put(KIND, b"flower\0")
    }

    /// Asks for all filters of a version.
    pub fn list(self, version: Version) -> Message {
        Message::new(libc::RTM_GETTFILTER, 0, &self.filters(0, version)).put(CHAIN, &0_u32.to_ne_bytes())
    }

    fn filters(self, handle: u32, version: Version) -> [u8; BODY_BYTES] {
        let protocol = u16::from_ne_bytes(version.protocol().to_be_bytes());
        body(self.index, handle, INGRESS, u32::from(self.pref_of(version)) << 16 | u32::from(protocol))
    }
}

fn body(index: u32, handle: u32, parent: u32, info: u32) -> [u8; BODY_BYTES] {
    let mut body = [0; BODY_BYTES];
    for (to, word) in body.chunks_exact_mut(4).zip([0, index, handle, parent, info]) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    body
}

/// ```text
/// struct tc_gact   u32 index | u32 capabilities | i32 action | i32 references | i32 bindings
/// ```
fn action(message: Message, owner: u64, counting: Counting) -> Message {
    let counting: u32 = match counting {
        Counting::Immediate => 1,
        Counting::Delayed => 2,
    };
    // struct nla_bitfield32: which are set, and which are meant.
    let which = [counting.to_ne_bytes(), counting.to_ne_bytes()].concat();
    let drop: Vec<u8> = [0, 0, DROP, 0, 0].iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    let cookie = [COOKIE, owner.to_ne_bytes()].concat();
    let message = message.put(ACT_KIND, b"gact\0").put(ACT_COOKIE, &cookie).put(ACT_HW_STATS, &which);
    message.nest(ACT_OPTIONS, |options| options.put(GACT_PARAMETERS, &drop))
}

/// What the card has dropped by a filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
    /// Time since the last one, or since the filter was added, in steps of 10 ms.
    pub idle_ns: u64,
}

/// A filter as the kernel shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Its number among the filters of its preference.
    pub handle: u32,
    /// The source whose packets it drops, if it has one.
    pub source: Option<IpAddr>,
    /// The process whose filter it is, if that is a Weir.
    pub owner: Option<u64>,
    /// Whether a card has it.
    pub is_in_card: bool,
    /// What the card has dropped.
    pub hits: Hits,
}

impl Filter {
    /// Reads a filter from the message about it, without the header. `None` for what stands for all filters of a
    /// preference. Other classifiers have filters without a source.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(message: &[u8]) -> Result<Option<Self>, Malformed> {
        let handle = word(message, 8).ok_or(Malformed)?;
        let rest = message.get(BODY_BYTES..).ok_or(Malformed)?;
        let (mut filter, mut is_flower, mut options) = (Filter { handle, ..Filter::default() }, false, None);
        for attribute in attributes(rest) {
            match attribute? {
                (KIND, name) => is_flower = name == b"flower\0",
                (OPTIONS, value) => options = Some(value),
                _ => {}
            }
        }
        if handle == 0 {
            return Ok(None);
        }
        if let Some(options) = options.filter(|_| is_flower) {
            filter.read_options(options)?;
        }
        Ok(Some(filter))
    }

    fn read_options(&mut self, options: &[u8]) -> Result<(), Malformed> {
        let (mut flags, mut cards) = (0, 0);
        for attribute in attributes(options) {
            let (kind, value) = attribute?;
            match kind {
                FLOWER_FLAGS => flags = word(value, 0).ok_or(Malformed)?,
                FLOWER_IN_HW_COUNT => cards = word(value, 0).ok_or(Malformed)?,
                FLOWER_IPV4_SRC => self.source = Some(IpAddr::V4(Ipv4Addr::from(array::<4>(value)?))),
                FLOWER_IPV6_SRC => self.source = Some(IpAddr::V6(Ipv6Addr::from(array::<16>(value)?))),
                FLOWER_ACT => {
                    for action in attributes(value) {
                        self.read_action(action?.1)?;
                    }
                }
                _ => {}
            }
        }
        self.is_in_card = flags & IN_HW != 0 && flags & NOT_IN_HW == 0 && cards > 0;
        Ok(())
    }

    fn read_action(&mut self, action: &[u8]) -> Result<(), Malformed> {
        for attribute in attributes(action) {
            match attribute? {
                (ACT_COOKIE, cookie) => self.owner = cookie.strip_prefix(&COOKIE).and_then(|rest| number(rest, 0)),
                (ACT_STATS, stats) => self.read_counters(stats)?,
                (ACT_OPTIONS, options) => {
                    for option in attributes(options) {
                        // struct tcf_t: u64 installed | u64 idle | ...
                        if let (GACT_TIME, time) = option? {
                            self.hits.idle_ns = number(time, 8).ok_or(Malformed)?.saturating_mul(TICK_NS);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Counters of the card: u64 bytes | u32 packets. More packets are a number of their own behind them.
    fn read_counters(&mut self, stats: &[u8]) -> Result<(), Malformed> {
        let mut is_of_card = false;
        for attribute in attributes(stats) {
            let (kind, value) = attribute?;
            match kind {
                STATS_BASIC => is_of_card = false,
                STATS_BASIC_HW => {
                    is_of_card = true;
                    self.hits.bytes = number(value, 0).ok_or(Malformed)?;
                    self.hits.packets = word(value, 8).ok_or(Malformed)?.into();
                }
                STATS_PACKETS64 if is_of_card => self.hits.packets = number(value, 0).ok_or(Malformed)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn array<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::{Counting, Filter, Hits, Place, Version};
    use crate::live::os::netlink::Malformed;
    use std::net::IpAddr;

    /// What Linux 6.1 has answered in a guest to [`Place::list`] (`cargo xtask guest`): all filters of a preference,
    /// and one that has dropped a packet of 98 bytes 190 ms before.
    const ALL: &str = "000000000300000000000000f2ffffff080062160b000100666c6f776572000008000b0000000000";
    const ONE: &str = "000000000300000001000000f2ffffff080062160b000100666c6f776572000008000b00000000000401020006000800 \
         0800000008000a000a42000a08000b00ffffffff08001600060000000800560001000000d8000300d400010009000100 \
         676163740000000044000400140001006200000000000000010000000000000014000700620000000000000001000000 \
         0000000018000300000000000000000001000000000000000000000014000600776569726361726404d9f6f201000000 \
         0c00080001000000030000000c00090001000000030000000c000700040000000400000008000a000000000040000200 \
         180002000100000000000000020000000100000001000000240001004d00000000000000130000000000000000000000 \
         000000000000000000000000";
    /// What it was asked to add.
    const ADDED: &str = "a40000002c0008060200000000000000000000000300000001000000f2ffffff080062160b000100666c6f7765720000 \
         74000200500003004c00010009000100676163740000000014000600776569726361726404d9f6f2010000000c000800 \
         01000000010000001c000200180002000000000000000000020000000000000000000000080016000200000006000800 \
         0800000008000a000a42000a08000b00ffffffff";
    const PLACE: Place = Place { index: 3, pref: 5730, owner: 0x1_f2f6_d904 };

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn recorded() -> Filter {
        let hits = Hits { packets: 1, bytes: 98, idle_ns: 190_000_000 };
        let source = Some(IpAddr::from([10, 66, 0, 10]));
        Filter { handle: 1, source, owner: Some(PLACE.owner), is_in_card: true, hits }
    }

    #[test]
    fn a_filter_is_read_as_a_kernel_has_shown_it() {
        assert_eq!(Filter::read(&bytes(ALL)), Ok(None));
        assert_eq!(Filter::read(&bytes(ONE)), Ok(Some(recorded())));
    }

    /// Replaces the first occurrence of some bytes.
    fn replaced(from: &str, to: &str) -> Result<Option<Filter>, Malformed> {
        let hex: String = ONE.chars().filter(char::is_ascii_hexdigit).collect();
        assert!(hex.contains(from), "{from}");
        Filter::read(&bytes(&hex.replacen(from, to, 1)))
    }

    #[test]
    fn a_filter_that_no_card_has_is_not_believed() {
        let not_in_card = Ok(Some(Filter { is_in_card: false, ..recorded() }));
        assert_eq!(replaced("0800160006000000", "080016000a000000"), not_in_card, "skip_sw, not_in_hw");
        assert_eq!(replaced("0800160006000000", "0800160002000000"), not_in_card, "skip_sw");
        assert_eq!(replaced("0800560001000000", "0800560000000000"), not_in_card, "in no card");
        let foreign = Ok(Some(Filter { owner: None, ..recorded() }));
        assert_eq!(replaced("7765697263617264", "7765697263617265"), foreign);
        // Another classifier.
        let other = replaced("666c6f77657200", "666c6f77657300");
        assert_eq!(other, Ok(Some(Filter { handle: 1, ..Filter::default() })));
    }

    #[test]
    fn many_packets_have_a_number_of_their_own() {
        let stats = |parts: &[&str]| bytes(&parts.concat());
        let read = |stats: &[u8]| {
            let mut filter = Filter::default();
            filter.read_counters(stats).map(|()| filter.hits)
        };
        let (software, card) = ("140001000a000000000000000100000000000000", "140007000b000000000000000200000000000000");
        let more = "0c0008000000000001000000";
        let hits = |packets| Ok(Hits { packets, bytes: 11, idle_ns: 0 });
        assert_eq!(read(&stats(&[software, card])), hits(2));
        assert_eq!(read(&stats(&[software, more, card])), hits(2));
        assert_eq!(read(&stats(&[software, card, more])), hits(1 << 32));
        assert_eq!(read(&stats(&["0800070001000000"])), Err(Malformed));
    }

    #[test]
    fn no_answer_is_too_strange() {
        let one = bytes(ONE);
        for end in 0..one.len() {
            let read = Filter::read(&one[..end]);
            assert!(read != Ok(Some(recorded())), "{end}");
        }
        for at in 0..one.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut strange = one.clone();
                strange[at] = value;
                let _any = Filter::read(&strange);
            }
        }
    }

    #[test]
    fn a_request_is_read_as_it_is_meant() {
        for source in ["10.66.0.10", "2001:db8::66"] {
            let source: IpAddr = source.parse().expect("an address");
            let message = PLACE.add(7, source, Counting::Delayed).bytes(1);
            let filter = Filter::read(&message[16..]).expect("it is whole").expect("it is one");
            let expected = Filter { handle: 7, source: Some(source), owner: Some(PLACE.owner), ..Filter::default() };
            assert_eq!(filter, expected);
        }
        let protocols = Version::BOTH.map(|version| PLACE.list(version).bytes(1)[32..36].to_vec());
        assert_eq!(protocols, [[0x08, 0x00, 0x62, 0x16], [0x86, 0xdd, 0x63, 0x16]]);
    }

    #[test]
    fn a_request_has_these_bytes() {
        let request = PLACE.add(1, IpAddr::from([10, 66, 0, 10]), Counting::Immediate);
        assert_eq!(request.bytes(2), bytes(ADDED));
    }
}
