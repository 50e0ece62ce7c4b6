//! Checks how tables are updated: `watch`, `protect` and `max-change`. They refer to other tables, so all tables are
//! known.

use super::{Check, Checker};
use crate::catalog::Family;
use crate::checked::{Table, TableId};
use crate::diag::Diagnostic;
use crate::source::Span;
use crate::syntax::tree::{self, Atom, Item, Name, TableSetting};

/// Maximum of `max-change`, percent.
pub const MAX_CHANGE_PERCENT_MAX: u32 = 10_000;

impl<'a> Checker<'a> {
    /// Reads the settings about updates of all tables.
    pub(super) fn updates(&mut self, tables: &mut [Table]) {
        for item in self.items.clone() {
            let Item::Table(declared) = item else { continue };
            let known = self.tables.get(declared.name.text.as_str());
            let id = known.filter(|known| known.span == declared.name.span).map(|known| known.target);
            if let Some(id) = id {
                self.updates_of(declared, id, tables);
            }
        }
    }

    fn updates_of(&mut self, declared: &'a tree::Table, id: TableId, tables: &mut [Table]) {
        let at = usize::from(id.0);
        let (mut watch, mut max_change): (Option<Span>, Option<Span>) = (None, None);
        let mut protected: Vec<(TableId, Span)> = Vec::new();
        for setting in &declared.settings {
            match setting {
                TableSetting::Watch(span) => {
                    let Ok(()) = self.once("watch", *span, watch, &tables[at]) else { continue };
                    watch = Some(*span);
                    tables[at].updates.watch = self.watch(declared, *span, &tables[at]).is_ok();
                }
                TableSetting::MaxChange(percent) => {
                    let Ok(()) = self.once("max-change", percent.span, max_change, &tables[at]) else { continue };
                    max_change = Some(percent.span);
                    tables[at].updates.max_change_percent = self.max_change(percent).ok();
                }
                TableSetting::Protect(name) => {
                    let Ok(other) = self.protected_table(name, id, tables) else { continue };
                    let first = protected.iter().find(|(known, _)| *known == other).map(|&(_, span)| span);
                    let setting = format!("protect @{}", name.text);
                    let Ok(()) = self.once(&setting, name.span, first, &tables[at]) else { continue };
                    protected.push((other, name.span));
                }
                _ => {}
            }
        }
        tables[at].updates.protected = protected.into_iter().map(|(table, _)| table).collect();
    }

    /// Reports a setting that was set before.
    fn once(&mut self, setting: &str, span: Span, first: Option<Span>, table: &Table) -> Check<()> {
        let Some(first) = first else { return Ok(()) };
        let message = format!("`{setting}` is set twice in the table `{}`", table.name);
        Err(self.report(Diagnostic::error("E0210", span, message).note(first, "first here")))
    }

    fn watch(&mut self, declared: &tree::Table, span: Span, table: &Table) -> Check<()> {
        let has_file = declared.settings.iter().any(|setting| matches!(setting, TableSetting::File(_)));
        let (message, help) = match (table.dynamic, has_file) {
            (None, true) => return Ok(()),
            (None, false) => ("`watch` needs a `file`", "name the list with `file \"PATH\"`, or remove this"),
            (Some(_), _) => (
                "`watch` is not for dynamic tables",
                "a dynamic table only starts with its files: remove `dynamic`, or remove this",
            ),
        };
        Err(self.report(Diagnostic::error("E0311", span, message).help(help)))
    }

    fn max_change(&mut self, percent: &Atom) -> Check<u32> {
        match percent.text.parse::<u32>() {
            Ok(percent @ 1..=MAX_CHANGE_PERCENT_MAX) => Ok(percent),
            _ => Err(self.report(
                Diagnostic::error("E0301", percent.span, format!("`{}%` is not a share", percent.text)).help(format!(
                    "write 1% to {MAX_CHANGE_PERCENT_MAX}%: how far an update may grow or shrink the table"
                )),
            )),
        }
    }

    /// The table that `protect @NAME` refers to.
    fn protected_table(&mut self, name: &Name, own: TableId, tables: &[Table]) -> Check<TableId> {
        let Some(declared) = self.tables.get_mut(name.text.as_str()) else {
            let known: Vec<&str> = self.tables.keys().copied().collect();
            let diagnostic = Diagnostic::error("E0201", name.span, format!("there is no table `{}`", name.text))
                .help(format!("declare it: `table {} {{ type ipv4; ... }}`", name.text));
            return Err(self.unknown(diagnostic, &name.text, "@", known.into_iter()));
        };
        declared.used = true;
        let other = declared.target;
        if other == own {
            return Err(self.report(
                Diagnostic::error("E0311", name.span, "a table cannot protect its own addresses")
                    .help("name the table whose addresses no update may add"),
            ));
        }
        let (own, protected) = (&tables[usize::from(own.0)], &tables[usize::from(other.0)]);
        if own.family != protected.family {
            let text = |family| if family == Family::Ipv4 { "IPv4" } else { "IPv6" };
            let (family, other) = (text(own.family), text(protected.family));
            let message =
                format!("the table `{}` has {family} addresses, `{}` has {other} addresses", own.name, protected.name);
            return Err(self.report(
                Diagnostic::error("E0303", name.span, message)
                    .note(protected.span, "declared here")
                    .help("a protected table has the family of the table that it is for"),
            ));
        }
        Ok(other)
    }
}
