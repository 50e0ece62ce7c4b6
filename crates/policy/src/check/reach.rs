//! Warns about rules that no packet reaches, and about packets that no rule decides.

use super::Checker;
use super::limit_each::{counts_connections, of_open_connections};
use super::shadow::Decisions;
use crate::checked::{Effect, Exceed, Match, Posture, Rule};
use crate::diag::Diagnostic;
use crate::direction::Direction;
use crate::field::{Field, Guard, Subject};
use crate::source::Span;
use crate::syntax::tree::DirectionBlock;

/// Whether the rule decides every packet.
fn decides_all(rule: &Rule) -> bool {
    let always = |condition: &Match| match condition {
        Match::Value { subject, set, negated: false, .. } => {
            super::satisfy::guard(condition) == Guard::Any && set.is_full(subject.bits())
        }
        _ => false,
    };
    matches!(rule.effects.last(), Some(Effect::Verdict(_))) && rule.matches.iter().all(always)
}

impl Checker<'_> {
    /// Warns about rules of a direction that are never reached, and about a direction that does not decide all packets.
    pub(super) fn warn_of_reach(&mut self, block: &DirectionBlock, rules: &[Rule]) {
        self.warn_of_unmarked(rules);
        let mut decisions = Decisions::default();
        for (i, rule) in rules.iter().enumerate() {
            if decides_all(rule) {
                self.warn_of_rest(rule, &rules[i + 1..]);
                return;
            }
            if let Some(decided) = decisions.decided_before(rule) {
                let note = if decided.several { "by this rule and later ones" } else { "by this rule" };
                self.warn(
                    Diagnostic::warning("W0403", rule.span, "this rule is never reached")
                        .label("an earlier rule decides every packet that it matches")
                        .note(decided.span, note)
                        .help("move it up, or remove it"),
                );
            } else if counts_connections(rule)
                && let Some(decided) = decisions.decided_before(&of_open_connections(rule))
            {
                self.warn(
                    Diagnostic::warning("W0418", rule.span, "no packet of an open connection reaches this limit")
                        .label("so it limits no connections")
                        .note(decided.span, "these packets are decided here")
                        .help("move the limit up: it counts a connection by its packets"),
                );
            }
            decisions.record(rule);
        }
        if !self.declared_no_match {
            let direction = block.direction.name();
            let warning =
                Diagnostic::warning("W0410", block.keyword, format!("`{direction}` does not end with a verdict"));
            let warning = match rules.last() {
                Some(last) => warning.note(last.span, "packets that go past this rule are accepted"),
                None => warning.label("all packets are accepted"),
            };
            self.warn(warning.help("end it with `accept` or `drop`, or write `defaults { no-match accept }`"));
        }
    }

    /// Warns about rules that test the mark before any limit sets it.
    fn warn_of_unmarked(&mut self, rules: &[Rule]) {
        let tests_mark =
            |condition: &Match| matches!(condition, Match::Value { subject: Subject::Field(Field::MetaExceeded), .. });
        let sets_mark = |effect: &Effect| matches!(effect, Effect::Limit { exceed: Exceed::Mark, .. });
        for rule in rules {
            if rule.matches.iter().any(tests_mark) {
                self.warn(
                    Diagnostic::warning(
                        "W0413",
                        rule.span,
                        "this rule tests `meta exceeded`, but no limit before it marks packets",
                    )
                    .help("add `exceed mark` to a limit: `limit rate 20kpps exceed mark`"),
                );
            }
            if rule.effects.iter().any(sets_mark) {
                return;
            }
        }
    }

    fn warn_of_rest(&mut self, rule: &Rule, rest: &[Rule]) {
        let Some(first) = rest.first() else { return };
        let label = match rest.len() - 1 {
            0 => "never reached".to_owned(),
            1 => "never reached, nor is the rule after it".to_owned(),
            more => format!("never reached, nor are the {more} rules after it"),
        };
        self.warn(
            Diagnostic::warning("W0402", first.span, "this rule comes after a rule that decides every packet")
                .label(label)
                .note(rule.span, "this rule decides every packet")
                .help("move the last verdict to the end"),
        );
    }

    /// Reports a policy without rules, because an empty file would let everything pass.
    pub(super) fn refuse_empty(&mut self, postures: &[Posture]) {
        let has_rules = postures.iter().any(|posture| posture.upstream.is_some() || posture.downstream.is_some());
        let Some(base) = postures.first() else { return };
        if has_rules || self.declared_no_match || self.parsed.incomplete || self.has_errors() {
            return;
        }
        let span = Span { end: base.span.start, ..base.span };
        let error = Diagnostic::error("E0322", span, "the policy has no `upstream` and no `downstream`");
        self.report(
            error
                .label("every packet would pass")
                .help("write `upstream { accept }` and `downstream { accept }` if that is meant"),
        );
    }

    /// Warns about directions without a block.
    pub(super) fn warn_of_missing(&mut self, postures: &[Posture], keyword: Option<Span>) {
        let Some((base, named)) = postures.split_first() else { return };
        let no_match = "no rule decides";
        for (direction, missing) in
            [(Direction::Upstream, base.upstream.is_none()), (Direction::Downstream, base.downstream.is_none())]
        {
            if !missing {
                continue;
            }
            let span = keyword.unwrap_or(Span { end: base.span.start, ..base.span });
            let other = match (keyword, direction) {
                (None, _) => "the policy has no rules at all",
                (Some(_), Direction::Upstream) => "only packets from inside have rules",
                (Some(_), Direction::Downstream) => "only packets from outside have rules",
            };
            let message = format!("the policy has no `{}`: {no_match} those packets", direction.name());
            self.warn(
                Diagnostic::warning("W0409", span, message)
                    .label(other)
                    .help(format!("write `{} {{ accept }}` if they should pass", direction.name())),
            );
        }
        for posture in named {
            for (direction, missing, base) in [
                (Direction::Upstream, posture.upstream.is_none(), base.upstream.is_some()),
                (Direction::Downstream, posture.downstream.is_none(), base.downstream.is_some()),
            ] {
                if !missing {
                    continue;
                }
                let name = posture.name.as_deref().unwrap_or_default();
                let label = if base { "that of the base policy is used" } else { "the base policy has none either" };
                let message = format!("the posture `{name}` has no `{}`", direction.name());
                self.warn(
                    Diagnostic::warning("W0408", posture.span, message)
                        .label(label)
                        .help(format!("write `{} {{ ... }}` in it", direction.name())),
                );
            }
        }
    }
}
