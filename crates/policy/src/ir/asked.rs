//! Which tables a rule asks, so that what they decided can be counted.

use super::{Chain, Node, Program, Test, Wanted};
use std::collections::BTreeSet;

impl Program {
    /// For each rule the names of the tables that it asks, whichever answer it wants.
    pub fn tables_asked(&self) -> Vec<BTreeSet<&str>> {
        let mut asked = vec![BTreeSet::new(); self.rules.len()];
        for chain in &self.chains {
            let mut walk = Walk { program: self, chain, way: Vec::new(), asked: &mut asked };
            walk.block(&chain.body);
        }
        asked
    }
}

struct Walk<'p, 'w> {
    program: &'p Program,
    chain: &'p Chain,
    /// Tables asked on the way here.
    way: Vec<&'p str>,
    asked: &'w mut Vec<BTreeSet<&'p str>>,
}

impl<'p> Walk<'p, '_> {
    fn block(&mut self, nodes: &'p [Node]) {
        for node in nodes {
            match node {
                // Finding alone decides nothing.
                Node::Find(_) => {}
                Node::Rule(id) => self.asked[usize::from(id.0)].extend(&self.way),
                Node::When { test, body } => {
                    let table = self.table(test);
                    self.way.extend(table);
                    self.block(body);
                    self.way.truncate(self.way.len() - usize::from(table.is_some()));
                }
            }
        }
    }

    fn table(&self, test: &Test) -> Option<&'p str> {
        let Test::Found { find, wanted, .. } = test else { return None };
        let slot = self.program.slot(self.chain.finds[usize::from(find.0)].slot);
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
    fn rules_ask_what_is_tested_on_their_way() {
        let program = parse(
            "program p\nslot 0 allowed+bad ip4 exact-sets\nslot 1 geo ip4 rank-leaf\n\
             rule 0 p:1 [drop] ip saddr @bad ip daddr @geo { 1 } drop\nrule 1 p:2 [accept] ip saddr != @allowed accept\nrule 2 p:3 [drop] drop\n\
             chain upstream\n  ask 0 slot 0 ip saddr\n  ask 1 slot 1 ip daddr\n  when ip4\n    find 0\n    when found 0 by table 1\n      find 1\n      \
             when found 1 in 1\n        rule 0\n    when not found 0 by table 0\n      rule 1\n  rule 2\n",
        )
        .expect("a program");
        let asked: Vec<Vec<&str>> = program.tables_asked().into_iter().map(|set| set.into_iter().collect()).collect();
        assert_eq!(asked, [vec!["bad", "geo"], vec!["allowed"], vec![]]);
    }
}
