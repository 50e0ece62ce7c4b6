//! Why nothing is done against an attack, and what would help: in the words of an operator.

use crate::action::{Ending, Mode};
use crate::attack::{Attack, Record, State};
use serde::{Deserialize, Serialize};

/// Why no action against an attack is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// The reason.
    pub why: String,
    /// What would help; nothing if Weir goes on by itself.
    pub help: Option<String>,
}

impl Idle {
    /// Why nothing is done; `None` if an action is carried out, or the attack is over.
    pub fn of(attack: &Attack, mode: Mode) -> Option<Self> {
        if attack.is_over || attack.standing().any(|record| record.state == State::Active) {
            return None;
        }
        let waiting = attack.standing().count();
        let number = attack.id.unwrap_or_default();
        let (why, help) = match mode {
            Mode::Watch => {
                ("the mode is `watch`".to_owned(), Some("`weir ctl attacks mode act`, or `propose`".to_owned()))
            }
            Mode::Propose | Mode::Act if waiting > 0 => {
                let why = if waiting == 1 { "an action waits".to_owned() } else { format!("{waiting} actions wait") };
                (why, Some(format!("`weir ctl attacks accept {number}`")))
            }
            Mode::Propose | Mode::Act => ended(attack),
        };
        Some(Idle { why, help })
    }
}

/// The reason if no action waits: what became of the last one, or why there was none.
fn ended(attack: &Attack) -> (String, Option<String>) {
    let last = attack.records.iter().rev().find_map(|record| Some((record, ending(record)?)));
    match last {
        Some((_, Ending::Dismissed | Ending::Removed)) => {
            let help = "a rule by hand (`weir ctl slot`), or another posture";
            ("an operator has ended its actions".to_owned(), Some(help.to_owned()))
        }
        Some((record, Ending::Failed)) => {
            let problem = record.problem.as_deref().unwrap_or("it is not known why");
            (format!("its action could not be carried out: {problem}"), None)
        }
        Some((_, Ending::Collateral)) => {
            let help = "a posture (`--mitigate-posture`), or limits for each source in the policy";
            ("its last action hit packets of proven sources and was undone".to_owned(), Some(help.to_owned()))
        }
        Some((_, Ending::Quiet | Ending::Timeout | Ending::Merged | Ending::Stopped)) => {
            ("its actions have ended, and what is left is not above a threshold".to_owned(), None)
        }
        None if attack.latest().is_empty() => {
            let help = "more samples: a smaller N in `sample 1/N`";
            ("too few of its packets were sampled to describe them".to_owned(), Some(help.to_owned()))
        }
        None if attack.failures > 0 => {
            let why = format!("no signature separates it from customers, after {} tries", attack.failures);
            let help = "a posture with `tcp synproxy` (`--mitigate-posture`), or limits for each source in the policy";
            (why, Some(help.to_owned()))
        }
        None => ("its packets are still being learned".to_owned(), None),
    }
}

fn ending(record: &Record) -> Option<Ending> {
    match record.state {
        State::Ended(ending) => Some(ending),
        State::Proposed | State::Active => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Idle;
    use crate::action::{Action, Ending, Measure, Mode, Trial};
    use crate::attack::{Attack, Record, State};
    use crate::prefix::Prefix;
    use weir_abi::PacketClass;

    /// What is said about an attack with one action.
    fn said(state: State, mode: Mode) -> Option<String> {
        let mut attack = Attack::new(Prefix::of(false, 0xc000_0201, 32), PacketClass::Udp, 0);
        attack.id = Some(7);
        let action = Action { id: 1, attack: 7, measure: Measure::Posture("high".to_owned()), trial: Trial::default() };
        attack.records.push(Record::new(action, PacketClass::Udp, state, 0));
        Idle::of(&attack, mode).map(|idle| idle.why)
    }

    #[test]
    fn every_end_has_its_reason() {
        assert_eq!(said(State::Active, Mode::Act), None);
        for (state, mode, why) in [
            (State::Proposed, Mode::Watch, "the mode is `watch`"),
            (State::Proposed, Mode::Propose, "an action waits"),
            (State::Ended(Ending::Dismissed), Mode::Act, "an operator has ended its actions"),
            (
                State::Ended(Ending::Collateral),
                Mode::Act,
                "its last action hit packets of proven sources and was undone",
            ),
            (State::Ended(Ending::Failed), Mode::Act, "its action could not be carried out: it is not known why"),
        ] {
            assert_eq!(said(state, mode).as_deref(), Some(why));
        }
    }

    #[test]
    fn an_attack_without_an_action_says_what_is_missing() {
        let mut attack = Attack::new(Prefix::of(false, 0xc000_0201, 32), PacketClass::Udp, 0);
        let idle = Idle::of(&attack, Mode::Act).expect("nothing is done");
        assert!(idle.why.contains("too few of its packets were sampled") && idle.help.is_some());
        attack.is_over = true;
        assert_eq!(Idle::of(&attack, Mode::Act), None);
    }
}
