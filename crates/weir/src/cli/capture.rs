//! The command line of `weir ctl capture`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use weir_command::values::time;

/// `weir ctl capture`
#[derive(Clone, Debug, Args)]
pub struct CaptureOptions {
    /// Packets that this rule of the active policy decides, by place (`edge.weir:26`), text, or both, as `ctl stats`
    /// shows them. If another policy is activated, the rule is found in it by its text.
    #[arg(long, value_name = "RULE", conflicts_with = "reason")]
    pub rule: Option<String>,
    /// Packets with this built-in reason (`limit`, `malformed-tcp`).
    #[arg(long, value_name = "REASON")]
    pub reason: Option<String>,
    /// Packets for which these matches hold (`ip saddr 192.0.2.0/24 udp`), as in rules of slots. They are tested on
    /// copies.
    #[arg(long = "where", value_name = "MATCH")]
    pub matches: Option<String>,
    /// Packets with this action only. Can be repeated.
    #[arg(long, value_name = "ACTION")]
    pub action: Vec<CapturedAction>,
    /// Packets that arrive on this side only.
    #[arg(long, value_name = "SIDE")]
    pub side: Option<CapturedSide>,
    /// One packet in N, chosen by chance.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub every: Option<u32>,
    /// The first N bytes of each packet. Without it, up to 9216.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub snap: Option<u32>,
    /// Copy at most N packets a second.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub budget: u32,
    /// End after N packets. Without it and --duration, the capture ends with Ctrl-C.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// End after this time (`30s`, `5m`).
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub duration: Option<Duration>,
    /// The pcapng file; `-` is standard output.
    #[arg(short = 'o', long = "out", value_name = "FILE")]
    pub output: PathBuf,
    /// Begin another file before one becomes larger (`100MB`). Their names have numbers: `x-0001.pcapng`.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub rotate: Option<u64>,
    /// Keep the newest N files, and delete older ones of this capture.
    #[arg(long, value_name = "N", requires = "rotate", value_parser = clap::value_parser!(u32).range(1..))]
    pub files: Option<u32>,
}

/// An action of captured packets.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs, reason = "each variant has the name of its action")]
pub enum CapturedAction {
    Accept,
    Drop,
    Divert,
    Reply,
}

/// The side on which captured packets arrive.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[allow(missing_docs, reason = "each variant has the name of its side")]
pub enum CapturedSide {
    Lower,
    Upper,
}

/// The smallest size of files.
const SIZE_MIN: u64 = 64_000;

/// A size in bytes: `500kB`, `100MB`, `2GB`, or a number.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        _ => return Err("a size such as 500kB, 100MB or 2GB".to_owned()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    bytes.filter(|&bytes| bytes >= SIZE_MIN).ok_or_else(|| format!("a size from {SIZE_MIN} bytes on, such as 100MB"))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            ["64000", "500kB", "100MB", "2 GB", "1g"].map(size),
            [64_000, 500_000, 100_000_000, 2_000_000_000, 1_000_000_000].map(Ok)
        );
        assert!(["", "MB", "12", "5TB", "-1MB", "99999999999GB", "63kB"].iter().all(|text| size(text).is_err()));
    }
}
