//! Checks statements that add addresses to tables.

use super::{ADDITIONS_MAX, Check, Checker, Scope};
use crate::checked::{Add, AddKind, Effect, LimitBy, LimitEach, Posture, Rule, Table, TableId, TableKind};
use crate::diag::Diagnostic;
use crate::field::Field;
use crate::source::Span;
use crate::syntax::tree::{self, Atom, ExceedAdd, Name};
use weir_abi::Layout;

/// An address that a statement adds, and the text around the field in messages.
struct Added<'w> {
    key: Field,
    length: u8,
    /// The text before and after the field, if the statement names the field.
    around: Option<[&'w str; 2]>,
}

impl<'a> Checker<'a> {
    /// `add @suspects { ip saddr/24 timeout 10m }`
    pub(super) fn addition(&mut self, written: &'a tree::Add, scope: Scope) -> Check<Add> {
        let span = written.subject.span();
        let subject = self.subject(&written.subject);
        let table = self.table_to_change(&written.table);
        let timeout_ms = self.timeout_of_entry(written.timeout.as_ref());
        let key = self.address_field(subject?, span, "added to tables")?;
        let length = self.prefix_length(written.length.as_ref(), key)?;
        let before = format!("{} @{} {{ ", written.kind.name(), written.table.text);
        let added = Added { key, length, around: Some([&before, " }"]) };
        let table = table?;
        self.takes(&scope.tables[usize::from(table.0)], &added, span)?;
        Ok(Add { kind: written.kind, table, key, length, timeout_ms: timeout_ms? })
    }

    /// `exceed add @suspects timeout 10m` after a limit.
    pub(super) fn exceed_addition(&mut self, written: &'a ExceedAdd, by: &LimitBy, scope: Scope) -> Check<Add> {
        let table = self.table_to_change(&written.table);
        let timeout_ms = self.timeout_of_entry(written.timeout.as_ref());
        let (key, length) = match *by {
            LimitBy::List { key, .. } => (key, key.bits()),
            LimitBy::Each(LimitEach { key, length, .. }, _) => (key, length),
            LimitBy::Rate(_) => {
                return Err(self.report(
                    Diagnostic::error("E0323", written.span, "`limit rate` has no address that it could add")
                        .label("all packets share its limit")
                        .help("write `limit each ip saddr 50pps exceed add`, or a list: `ip saddr limit @NAME exceed add`"),
                ));
            }
        };
        let added = Added { key, length, around: None };
        let table = table?;
        self.takes(&scope.tables[usize::from(table.0)], &added, written.span)?;
        Ok(Add { kind: AddKind::Add, table, key, length, timeout_ms: timeout_ms? })
    }

    fn table_to_change(&mut self, name: &Name) -> Check<TableId> {
        let Some(declared) = self.tables.get_mut(name.text.as_str()) else {
            let known: Vec<&str> = self.tables.keys().copied().collect();
            let diagnostic = Diagnostic::error("E0201", name.span, format!("there is no table `{}`", name.text))
                .help(format!("declare it: `table {} {{ type ipv4; dynamic; timeout 10m }}`", name.text));
            return Err(self.unknown(diagnostic, &name.text, "@", known.into_iter()));
        };
        declared.used = true;
        Ok(declared.target)
    }

    fn timeout_of_entry(&mut self, written: Option<&'a Atom>) -> Check<Option<u64>> {
        written.map(|atom| self.timeout(atom)).transpose()
    }

    /// Checks that the table can take the address: a dynamic set of its family, in a layout for its length.
    fn takes(&mut self, table: &Table, added: &Added<'_>, span: Span) -> Check<()> {
        let name = &table.name;
        if table.kind == TableKind::Labels {
            let message = format!("rules cannot add to the table `{name}`: its entries have labels");
            let help = "declare a table for them: `table NAME { type ipv4; dynamic; timeout 10m }`";
            let diagnostic = Diagnostic::error("E0323", span, message).note(table.span, "declared here");
            return Err(self.report(diagnostic.help(help)));
        }
        if table.dynamic.is_none() {
            let message = format!("rules cannot add to the table `{name}`: it is not dynamic");
            let diagnostic = Diagnostic::error("E0323", span, message).note(table.span, "declared here");
            return Err(
                self.report(diagnostic.help("write `dynamic` in it, and `timeout 10m` if entries shall expire"))
            );
        }
        self.same_family(added.key, table, span, added.around)?;
        let Some(layout) = table.layout.filter(|layout| !holds_length(*layout, added.length)) else { return Ok(()) };
        let (layout, length) = (layout.name(), added.length);
        let message = format!("the layout `{layout}` of the table `{name}` cannot hold prefixes of length {length}");
        let diagnostic = Diagnostic::error("E0312", span, message).note(table.span, "declared here");
        Err(self.report(diagnostic.help("remove `layout` from the table")))
    }

    /// The length of a prefix of an address field; all bits if none is written.
    pub(super) fn prefix_length(&mut self, written: Option<&Atom>, key: Field) -> Check<u8> {
        let bits = key.bits();
        let Some(written) = written else { return Ok(bits) };
        written.text.parse().ok().filter(|length| (1..=bits).contains(length)).ok_or_else(|| {
            let message = format!("`{}` is not the length of a prefix of `{}`", written.text, key.name());
            self.report(Diagnostic::error("E0315", written.span, message).help(format!("it goes from 1 to {bits}")))
        })
    }

    /// Reports directions with more than [`ADDITIONS_MAX`] statements that add.
    pub(super) fn bound_additions(&mut self, postures: &[Posture]) {
        for rules in postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]).flatten() {
            let adding = rules.iter().flat_map(|rule| additions(rule).map(|_| rule.span));
            if let Some(span) = adding.into_iter().nth(ADDITIONS_MAX) {
                let message = format!("a direction has more than {ADDITIONS_MAX} statements that add to tables");
                let help = "join rules that add to the same table";
                self.report(Diagnostic::error("E0314", span, message).help(help));
                return;
            }
        }
    }
}

/// The additions of a rule, in order.
fn additions(rule: &Rule) -> impl Iterator<Item = &Add> {
    rule.effects.iter().filter_map(|effect| match effect {
        Effect::Add(add) | Effect::Limit { add: Some(add), .. } => Some(add),
        _ => None,
    })
}

/// Whether a layout holds prefixes of a length. Each holds one family, whose longest prefixes are addresses.
fn holds_length(layout: Layout, length: u8) -> bool {
    match layout {
        Layout::ExactSet | Layout::ExactSets => length == 32,
        Layout::ExactSet6 | Layout::ExactSets6 => [64, 128].contains(&length),
        Layout::Dxr16x4
        | Layout::RankLeaf
        | Layout::CountedLeaf
        | Layout::Range6
        | Layout::RankLeaf6
        | Layout::ExactLeaf
        | Layout::ExactLeaf6 => true,
    }
}
