//! Packets in text form: one packet per line, outermost layer first, layers separated by ` / `:
//!
//! ```text
//! eth / vlan id=100 / ip saddr=198.51.100.7 daddr=203.0.113.1 ttl=3 / tcp dport=22 flags=syn / payload 32
//! ip6 / hbh / frag off=0 mf id=7 / udp sport=53 / payload 1400            raw IP: no link header
//! sll / ip len=20 / udp len=4                                             lengths that lie
//! eth / ip ihl=4 / tcp doff=15 / raw 00ff / cut=40 wire=1500              a capture that ends early
//! ```
//!
//! | layer | fields (all have a default) |
//! | --- | --- |
//! | `eth` | `dst src type` |
//! | `vlan` | `id pcp dei type tpid` |
//! | `sll`, `sll2` | `src type` |
//! | `arp` | `op saddr daddr src` |
//! | `ip` | `saddr daddr ttl tos dscp ecn id off mf df rf proto options len version ihl sum` |
//! | `ip6` | `saddr daddr hlim tc dscp ecn flow nh len version` |
//! | `hbh`, `dst`, `mh` | `options nh len` |
//! | `rt` | `type segs data nh len` |
//! | `frag` | `off mf id nh` |
//! | `ah` | `spi seq icv nh len` |
//! | `esp` | `spi seq` |
//! | `tcp` | `sport dport flags seq ack window urg options doff sum` |
//! | `udp` | `sport dport len sum` |
//! | `icmp`, `icmp6` | `type code id seq sum` |
//! | `sctp`, `dccp`, `udplite` | `sport dport` |
//! | `payload N` | N bytes counting up; `fill` for one value |
//! | `raw HEX` | these bytes |
//! | `pad N` | N zeros that no length counts; last |
//! | `cut=N wire=N link=L at=S` | capture only N bytes; length on the wire; link layer of a `raw` packet; seconds; last |
//!
//! Numbers are decimal or `0x`; `off` is in bytes; `options`, `data` and `icv` are hexadecimal and padded to their
//! unit. Lengths, checksums and next protocols are correct unless given. `#` starts a comment.

use crate::args::{self, Args};
use crate::layer::{self, Addresses, Inner};
use crate::{Link, Packet, link, network, transport};

/// Maximum size in bytes of one `payload` or `pad`.
const PAYLOAD_MAX: usize = 1 << 16;

/// An error in the text of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotationError {
    /// Line, counted from 1.
    pub line: usize,
    /// The problem, including the name of the layer.
    pub message: String,
}

impl std::fmt::Display for NotationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for NotationError {}

/// Parses the packets of a text, one per line. Skips blank lines and comments.
pub fn packets(text: &str) -> Result<Vec<Packet>, NotationError> {
    let mut packets = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            packets.push(build(line).map_err(|message| NotationError { line: at + 1, message })?);
        }
    }
    Ok(packets)
}

/// Parses the packet of one line.
pub fn packet(line: &str) -> Result<Packet, NotationError> {
    let one = packets(line)?;
    let count = one.len();
    <[Packet; 1]>::try_from(one)
        .map(|[packet]| packet)
        .map_err(|_| NotationError { line: 1, message: format!("one packet expected, there are {count}") })
}

fn build(line: &str) -> Result<Packet, String> {
    let mut segments: Vec<&str> = line.split('/').map(str::trim).collect();
    let capture = match segments.last() {
        Some(last) if last.split_whitespace().next().is_some_and(|word| word.contains('=')) => segments.pop(),
        _ => None,
    };
    let mut inner = Inner::default();
    let padding = match segments.last() {
        Some(last) if last.starts_with("pad") => take_padding(segments.pop().unwrap_or(""))?,
        _ => Vec::new(),
    };
    let first = segments.first().copied().unwrap_or("");
    for at in (0..segments.len()).rev() {
        inner = add_layer(&segments, at, inner)?;
    }
    let mut packet = Packet::new(link_of(first), [inner.bytes, padding].concat());
    if let Some(capture) = capture {
        apply_capture(&mut packet, capture)?;
    }
    Ok(packet)
}

fn link_of(first: &str) -> Link {
    match first.split_whitespace().next() {
        Some("ip" | "ip6") => Link::RawIp,
        Some("sll") => Link::Cooked,
        Some("sll2") => Link::Cooked2,
        _ => Link::Ethernet,
    }
}

/// Puts the header of layer `at` before the inner layers.
fn add_layer(segments: &[&str], at: usize, inner: Inner) -> Result<Inner, String> {
    let mut args = Args::new(segments[at]);
    let name = args.layer();
    let around = enclosing(&segments[..at])?;
    let mut ether_type = None;
    let header = match name {
        "eth" => link::eth(&mut args, &inner)?,
        "sll" => link::sll(&mut args, &inner)?,
        "sll2" => link::sll2(&mut args, &inner)?,
        "vlan" => {
            let (header, tpid) = link::vlan(&mut args, &inner)?;
            ether_type = Some(tpid);
            header
        }
        "arp" => {
            ether_type = Some(0x0806);
            link::arp(&mut args)?
        }
        "ip" => {
            ether_type = Some(0x0800);
            network::ip(&mut args, &inner)?
        }
        "ip6" => {
            ether_type = Some(0x86dd);
            network::ip6(&mut args, &inner)?
        }
        "hbh" | "dst" | "mh" => network::options(&mut args, &inner)?,
        "rt" => network::routing(&mut args, &inner)?,
        "frag" => network::fragment(&mut args, &inner)?,
        "ah" => network::authentication(&mut args, &inner)?,
        "esp" => transport::esp(&mut args)?,
        "tcp" => transport::tcp(&mut args, &inner, around)?,
        "udp" => transport::udp(&mut args, &inner, around)?,
        "icmp" => transport::icmp(&mut args, &inner, around, 8)?,
        "icmp6" => transport::icmp(&mut args, &inner, around, 128)?,
        "sctp" | "dccp" | "udplite" => transport::other_ports(&mut args)?,
        "payload" => payload(&mut args)?,
        "raw" => raw(&mut args)?,
        "" => return Err("a layer is empty".into()),
        _ => return Err(format!("no layer is called `{name}`")),
    };
    args.finish()?;
    Ok(Inner { bytes: [header, inner.bytes].concat(), ether_type, proto: layer::proto(name) })
}

/// The addresses of the innermost IP header of `outer`.
fn enclosing(outer: &[&str]) -> Result<Option<Addresses>, String> {
    for segment in outer.iter().rev() {
        let mut args = Args::new(segment);
        match args.layer() {
            "ip" => return network::addresses4(&mut args).map(Some),
            "ip6" => return network::addresses6(&mut args).map(Some),
            _ => {}
        }
    }
    Ok(None)
}

fn bare_count(args: &mut Args<'_>) -> Result<usize, String> {
    let layer = args.layer();
    let count = args.bare().and_then(args::number).filter(|count| *count <= PAYLOAD_MAX);
    count.ok_or_else(|| format!("{layer} needs a number of bytes up to {PAYLOAD_MAX}"))
}

fn payload(args: &mut Args<'_>) -> Result<Vec<u8>, String> {
    let count = bare_count(args)?;
    let fill: Option<u8> = args.number("fill")?;
    Ok((0..count).map(|at| fill.unwrap_or(at as u8)).collect())
}

fn raw(args: &mut Args<'_>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(word) = args.bare() {
        bytes.extend(args::hex(word).ok_or_else(|| format!("raw: {word} is not hexadecimal"))?);
    }
    Ok(bytes)
}

fn take_padding(segment: &str) -> Result<Vec<u8>, String> {
    let mut args = Args::new(segment);
    let count = bare_count(&mut args)?;
    args.finish()?;
    Ok(vec![0; count])
}

fn apply_capture(packet: &mut Packet, segment: &str) -> Result<(), String> {
    let mut args = Args::nameless(segment);
    if let Some(name) = args.value("link")? {
        let known = Link::ALL.into_iter().find(|link| link.name() == name);
        packet.link = known.ok_or_else(|| format!("capture: link={name} is none of eth, ip, sll, sll2"))?;
    }
    if let Some(cut) = args.number::<usize>("cut")? {
        packet.bytes.truncate(cut);
    }
    if let Some(wire) = args.number::<u32>("wire")? {
        packet.wire = wire;
    }
    if let Some(seconds) = args.value("at")? {
        let time_ns = nanoseconds(seconds);
        packet.time_ns = time_ns.ok_or_else(|| format!("capture: at={seconds} is no time such as 1.25"))?;
    }
    if (packet.wire as usize) < packet.bytes.len() {
        return Err(format!("capture: wire={} is less than the {} bytes captured", packet.wire, packet.bytes.len()));
    }
    args.finish()
}

/// Parses `1.25` seconds into nanoseconds; at most nine digits follow the point.
fn nanoseconds(seconds: &str) -> Option<u64> {
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(line: &str) -> Vec<u8> {
        packet(line).unwrap_or_else(|error| panic!("{line}: {error}")).bytes
    }

    fn error(text: &str) -> String {
        packets(text).expect_err("it should not read").to_string()
    }

    /// A worked example found in many textbooks.
    #[test]
    fn ipv4_checksum_of_a_known_header() {
        let header = bytes("ip saddr=192.168.0.1 daddr=192.168.0.199 ttl=64 df proto=17 len=115 / payload 0");
        let known = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 192, 168, 0, 1, 192, 168, 0, 199];
        assert_eq!(header, known);
    }

    #[test]
    fn layers_announce_what_follows() {
        let frame = bytes("eth / vlan id=100 pcp=5 / vlan id=7 / ip / udp sport=53 dport=4000 / payload 3");
        assert_eq!(frame[12..22], [0x81, 0, 0xa0, 100, 0x81, 0, 0, 7, 0x08, 0]);
        assert_eq!(frame[22 + 2..22 + 4], [0, 31], "IP length");
        assert_eq!(frame[22 + 9], 17);
        assert_eq!(frame[42..48], [0, 53, 0x0f, 0xa0, 0, 11]);
        assert_eq!(frame.len(), 14 + 8 + 20 + 8 + 3);
    }

    #[test]
    fn transport_checksums_verify() {
        for (line, start, proto) in [
            ("ip saddr=10.0.0.1 daddr=10.0.0.2 / tcp options=020405b4 / payload 9", 20, 6),
            ("ip / udp / payload 10", 20, 17),
            ("ip6 / tcp flags=ack / payload 1", 40, 6),
            ("ip6 / dst / udp / payload 5", 48, 17),
            ("ip6 / icmp6 / payload 5", 40, 58),
        ] {
            let bytes = bytes(line);
            let segments: Vec<&str> = line.split(" / ").collect();
            let around = enclosing(&segments).expect("it reads").expect("there is IP");
            let pseudo = around.pseudo_header(proto, bytes.len() - start);
            assert_eq!(crate::checksum::internet(&[&pseudo, &bytes[start..]]), 0, "{line}");
        }
        assert_eq!(crate::checksum::internet(&[&bytes("ip / icmp / payload 7")[20..]]), 0);
    }

    #[test]
    fn ipv6_extension_headers_chain() {
        let packet = bytes("ip6 / hbh / rt segs=1 / frag mf id=9 / dst options=0104000000000000 / tcp");
        assert_eq!(packet[6], 0);
        assert_eq!(packet[40..42], [43, 0]);
        assert_eq!(packet[48..52], [44, 0, 2, 1]);
        assert_eq!(packet[56..64], [60, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(packet[64..66], [6, 1]);
        assert_eq!(packet.len(), 40 + 8 + 8 + 8 + 16 + 20);
        assert_eq!(bytes("ip6 / ah / udp")[40..42], [17, 4], "RFC 4302: 24 bytes are 6 words, less 2");
        assert_eq!(bytes("ip6")[6], 59, "no next header");
    }

    #[test]
    fn lies_are_written_as_told() {
        let packet = bytes("ip version=5 ihl=4 len=9 off=16 mf rf sum=1 proto=6 / udp len=4 sum=0");
        assert_eq!(packet[0], 0x54);
        assert_eq!(packet[2..4], [0, 9]);
        assert_eq!(packet[6..8], [0xa0, 2]);
        assert_eq!(packet[9..12], [6, 0, 1]);
        assert_eq!(packet[24..28], [0, 4, 0, 0]);
        assert_eq!(bytes("ip / tcp doff=15 flags=0xff")[32..34], [0xf0, 0xff]);
        assert_eq!(bytes("ip options=94040000ff")[0], 0x47, "options are padded to words");
    }

    #[test]
    fn captures_end_early_and_frames_are_padded() {
        let packet = packet("eth / ip / udp / payload 100 / pad 4 / cut=20 wire=200").expect("it reads");
        assert_eq!((packet.bytes.len(), packet.wire), (20, 200));
        let padded = bytes("eth / ip / udp / pad 18");
        assert_eq!((padded.len(), padded[17]), (60, 28), "padding is not counted");
        assert_eq!(super::packet("ip / at=2.0105").map(|packet| packet.time_ns), Ok(2_010_500_000));
    }

    #[test]
    fn the_first_layer_tells_the_link() {
        let links = [("eth", Link::Ethernet), ("ip", Link::RawIp), ("ip6", Link::RawIp), ("sll / ip", Link::Cooked)];
        for (line, link) in links.into_iter().chain([("sll2 / ip6", Link::Cooked2), ("raw 45 / link=ip", Link::RawIp)])
        {
            assert_eq!(packet(line).map(|packet| packet.link), Ok(link), "{line}");
        }
        assert_eq!(bytes("sll / ip")[14..16], [8, 0]);
        assert_eq!(bytes("sll2 / ip")[0..2], [8, 0]);
        assert_eq!((bytes("sll / raw").len(), bytes("sll2 / raw").len()), (16, 20));
    }

    #[test]
    fn a_printed_packet_reads_as_itself() {
        for line in
            ["sll / ip / tcp / cut=30", "ip / at=1.000000007", "ip6 / udp / payload 3", "raw", "eth / arp / wire=1000"]
        {
            let packet = packet(line).expect("it reads");
            assert_eq!(super::packet(&packet.to_string()), Ok(packet), "{line}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(error("ip\n# fine\n\neth / tcpp"), "line 4: no layer is called `tcpp`");
        assert_eq!(error("ip / tcp spotr=1"), "line 1: tcp does not know `spotr`");
        assert_eq!(error("ip / tcp sport=65536"), "line 1: tcp: sport=65536 is no number that fits");
        assert_eq!(
            error("ip / tcp flags=syn,foo"),
            format!("line 1: tcp: foo is no flag of {}", "fin, syn, rst, psh, ack, urg, ece, cwr")
        );
        assert_eq!(error("ip saddr=1.2.3"), "line 1: ip: cannot read saddr=1.2.3");
        assert_eq!(error("ip off=7"), "line 1: ip: off=7 is not a multiple of 8");
        assert_eq!(error("ip / / tcp"), "line 1: a layer is empty");
        assert_eq!(error("ip ttl"), "line 1: ip: ttl needs a value, ttl=...");
        assert_eq!(error("raw 0"), "line 1: raw: 0 is not hexadecimal");
        assert_eq!(error("ip / at=.5s"), "line 1: capture: at=.5s is no time such as 1.25");
        assert_eq!(error("ip / wire=5"), "line 1: capture: wire=5 is less than the 20 bytes captured");
        assert_eq!(error("vlan id=4096"), "line 1: vlan: id=4096 is not below 4096");
        assert_eq!(error("payload 99999999999"), "line 1: payload needs a number of bytes up to 65536");
    }
}
