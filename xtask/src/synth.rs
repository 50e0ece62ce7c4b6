//! Synthesizes the card (`hw/rtl`) with yosys, and prints its cells and longest path (`docs/hw.md`). Logs are in
//! `target/synth`.

use crate::shell::{files, run, target_dir};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A part and the profile that is made for it.
struct Part {
    name: &'static str,
    profile: &'static str,
    /// Yosys' command: the hierarchy is flat, and ports are no pins, because a card has them inside.
    synth: &'static str,
    /// The types of cells without state. A path passes through these only.
    logic: &'static str,
}

const PARTS: [Part; 2] = [
    Part {
        name: "xc7",
        profile: "crates/card/profiles/netfpga-sume.card",
        synth: "synth_xilinx -family xc7 -flatten -noiopad -noclkbuf -top card",
        logic: "w:* t:LUT* t:MUXF* t:CARRY4 t:INV",
    },
    Part {
        name: "ecp5",
        profile: "hw/synth/lfe5-85.card",
        synth: "synth_ecp5 -top card",
        logic: "w:* t:LUT4 t:PFUMX t:L6MUX21 t:CCU2C",
    },
];

/// Synthesizes for one part, or for all.
pub fn synthesize_parts(part: Option<&str>) -> Result<(), String> {
    let parts: Vec<&Part> = PARTS.iter().filter(|known| part.is_none_or(|part| part == known.name)).collect();
    if parts.is_empty() {
        return Err(format!("no such part; there are {}", PARTS.map(|part| part.name).join(", ")));
    }
    parts.into_iter().try_for_each(synthesize)
}

fn synthesize(part: &Part) -> Result<(), String> {
    let folder = target_dir().join("synth");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let profile = read(Path::new(part.profile))?;
    let script = script(part, &profile, &sources());
    let log = folder.join(format!("{}.log", part.name));
    run(Command::new("yosys").args(["-q", "-l"]).arg(&log).args(["-p", &script]))?;
    let log = read(&log)?;
    println!("{}: {}", part.name, part.profile);
    for (cell, count) in cells(&log) {
        println!("{}: {count:>7} {cell}", part.name);
    }
    if let Some(levels) = levels(&log) {
        println!("{}: longest path of {levels} cells", part.name);
    }
    Ok(())
}

/// The sources, the package first: modules refer to it.
fn sources() -> Vec<PathBuf> {
    let mut sources = files(Path::new("hw/rtl"), &["sv"]);
    sources.sort_by_key(|path| !path.ends_with("layout.sv"));
    sources
}

fn script(part: &Part, profile: &str, sources: &[PathBuf]) -> String {
    let sources: Vec<_> = sources.iter().map(|path| path.to_string_lossy()).collect();
    let parameters: Vec<_> = parameters(profile).iter().map(|(name, value)| format!("-set {name} {value}")).collect();
    format!(
        "read_verilog -sv {}; chparam {} card; {}; stat; ltp {}",
        sources.join(" "),
        parameters.join(" "),
        part.synth,
        part.logic
    )
}

/// The parameters of the module `card` for a profile.
fn parameters(profile: &str) -> BTreeMap<&'static str, usize> {
    let lines = profile.lines().filter_map(|line| line.split('#').next()?.trim().split_once(char::is_whitespace));
    let number = |value: &str| -> usize {
        match value.trim() {
            "yes" => 1,
            "no" => 0,
            number => number.parse().unwrap_or(0),
        }
    };
    let parameter = |(key, value): (&str, &str)| {
        let value = number(value);
        Some(match key {
            "vlan" => ("VLAN_TAGS", value),
            "options" => ("OPTIONS", value),
            "ip6" => ("IP6", value),
            "patterns" => ("PATTERNS", value),
            "ranges" => ("RANGES", value),
            "rules" => ("RULES", value),
            "counters" => ("COUNTERS", value),
            "lookups" => ("LOOKUPS", value),
            "blocks" => ("BLOCK_BITS", value.max(2).next_power_of_two().ilog2() as usize),
            "metadata" => ("BODY", value / 8),
            _ => return None,
        })
    };
    lines.filter_map(parameter).collect()
}

/// The cells of the last statistics in a log, by name.
fn cells(log: &str) -> Vec<(&str, usize)> {
    let last = log.rsplit("Number of cells:").next().unwrap_or_default();
    let lines = last.lines().skip(1).take_while(|line| line.starts_with("     "));
    lines.filter_map(cell_of).collect()
}

fn cell_of(line: &str) -> Option<(&str, usize)> {
    let (name, count) = line.trim().split_once(char::is_whitespace)?;
    Some((name, count.trim().parse().ok()?))
}

/// The cells on the longest path between registers.
fn levels(log: &str) -> Option<usize> {
    let (_, rest) = log.rsplit_once("(length=")?;
    // Yosys writes -1 if it finds no path.
    rest.split_once(')')?.0.parse().ok()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{cells, levels, parameters};

    #[test]
    fn a_profile_sets_parameters() {
        let found = parameters("# a card\nname of it\nblocks 4096 # many\nmetadata 256\nip6 no\noptions yes\n");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("BLOCK_BITS", 12), ("BODY", 32), ("IP6", 0), ("OPTIONS", 1)]
        );
    }

    #[test]
    fn a_log_has_cells_and_a_path() {
        let log = "   Number of cells:     1\n     OLD      1\n\n   Number of cells:      7\n     FDRE       5\n     LUT6       2\n\nx\nLongest topological path in card (length=12):\n";
        assert_eq!(cells(log), [("FDRE", 5), ("LUT6", 2)]);
        assert_eq!(levels(log), Some(12));
    }
}
