//! The form of tests/cases: rules with their packets.
//!
//! ```text
//! tcp dport 22 drop
//!   drop    ip / tcp dport=22
//!   accept  ip / tcp dport=23
//!
//! tcp dport < 80 counter
//! udp accept
//!   accept +1   ip / tcp dport=79
//!   accept 2    ip / udp
//! ```
//!
//! A block has rules, then packets, which are indented: the verdict, two spaces, and the packet. A verdict is an action,
//! with `*` if the packet is sampled, and what gave it: the number of a rule in its block, or the name of another
//! reason. Without it, no rule did, or the only one of the block. `+1` is a rule that counts the packet and does not end
//! the chain. Lines above `---` are statements for all blocks of the file.

use crate::{Packet, packets};
use std::path::Path;

/// What follows the statements for all blocks.
const STATEMENTS_END: &str = "---";

/// A block: a chain and the packets that it decides.
#[derive(Default)]
pub struct Block<'a> {
    /// Its rules: their lines, counted from 0.
    pub rules: Vec<usize>,
    /// Its packets, in order.
    pub cases: Vec<Case<'a>>,
}

/// A packet and its verdict.
pub struct Case<'a> {
    /// The line, counted from 0.
    pub line: usize,
    /// The verdict as written.
    pub verdict: &'a str,
    /// The packet in the notation of this crate.
    pub packet: &'a str,
}

/// Number of lines with statements for all blocks, with the line that ends them.
pub fn statements_end(text: &str) -> usize {
    text.lines().position(|line| line == STATEMENTS_END).map_or(0, |line| line + 1)
}

/// The blocks of a file.
///
/// # Errors
/// A line is neither a rule nor a packet, or a rule has no packets.
pub fn blocks(text: &str) -> Result<Vec<Block<'_>>, String> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for (line, whole) in text.lines().enumerate().skip(statements_end(text)) {
        let content = whole.split('#').next().unwrap_or("").trim_end();
        if content.is_empty() {
            continue;
        }
        if !content.starts_with(' ') {
            match blocks.last_mut().filter(|block| block.cases.is_empty()) {
                Some(block) => block.rules.push(line),
                None => blocks.push(Block { rules: vec![line], cases: vec![] }),
            }
            continue;
        }
        let (verdict, packet) = content
            .trim_start()
            .split_once("  ")
            .ok_or_else(|| format!("line {}: two spaces separate the verdict from the packet", line + 1))?;
        let block = blocks.last_mut().ok_or_else(|| format!("line {}: a packet without a rule", line + 1))?;
        block.cases.push(Case { line, verdict, packet: packet.trim_start() });
    }
    match blocks.iter().find(|block| block.cases.is_empty()) {
        Some(block) => Err(format!("line {}: a rule without packets", block.rules[0] + 1)),
        None => Ok(blocks),
    }
}

/// The packets of tests/policies and tests/cases: of all features.
///
/// # Panics
/// If a file cannot be read.
pub fn packets_of_features() -> Vec<Packet> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies in tests");
    let files = |folder: &str| {
        let entries = std::fs::read_dir(tests.join(folder)).expect("the folder is there");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
        paths.sort();
        paths
    };
    let read =
        |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut all = Vec::new();
    for folder in files("policies") {
        all.extend(packets(&read(&folder.join("packets.txt"))).expect("packets.txt reads"));
    }
    for path in files("cases") {
        let text = read(&path);
        for block in blocks(&text).unwrap_or_else(|problem| panic!("{}: {problem}", path.display())) {
            let lines: Vec<&str> = block.cases.iter().map(|case| case.packet).collect();
            all.extend(packets(&lines.join("\n")).expect("the packets read"));
        }
    }
    all
}
