//! Which packets a policy samples, and whether mitigation can measure them.

use weir_policy::ir::match_tree::rules;
use weir_policy::ir::{Direction, Effect, Program};

/// The N of `sample 1/N` of a posture. Samples must come from in front of the slot, so that an action sees whom it hits.
///
/// # Errors
/// Packets to protected hosts are not sampled, or in a way that cannot be measured.
pub fn one_in(program: &Program, posture: Option<&str>, slot: &str) -> Result<u32, String> {
    let mut found = None;
    for direction in [Direction::Upstream, Direction::Downstream] {
        let Some(chain) = program.chain(posture, direction) else { continue };
        let of_chain = rules(&program.chains[chain].tree.nodes).map(|id| program.rule(id));
        let mut is_sampled = false;
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

/// Whether a rule of a program diverts packets. Mitigation reads the divert interface.
pub fn diverts(program: &Program) -> Option<&str> {
    let diverts = |effect: &Effect| matches!(effect, Effect::Verdict(weir_abi::Action::Divert));
    program.rules.iter().find(|rule| rule.effects.iter().any(diverts)).map(|rule| rule.at.as_str())
}
