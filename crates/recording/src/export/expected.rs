//! What a replay is expected to count: `expected.json`, which `weir replay --expect` compares with.
//!
//! ```json
//! {"about": {"attack": "udp-flood", "victim": "192.0.2.1"},
//!  "inside": ["192.0.2.0/24"], "posture": null,
//!  "counts": {"packets": 2640, "passed": 420, "dropped": 2220},
//!  "rules": [{"rule": "ip daddr 192.0.2.1 udp sport 53 counter drop", "packets": 2220}]}
//! ```
//! Only what the file has is compared, so a count or rule that does not matter can be removed from it. Rules are found
//! by their text, because lines move.

use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use weir_command::failure::Failure;
use weir_command::figures::{cut, grouped};
use weir_command::inside::Inside;
use weir_command::options::{ChainOptions, DirectionName};
use weir_control::RuleCount;

/// Most differences that a message lists.
const SHOWN: usize = 10;
/// Most characters of a rule that a message shows.
const RULE_CHARACTERS: usize = 200;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expected {
    /// What was exported, for people.
    pub about: About,
    /// Prefixes whose packets go downstream; without them all packets go upstream.
    pub inside: Vec<String>,
    /// The posture.
    pub posture: Option<String>,
    /// Rules that are put into slots first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotRules>,
    /// The expected counts.
    pub counts: Counts,
    /// Rules with the packets that match them.
    pub rules: Vec<RuleExpected>,
}

/// What was exported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// The kind of the attack.
    pub attack: String,
    /// The victim.
    pub victim: String,
    /// When it was detected, RFC 3339.
    pub detected: String,
    /// The rules against it.
    pub rules: Vec<String>,
    /// The blocked sources.
    pub sources: Vec<String>,
    /// Packets of the victim since the detection. The capture contains some of them.
    pub packets_seen: u64,
    /// What the exported policy lacks, or has a part of.
    pub notes: Vec<String>,
}

/// A rule of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotRules {
    /// The slot.
    pub slot: String,
    /// The rule.
    pub rule: String,
}

/// Counts of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Counts {
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diverted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replied: Option<u64>,
}

/// A rule with its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleExpected {
    /// The rule, as the policy has it.
    pub rule: String,
    /// Packets that match it.
    pub packets: u64,
}

/// The rules of a policy with their counts. Rules with the same text are one.
pub fn rules(counted: &[RuleCount]) -> Vec<RuleExpected> {
    let mut rules: Vec<RuleExpected> = Vec::new();
    for RuleCount { rule, packets, .. } in counted {
        match rules.iter_mut().find(|known| known.rule == *rule) {
            Some(known) => known.packets += packets,
            None => rules.push(RuleExpected { rule: rule.clone(), packets: *packets }),
        }
    }
    rules
}

/// A count that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `dropped`, or a rule.
    pub what: String,
    /// What the file has.
    pub expected: u64,
    /// What was counted; `null` if the policy has no such rule.
    pub counted: Option<u64>,
}

impl Counts {
    /// Packets, bytes, and packets that were passed, dropped, diverted and answered.
    pub fn new([packets, bytes, passed, dropped, diverted, replied]: [u64; 6]) -> Self {
        Counts {
            packets: Some(packets),
            bytes: Some(bytes),
            passed: Some(passed),
            dropped: Some(dropped),
            diverted: Some(diverted),
            replied: Some(replied),
        }
    }

    fn named(&self) -> [(&'static str, Option<u64>); 6] {
        [
            ("packets", self.packets),
            ("bytes", self.bytes),
            ("passed", self.passed),
            ("dropped", self.dropped),
            ("diverted", self.diverted),
            ("replied", self.replied),
        ]
    }
}

impl Expected {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, is not such a file, or expects nothing.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let rejected = |problem: String| Failure::Rejected(format!("weir: {}: {problem}", path.display()));
        let text = fs::read_to_string(path).map_err(|error| rejected(error.to_string()))?;
        let expected: Expected = serde_json::from_str(&text).map_err(|error| rejected(error.to_string()))?;
        let is_empty = expected.counts == Counts::default() && expected.rules.is_empty();
        if is_empty {
            let notes = expected.about.notes.iter().map(|note| format!("\n  {note}")).collect::<String>();
            return Err(rejected(format!("it expects nothing: `counts` and `rules` are empty{notes}")));
        }
        Ok(expected)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).expect("the fields have string keys") + "\n";
        fs::write(path, text).map_err(|error| Failure::file(path, error))
    }

    /// The directions and posture of the replay.
    ///
    /// # Errors
    /// A prefix is wrong.
    pub fn chain(&self) -> Result<ChainOptions, Failure> {
        let read = |text: &String| {
            text.parse::<Inside>().map_err(|problem| Failure::Rejected(format!("weir: inside: {text}: {problem}")))
        };
        let inside = self.inside.iter().map(read).collect::<Result<_, _>>()?;
        Ok(ChainOptions { direction: Some(DirectionName::Upstream), inside, posture: self.posture.clone() })
    }

    /// What a replay counted otherwise.
    pub fn differences(&self, counts: &Counts, rules: &[RuleExpected]) -> Vec<Difference> {
        let mut differences = Vec::new();
        for ((what, expected), (_, counted)) in self.counts.named().into_iter().zip(counts.named()) {
            if let Some(expected) = expected.filter(|expected| Some(*expected) != counted) {
                differences.push(Difference { what: what.to_owned(), expected, counted });
            }
        }
        for expected in &self.rules {
            let counted = rules.iter().find(|known| known.rule == expected.rule).map(|known| known.packets);
            if counted != Some(expected.packets) {
                let what = format!("rule `{}`", expected.rule);
                differences.push(Difference { what, expected: expected.packets, counted });
            }
        }
        differences
    }
}

/// The failure of a replay that counted otherwise.
pub fn failure(path: &Path, differences: &[Difference]) -> Failure {
    let mut lines = vec![format!("the replay does not count what {} expects", path.display())];
    lines.extend(differences.iter().take(SHOWN).map(|Difference { what, expected, counted }| {
        let counted =
            counted.map_or_else(|| "there is none".to_owned(), |counted| format!("{} counted", grouped(counted)));
        format!("  {}: {} expected, {counted}", cut(what, RULE_CHARACTERS), grouped(*expected))
    }));
    let more = differences.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    Failure::Runtime(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::Expected;
    use std::fs;

    #[test]
    fn files_that_check_nothing_or_something_unknown_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |text: &str| {
            let path = folder.path().join("e.json");
            fs::write(&path, text).expect("it is ours");
            Expected::read(&path).map_err(|failure| failure.to_string())
        };
        assert!(read(r#"{"counts": {"dropped": 1}}"#).is_ok());
        assert!(read(r#"{"rules": [{"rule": "drop", "packets": 0}]}"#).is_ok());
        for (text, problem) in [
            ("{}", "expects nothing"),
            (r#"{"counts": {}}"#, "expects nothing"),
            (r#"{"counts": {"droped": 1}}"#, "unknown field `droped`"),
            (r#"{"packets": 1}"#, "unknown field `packets`"),
            ("7", "invalid type"),
        ] {
            let refused = read(text).expect_err("it is refused");
            assert!(refused.contains(problem) && refused.contains("e.json"), "{refused}");
        }
    }
}
