//! Checks tables with `counters`.

use super::Checker;
use super::bounds::COUNTED_MAX;
use crate::checked::{Match, Posture, Rule, Table, TableId};
use crate::diag::Diagnostic;

impl Checker<'_> {
    /// Refuses more tables with counters than engines can have.
    pub(super) fn bound_counters(&mut self, tables: &[Table]) {
        if let Some(table) = tables.iter().filter(|table| table.counters).nth(COUNTED_MAX) {
            let message = format!("more than {COUNTED_MAX} tables have `counters`");
            self.report(Diagnostic::error("E0314", table.span, message).help("remove it from some of them"));
        }
    }

    /// Warns about counters that count nothing: no rule matches packets by an entry of the table.
    pub(super) fn warn_of_idle_counters(&mut self, tables: &[Table], postures: &[Posture]) {
        let chains = postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]);
        let rules: Vec<&Rule> = chains.flatten().flatten().collect();
        let counts = |id: TableId| {
            let by_entry = |found: &Match| matches!(found, Match::Table { table, negated: false, .. } if *table == id);
            rules.iter().any(|rule| rule.matches.iter().any(by_entry))
        };
        for (id, table) in (0..).map(TableId).zip(tables) {
            if table.counters && !counts(id) {
                let message = format!("the counters of the table `{}` count nothing", table.name);
                self.warn(
                    Diagnostic::warning("W0415", table.span, message)
                        .help("a packet counts if a rule matches it by an entry, as `ip saddr @NAME` does"),
                );
            }
        }
    }
}
