//! Which packets of a recording belong to an attack: a line `N,0` or `N,1` a packet, `N` from 1, 1 for attack.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use weir_command::failure::Failure;
use weir_command::figures::grouped;

/// The labels of all packets. A packet without a line is legitimate.
#[derive(Debug, Default)]
pub struct Labels {
    path: PathBuf,
    /// One a packet, up to the highest number.
    are_attack: Vec<Option<bool>>,
    /// The line of the highest number.
    last_line: u64,
}

/// Labels of packets that the recording does not have.
#[derive(Clone, Debug)]
pub struct Beyond {
    path: PathBuf,
    labels: u64,
    last_packet: u64,
    last_line: u64,
}

/// The highest number of a packet: a bit more than any recording of a few days has.
const PACKETS_MAX: u64 = 1 << 32;
/// Editors of some systems put it in front of a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

impl Labels {
    /// Reads a file. Empty lines, comments (`#`) and a heading are skipped.
    ///
    /// # Errors
    /// The file cannot be read, a line is neither `N,0` nor `N,1`, or a packet has two different labels.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Failure::file(path, error))?;
        let mut labels = Labels { path: path.to_owned(), ..Labels::default() };
        for (at, line) in (1..).zip(BufReader::new(file).lines()) {
            let line = line.map_err(|error| Failure::file(path, error))?;
            let line = if at == 1 { line.trim_start_matches(BYTE_ORDER_MARK) } else { &line }.trim();
            let is_heading = at == 1 && line.starts_with(|first: char| first.is_alphabetic());
            if line.is_empty() || line.starts_with('#') || is_heading {
                continue;
            }
            parse(line)
                .and_then(|(packet, is_attack)| labels.add(packet, is_attack, at))
                .map_err(|problem| Failure::Rejected(format!("{}:{at}: {problem}", path.display())))?;
        }
        Ok(labels)
    }

    fn add(&mut self, packet: usize, is_attack: bool, line: u64) -> Result<(), String> {
        if self.are_attack.len() < packet {
            self.are_attack.resize(packet, None);
            self.last_line = line;
        }
        match self.are_attack[packet - 1].replace(is_attack) {
            Some(before) if before != is_attack => {
                Err(format!("packet {packet} has the label {} on an earlier line", u8::from(before)))
            }
            _ => Ok(()),
        }
    }

    /// Whether a packet belongs to an attack. Packets are numbered from 1.
    pub fn is_attack(&self, packet: u64) -> bool {
        self.are_attack.get(packet as usize - 1).copied().flatten().unwrap_or(false)
    }

    /// The labels that a recording of so many packets has no packets for, if there are any.
    pub fn beyond(&self, packets: u64) -> Option<Beyond> {
        let labels = self.are_attack.get(packets as usize..)?.iter().flatten().count() as u64;
        let (last_packet, last_line) = (self.are_attack.len() as u64, self.last_line);
        (labels > 0).then(|| Beyond { path: self.path.clone(), labels, last_packet, last_line })
    }
}

impl Beyond {
    /// The number of labels.
    pub fn labels(&self) -> u64 {
        self.labels
    }

    /// A note for the report.
    pub fn describe(&self) -> String {
        let Beyond { path, labels, last_packet, last_line } = self;
        let (labels, last_packet) = (grouped(*labels), grouped(*last_packet));
        let path = path.display();
        format!("{path}:{last_line}: packet {last_packet} is behind the last packet; labels without a packet: {labels}")
    }
}

/// The number of a packet, and whether it belongs to an attack.
fn parse(line: &str) -> Result<(usize, bool), String> {
    let expected = || "a line `N,0` or `N,1` is expected".to_owned();
    let (packet, label) = line.split_once(',').ok_or_else(expected)?;
    let (packet, label) = (packet.trim(), label.trim());
    if packet.is_empty() || !packet.bytes().all(|byte| byte.is_ascii_digit()) || !matches!(label, "0" | "1") {
        return Err(expected());
    }
    match packet.parse::<u64>() {
        Ok(0) => Err("packets are numbered from 1".to_owned()),
        Ok(number) if number < PACKETS_MAX => Ok((number as usize, label == "1")),
        _ => Err(format!("the number of a packet is at most {}", grouped(PACKETS_MAX - 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Labels, parse};

    #[test]
    fn lines() {
        assert_eq!((parse("1,0"), parse("7, 1")), (Ok((1, false)), Ok((7, true))));
        for wrong in ["1", "1,2", "x,1", "1,1,1", "-1,1", "1.0,1", ",1", ""] {
            assert_eq!(parse(wrong), Err("a line `N,0` or `N,1` is expected".to_owned()), "{wrong}");
        }
        assert_eq!(parse("0,1"), Err("packets are numbered from 1".to_owned()));
        for large in ["4294967296,1", "99999999999999999999,1"] {
            assert_eq!(parse(large), Err("the number of a packet is at most 4,294,967,295".to_owned()), "{large}");
        }
    }

    #[test]
    fn packets_have_one_label() {
        let mut labels = Labels::default();
        assert_eq!([labels.add(4, false, 1), labels.add(2, true, 2), labels.add(2, true, 3)], [Ok(()), Ok(()), Ok(())]);
        assert_eq!([1, 2, 4, 5].map(|packet| labels.is_attack(packet)), [false, true, false, false]);
        assert_eq!(labels.add(2, false, 4), Err("packet 2 has the label 1 on an earlier line".to_owned()));
        let beyond = [0, 1, 2, 3, 4, 9].map(|packets| labels.beyond(packets).map(|beyond| beyond.labels()));
        assert_eq!(beyond, [Some(2), Some(2), Some(1), Some(1), None, None]);
        assert_eq!(labels.beyond(3).map(|beyond| (beyond.last_packet, beyond.last_line)), Some((4, 1)));
    }
}
