//! Reports of what rules have added to tables.

use crate::figures;
use weir_abi::AdditionCounts;
use weir_control::AdditionStats;

/// The counters in reports.
pub fn stats(counts: AdditionCounts) -> AdditionStats {
    let AdditionCounts { added, updated, overflow, table_full, protected } = counts;
    AdditionStats { added, updated, additions_overflow: overflow, table_full, protected }
}

/// One line; empty if nothing was added.
pub fn describe(stats: &AdditionStats) -> String {
    let AdditionStats { added, updated, additions_overflow, table_full, protected } = *stats;
    if *stats == AdditionStats::default() {
        return String::new();
    }
    let mut text =
        format!("rules added {} entries to tables and updated {}", figures::grouped(added), figures::grouped(updated));
    let refused = [("additions-overflow", additions_overflow), ("table-full", table_full), ("protected", protected)];
    for (name, count) in refused {
        if count > 0 {
            text += &format!(", {name} {}", figures::grouped(count));
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_is_reported() {
        let counts = AdditionCounts { added: 1234, updated: 5, overflow: 0, table_full: 77, protected: 2 };
        assert_eq!(
            describe(&stats(counts)),
            "rules added 1,234 entries to tables and updated 5, table-full 77, protected 2\n"
        );
        assert_eq!(describe(&AdditionStats::default()), "");
    }
}
