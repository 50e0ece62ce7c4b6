//! Splits policies between a card and the software when they are loaded.

use crate::parts::card::counted_rule::CountedRule;
use crate::parts::card::options::CardRules;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_card::Profile;
use weir_card::body::BodyLayout;
use weir_card::image::Memory;
use weir_card::program::CardProgram;
use weir_loading::Policy;
use weir_planning::card::{CardImages, RuleReport, report, split_of};
use weir_planning::worth;
use weir_policy::ir::match_tree::rules;
use weir_policy::ir::{Direction, Program, RuleId};

/// What is offloaded, and to which card.
pub struct Splitter {
    /// The card.
    pub profile: Profile,
    /// Which rules it gets.
    pub rules: CardRules,
}

/// The card's part of a policy.
pub struct Offloaded {
    /// What the card does.
    pub card: CardProgram,
    /// The memories of its lookups.
    pub tables: Vec<Memory>,
    /// The rules for which it drops, by counter.
    pub counted: Vec<Arc<CountedRule>>,
    /// Each rule of the base policy's chain, in order.
    pub rules: Vec<RuleReport>,
    /// Index of the chain for packets with answers.
    pub chain: usize,
    /// The rules that were chosen. The card may lack room for some.
    pub choice: BTreeSet<RuleId>,
}

impl Splitter {
    /// The policy with a chain that reads answers, and the card's part: the rules of a choice, or those that the
    /// options say. A bundle's code has the chains that it has, so nothing of it is offloaded.
    pub fn split(&self, policy: Policy, choice: Option<BTreeSet<RuleId>>) -> (Policy, Option<Offloaded>) {
        if policy.is_bundle() {
            return (policy, None);
        }
        let base = base(&policy.program);
        let choice = choice.unwrap_or_else(|| match self.rules {
            CardRules::All => rules(&policy.program.chains[base].tree.nodes).collect(),
            CardRules::Plan | CardRules::Follow => worth(&policy, base, &self.profile),
            CardRules::None => BTreeSet::new(),
        });
        let split = split_of(&policy, base, &self.profile, &|rule| choice.contains(&rule));
        let offloaded = Offloaded {
            tables: CardImages::new(&policy, &split).memories(),
            counted: counted(&policy.program, &split.card.dropped),
            rules: report(&policy.program, &self.profile, &split).rules,
            chain: split.answered,
            card: split.card,
            choice,
        };
        (policy.with_answers(split.software), Some(offloaded))
    }
}

/// The chain that a card executes a part of.
pub fn base(program: &Program) -> usize {
    program.chain(None, Direction::Upstream).expect("every policy has a base")
}

/// What a card does that only seals packets.
pub fn nothing() -> CardProgram {
    CardProgram {
        patterns: vec![],
        rules: vec![],
        lookups: vec![],
        options_alone: false,
        dropped: vec![],
        body: BodyLayout::default(),
    }
}

fn counted(program: &Program, rules: &[RuleId]) -> Vec<Arc<CountedRule>> {
    let tables = program.tables_tested();
    let counted = |rule: &RuleId| {
        let tables = tables[usize::from(rule.0)].iter().map(|&table| table.to_owned()).collect();
        let found = program.rule(*rule);
        Arc::new(CountedRule { at: found.at.clone(), text: found.text.clone(), tables })
    };
    rules.iter().map(counted).collect()
}
