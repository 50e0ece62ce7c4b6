//! Checks rules: fields, operators, tables and statements.

use super::constants::a_noun;
use super::overlap::Inner;
use super::value::{Domain, Range};
use super::{
    Check, Checker, MATCHES_MAX, Reported, SET_RANGES_MAX, STATEMENTS_MAX, Scope, WIDE_SET_RANGES_MAX, nearest,
};
use crate::catalog::Family;
use crate::checked::{Effect, LabelId, LimitBy, Match, Rule, Table, TableId, TableKind, ValueSet};
use crate::diag::Diagnostic;
use crate::field::{Field, Guard, Notation, Raw, RawBase, Subject};
use crate::source::Span;
use crate::syntax::tree::{self, Atom, Name, OnExceed, Operator, Statement, Value, Values};
use crate::syntax::unknown_header;

impl<'a> Checker<'a> {
    /// Checks a rule. `None` if it is invalid.
    pub(super) fn rule(&mut self, rule: &'a tree::Rule, scope: Scope) -> Option<Rule> {
        if rule.matches.len() > MATCHES_MAX || rule.statements.len() > STATEMENTS_MAX {
            let message = format!("a rule has at most {MATCHES_MAX} matches and {STATEMENTS_MAX} statements");
            self.report(Diagnostic::error("E0314", rule.span, message));
            return None;
        }
        let matches: Vec<_> = rule.matches.iter().map(|m| self.condition(m, scope.tables)).collect();
        let effects: Vec<_> = rule.statements.iter().map(|statement| self.statement(statement, scope)).collect();
        let mut matches = matches.into_iter().collect::<Check<Vec<_>>>().ok()?;
        let effects = effects.into_iter().collect::<Check<Vec<_>>>().ok()?;
        let mut spans: Vec<Span> = rule.matches.iter().map(tree::Match::span).collect();
        // Like a match on an address, a statement about an address implies the header.
        for (effect, statement) in effects.iter().zip(&rule.statements) {
            let key = match effect {
                Effect::Limit { by, .. } => by.key(),
                Effect::Add(add) => Some(add.key),
                Effect::Counter | Effect::Sample { .. } => None,
                Effect::Track | Effect::Synproxy | Effect::Slot(_) | Effect::Verdict(_) => None,
            };
            if let Some(key) = key.filter(|key| !matches.contains(&Match::Guard(key.guard()))) {
                matches.push(Match::Guard(key.guard()));
                spans.push(statement.span());
            }
        }
        self.track_comes_first(&effects, &rule.statements).ok()?;
        self.warn_of_contradiction(rule.span, &matches, &spans);
        if effects.is_empty() {
            self.warn(
                Diagnostic::warning("W0411", rule.span, "this rule has no effect")
                    .help("end it with accept, drop or divert, or write `counter` if it should only count"),
            );
        }
        Some(Rule { span: rule.span, matches, effects })
    }

    fn condition(&mut self, condition: &'a tree::Match, tables: &[Table]) -> Check<Match> {
        match condition {
            tree::Match::Guard(name) => Ok(Match::Guard(match name.text.as_str() {
                "tcp" => Guard::Tcp,
                "udp" => Guard::Udp,
                "icmp" => Guard::Icmp,
                _ => Guard::Icmp6,
            })),
            tree::Match::Compare { subject, mask, operator, operator_span, values } => {
                let comparison = Comparison { operator: *operator, operator_span: *operator_span, mask: mask.as_ref() };
                self.compare(subject, comparison, values)
            }
            tree::Match::Table { subject, operator, table, labels, .. } => {
                let negated = *operator == Operator::NotEqual;
                self.table_match(subject, table, labels.as_deref(), negated, tables)
            }
        }
    }

    /// The left side of a match, and its name in messages.
    pub(super) fn subject(&mut self, subject: &tree::Subject) -> Check<(Subject, String)> {
        match subject {
            tree::Subject::Named { layer, field } => {
                let name = format!("{} {}", layer.text, field.text);
                match Field::from_name(&name) {
                    Some(field) => Ok((Subject::Field(field), name)),
                    None => Err(self.unknown_field(layer, field)),
                }
            }
            tree::Subject::Raw { base, offset, bits, span } => {
                let name = format!("@{},{},{}", base.text, offset.text, bits.text);
                Ok((Subject::Raw(self.raw(base, offset, bits, *span)?), name))
            }
        }
    }

    fn unknown_field(&mut self, layer: &Name, field: &Name) -> Reported {
        let split = |f: &Field| f.name().split_once(' ').expect("field names are two words");
        let fields: Vec<&str> =
            Field::ALL.iter().map(split).filter(|(l, _)| *l == layer.text).map(|(_, name)| name).collect();
        if !fields.is_empty() {
            let diagnostic =
                Diagnostic::error("E0204", field.span, format!("`{}` has no field `{}`", layer.text, field.text));
            let diagnostic = match nearest(&field.text, fields.iter().copied()) {
                Some(near) => diagnostic.help(format!("did you mean `{} {near}`?", layer.text)),
                None => diagnostic.help(format!("its fields are {}", fields.join(", "))),
            };
            return self.report(diagnostic);
        }
        self.report(unknown_header(layer))
    }

    fn raw(&mut self, base: &Name, offset: &Atom, bits: &Atom, span: Span) -> Check<Raw> {
        let known = match base.text.as_str() {
            "ll" => Some(RawBase::Link),
            "nh" => Some(RawBase::Network),
            "th" => Some(RawBase::Transport),
            _ => None,
        };
        let Some(base) = known else {
            return Err(self.report(
                Diagnostic::error("E0313", base.span, format!("`@{}` is not a header of a packet", base.text)).help(
                    match base.text.as_str() {
                        "ih" => "`@th` goes on into the payload: behind UDP's 64 bits `@ih,0,16` is `@th,64,16`",
                        _ => "`@ll` is the link header, `@nh` the network header, `@th` the transport header",
                    },
                ),
            ));
        };
        let Some(offset_bits) = offset.text.parse::<u16>().ok().filter(|&offset| offset <= Raw::OFFSET_BITS_MAX) else {
            let message = format!("`{}` is too far into the packet", offset.text);
            let help = format!("an offset is 0 to {} bits", Raw::OFFSET_BITS_MAX);
            return Err(self.report(Diagnostic::error("E0313", offset.span, message).help(help)));
        };
        match bits.text.parse::<u8>() {
            Ok(bits @ 1..=128) => Ok(Raw { base, offset_bits, bits }),
            _ => Err(self.report(
                Diagnostic::error("E0313", span, format!("a raw expression cannot have `{}` bits", bits.text))
                    .help("1 to 128 bits are compared at once"),
            )),
        }
    }

    fn compare(&mut self, subject: &tree::Subject, how: Comparison, values: &Values) -> Check<Match> {
        let subject = self.subject(subject);
        let Ok((subject, name)) = subject else {
            self.mark_used(how.mask, values);
            return Err(Reported);
        };
        let notation = match subject {
            Subject::Field(field) => field.notation(),
            Subject::Raw(_) | Subject::Card(_) => Notation::Number,
        };
        let domain = Domain { notation, bits: subject.bits(), name: &name };
        let mask = match how.mask {
            Some(mask) => Some(self.mask(mask, domain)?),
            None => None,
        };
        if notation == Notation::PacketState && (mask.is_some() || !how.operator.is_equality()) {
            return Err(self.report(
                Diagnostic::error("E0310", how.operator_span, "a state is equal to another one or not")
                    .help("write `ct state new`, `ct state established,related` or `ct state != { new, untracked }`"),
            ));
        }
        let values = self.follow(values)?;
        let (mask, set, negated) = match (notation, mask) {
            (Notation::TcpFlags, None) => self.flags(how, values, domain)?,
            (_, mask) => {
                let (set, negated) = self.plain(how, values, domain)?;
                (mask, set, negated)
            }
        };
        Ok(Match::Value { subject, mask, set, negated })
    }

    /// Marks the definitions of an invalid match as used.
    fn mark_used(&mut self, mask: Option<&Value>, values: &Values) {
        let errors = self.errors.len();
        let domain = Domain { notation: Notation::Number, bits: 128, name: "" };
        if let Some(mask) = mask {
            _ = self.one(mask, domain);
        }
        if let Values::One(value) = values {
            _ = self.ranges(value, domain, &mut Vec::new());
        }
        self.errors.truncate(errors);
    }

    fn mask(&mut self, mask: &Value, domain: Domain) -> Check<u128> {
        match mask {
            Value::Single(_) | Value::Bits(_) => self.one(mask, domain),
            _ => Err(self.report(
                Diagnostic::error("E0310", mask.span(), "a mask must be one number")
                    .help("write `& 0x1f`, or `& (syn | ack)`"),
            )),
        }
    }

    /// Reports sets that are too large.
    fn bound_set(&mut self, set: &ValueSet, span: Span, domain: Domain) -> Check<()> {
        let limit = if domain.bits > 64 { WIDE_SET_RANGES_MAX } else { SET_RANGES_MAX };
        let ranges = set.ranges().len();
        if ranges <= limit {
            return Ok(());
        }
        let message = format!("the set has {ranges} ranges; a set of `{}` values has at most {limit}", domain.name);
        let help = "put addresses into a table and write `@NAME`; a table holds millions and is faster";
        Err(self.report(Diagnostic::error("E0318", span, message).help(help)))
    }

    /// Comparisons of TCP flags without `&`, with the meaning of nftables: without operator, any of the bits must be
    /// set.
    fn flags(&mut self, how: Comparison, values: &Values, domain: Domain) -> Check<(Option<u128>, ValueSet, bool)> {
        let zero = || ValueSet::new([(0, 0)]);
        match (how.operator, values) {
            (
                Operator::Implicit | Operator::NoneOf,
                Values::One(Value::Single(_) | Value::Bits(_)) | Values::List(_),
            ) => {
                let bits = self.flag_bits(values, domain)?;
                Ok((Some(bits), zero(), how.operator == Operator::Implicit))
            }
            (Operator::Equal | Operator::NotEqual, Values::List(_)) => {
                let bits = self.flag_bits(values, domain)?;
                Ok((None, ValueSet::new([(bits, bits)]), how.operator == Operator::NotEqual))
            }
            (Operator::Implicit | Operator::Equal | Operator::NotEqual, Values::Masked { value, mask }) => {
                let (bits, mask) = (self.or_values(value, domain), self.or_values(mask, domain));
                let (bits, mask) = (bits?, mask?);
                Ok((Some(mask), ValueSet::new([(bits, bits)]), how.operator == Operator::NotEqual))
            }
            (Operator::NoneOf, _) => {
                Err(self.wrong_operator(how, "tests for flags that are not set", "`tcp flags ! syn,ack`"))
            }
            _ => {
                let (set, negated) = self.plain(how, values, domain)?;
                Ok((None, set, negated))
            }
        }
    }

    fn flag_bits(&mut self, values: &Values, domain: Domain) -> Check<u128> {
        match values {
            Values::One(value) => self.one(value, domain),
            Values::List(values) => self.or_values(values, domain),
            Values::Set { .. } | Values::Masked { .. } => unreachable!("compiler bug: the caller takes sets and masks"),
        }
    }

    /// Comparisons with the same meaning for every field.
    fn plain(&mut self, how: Comparison, values: &Values, domain: Domain) -> Check<(ValueSet, bool)> {
        let negated = how.operator == Operator::NotEqual;
        match (how.operator, values) {
            (_, Values::Masked { .. }) => {
                let message = format!(
                    "`value / mask` cannot be used for `{}`{}",
                    domain.name,
                    match how.mask {
                        Some(_) => " with `&`",
                        None => "",
                    }
                );
                let help = format!("write `{} & MASK == VALUE`", domain.name);
                Err(self.report(Diagnostic::error("E0310", values.span(), message).help(help)))
            }
            (Operator::Implicit, Values::List(list)) if domain.notation == Notation::PacketState => {
                let mut ranges = Vec::new();
                self.all_ranges(list, domain, &mut ranges)?;
                Ok((ValueSet::new(ranges.iter().map(|range: &Range| (range.first, range.last))), false))
            }
            (_, Values::List(list)) if domain.notation == Notation::TcpFlags && how.operator.is_equality() => {
                let bits = self.or_values(list, domain)?;
                Ok((ValueSet::new([(bits, bits)]), negated))
            }
            (_, Values::List(_)) => Err(self.report(
                Diagnostic::error("E0316", values.span(), "a set needs braces")
                    .help("write `{ a, b }`; only TCP flags, and states without operator, are joined by bare commas"),
            )),
            (operator, _) if operator.is_equality() => {
                let mut ranges = Vec::new();
                match values {
                    Values::One(value) => self.ranges(value, domain, &mut ranges)?,
                    Values::Set { elements, .. } => self.all_ranges(elements, domain, &mut ranges)?,
                    Values::List(_) | Values::Masked { .. } => unreachable!("compiler bug: taken by the arms above"),
                }
                self.warn_of_overlap(&ranges, &[], Inner::NoEffect);
                let set = ValueSet::new(ranges.iter().map(|range: &Range| (range.first, range.last)));
                self.bound_set(&set, values.span(), domain)?;
                Ok((set, negated))
            }
            (Operator::NoneOf, _) => Err(self.wrong_operator(how, "is only for TCP flags", "`!=`")),
            (_, Values::One(value @ (Value::Single(_) | Value::Bits(_)))) => {
                let value = self.one(value, domain)?;
                Ok((ordered(how.operator, value, domain.max()), false))
            }
            _ => Err(self.wrong_operator(how, "needs a single value", "`==` or `!=` with a set or range")),
        }
    }

    fn wrong_operator(&mut self, how: Comparison, means: &str, instead: &str) -> Reported {
        self.report(
            Diagnostic::error("E0310", how.operator_span, format!("`{}` {means}", how.operator.text()))
                .help(format!("write {instead}")),
        )
    }

    fn table_match(
        &mut self,
        subject: &tree::Subject,
        name: &Name,
        labels: Option<&[Atom]>,
        negated: bool,
        tables: &[Table],
    ) -> Check<Match> {
        let span = subject.span();
        let subject = self.subject(subject);
        let Some(declared) = self.tables.get_mut(name.text.as_str()) else {
            let known: Vec<&str> = self.tables.keys().copied().collect();
            let diagnostic = Diagnostic::error("E0201", name.span, format!("there is no table `{}`", name.text));
            let diagnostic = match self.limits.contains_key(name.text.as_str()) {
                true => diagnostic.help(format!("`{0}` is a list of limits: write `ip saddr limit @{0}`", name.text)),
                false => diagnostic.help(format!("declare it: `table {} {{ type ipv4; ... }}`", name.text)),
            };
            return Err(self.unknown(diagnostic, &name.text, "@", known.into_iter()));
        };
        declared.used = true;
        let id = declared.target;
        let table = &tables[usize::from(id.0)];
        let key = self.address_field(subject?, span, "looked up in a table")?;
        self.same_family(key, table, span.to(name.span), Some(["", &format!(" @{}", table.name)]))?;
        let labels = match labels {
            Some(labels) => Some(self.labels(labels, table, id)?),
            None => None,
        };
        Ok(Match::Table { key, table: id, labels, negated })
    }

    /// Reports a table of another family than the key. `around` is the text before and after the key, if another key
    /// could be written there.
    pub(super) fn same_family(
        &mut self,
        key: Field,
        table: &Table,
        span: Span,
        around: Option<[&str; 2]>,
    ) -> Check<()> {
        let (is, holds) = match key.family() {
            family if family == table.family => return Ok(()),
            Family::Ipv4 => ("an IPv4", "IPv6"),
            Family::Ipv6 => ("an IPv6", "IPv4"),
        };
        let message = format!("`{}` is {is} field, but the table `{}` holds {holds} prefixes", key.name(), table.name);
        let help = match around {
            Some([before, after]) => {
                format!("write `{before}{}{after}`, or declare a table of the other family", other_family(key))
            }
            None => "declare a table of the other family".to_owned(),
        };
        Err(self.report(Diagnostic::error("E0303", span, message).note(table.span, "declared here").help(help)))
    }

    fn labels(&mut self, written: &[Atom], table: &Table, id: TableId) -> Check<Vec<LabelId>> {
        if table.kind == TableKind::Set {
            let span = written[0].span.to(written[written.len() - 1].span);
            return Err(self.report(
                Diagnostic::error("E0306", span, format!("the table `{}` has no labels", table.name))
                    .note(table.span, "declared here")
                    .help("write `type ipv4 : label` in it, or remove the braces"),
            ));
        }
        let known = &table.facts.labels;
        // An unreadable table was reported. Arbitrary ids allow the check to continue.
        let unread = known.is_empty();
        let mut labels = Vec::with_capacity(written.len());
        let mut failed = false;
        for (i, label) in written.iter().enumerate() {
            match self.labels[usize::from(id.0)].get(&label.text) {
                Some(&label) => labels.push(label),
                None if unread => labels.push(LabelId(u32::try_from(i + 1).expect("texts are below 4 GiB"))),
                // Its element is invalid, which was reported.
                None if self.has_errors() && self.written_labels[usize::from(id.0)].contains(label.text.as_str()) => {
                    failed = true;
                }
                None => {
                    let message = format!("the table `{}` holds no label `{}`", table.name, label.text);
                    let diagnostic = Diagnostic::error("E0205", label.span, message);
                    let diagnostic = match known.len() {
                        0..=12 => diagnostic.help(format!("it holds {}", known.join(", "))),
                        count => diagnostic.help(format!("it holds {count} others")),
                    };
                    self.unknown(diagnostic, &label.text, "", known.iter().map(String::as_str));
                    failed = true;
                }
            }
        }
        labels.sort_unstable();
        labels.dedup();
        if failed { Err(Reported) } else { Ok(labels) }
    }

    pub(super) fn address_field(&mut self, (subject, name): (Subject, String), span: Span, what: &str) -> Check<Field> {
        match subject {
            Subject::Field(field) if matches!(field.notation(), Notation::Ipv4Address | Notation::Ipv6Address) => {
                Ok(field)
            }
            _ => {
                let what = match subject {
                    Subject::Field(field) => {
                        format!("`{name}` holds {}: only addresses are {what}", a_noun(field.notation()))
                    }
                    Subject::Raw(_) | Subject::Card(_) => {
                        format!("`{name}` is not an address field: only addresses are {what}")
                    }
                };
                Err(self.report(Diagnostic::error("E0308", span, what).help(
                    "use ip saddr, ip daddr, ip6 saddr or ip6 daddr; for shared sets of other values use a `define`",
                )))
            }
        }
    }

    fn statement(&mut self, statement: &'a Statement, scope: Scope) -> Check<Effect> {
        match statement {
            Statement::Counter(_) => Ok(Effect::Counter),
            Statement::Track(_) => Ok(Effect::Track),
            Statement::Synproxy(_) => Ok(Effect::Synproxy),
            Statement::Verdict(action, _) => Ok(Effect::Verdict(*action)),
            Statement::Sample { copies, packets } => self.sample(copies, packets),
            Statement::Limit { subject, limits, exceed, span } => {
                let by = self.limit_by_list(subject, limits, *span, scope)?;
                self.limit_effect(by, exceed, scope)
            }
            Statement::LimitRate { limit, exceed, .. } => {
                let by = LimitBy::Rate(self.limit(limit)?);
                self.limit_effect(by, exceed, scope)
            }
            Statement::LimitEach(each) => {
                let by = LimitBy::Each(self.limit_each(each)?, each.log.unwrap_or_default());
                self.limit_effect(by, &each.exceed, scope)
            }
            Statement::Add(add) => self.addition(add, scope).map(Effect::Add),
            Statement::Slot { slot, .. } => self.slot_effect(slot),
        }
    }

    fn limit_effect(&mut self, by: LimitBy, on_exceed: &'a OnExceed, scope: Scope) -> Check<Effect> {
        let add = on_exceed.add.as_ref().map(|add| self.exceed_addition(add, &by, scope)).transpose()?;
        Ok(Effect::Limit { by, add, exceed: on_exceed.exceed.unwrap_or_default() })
    }

    fn sample(&mut self, copies: &Atom, packets: &Atom) -> Check<Effect> {
        let span = copies.span.to(packets.span);
        match (copies.text.as_str(), packets.text.parse::<u32>()) {
            ("1", Ok(one_in @ 1..)) => Ok(Effect::Sample { one_in }),
            _ => Err(self.report(
                Diagnostic::error("E0309", span, format!("`{}/{}` is not a sampling rate", copies.text, packets.text))
                    .help(format!("write `sample 1/N` with N from 1 to {}", u32::MAX)),
            )),
        }
    }
}

/// The operator and mask of a comparison.
#[derive(Clone, Copy)]
struct Comparison<'t> {
    operator: Operator,
    operator_span: Span,
    mask: Option<&'t Value>,
}

/// The values that are smaller or greater than a value, as the operator says.
fn ordered(operator: Operator, value: u128, max: u128) -> ValueSet {
    let range = match operator {
        Operator::Less => value.checked_sub(1).map(|last| (0, last)),
        Operator::LessEqual => Some((0, value)),
        Operator::Greater => value.checked_add(1).filter(|&first| first <= max).map(|first| (first, max)),
        Operator::GreaterEqual => Some((value, max)),
        Operator::Implicit | Operator::Equal | Operator::NotEqual | Operator::NoneOf => {
            unreachable!("compiler bug: not an order")
        }
    };
    ValueSet::new(range)
}

fn other_family(key: Field) -> String {
    match key.family() {
        Family::Ipv4 => key.name().replacen("ip ", "ip6 ", 1),
        Family::Ipv6 => key.name().replacen("ip6 ", "ip ", 1),
    }
}
