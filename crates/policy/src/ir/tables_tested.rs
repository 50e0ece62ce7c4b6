//! Which tables the matches of a rule use. Counts for each table are sums over such rules.

use super::match_tree::conditions;
use super::{Chain, Program, Test, Wanted};
use std::collections::BTreeSet;

impl Program {
    /// For each rule, the names of the tables in its matches, negated or not.
    pub fn tables_tested(&self) -> Vec<BTreeSet<&str>> {
        let mut tables_tested = vec![BTreeSet::new(); self.rules.len()];
        for chain in &self.chains {
            for condition in conditions(&chain.tree.nodes) {
                let tables = condition.tests.iter().filter_map(|test| self.table_tested(chain, test));
                tables_tested[usize::from(condition.rule.0)].extend(tables);
            }
        }
        tables_tested
    }

    /// The table that a test uses, if any. A `find` without a test has no effect on the match.
    fn table_tested(&self, chain: &Chain, test: &Test) -> Option<&str> {
        let Test::Found { find, wanted, .. } = test else { return None };
        let slot = self.slot(chain.finds[usize::from(find.0)].slot);
        let index = match wanted {
            Wanted::Table(index) => usize::from(*index),
            Wanted::Any | Wanted::Labels(_) => 0,
        };
        slot.tables().get(index).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::parse::parse;

    #[test]
    fn a_rule_has_the_tables_of_all_tests_before_it() {
        let program = parse(
            "program p\nslot 0 allowed+bad ip4 exact-sets\nslot 1 geo ip4 rank-leaf\n\
             rule 0 p:1 [drop] ip saddr @bad ip daddr @geo { 1 } drop\nrule 1 p:2 [accept] ip saddr != @allowed accept\nrule 2 p:3 [drop] drop\n\
             chain upstream\n  ask 0 slot 0 ip saddr\n  ask 1 slot 1 ip daddr\n  when ip4\n    find 0\n    when found 0 by table 1\n      find 1\n      \
             when found 1 in 1\n        rule 0\n    when not found 0 by table 0\n      rule 1\n  rule 2\n",
        )
        .expect("a program");
        let tested: Vec<Vec<&str>> = program.tables_tested().into_iter().map(|set| set.into_iter().collect()).collect();
        assert_eq!(tested, [vec!["bad", "geo"], vec!["allowed"], vec![]]);
    }
}
