//! Files of captures in text form.

use crate::sample::{Order, Sample};
use std::path::Path;
use weir_test_support::notation;

const MAGIC_US: u32 = 0xa1b2_c3d4;
const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// When the first packet comes, seconds.
const BEGIN_S: f64 = 1_700_000_000.0;
/// The time between packets, seconds.
const STEP_S: f64 = 0.01;

/// A file with its captures.
pub struct Content {
    /// Its lines, and whether each is an outcome.
    pub lines: Vec<(String, bool)>,
    /// The captures.
    pub cases: Vec<Case>,
}

/// A capture, and what Weir is expected to say of it.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// Settings of `tracking`.
    pub tracking: Vec<String>,
    /// The expected lines.
    pub expected: Vec<String>,
    form: Form,
    interfaces: Vec<Interface>,
    packets: Vec<Packet>,
    /// The last line that is not an outcome.
    last_line: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Form {
    is_ng: bool,
    is_big: bool,
    is_ns: bool,
    /// Bytes missing at the end.
    cut: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Interface {
    link: u32,
    fcs: u8,
    snap: u32,
    /// `if_tsresol`.
    resolution: Option<u8>,
    /// `if_tsoffset`, seconds.
    offset_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Enhanced,
    Simple,
    Old,
}

#[derive(Clone, Debug)]
struct Packet {
    interface: u32,
    block: Block,
    bytes: Vec<u8>,
    wire: u32,
    /// Seconds since the first packet, microseconds.
    time_us: u64,
}

impl Content {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut content = Content { lines: Vec::new(), cases: Vec::new() };
        let mut definitions = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            let outcome = trimmed.strip_prefix("= ");
            content.lines.push((line.to_owned(), outcome.is_some()));
            let mut read = || match trimmed.split_once(' ').unwrap_or((trimmed, "")) {
                ("" | "#", _) => Ok(()),
                ("def", definition) => {
                    let (name, value) = definition.split_once(" = ").ok_or("a definition is NAME = PACKET")?;
                    definitions.push((format!("${name}"), value.to_owned()));
                    Ok(())
                }
                ("capture", name) => {
                    content.cases.push(Case { name: name.to_owned(), last_line: index, ..Case::default() });
                    Ok(())
                }
                _ => {
                    let case = content.cases.last_mut().ok_or("a capture begins with its name")?;
                    if let Some(outcome) = outcome {
                        case.expected.push(outcome.to_owned());
                        return Ok(());
                    }
                    case.last_line = index;
                    case.line(trimmed, &definitions)
                }
            };
            read().map_err(|error: String| format!("line {}: {error}", index + 1))?;
        }
        Ok(content)
    }
}

impl Case {
    /// Whether a line is the last one before the outcomes.
    pub fn ends_with(&self, content: &Content, line: &String) -> bool {
        std::ptr::eq(&content.lines[self.last_line].0, line)
    }

    fn line(&mut self, line: &str, definitions: &[(String, String)]) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "pcap" | "pcapng" => self.form(word == "pcapng", rest),
            "interface" => {
                self.interfaces.push(interface(rest)?);
                Ok(())
            }
            "tracking" => {
                self.tracking.push(rest.to_owned());
                Ok(())
            }
            _ => self.packet(line, definitions),
        }
    }

    fn form(&mut self, is_ng: bool, words: &str) -> Result<(), String> {
        self.form.is_ng = is_ng;
        let mut of_interface = Vec::new();
        for word in words.split_whitespace() {
            match word.split_once('=') {
                None if word == "big" => self.form.is_big = true,
                None if word == "ns" => self.form.is_ns = true,
                Some(("cut", bytes)) => self.form.cut = bytes.parse().map_err(|_| format!("cut={bytes}"))?,
                _ => of_interface.push(word),
            }
        }
        if !is_ng {
            self.interfaces.push(interface(&of_interface.join(" "))?);
        }
        Ok(())
    }

    /// `[N: ][simple |old ][HEX | ]PACKET`, or `HEX |` alone.
    fn packet(&mut self, line: &str, definitions: &[(String, String)]) -> Result<(), String> {
        let (interface, line) = match line.split_once(": ") {
            Some((number, rest)) => (number.parse().map_err(|_| format!("interface {number}"))?, rest),
            None => (0, line),
        };
        let (block, line) = match line.split_once(' ') {
            Some(("simple", rest)) => (Block::Simple, rest),
            Some(("old", rest)) => (Block::Old, rest),
            _ => (Block::Enhanced, line),
        };
        let (prefix, text) = match line.split_once('|') {
            Some((prefix, text)) => (hex(prefix.trim())?, text.trim()),
            None => (Vec::new(), line),
        };
        // The longest name first: a name may begin another.
        let mut known: Vec<_> = definitions.iter().collect();
        known.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        let text = known.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
        let after = self.packets.last().map_or(BEGIN_S, |packet| packet.time_us as f64 / 1e6 + STEP_S);
        let packet = match text.is_empty() {
            true => None,
            false => Some(notation::packet(&text).map_err(|error| error.message)?),
        };
        let at_s = packet.as_ref().filter(|_| text.contains(" at=")).map(|packet| packet.time_ns as f64 / 1e9);
        let (bytes, wire) = packet.map_or((Vec::new(), 0), |packet| (packet.bytes, packet.wire));
        let wire = wire + prefix.len() as u32;
        let time_us = (at_s.unwrap_or(after) * 1e6).round() as u64;
        self.packets.push(Packet { interface, block, bytes: [prefix, bytes].concat(), wire, time_us });
        Ok(())
    }

    /// The bytes of the capture.
    pub fn bytes(&self) -> Vec<u8> {
        let order = if self.form.is_big { Order::Big } else { Order::Little };
        let mut bytes = if self.form.is_ng { self.pcapng(order) } else { self.pcap(order) };
        bytes.truncate(bytes.len() - self.form.cut);
        bytes
    }

    fn pcap(&self, order: Order) -> Vec<u8> {
        let Interface { link, fcs, .. } = self.interfaces[0];
        let fcs = if fcs == 0 { 0 } else { u32::from(fcs / 2) << 28 | 1 << 26 };
        let mut sample = Sample::pcap(order, if self.form.is_ns { MAGIC_NS } else { MAGIC_US }, link | fcs);
        for Packet { bytes, wire, time_us, .. } in &self.packets {
            let fraction = (time_us % 1_000_000) as u32 * if self.form.is_ns { 1000 } else { 1 };
            sample.record((time_us / 1_000_000) as u32, fraction, bytes, *wire);
        }
        sample.bytes
    }

    fn pcapng(&self, order: Order) -> Vec<u8> {
        let mut sample = Sample::pcapng(order);
        for Interface { link, fcs, snap, resolution, offset_s } in &self.interfaces {
            let offset = offset_s.map(|seconds| match order {
                Order::Little => seconds.to_le_bytes(),
                Order::Big => seconds.to_be_bytes(),
            });
            let resolution = resolution.map(|resolution| [resolution]);
            let mut options: Vec<(u16, &[u8])> = Vec::new();
            options.extend(resolution.as_ref().map(|value| (9, &value[..])));
            let fcs = [*fcs];
            options.extend((fcs != [0]).then_some((13, &fcs[..])));
            options.extend(offset.as_ref().map(|value| (14, &value[..])));
            sample.interface(*link as u16, *snap, &options);
        }
        for Packet { interface, block, bytes, wire, time_us } in &self.packets {
            let of = &self.interfaces[*interface as usize];
            let time_us = time_us - of.offset_s.unwrap_or(0) * 1_000_000;
            let stamp = match of.resolution {
                Some(9) => time_us * 1000,
                Some(resolution) if resolution & 0x80 != 0 => {
                    (u128::from(time_us) << (resolution & 0x7f)).div_euclid(1_000_000) as u64
                }
                _ => time_us,
            };
            match block {
                Block::Enhanced => sample.enhanced(*interface, stamp, bytes, *wire),
                Block::Simple => sample.simple(bytes, *wire),
                Block::Old => sample.old_packet(*interface as u16, stamp, bytes, *wire),
            };
        }
        sample.bytes
    }
}

/// `link=1 [fcs=4] [snap=N] [resolution=N] [offset=SECONDS]`
fn interface(words: &str) -> Result<Interface, String> {
    let mut interface = Interface::default();
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no setting"))?;
        let wrong = |_| format!("`{word}` is no number");
        match name {
            "link" => interface.link = value.parse().map_err(wrong)?,
            "fcs" => interface.fcs = value.parse().map_err(wrong)?,
            "snap" => interface.snap = value.parse().map_err(wrong)?,
            "resolution" => interface.resolution = Some(value.parse().map_err(wrong)?),
            "offset" => interface.offset_s = Some(value.parse().map_err(wrong)?),
            _ => return Err(format!("`{name}` is no setting")),
        }
    }
    Ok(interface)
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|digit| !digit.is_whitespace()).collect();
    let byte =
        |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).map_err(|_| format!("`{text}`"));
    digits.chunks(2).map(byte).collect()
}
