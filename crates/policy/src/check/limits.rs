//! Checks limits: lists of limits, rates and bursts, and the statements that use them.

use super::sources::{LimitKey, LimitMembers};
use super::table::domain_of;
use super::value::{Range, address_text};
use super::{Check, Checker, LIMITERS_MAX, Reported, Scope};
use crate::catalog::{Catalog, Family};
use crate::checked::{Effect, LimitBy, LimitKeys, LimitOwner, Limits, Posture, Rule, Table, TableId, TableKind};
use crate::diag::Diagnostic;
use crate::direction::Direction;
use crate::field::Field;
use crate::source::Span;
use crate::syntax::tree::{self, AtomKind, Item, LimitsSetting, Log, Name, Operand, Value, Values};
use std::collections::{HashMap, HashSet};
use weir_abi::{Limit, LimitProblem, Rate};

/// The settings of a list, each read once.
#[derive(Default)]
struct Settings<'a> {
    /// Whether the list sets any limit.
    filled: bool,
    default: Option<Limit>,
    table: Option<&'a Name>,
    nested: Option<Span>,
    log: Log,
}

impl<'a> Checker<'a> {
    /// Checks all lists, in the order of their ids.
    pub(super) fn limits(&mut self, catalog: &dyn Catalog, tables: &[Table]) -> Vec<Limits> {
        let mut lists = Vec::new();
        for item in self.items.clone() {
            let Item::Limits(list) = item else { continue };
            if self.limits.get(list.name.text.as_str()).is_some_and(|declared| declared.span == list.name.span) {
                lists.push(self.list_of_limits(list, catalog, tables));
            }
        }
        lists
    }

    fn list_of_limits(&mut self, list: &'a tree::Limits, catalog: &dyn Catalog, tables: &[Table]) -> Limits {
        let settings = self.limits_settings(list);
        let name = &list.name;
        if !settings.filled && !self.parsed.has_errors() {
            self.report(
                Diagnostic::error("E0311", name.span, format!("the list of limits `{}` is empty", name.text))
                    .help("give it `elements`, a `file` whose lines are prefix,rate[,burst], or a `default`"),
            );
        }
        let members = self.limit_members(list);
        self.contradicting_limits(&members);
        let table = settings.table.and_then(|table| self.labelled_table(table, tables).ok());
        if let Some(table) = table {
            self.known_labels(&members, table, tables);
        }
        if let (Some(nested), Some(_)) = (settings.nested, settings.table) {
            self.report(
                Diagnostic::error("E0311", nested, "`nested` is only for limits of prefixes")
                    .help("labels do not enclose each other: remove it"),
            );
        }
        let keys = match table {
            Some(table) => LimitKeys::Labels(table),
            None => LimitKeys::Prefixes { nested: settings.nested.is_some() },
        };
        let facts = catalog.limits(&name.text).cloned().unwrap_or_default();
        let Settings { default, log, .. } = settings;
        Limits { name: name.text.clone(), span: name.span, keys, default, log, facts }
    }

    fn limits_settings(&mut self, list: &'a tree::Limits) -> Settings<'a> {
        let mut settings = Settings::default();
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for setting in &list.settings {
            let (word, span) = match setting {
                LimitsSetting::File(_) => {
                    settings.filled = true;
                    continue;
                }
                LimitsSetting::Elements(_, span) => ("elements", *span),
                LimitsSetting::Default(limit) => ("default", limit.span()),
                LimitsSetting::Table(name) => ("table", name.span),
                LimitsSetting::Nested(span) => ("nested", *span),
                LimitsSetting::Log(_, span) => ("log", *span),
            };
            if let Some(&first) = seen.get(word) {
                let message = format!("`{word}` is set twice in the list of limits `{}`", list.name.text);
                self.report(Diagnostic::error("E0210", span, message).note(first, "first here"));
                continue;
            }
            seen.insert(word, span);
            match setting {
                LimitsSetting::File(_) | LimitsSetting::Elements(..) => settings.filled = true,
                LimitsSetting::Default(limit) => {
                    settings.filled = true;
                    settings.default = self.limit(limit).ok();
                }
                LimitsSetting::Table(name) => settings.table = Some(name),
                LimitsSetting::Nested(span) => settings.nested = Some(*span),
                LimitsSetting::Log(log, _) => settings.log = *log,
            }
        }
        settings
    }

    /// Checks a rate and its burst.
    pub(super) fn limit(&mut self, written: &tree::Limit) -> Check<Limit> {
        let burst = written.burst.as_ref();
        let limit = Rate::parse(&written.rate.text).and_then(|rate| Limit::new(rate, burst.map(|b| b.text.as_str())));
        limit.map_err(|problem| {
            let rate = matches!(problem, LimitProblem::NoRate | LimitProblem::RateOutOfBounds(_));
            let at = burst.filter(|_| !rate).unwrap_or(&written.rate);
            let what = if rate { "rate" } else { "burst" };
            let message = format!("`{}` cannot be a {what}", at.text);
            self.report(Diagnostic::error("E0320", at.span, message).label(problem.to_string()))
        })
    }

    /// The valid elements of a list.
    pub(super) fn limit_members(&mut self, list: &'a tree::Limits) -> Vec<LimitMembers> {
        let keys_are_labels = list.settings.iter().any(|setting| matches!(setting, LimitsSetting::Table(_)));
        let lists = list.settings.iter().filter_map(|setting| match setting {
            LimitsSetting::Elements(elements, _) => Some(elements),
            _ => None,
        });
        let mut members = Vec::new();
        for element in lists.flatten() {
            let limit = self.limit(&element.limit);
            let keys = match keys_are_labels {
                true => self.limited_label(&element.key).map(|key| vec![(key, element.key.span())]),
                false => self.limited_prefixes(&element.key),
            };
            if let (Ok(limit), Ok(keys)) = (limit, keys) {
                let member = |(key, span)| LimitMembers { key, limit, span, citation: String::new() };
                members.extend(keys.into_iter().map(member));
            }
        }
        members
    }

    fn limited_label(&mut self, key: &Value) -> Check<LimitKey> {
        match key {
            Value::Single(Operand::Atom(atom)) if !matches!(atom.kind, AtomKind::Ipv4 | AtomKind::Ipv6) => {
                Ok(LimitKey::Label(atom.text.clone()))
            }
            _ => Err(self.report(
                Diagnostic::error("E0321", key.span(), "this is not a label")
                    .label("the keys of this list are labels of a table")
                    .help("put limits of prefixes into another list, without `table`"),
            )),
        }
    }

    /// The prefixes of an element; several if it is a `define`.
    fn limited_prefixes(&mut self, key: &'a Value) -> Check<Vec<(LimitKey, Span)>> {
        let Some(family) = self.family_of(key)? else {
            return Err(self.report(
                Diagnostic::error("E0321", key.span(), "this is not a prefix")
                    .label("the keys of this list are prefixes")
                    .help("name the table whose labels have limits: `table NAME`"),
            ));
        };
        let mut ranges = Vec::new();
        self.ranges(key, domain_of(family), &mut ranges)?;
        let mut keys = Vec::with_capacity(ranges.len());
        for range in ranges {
            keys.push((self.prefix_of(range, family)?, range.span));
        }
        Ok(keys)
    }

    fn prefix_of(&mut self, Range { first, last, span }: Range, family: Family) -> Check<LimitKey> {
        let members = super::Members { first, last, label: None, span };
        let length = members.prefix_length(family).ok_or_else(|| {
            self.report(
                Diagnostic::error("E0321", span, "a range cannot have a limit")
                    .help("write its prefixes instead: each prefix has a bucket"),
            )
        })?;
        Ok(LimitKey::Prefix { family, first, length })
    }

    /// The family of an address. For a `define`, the family of its first element. `None` if it is not an address.
    fn family_of(&mut self, value: &'a Value) -> Check<Option<Family>> {
        let mut value = value;
        // Definitions do not nest deeper than DEFINE_DEPTH_MAX.
        loop {
            let operand = match value {
                Value::Single(operand) | Value::Range { start: operand, .. } => operand,
                Value::Prefix { address, .. } => return Ok(family_of_atom(address.kind)),
                Value::Bits(_) => return Ok(None),
            };
            let name = match operand {
                Operand::Atom(atom) => return Ok(family_of_atom(atom.kind)),
                Operand::Variable(name) => name,
            };
            value = match self.variable(name)? {
                Values::One(value) => value,
                Values::Set { elements, .. } | Values::List(elements) => elements.first().ok_or(Reported)?,
                Values::Masked { .. } => return Ok(None),
            };
        }
    }

    fn contradicting_limits(&mut self, members: &[LimitMembers]) {
        let mut first: HashMap<&LimitKey, &LimitMembers> = HashMap::new();
        for member in members {
            let earlier = *first.entry(&member.key).or_insert(member);
            if earlier.limit.profile() != member.limit.profile() {
                let key = match &member.key {
                    LimitKey::Prefix { family, first, length } => format!("{}/{length}", address_text(*family, *first)),
                    LimitKey::Label(label) => format!("`{label}`"),
                };
                let message = format!("{key} has two limits");
                self.report(
                    Diagnostic::error("E0321", member.span, message)
                        .label(member.limit.to_string())
                        .note(earlier.span, earlier.limit.to_string()),
                );
            }
        }
    }

    /// The table that the setting `table NAME` of a list refers to.
    fn labelled_table(&mut self, name: &Name, tables: &[Table]) -> Check<TableId> {
        let Some(declared) = self.tables.get_mut(name.text.as_str()) else {
            let known: Vec<&str> = self.tables.keys().copied().collect();
            let diagnostic = Diagnostic::error("E0201", name.span, format!("there is no table `{}`", name.text))
                .help(format!("declare it: `table {} {{ type ipv4 : label; ... }}`", name.text));
            return Err(self.unknown(diagnostic, &name.text, "", known.into_iter()));
        };
        declared.used = true;
        let id = declared.target;
        let table = &tables[usize::from(id.0)];
        if table.kind == TableKind::Set {
            return Err(self.report(
                Diagnostic::error("E0306", name.span, format!("the table `{}` has no labels", name.text))
                    .note(table.span, "declared here")
                    .help("for limits of prefixes remove `table`"),
            ));
        }
        Ok(id)
    }

    /// Reports labels that the table does not contain.
    fn known_labels(&mut self, members: &[LimitMembers], id: TableId, tables: &[Table]) {
        let table = &tables[usize::from(id.0)];
        // It has no labels if it could not be read, which has been reported.
        if table.facts.labels.is_empty() {
            return;
        }
        for member in members {
            let LimitKey::Label(label) = &member.key else { continue };
            let table_id = usize::from(id.0);
            let written = self.has_errors() && self.written_labels[table_id].contains(label.as_str());
            if self.labels[table_id].contains_key(label) || written {
                continue;
            }
            let message = format!("the table `{}` holds no label `{label}`", table.name);
            let diagnostic = Diagnostic::error("E0205", member.span, message);
            let known = &table.facts.labels;
            let diagnostic = match known.len() {
                0..=12 => diagnostic.help(format!("it holds {}", known.join(", "))),
                count => diagnostic.help(format!("it holds {count} others")),
            };
            self.unknown(diagnostic, label, "", known.iter().map(String::as_str));
        }
    }

    /// `ip saddr limit @customers`
    pub(super) fn limit_by_list(
        &mut self,
        subject: &tree::Subject,
        name: &Name,
        span: Span,
        scope: Scope,
    ) -> Check<LimitBy> {
        let subject_span = subject.span();
        let subject = self.subject(subject);
        let Some(declared) = self.limits.get_mut(name.text.as_str()) else {
            let known: Vec<&str> = self.limits.keys().copied().collect();
            let message = format!("there is no list of limits `{}`", name.text);
            let help = format!("declare it: `limits {} {{ file \"limits.csv\" }}`", name.text);
            let diagnostic = Diagnostic::error("E0202", name.span, message).help(help);
            return Err(self.unknown(diagnostic, &name.text, "@", known.into_iter()));
        };
        declared.used = true;
        let id = declared.target;
        let key = self.address_field(subject?, subject_span, "limited")?;
        let list = &scope.limits[usize::from(id.0)];
        match list.keys {
            LimitKeys::Labels(table) => {
                let table = &scope.tables[usize::from(table.0)];
                self.same_family(key, table, span, Some(["", &format!(" limit @{}", list.name)]))?;
            }
            LimitKeys::Prefixes { .. } => self.warn_of_no_limits(list, key, span),
        }
        Ok(LimitBy::List { key, limits: id })
    }

    /// Warns about a list without limits for the family of the statement.
    fn warn_of_no_limits(&mut self, list: &Limits, key: Field, span: Span) {
        let family = key.family();
        if list.default.is_none() && list.facts.of(family).entries == 0 {
            let name = match family {
                Family::Ipv4 => "IPv4",
                Family::Ipv6 => "IPv6",
            };
            let message = format!("the list `{}` has no {name} prefix and no default", list.name);
            self.warn(Diagnostic::warning("W0414", span, message).label("this limits nothing"));
        }
    }

    /// Reports policies with more than [`LIMITERS_MAX`] limiters.
    pub(super) fn bound_limiters(&mut self, postures: &[Posture]) {
        let mut limiters = HashSet::new();
        let chains = postures.iter().flat_map(|posture| {
            [(Direction::Upstream, &posture.upstream), (Direction::Downstream, &posture.downstream)]
        });
        for (direction, rules) in chains {
            let rules: &[Rule] = rules.as_deref().unwrap_or_default();
            for (span, by, nth) in ordinals(rules) {
                limiters.insert((direction, by, nth));
                if limiters.len() > LIMITERS_MAX {
                    let message = format!("the policy has more than {LIMITERS_MAX} limits");
                    let help = "use a list of limits: one statement can limit millions of prefixes";
                    self.report(Diagnostic::error("E0314", span, message).help(help));
                    return;
                }
            }
        }
    }
}

/// The limit statements of a chain: the rule, the limit, and the number of earlier statements with the same owner.
fn ordinals(rules: &[Rule]) -> Vec<(Span, LimitBy, usize)> {
    let mut before: HashMap<LimitOwner, usize> = HashMap::new();
    let mut all = Vec::new();
    for rule in rules {
        for effect in &rule.effects {
            let Effect::Limit { by, .. } = effect else { continue };
            let nth = before.entry(by.owner()).or_default();
            all.push((rule.span, *by, *nth));
            *nth += 1;
        }
    }
    all
}

fn family_of_atom(kind: AtomKind) -> Option<Family> {
    match kind {
        AtomKind::Ipv4 => Some(Family::Ipv4),
        AtomKind::Ipv6 => Some(Family::Ipv6),
        AtomKind::Word | AtomKind::Number | AtomKind::String => None,
    }
}
