//! What was not carried over, or not literally: each with its place, its text, the reason, and what it means for
//! packets.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::{self, Display, Formatter};

/// What it means for packets that a part of the source is missing, or different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Verdicts stay the same.
    Same,
    /// The policy may pass packets that the source drops.
    PassesMore,
    /// The policy may drop packets that the source passes.
    PassesLess,
    /// Both.
    Unknown,
}

impl Effect {
    /// Both effects together.
    pub fn and(self, other: Effect) -> Effect {
        match (self, other) {
            (Effect::Same, effect) | (effect, Effect::Same) => effect,
            (one, two) if one == two => one,
            _ => Effect::Unknown,
        }
    }

    /// The words of a report.
    pub fn words(self) -> &'static str {
        match self {
            Effect::Same => "the same packets pass",
            Effect::PassesMore => "more packets pass than before",
            Effect::PassesLess => "fewer packets pass than before",
            Effect::Unknown => "some packets pass that did not, and some do not that did",
        }
    }
}

/// Whether a part of the source is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is not in the policy.
    LeftOut,
    /// It is in the policy, and not quite the same.
    Approximate,
    /// An assumption, or something that the operator should know.
    Note,
}

/// One entry of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The place in the source: `rules.v4:12`, `inet filter input, rule 3 (handle 12)`.
    pub at: String,
    /// The text at that place.
    pub text: String,
    /// Why.
    pub reason: String,
    /// Whether something is missing.
    pub kind: Kind,
    /// What it means for packets.
    pub effect: Effect,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n    {}", self.at, self.text, self.reason)?;
        match self.kind {
            Kind::Note => Ok(()),
            Kind::LeftOut | Kind::Approximate => write!(f, "; {}", self.effect.words()),
        }
    }
}

/// All findings. A place and reason that are reported twice count once.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    all: Vec<Finding>,
    /// The index of each place and reason.
    known: HashMap<(String, String), usize>,
}

impl Findings {
    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        match self.known.entry((finding.at.clone(), finding.reason.clone())) {
            Entry::Occupied(known) => {
                let known = &mut self.all[*known.get()];
                known.effect = known.effect.and(finding.effect);
            }
            Entry::Vacant(unknown) => {
                unknown.insert(self.all.len());
                self.all.push(finding);
            }
        }
    }

    /// Adds a note about the whole source.
    pub fn note(&mut self, at: &str, text: &str, reason: &str) {
        let (at, text, reason) = (at.to_owned(), text.to_owned(), reason.to_owned());
        self.add(Finding { at, text, reason, kind: Kind::Note, effect: Effect::Same });
    }

    /// Adds something that is not in the policy.
    pub fn left_out(&mut self, at: &str, text: &str, reason: &str, effect: Effect) {
        let (at, text, reason) = (at.to_owned(), text.to_owned(), reason.to_owned());
        self.add(Finding { at, text, reason, kind: Kind::LeftOut, effect });
    }

    /// Adds something that is not quite the same in the policy.
    pub fn approximate(&mut self, at: &str, text: &str, reason: &str, effect: Effect) {
        let (at, text, reason) = (at.to_owned(), text.to_owned(), reason.to_owned());
        self.add(Finding { at, text, reason, kind: Kind::Approximate, effect });
    }

    /// All of them, in the order in which they were found.
    pub fn all(&self) -> &[Finding] {
        &self.all
    }

    /// Number of findings of a kind.
    pub fn count(&self, kind: Kind) -> usize {
        self.all.iter().filter(|finding| finding.kind == kind).count()
    }

    /// Whether everything was carried over as it was.
    pub fn is_complete(&self) -> bool {
        self.all.iter().all(|finding| finding.kind == Kind::Note)
    }

    /// The report as text.
    pub fn report(&self) -> String {
        let mut text = format!(
            "{} left out, {} not quite the same, {} notes\n",
            self.count(Kind::LeftOut),
            self.count(Kind::Approximate),
            self.count(Kind::Note)
        );
        let sections = [(Kind::LeftOut, "Left out"), (Kind::Approximate, "Not quite the same"), (Kind::Note, "Notes")];
        for (kind, title) in sections {
            if self.count(kind) > 0 {
                text += &format!("\n{title}:\n");
                for finding in self.all.iter().filter(|finding| finding.kind == kind) {
                    text += &format!("  {finding}\n");
                }
            }
        }
        text
    }
}
