//! Which packets of a recording belong to an attack: a line `N,0` or `N,1` a packet, `N` from 1, 1 for attack.

use crate::failure::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// The labels of all packets. A packet without a line is legitimate.
#[derive(Debug, Default)]
pub struct Labels {
    attack: Vec<bool>,
}

/// The highest number of a packet: a bit more than any recording of a few days has.
const PACKETS_MAX: usize = 1 << 32;

impl Labels {
    /// Reads a file. Empty lines, comments (`#`) and a heading are skipped.
    ///
    /// # Errors
    /// The file cannot be read, or a line is neither `N,0` nor `N,1`.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let file = File::open(path).map_err(|error| Failure::file(path, error))?;
        let mut labels = Labels::default();
        for (at, line) in (1..).zip(BufReader::new(file).lines()) {
            let line = line.map_err(|error| Failure::file(path, error))?;
            let line = line.trim();
            let is_heading = at == 1 && line.starts_with(|first: char| first.is_alphabetic());
            if line.is_empty() || line.starts_with('#') || is_heading {
                continue;
            }
            let Some((packet, is_attack)) = parse(line) else {
                return Err(Failure::Rejected(format!("{}:{at}: a line `N,0` or `N,1` is expected", path.display())));
            };
            if labels.attack.len() < packet {
                labels.attack.resize(packet, false);
            }
            labels.attack[packet - 1] = is_attack;
        }
        Ok(labels)
    }

    /// Whether a packet belongs to an attack. Packets are numbered from 1.
    pub fn is_attack(&self, packet: u64) -> bool {
        self.attack.get(packet as usize - 1).copied().unwrap_or(false)
    }
}

fn parse(line: &str) -> Option<(usize, bool)> {
    let (packet, label) = line.split_once(',')?;
    let packet = packet.trim().parse().ok().filter(|packet| (1..PACKETS_MAX).contains(packet))?;
    match label.trim() {
        "0" => Some((packet, false)),
        "1" => Some((packet, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Labels, parse};

    #[test]
    fn lines() {
        assert_eq!((parse("1,0"), parse("7, 1")), (Some((1, false)), Some((7, true))));
        for wrong in ["0,1", "1", "1,2", "x,1", "1,1,1", "99999999999,1", ""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        let labels = Labels { attack: vec![false, true] };
        assert_eq!([1, 2, 3].map(|packet| labels.is_attack(packet)), [false, true, false]);
    }
}
