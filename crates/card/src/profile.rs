//! What a card can do: a text of one setting a line.
//!
//! ```text
//! # A comment.
//! name         small open NIC
//! match        protocol sport dport      # fields that patterns compare
//! lookups      6
//! ```
//! All settings must be there, once each. Errors name the line. `docs/guide/hybrid.md` explains the settings.

use crate::field::CardField;
use std::fmt::{self, Display, Formatter};
use weir_abi::card::{BODY_BYTES_MAX, COUNTERS_MAX, LOOKUPS_MAX, PATTERNS_MAX, RANGES_MAX, RULES_MAX, VLAN_TAGS_MAX};
use weir_policy::time::milliseconds;

/// The profiles that come with Weir: name and text.
pub const SHIPPED: [(&str, &str); 2] = [
    ("netfpga-sume", include_str!("../profiles/netfpga-sume.card")),
    ("open-nic", include_str!("../profiles/open-nic.card")),
];

/// Most blocks of a lookup: as many as 16 bits can number.
const BLOCKS_MAX: usize = 1 << 16;
/// Longest name.
const NAME_MAX: usize = 60;

/// A card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name in reports.
    pub name: String,
    /// VLAN tags that the parser passes over.
    pub vlan: usize,
    /// Whether it understands packets with IPv4 options.
    pub options: bool,
    /// Whether it understands IPv6.
    pub ip6: bool,
    /// Fields that patterns compare: what it matches completely.
    pub matches: Vec<CardField>,
    /// Fields whose values it can send: what software need not parse.
    pub carries: Vec<CardField>,
    /// Number of patterns.
    pub patterns: usize,
    /// Number of ranges of a pattern.
    pub ranges: usize,
    /// Number of rules.
    pub rules: usize,
    /// Number of counters of dropped packets. Without any, it drops no packet.
    pub counters: usize,
    /// Number of D16+X4 lookups: pairs of a table and an address of the packet.
    pub lookups: usize,
    /// Extension blocks that a lookup has room for.
    pub blocks: usize,
    /// Bits of a body.
    pub metadata: usize,
    /// Time that a reconfiguration takes, ms.
    pub reconfigure_ms: u64,
}

/// Why a text is no profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError {
    /// The line, from 1. For a missing setting the line behind the last.
    pub line: usize,
    /// What is wrong.
    pub message: String,
}

impl Display for ProfileError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ProfileError {}

/// The settings, in the order in which profiles are printed.
const SETTINGS: [&str; 14] = [
    "name",
    "vlan",
    "options",
    "ip6",
    "match",
    "carry",
    "patterns",
    "ranges",
    "rules",
    "counters",
    "lookups",
    "blocks",
    "metadata",
    "reconfigure",
];

impl Profile {
    /// The text of the profile with a name that comes with Weir.
    pub fn shipped(name: &str) -> Option<&'static str> {
        SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// The parameters of the RTL's module `card` (`hw/rtl/card.sv`), by name.
    pub fn parameters(&self) -> [(&'static str, usize); 10] {
        [
            ("VLAN_TAGS", self.vlan),
            ("OPTIONS", self.options.into()),
            ("IP6", self.ip6.into()),
            ("PATTERNS", self.patterns),
            ("RANGES", self.ranges),
            ("RULES", self.rules),
            ("COUNTERS", self.counters),
            ("LOOKUPS", self.lookups),
            ("BLOCK_BITS", self.blocks.max(2).next_power_of_two().ilog2() as usize),
            ("BODY", self.metadata / 8),
        ]
    }

    /// Reads a profile.
    ///
    /// # Errors
    /// The first line that is wrong, or the first setting that is missing.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut values: [Option<&str>; SETTINGS.len()] = [None; SETTINGS.len()];
        let mut profile = Profile {
            name: String::new(),
            vlan: 0,
            options: false,
            ip6: false,
            matches: vec![],
            carries: vec![],
            patterns: 0,
            ranges: 0,
            rules: 0,
            counters: 0,
            lookups: 0,
            blocks: 0,
            metadata: 0,
            reconfigure_ms: 0,
        };
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.split('#').next().unwrap_or_default().trim();
            if content.is_empty() {
                continue;
            }
            let error = |message| ProfileError { line, message };
            let (key, value) = content.split_once(char::is_whitespace).unwrap_or((content, ""));
            let index = SETTINGS.iter().position(|known| *known == key).ok_or_else(|| {
                error(format!("`{}` is no setting; the settings are {}", key.escape_debug(), SETTINGS.join(", ")))
            })?;
            if values[index].replace(value).is_some() {
                return Err(error(format!("`{key}` is set twice")));
            }
            profile.set(key, value.trim()).map_err(error)?;
        }
        match SETTINGS.iter().zip(values).find(|(_, value)| value.is_none()) {
            Some((missing, _)) => {
                Err(ProfileError { line: text.lines().count() + 1, message: format!("`{missing}` is missing") })
            }
            None => Ok(profile),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "name" if value.is_empty() || value.len() > NAME_MAX || value.contains(char::is_control) => {
                return Err(format!("a name has 1 to {NAME_MAX} characters"));
            }
            "name" => self.name = value.to_owned(),
            "options" => self.options = yes_or_no(key, value)?,
            "ip6" => self.ip6 = yes_or_no(key, value)?,
            "match" => self.matches = fields(key, value, |_| true)?,
            "carry" => self.carries = fields(key, value, |field| field.carried().is_some())?,
            "reconfigure" => {
                self.reconfigure_ms =
                    milliseconds(value).filter(|_| !value.is_empty()).ok_or("`reconfigure` is a time: `10ms`, `2s`")?;
            }
            _ => {
                let (setting, max) = match key {
                    "vlan" => (&mut self.vlan, VLAN_TAGS_MAX),
                    "patterns" => (&mut self.patterns, PATTERNS_MAX),
                    "ranges" => (&mut self.ranges, RANGES_MAX),
                    "rules" => (&mut self.rules, RULES_MAX),
                    "counters" => (&mut self.counters, COUNTERS_MAX),
                    "lookups" => (&mut self.lookups, LOOKUPS_MAX),
                    "blocks" => (&mut self.blocks, BLOCKS_MAX),
                    _ => (&mut self.metadata, 8 * BODY_BYTES_MAX),
                };
                let number = value.parse().ok().filter(|number| *number <= max);
                *setting = number.ok_or_else(|| format!("`{key}` is a number from 0 to {max}"))?;
            }
        }
        Ok(())
    }
}

/// The profile as text that reads as the same profile.
impl Display for Profile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let names = |fields: &[CardField]| fields.iter().map(|field| field.name()).collect::<Vec<_>>().join(" ");
        let values = [
            self.name.clone(),
            self.vlan.to_string(),
            yes(self.options),
            yes(self.ip6),
            names(&self.matches),
            names(&self.carries),
            self.patterns.to_string(),
            self.ranges.to_string(),
            self.rules.to_string(),
            self.counters.to_string(),
            self.lookups.to_string(),
            self.blocks.to_string(),
            self.metadata.to_string(),
            format!("{}ms", self.reconfigure_ms),
        ];
        SETTINGS.iter().zip(values).try_for_each(|(key, value)| writeln!(f, "{}", format!("{key:<12} {value}").trim()))
    }
}

fn yes_or_no(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{key}` is `yes` or `no`")),
    }
}

fn fields(key: &str, value: &str, can_be: impl Fn(CardField) -> bool) -> Result<Vec<CardField>, String> {
    let mut fields = Vec::new();
    for name in value.split_whitespace() {
        let field = CardField::from_name(name).filter(|field| can_be(*field)).ok_or_else(|| {
            let known = CardField::ALL.iter().filter(|(field, _)| can_be(*field)).map(|(_, name)| *name);
            format!("`{key}` has no field `{}`; it has {}", name.escape_debug(), known.collect::<Vec<_>>().join(", "))
        })?;
        if fields.contains(&field) {
            return Err(format!("`{key}` has `{name}` twice"));
        }
        fields.push(field);
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_profiles_read_and_print() {
        for (name, text) in SHIPPED {
            let profile = Profile::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(Profile::parse(&profile.to_string()).as_ref(), Ok(&profile), "{name}");
        }
        assert!(Profile::shipped("open-nic").is_some() && Profile::shipped("other").is_none());
    }

    #[test]
    fn errors_name_the_line() {
        let (_, text) = SHIPPED[0];
        let line_of = |key: &str| text.lines().position(|line| line.starts_with(key)).expect("it is there") + 1;
        let wrong = |key: &str, instead: &str| {
            let lines = text.lines().map(|line| if line.starts_with(key) { instead } else { line });
            let error = Profile::parse(&lines.collect::<Vec<_>>().join("\n")).expect_err(instead);
            (error.line, error.message)
        };
        for (key, instead, message) in [
            ("vlan", "vlan 3", "`vlan` is a number from 0 to 2"),
            ("patterns", "patterns many", "`patterns` is a number from 0 to 64"),
            ("metadata", "metadata 449", "`metadata` is a number from 0 to 448"),
            ("options", "options", "`options` is `yes` or `no`"),
            (
                "match",
                "match sport port",
                "`match` has no field `port`; it has protocol, sport, dport, tcp-flags, saddr, daddr, ttl, length, icmp-type, icmp-code, vlan-id, tcp-window",
            ),
            ("carry", "carry ttl", "`carry` has no field `ttl`; it has protocol, sport, dport, saddr, daddr"),
            ("carry", "carry sport sport", "`carry` has `sport` twice"),
            ("reconfigure", "reconfigure soon", "`reconfigure` is a time: `10ms`, `2s`"),
            ("name", "name", "a name has 1 to 60 characters"),
        ] {
            assert_eq!(wrong(key, instead), (line_of(key), message.to_owned()));
        }
        let (line, message) = wrong("ip6", "ipv6 yes");
        assert_eq!(line, line_of("ip6"));
        assert!(message.starts_with("`ipv6` is no setting; the settings are name, vlan, "), "{message}");
        assert_eq!(wrong("ip6", "vlan 1"), (line_of("ip6"), "`vlan` is set twice".to_owned()));
        assert_eq!(wrong("lookups", ""), (text.lines().count() + 1, "`lookups` is missing".to_owned()));
    }
}
