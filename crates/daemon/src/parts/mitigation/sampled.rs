//! Which packets a policy samples, and whether mitigation can measure them.

use weir_policy::ir::match_tree::{Condition, Test, Wanted, conditions};
use weir_policy::ir::{Chain, Direction, Effect, Program};

/// The N of `sample 1/N` of a posture. Samples must come from in front of the slot and of rules with the tables of
/// blocked sources, so that an action sees whom it hits.
///
/// # Errors
/// Packets to protected hosts are not sampled, or in a way that cannot be measured.
pub fn one_in(program: &Program, posture: Option<&str>, slot: &str, tables: &[String]) -> Result<u32, String> {
    let mut found = None;
    for direction in [Direction::Upstream, Direction::Downstream] {
        let Some(chain) = program.chain(posture, direction) else { continue };
        let chain = &program.chains[chain];
        let of_chain = conditions(&chain.tree.nodes);
        let mut is_sampled = false;
        if direction == Direction::Upstream {
            let is_early = |one: &&Condition<'_>| !samples(program, one);
            let early =
                of_chain.iter().take_while(is_early).find_map(|one| Some((one, blocks(program, chain, one, tables)?)));
            if let Some((one, table)) = early {
                let at = &program.rule(one.rule).at;
                return Err(format!(
                    "{at}: a rule with `@{table}` stands before `sample`, so nobody sees whom it blocks"
                ));
            }
        }
        let of_chain = of_chain.iter().map(|one| program.rule(one.rule));
        for (rule, effect) in of_chain.flat_map(|rule| rule.effects.iter().map(move |effect| (rule, effect))) {
            match effect {
                Effect::Sample { one_in } => {
                    is_sampled = true;
                    match found.replace(*one_in) {
                        Some(other) if other != *one_in => {
                            return Err(format!("{}: samples 1/{one_in}, and another rule 1/{other}", rule.at));
                        }
                        _ => {}
                    }
                }
                Effect::Slot(id) if !is_sampled && program.rule_slots[usize::from(id.0)].name == slot => {
                    return Err(format!(
                        "{}: `slot {slot}` stands before `sample`, so nobody sees what its rules drop",
                        rule.at
                    ));
                }
                _ => {}
            }
        }
        if !is_sampled && direction == Direction::Upstream {
            return Err("no rule upstream has `sample 1/N`, so nothing is measured".to_owned());
        }
    }
    found.ok_or_else(|| "no rule has `sample 1/N`, so nothing is measured".to_owned())
}

/// Whether a rule samples.
fn samples(program: &Program, one: &Condition<'_>) -> bool {
    program.rule(one.rule).effects.iter().any(|effect| matches!(effect, Effect::Sample { .. }))
}

/// The table of blocked sources whose packets a rule decides.
fn blocks<'a>(program: &Program, chain: &Chain, one: &Condition<'_>, tables: &'a [String]) -> Option<&'a str> {
    program.rule(one.rule).verdict()?;
    one.tests.iter().find_map(|test| {
        let Test::Found { find, wanted, .. } = test else { return None };
        let held = program.slot(chain.finds[usize::from(find.0)].slot).tables();
        let held = match wanted {
            Wanted::Table(bit) => held.get(usize::from(*bit)),
            Wanted::Any | Wanted::Labels(_) => held.first(),
        };
        tables.iter().find(|table| held == Some(*table)).map(String::as_str)
    })
}
