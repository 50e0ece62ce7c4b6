//! Scripts of packets for the tests of tracking: packets with direction and time, and the state that is expected of
//! each.
//!
//! ```text
//! tracking pickup off; size 64                           settings, for the whole file
//! rule tcp dport 9 drop                                  rules before those that show the state, in both directions
//! case a server answers
//! +0    > S seq=100 wscale=7 sackok      : new in syn-sent
//! +0.1  < SA seq=500 ack=101 / payload 0 : established in syn-recv
//! +0    > A seq=101 ack=901              : bad-ack
//! +120  > ip saddr=192.0.2.1 daddr=198.51.100.1 / udp    : new
//! ```
//! A packet begins with the seconds since the packet before it, and `>` (upstream, from the client) or `<` (downstream,
//! from the server). It is a packet in the usual notation ([`crate::notation`]), or a TCP segment between 192.0.2.1
//! port 40000 and 198.51.100.1 port 80. A segment has flags (letters of `FSRPAUEC`, or `-`), the fields of `tcp`, and
//! the options `mss=N`, `wscale=N`, `sackok`, `sack=A-B` and `ts=VALUE,ECHO`.
//!
//! Behind ` : ` comes `new`, `established`, `related` or `untracked`; a reason (`bad-ack`); or `drop` or `accept`, the
//! verdict of a `rule`. `in STATES` lists the states of all flows after the packet, sorted, or `none`.
//!
//! Lines between `each 1-9` and `end` are repeated for each number, which takes the place of `$`.

use crate::{Packet, notation};

/// A file of scripts.
#[derive(Clone, Debug)]
pub struct Script {
    /// The settings of `tracking`.
    pub settings: Vec<String>,
    /// The rules before those that show the state.
    pub rules: Vec<String>,
    /// The cases. Each begins without flows.
    pub cases: Vec<Case>,
}

/// A case of a script.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Its packets.
    pub steps: Vec<Step>,
}

/// A packet of a case.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Whether it goes upstream.
    pub is_upstream: bool,
    /// The packet, with its time.
    pub packet: Packet,
    /// The expected state, reason or verdict.
    pub expected: String,
    /// The expected states of all flows.
    pub flows: Option<Vec<String>>,
}

/// Time of the first packet, ns. All clocks of a case begin here.
const START_NS: u64 = 1_000_000_000_000;

/// Parses a file. The error names the line.
pub fn script(text: &str) -> Result<Script, String> {
    let mut script = Script { settings: vec![], rules: vec![], cases: vec![] };
    let mut time_ns = START_NS;
    for (line, content) in repeated(text)? {
        let (word, rest) = content.split_once(char::is_whitespace).unwrap_or((&content, ""));
        match word {
            "" => {}
            "tracking" => script.settings.push(rest.to_owned()),
            "rule" => script.rules.push(rest.to_owned()),
            "case" => {
                time_ns = START_NS;
                script.cases.push(Case { name: rest.to_owned(), steps: vec![] });
            }
            _ => {
                let (delay_ns, step) = step(line, word, rest).map_err(|error| format!("line {line}: {error}"))?;
                time_ns += delay_ns;
                let case = script.cases.last_mut().ok_or_else(|| format!("line {line}: a packet before a case"))?;
                case.steps.push(Step { packet: Packet { time_ns, ..step.packet }, ..step });
            }
        }
    }
    Ok(script)
}

/// The lines with their numbers, without comments. Those between `each A-B` and `end` are repeated for each number,
/// which takes the place of `$`.
fn repeated(text: &str) -> Result<Vec<(usize, String)>, String> {
    let mut lines = Vec::new();
    let mut open: Option<(std::ops::RangeInclusive<u32>, usize)> = None;
    for (line, written) in (1..).zip(text.lines()) {
        let content = written.split('#').next().unwrap_or("").trim();
        if let Some(range) = content.strip_prefix("each ") {
            let range = range.split_once('-').and_then(|(a, b)| Some(a.parse().ok()?..=b.parse().ok()?));
            open = Some((range.ok_or_else(|| format!("line {line}: `{content}` is no range"))?, lines.len()));
        } else if content == "end" {
            let (range, begin) = open.take().ok_or_else(|| format!("line {line}: `end` without `each`"))?;
            let body = lines.split_off(begin);
            for number in range {
                let repeat = |(line, content): &(usize, String)| (*line, content.replace('$', &number.to_string()));
                lines.extend(body.iter().map(repeat));
            }
        } else {
            lines.push((line, content.to_owned()));
        }
    }
    Ok(lines)
}

fn step(line: usize, delay: &str, rest: &str) -> Result<(u64, Step), String> {
    let seconds = delay.strip_prefix('+').and_then(|seconds| seconds.parse::<f64>().ok());
    let seconds = seconds.ok_or_else(|| format!("`{delay}` is no time such as +0.1"))?;
    let (packet, expected) = rest.split_once(" : ").ok_or("the expected state is missing, behind ` : `")?;
    let (direction, packet) = packet.trim().split_once(' ').ok_or("a direction and a packet are expected")?;
    let is_upstream = match direction {
        ">" => true,
        "<" => false,
        _ => return Err(format!("`{direction}` is neither `>` nor `<`")),
    };
    let packet = packet.trim();
    let full = ["ip ", "ip6 ", "eth"].iter().any(|layer| packet.starts_with(layer));
    let text = if full { packet.to_owned() } else { segment(is_upstream, packet)? };
    let packet = notation::packet(&text).map_err(|error| error.message)?;
    let (expected, flows) = match expected.split_once(" in ") {
        Some((expected, flows)) => (expected, Some(flows)),
        None => (expected, None),
    };
    let names = |flows: &str| match flows.trim() {
        "none" => vec![],
        flows => flows.split(',').map(|name| name.trim().to_owned()).collect(),
    };
    let step = Step { line, is_upstream, packet, expected: expected.trim().to_owned(), flows: flows.map(names) };
    Ok(((seconds * 1e9) as u64, step))
}

/// The packet, in the usual notation, that a TCP segment between client and server stands for.
pub fn segment(is_upstream: bool, text: &str) -> Result<String, String> {
    let (header, payload) = text.split_once('/').map_or((text, String::new()), |(h, p)| (h, format!(" /{p}")));
    let mut words = header.split_whitespace();
    let letters = words.next().unwrap_or("");
    let names = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
    let known = "FSRPAUEC";
    let letters = if letters == "-" { "" } else { letters };
    let flags = letters.chars().map(|letter| known.find(letter).map(|at| names[at])).collect::<Option<Vec<_>>>();
    let flags = flags.ok_or_else(|| format!("`{letters}` are no flags of {known}"))?;
    let flags = if flags.is_empty() { "none".to_owned() } else { flags.join(",") };
    let (mut fields, mut options) = (String::new(), String::new());
    for word in words {
        match word.split_once('=') {
            Some(("mss", size)) => {
                let size: u16 = size.parse().map_err(|_| format!("{word} is no size"))?;
                options += &format!("0204{size:04x}");
            }
            Some(("ts", stamps)) => {
                let (value, echo) = stamps.split_once(',').ok_or_else(|| format!("{word} are no timestamps"))?;
                let stamp = |text: &str| text.parse::<u32>().map_err(|_| format!("{word} are no timestamps"));
                options += &format!("0101080a{:08x}{:08x}", stamp(value)?, stamp(echo)?);
            }
            Some(("wscale", shift)) => {
                let shift: u8 = shift.parse().map_err(|_| format!("{word} is no shift"))?;
                options += &format!("010303{shift:02x}");
            }
            Some(("sack", edges)) => {
                let (from, to) = edges.split_once('-').ok_or_else(|| format!("{word} is no block"))?;
                let edge = |text: &str| text.parse::<u32>().map_err(|_| format!("{word} is no block"));
                options += &format!("0101050a{:08x}{:08x}", edge(from)?, edge(to)?);
            }
            None if word == "sackok" => options += "04020101",
            _ => fields += &format!(" {word}"),
        }
    }
    if !options.is_empty() {
        fields += &format!(" options={options}");
    }
    let (addresses, ports) = match is_upstream {
        true => ("saddr=192.0.2.1 daddr=198.51.100.1", "sport=40000 dport=80"),
        false => ("saddr=198.51.100.1 daddr=192.0.2.1", "sport=80 dport=40000"),
    };
    let ports = if fields.contains("port=") { "" } else { ports };
    Ok(format!("ip {addresses} / tcp {ports} flags={flags}{fields}{payload}"))
}

#[cfg(test)]
mod tests {
    use super::script;

    #[test]
    fn segments_and_packets() {
        let text = "tracking size 64\ncase one\n+0 > S seq=1 wscale=7 sackok : new in syn-sent\n\
                    +1.5 < ip / udp : drop in none # why\n";
        let script = script(text).expect("it reads");
        assert_eq!(script.settings, ["size 64"]);
        let [first, second] = &script.cases[0].steps[..] else { panic!("two packets") };
        assert_eq!((first.is_upstream, second.is_upstream), (true, false));
        assert_eq!(second.packet.time_ns - first.packet.time_ns, 1_500_000_000);
        assert_eq!((first.expected.as_str(), second.expected.as_str()), ("new", "drop"));
        assert_eq!(first.flows, Some(vec!["syn-sent".to_owned()]));
        assert_eq!(second.flows, Some(vec![]));
        assert_eq!(first.packet.bytes[40..48], [1, 3, 3, 7, 4, 2, 1, 1]);
    }

    #[test]
    fn errors_name_the_line() {
        let error = |text: &str| script(text).expect_err("it is wrong");
        assert_eq!(error("+0 > S : new"), "line 1: a packet before a case");
        assert_eq!(error("case\n+0 > S seq=1"), "line 2: the expected state is missing, behind ` : `");
        assert_eq!(error("case\n+0 > X : new"), "line 2: `X` are no flags of FSRPAUEC");
        assert_eq!(error("case\n0 > S : new"), "line 2: `0` is no time such as +0.1");
        assert_eq!(error("case\n+0 - S : new"), "line 2: `-` is neither `>` nor `<`");
    }
}
