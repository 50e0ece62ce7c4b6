//! What each deployment target can do of what rules may ask: one table, and one check that compares a program with it.
//!
//! A new statement is a [`Feature`], a new engine an [`Engine`]. [`DeploymentTarget::lacks`] says which target has which statement.

use crate::ir::{Effect, Program, RuleId};
use weir_abi::Target;

/// What decides packets by a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The reference interpreter.
    Eval,
    /// Generated C in this process: captures, and the live engines of user space.
    Native,
    /// Generated BPF in the kernel.
    Xdp,
    /// Generated P4 on DPDK's SWX pipeline.
    P4,
}

/// Where a policy is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeploymentTarget {
    /// An engine.
    Engine(Engine),
    /// A bundle, which carries code of engines. A policy in it needs what these engines can do as well.
    Bundle,
}

/// What a rule asks for besides matches, its counter and a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// `limit`
    Limit,
    /// `sample`
    Sample,
    /// `track`
    Track,
}

/// Something that targets cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported {
    /// The rule that asks for it.
    pub rule: RuleId,
    /// What it asks for.
    pub feature: Feature,
    /// The targets that lack it, each with the reason.
    pub lacking: Vec<(DeploymentTarget, &'static str)>,
}

impl Engine {
    /// Every engine.
    pub const ALL: [Self; 4] = [Engine::Eval, Engine::Native, Engine::Xdp, Engine::P4];

    /// The engine that runs what is compiled for a target.
    pub const fn of(target: Target) -> Self {
        match target {
            Target::Native => Engine::Native,
            Target::Bpf => Engine::Xdp,
        }
    }

    /// The name in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Eval => "eval",
            Engine::Native => "native",
            Engine::Xdp => "xdp",
            Engine::P4 => "p4",
        }
    }
}

impl DeploymentTarget {
    /// The name in messages and reports.
    pub const fn name(self) -> &'static str {
        match self {
            DeploymentTarget::Engine(engine) => engine.name(),
            DeploymentTarget::Bundle => "bundle",
        }
    }

    /// Why it cannot do this; `None` if it can.
    pub const fn lacks(self, feature: Feature) -> Option<&'static str> {
        match (self, feature) {
            (DeploymentTarget::Engine(_), Feature::Track) => Some("no engine tracks flows yet"),
            (DeploymentTarget::Engine(_), Feature::Limit | Feature::Sample) => None,
            (DeploymentTarget::Bundle, Feature::Limit) => Some("a bundle cannot carry limits yet"),
            (DeploymentTarget::Bundle, Feature::Sample | Feature::Track) => None,
        }
    }
}

impl From<Engine> for DeploymentTarget {
    fn from(engine: Engine) -> Self {
        DeploymentTarget::Engine(engine)
    }
}

impl Feature {
    /// The statement that asks for it.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::Limit => "limit",
            Feature::Sample => "sample",
            Feature::Track => "track",
        }
    }

    /// What an effect needs; `None` if every target has it.
    const fn of(effect: &Effect) -> Option<Self> {
        match effect {
            Effect::Limit { .. } => Some(Feature::Limit),
            Effect::Sample { .. } => Some(Feature::Sample),
            Effect::Track => Some(Feature::Track),
            Effect::Verdict(_) => None,
        }
    }
}

impl Unsupported {
    /// Names of the targets that lack it: `native, xdp`.
    pub fn targets(&self) -> String {
        self.lacking.iter().map(|(target, _)| target.name()).collect::<Vec<_>>().join(", ")
    }
}

/// What the rules of a program ask of targets that do not have it, in order of the rules. Empty: each of the targets takes the program.
pub fn unsupported(program: &Program, targets: &[DeploymentTarget]) -> Vec<Unsupported> {
    let mut found = Vec::new();
    for (index, rule) in (0..).zip(&program.rules) {
        for feature in rule.effects.iter().filter_map(Feature::of) {
            let lacking = |&target: &DeploymentTarget| Some((target, target.lacks(feature)?));
            let lacking: Vec<_> = targets.iter().filter_map(lacking).collect();
            if !lacking.is_empty() {
                found.push(Unsupported { rule: RuleId(index), feature, lacking });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse::parse;

    const PROGRAM: &str = "\
program test
defaults malformed drop, arp accept, not-ip drop, fragment rules, ip-options rules, no-match accept
on-exit block
limiter 0 rate upstream 0 rate 2pps burst 1packets log off
rule 0 test.weir:1 [limit 0 exceed drop] limit rate 2pps burst 1
rule 1 test.weir:2 [accept] accept
rule 2 test.weir:3 [track] tcp track
chain upstream
  rule 0
  when tcp
    rule 2
  rule 1
chain downstream
";

    #[test]
    fn a_program_is_compared_with_what_each_target_has() {
        let program = parse(PROGRAM).unwrap();
        let found = |targets: &[DeploymentTarget]| {
            let found = unsupported(&program, targets);
            let line = |of: &Unsupported| format!("{} {}: {}", of.rule.0, of.feature.name(), of.targets());
            found.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), [""; 0]);
        assert_eq!(found(&[DeploymentTarget::Bundle]), ["0 limit: bundle"]);
        assert_eq!(found(&[Engine::Native.into(), Engine::Xdp.into()]), ["2 track: native, xdp"]);
        assert_eq!(found(&[Engine::Eval.into(), DeploymentTarget::Bundle]), ["0 limit: bundle", "2 track: eval"]);
    }
}
