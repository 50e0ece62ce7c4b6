//! Named sets of the source as tables of a policy.

use std::collections::BTreeSet;
use std::fmt::Write;

/// Most entries that a table has in the policy itself. Larger ones become list files.
const INLINE_MAX: usize = 24;
/// Words that begin items of a policy, and so confuse a reader as names.
const RESERVED: &[&str] = &["table", "limits", "define", "upstream", "downstream", "inside", "slot", "posture"];

/// A table of a policy.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The name in the policy.
    pub name: String,
    /// Where it comes from, for a comment.
    pub origin: String,
    /// Whether its addresses are IPv6.
    pub is_ipv6: bool,
    /// Whether entries are added while Weir runs.
    pub is_dynamic: bool,
    /// Most entries of a dynamic table.
    pub size: Option<u64>,
    /// After this time an entry leaves a dynamic table.
    pub timeout_s: Option<u64>,
    /// Addresses, prefixes and ranges, each with a comment or none.
    pub entries: Vec<(String, Option<String>)>,
}

impl Table {
    /// The declaration without entries.
    pub fn empty(&self) -> String {
        let kind = if self.is_ipv6 { "ipv6" } else { "ipv4" };
        let mut text = format!("table {} {{ type {kind}", self.name);
        if self.is_dynamic {
            text += "; dynamic";
            let _ = self.size.map(|size| write!(text, "; size {size}"));
            let _ = self.timeout_s.map(|seconds| write!(text, "; timeout {}", time(seconds)));
        }
        text
    }

    /// The declaration, and the list file if the entries are in one.
    pub fn declared(&self, with_files: bool) -> (String, Option<(String, String)>) {
        let mut text = self.empty();
        let mut file = None;
        let is_inline = self.entries.len() <= INLINE_MAX || !with_files;
        match (self.entries.is_empty(), is_inline) {
            (true, _) if self.is_dynamic => {}
            // A table that is neither filled nor dynamic could never match.
            (true, _) => text += "; dynamic",
            (false, true) => {
                let entries: Vec<&str> = self.entries.iter().map(|(entry, _)| entry.as_str()).collect();
                let _ = write!(text, "; elements = {{ {} }}", wrapped(&entries));
            }
            (false, false) => {
                let path = format!("lists/{}.txt", self.name);
                let _ = write!(text, "; file \"{path}\"");
                let mut lines = format!("# {}\n", one_line(&self.origin));
                for (entry, comment) in &self.entries {
                    match comment {
                        Some(comment) => _ = writeln!(lines, "{entry} # {}", one_line(comment)),
                        None => _ = writeln!(lines, "{entry}"),
                    }
                }
                file = Some((path, lines));
            }
        }
        let _ = write!(text, " }}   # {}", one_line(&self.origin));
        (text, file)
    }
}

/// Entries on lines of at most about a hundred characters.
fn wrapped(entries: &[&str]) -> String {
    let mut text = String::new();
    let mut column = 0;
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            text += ", ";
        }
        column += entry.len() + 2;
        if column > 96 {
            text += "\n    ";
            column = entry.len() + 2;
        }
        text += entry;
    }
    text
}

/// A time as policies write it.
pub fn time(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
    let mut rest = seconds.max(1);
    let mut text = String::new();
    for (unit, size) in units {
        if rest >= size {
            let _ = write!(text, "{}{unit}", rest / size);
            rest %= size;
        }
    }
    text
}

/// Text without line ends and control characters: it goes into a comment.
pub fn one_line(text: &str) -> String {
    let clean = text.chars().map(|letter| if letter.is_control() || is_separator(letter) { ' ' } else { letter });
    clean.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Line ends of Unicode, and characters that change the direction of writing.
fn is_separator(letter: char) -> bool {
    matches!(
        letter,
        '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{feff}'
    ) || ('\u{2066}'..='\u{2069}').contains(&letter)
}

/// A name that a policy can use and that no other table has.
pub fn table_name(wanted: &str, taken: &mut BTreeSet<String>) -> String {
    let mut name: String = wanted
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' })
        .collect();
    name = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    if name.is_empty() || name.starts_with(|letter: char| letter.is_ascii_digit()) || RESERVED.contains(&name.as_str())
    {
        name = format!("set_{name}");
    }
    name = name.trim_end_matches('-').to_owned();
    let mut unique = name.clone();
    let mut count = 2;
    while !taken.insert(unique.clone()) {
        unique = format!("{name}_{count}");
        count += 1;
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_unique() {
        let mut taken = BTreeSet::new();
        assert_eq!(table_name("bad.hosts", &mut taken), "bad-hosts");
        assert_eq!(table_name("bad hosts", &mut taken), "bad-hosts_2");
        assert_eq!(table_name("4you", &mut taken), "set_4you");
        assert_eq!(table_name("--", &mut taken), "set_");
    }

    #[test]
    fn times_have_the_units_of_policies() {
        assert_eq!(time(90_061), "1d1h1m1s");
        assert_eq!(time(3600), "1h");
    }
}
