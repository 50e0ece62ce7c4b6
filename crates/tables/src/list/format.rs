//! The formats that lists come in.

/// Format of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// One element per line.
    #[default]
    Plain,
    /// `ipset save`.
    Ipset,
    /// Comma-separated values.
    Csv,
    /// JSON lines, as Spamhaus publishes them.
    JsonLines,
    /// MaxMind DB.
    Mmdb,
}

impl Format {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Plain => "plain",
            Format::Ipset => "ipset save",
            Format::Csv => "CSV",
            Format::JsonLines => "JSON lines",
            Format::Mmdb => "MaxMind DB",
        }
    }
}
