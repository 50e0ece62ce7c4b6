//! Checks `limit each`, and that a limit of connections sees the packets by which it counts.

use super::{Check, Checker};
use crate::checked::{EachLimit, Effect, LimitBy, LimitEach, Match, Posture, Rule, ValueSet};
use crate::diag::Diagnostic;
use crate::field::{Field, Subject};
use crate::syntax::tree::{self, Atom};
use crate::tracking::{PacketState, Tracking};
use weir_abi::{each, seats};

impl Checker<'_> {
    /// `limit each ip saddr/24 50pps size 100000`, `limit each ip saddr connections 20`
    pub(super) fn limit_each(&mut self, written: &tree::LimitEach) -> Check<LimitEach> {
        let span = written.subject.span();
        let subject = self.subject(&written.subject);
        let limit = match &written.limit {
            tree::EachLimit::Rate(limit) => self.rate_of_each(limit),
            tree::EachLimit::Connections(number) => self.connections_of_each(number),
        };
        let size = written.size.as_ref().map(|size| self.each_size(size)).transpose();
        let key = self.address_field(subject?, span, "limited")?;
        let length = self.prefix_length(written.length.as_ref(), key)?;
        let (limit, size) = (limit?, size?);
        let usual = if matches!(limit, EachLimit::Rate(_)) { each::SIZE_DEFAULT } else { seats::SIZE_DEFAULT };
        let each = LimitEach { key, length, limit, size: size.unwrap_or(usual).next_power_of_two() };
        match (&written.size, limit) {
            (Some(size), EachLimit::Connections(number)) if each.words() > seats::WORDS_MAX => {
                let most = 1 << (seats::WORDS_MAX / (1 + usize::from(number))).ilog2();
                let message = format!("{number} connections of each of {} addresses take too much memory", each.size);
                let help = format!("with {number} connections, `size` is at most {most}");
                Err(self.report(Diagnostic::error("E0301", size.span, message).help(help)))
            }
            _ => Ok(each),
        }
    }

    fn rate_of_each(&mut self, written: &tree::Limit) -> Check<EachLimit> {
        let limit = self.limit(written)?;
        if each::profile(limit).is_none() {
            let at = written.burst.as_ref().unwrap_or(&written.rate);
            let message = format!("`{}` cannot be the burst of each address", at.text);
            let label = format!("a bucket of this size fills in more than 2^{} ticks", each::ROOM_MAX.ilog2());
            return Err(self.report(Diagnostic::error("E0320", at.span, message).label(label)));
        }
        Ok(EachLimit::Rate(limit))
    }

    fn connections_of_each(&mut self, written: &Atom) -> Check<EachLimit> {
        let number = written.text.parse().ok().filter(|number| (1..=seats::SEATS_MAX).contains(number));
        number.map(EachLimit::Connections).ok_or_else(|| {
            let message = format!("`{}` cannot be the number of connections of an address", written.text);
            let help = format!("write 1 to {}", seats::SEATS_MAX);
            self.report(Diagnostic::error("E0301", written.span, message).help(help))
        })
    }

    fn each_size(&mut self, size: &Atom) -> Check<u32> {
        let (least, most) = (each::SIZE_MIN, each::SIZE_MAX);
        size.text.parse().ok().filter(|size| (least..=most).contains(size)).ok_or_else(|| {
            let message = format!("`{}` cannot be the size of a table of addresses", size.text);
            let help = format!("it goes from {least} to {most} addresses; further addresses share buckets");
            self.report(Diagnostic::error("E0301", size.span, message).help(help))
        })
    }

    /// Reports limits of connections that never see an open connection: a limit counts a connection by its packets,
    /// from the one that completes the handshake on.
    pub(super) fn connections_are_seen(&mut self, tracking: &Tracking, postures: &[Posture]) {
        let rules = postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]).flatten().flatten();
        for rule in rules.filter(|rule| counts_connections(rule)) {
            if !rule.matches.iter().all(may_be_established) {
                let message = "this limit of connections sees no open connection";
                self.report(
                    Diagnostic::error("E0331", rule.span, message)
                        .label("the rule matches no packets with `ct state established`")
                        .help("remove `ct state`: a connection counts from the packet that completes its handshake on"),
                );
            }
            if tracking.one_way {
                let message = "a limit of connections needs both directions of a connection";
                let help = "take out `one-way`: without answers, no client proves that its address is its own";
                self.report(Diagnostic::error("E0331", rule.span, message).help(help));
            }
        }
    }
}

/// Whether the rule limits the connections of addresses.
pub(super) fn counts_connections(rule: &Rule) -> bool {
    let counts = |effect: &Effect| matches!(effect, Effect::Limit { by: LimitBy::Each(each, _), .. } if each.connections().is_some());
    rule.effects.iter().any(counts)
}

/// The rule, for packets of open connections only.
pub(super) fn of_open_connections(rule: &Rule) -> Rule {
    let state = PacketState::Established as u128;
    let (subject, set) = (Subject::Field(Field::CtState), ValueSet::new(vec![(state, state)]));
    let mut of_open = rule.clone();
    of_open.matches.push(Match::Value { subject, mask: None, set, negated: false });
    of_open
}

fn may_be_established(condition: &Match) -> bool {
    match condition {
        Match::Value { subject: Subject::Field(Field::CtState), mask, set, negated } => {
            set.contains(PacketState::Established as u128 & mask.unwrap_or(u128::MAX)) != *negated
        }
        _ => true,
    }
}
