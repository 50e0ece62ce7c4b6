//! What a tap wants.

use weir_abi::tap::TAP_BYTES_MAX;
use weir_abi::tap_where::TapWhere;
use weir_abi::{Action, Reason};

use crate::live::lane::Side;

/// A rule, as reports cite it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuleName {
    /// Its place: `edge.weir:26`.
    pub at: String,
    /// Its text.
    pub text: String,
}

/// The names of a policy's rules, by number. Each policy numbers its rules anew, so copies of packets come with these.
#[derive(Debug, Default)]
pub struct PolicyNames {
    /// By number.
    pub rules: Vec<RuleName>,
}

impl PolicyNames {
    /// The rule that is a reason; `None` for built-in reasons.
    pub fn rule(&self, reason: Reason) -> Option<&RuleName> {
        self.rules.get(usize::from(reason.rule_index()?))
    }

    /// The rules that a user means: by place, by text, or by both as `ctl stats` prints them.
    pub fn meant(&self, given: &str) -> Vec<RuleName> {
        let given = given.trim();
        let is_meant = |rule: &&RuleName| {
            let both = given.strip_prefix(rule.at.as_str()).is_some_and(|text| text.trim() == rule.text);
            rule.at == given || rule.text == given || both
        };
        let mut meant: Vec<RuleName> = self.rules.iter().filter(is_meant).cloned().collect();
        meant.dedup();
        meant
    }

    /// Whether rule `index` is one of the wanted rules. Rules move when lines are added in front of them. So a rule is
    /// the wanted one if its text is the same, but a rule at the same place comes before those elsewhere.
    fn is_one_of(&self, index: usize, wanted: &[RuleName]) -> bool {
        let rule = &self.rules[index];
        let is_same = |one: &RuleName| one.text == rule.text && (one.at == rule.at || !self.rules.contains(one));
        wanted.iter().any(is_same)
    }
}

/// The reasons whose packets a tap wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reasons {
    /// All.
    #[default]
    All,
    /// A built-in one.
    BuiltIn(Reason),
    /// Rules, which are found in each policy by their names.
    Rules(Vec<RuleName>),
}

/// What a tap wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapFilter {
    /// Packets with these actions.
    pub actions: Vec<Action>,
    /// Packets that arrived on these sides.
    pub sides: Vec<Side>,
    /// Packets with these reasons.
    pub reasons: Reasons,
    /// What packets must have in their headers, unless that cannot be told. The reader of the tap tests the rest.
    pub headers: TapWhere,
    /// One packet in so many, chosen by chance. 1: each packet.
    pub one_in: u32,
    /// Bytes of a packet, at most [`TAP_BYTES_MAX`].
    pub snap: u32,
    /// Copies per second at most, on average. The first second may have as many at once.
    pub budget_pps: u32,
}

/// Copies per second without another number.
pub const BUDGET_PPS: u32 = 10_000;

impl Default for TapFilter {
    /// Each whole packet.
    fn default() -> Self {
        TapFilter {
            actions: Action::ALL.to_vec(),
            sides: Side::BOTH.to_vec(),
            reasons: Reasons::All,
            headers: TapWhere::ANY,
            one_in: 1,
            snap: TAP_BYTES_MAX as u32,
            budget_pps: BUDGET_PPS,
        }
    }
}

impl TapFilter {
    /// The bytes of a packet that are copied.
    pub(super) fn snap(&self) -> u32 {
        self.snap.clamp(1, TAP_BYTES_MAX as u32)
    }

    /// Whether it tests headers.
    pub(super) fn tests_headers(&self) -> bool {
        self.headers != TapWhere::ANY
    }

    /// Whether it wants packets with a reason of a policy.
    pub(super) fn wants(&self, reason: Reason, names: &PolicyNames) -> bool {
        match (&self.reasons, reason.rule_index().map(usize::from)) {
            (Reasons::All, _) => true,
            (Reasons::BuiltIn(wanted), _) => *wanted == reason,
            (Reasons::Rules(wanted), Some(rule)) => rule < names.rules.len() && names.is_one_of(rule, wanted),
            (Reasons::Rules(_), None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rules: &[(&str, &str)]) -> PolicyNames {
        let name = |&(at, text): &(&str, &str)| RuleName { at: at.to_owned(), text: text.to_owned() };
        PolicyNames { rules: rules.iter().map(name).collect() }
    }

    fn wanted(filter: &TapFilter, names: &PolicyNames) -> Vec<usize> {
        (0..names.rules.len()).filter(|&rule| filter.wants(Reason::rule(rule as u16), names)).collect()
    }

    #[test]
    fn a_rule_is_found_in_another_policy_by_its_text() {
        let first = names(&[("e.weir:2", "tcp drop"), ("e.weir:3", "udp drop"), ("e.weir:9", "tcp drop")]);
        for given in ["e.weir:3", "udp drop", " e.weir:3  udp drop "] {
            assert_eq!(first.meant(given), [first.rules[1].clone()], "{given}");
        }
        assert_eq!(first.meant("tcp drop").len(), 2);
        assert!(first.meant("e.weir:4").is_empty() && first.meant("").is_empty());

        let only = |given: &str| TapFilter { reasons: Reasons::Rules(first.meant(given)), ..TapFilter::default() };
        assert_eq!(wanted(&only("e.weir:3"), &first), [1]);
        assert_eq!(wanted(&only("e.weir:2"), &first), [0], "its twin is another rule");
        let moved = names(&[("e.weir:2", "icmp drop"), ("e.weir:3", "tcp drop"), ("e.weir:4", "udp drop")]);
        assert_eq!(wanted(&only("e.weir:3"), &moved), [2], "what is at its place now is another rule");
        assert_eq!(wanted(&only("e.weir:2"), &moved), [1]);
        let gone = names(&[("e.weir:3", "udp accept")]);
        assert!(wanted(&only("e.weir:3"), &gone).is_empty());
        assert!(!only("e.weir:3").wants(Reason::LIMIT, &first));
    }

    #[test]
    fn built_in_reasons_are_the_same_in_all_policies() {
        let policy = names(&[("e.weir:2", "tcp drop")]);
        let limit = TapFilter { reasons: Reasons::BuiltIn(Reason::LIMIT), ..TapFilter::default() };
        assert!(limit.wants(Reason::LIMIT, &policy) && !limit.wants(Reason::ARP, &policy));
        assert!(wanted(&limit, &policy).is_empty());
        assert_eq!(wanted(&TapFilter::default(), &policy), [0]);
        let none = TapFilter { snap: 0, ..TapFilter::default() };
        assert_eq!((none.snap(), TapFilter { snap: 70_000, ..none }.snap()), (1, 9216));
    }
}
