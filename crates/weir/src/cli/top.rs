//! The command line of `weir top`.

use clap::Args;
use std::path::PathBuf;
use weir_control::DEFAULT_PATH;

/// `weir top`
#[derive(Debug, Args)]
pub struct TopOptions {
    /// The control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    pub control: PathBuf,
    /// Play a recording (`--record`) instead of watching a running Weir.
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    pub from: Option<PathBuf>,
    /// Record what is shown into this file, as JSON lines. Without a terminal, only record, until SIGINT or SIGTERM.
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Print one screen as text, after a second; the last one of a recording.
    #[arg(long, group = "printed")]
    pub once: bool,
    /// With --once: print one JSON object, which is a line of a recording.
    #[arg(long, requires = "once")]
    pub json: bool,
    /// Draw a recording into this file as a moving picture (SVG).
    #[arg(long, value_name = "FILE", group = "printed", requires = "from", conflicts_with = "record")]
    pub picture: Option<PathBuf>,
    /// With --picture: texts above the screen. Each line has the time at which its text begins, seconds since 1970.
    #[arg(long, value_name = "FILE", requires = "picture")]
    pub captions: Option<PathBuf>,
    /// With --once and --picture: columns and lines of the screen.
    #[arg(long, value_name = "COLUMNSxLINES", default_value = "80x24", requires = "printed", value_parser = size)]
    pub size: (u16, u16),
    /// Use no colours. They are also not used if NO_COLOR is set, or TERM is `dumb`.
    #[arg(long)]
    pub no_color: bool,
}

/// `80x24`
fn size(text: &str) -> Result<(u16, u16), String> {
    let parts = text.split_once('x').and_then(|(columns, lines)| Some((columns.parse().ok()?, lines.parse().ok()?)));
    let is_sane = |&(columns, lines): &(u16, u16)| (1..=1000).contains(&columns) && (1..=1000).contains(&lines);
    parts.filter(is_sane).ok_or_else(|| "write columns and lines, at most 1000: `80x24`".to_owned())
}
