//! The packets of an attack on every engine. Engines must agree on each verdict and reason, and on the flows.

use crate::engines::{self, frame_sets};
use std::collections::HashMap;
use weir_abi::flow::ticks;
use weir_abi::{Action, BURST_MAX, Verdict};
use weir_engine::{Filter, NativeFilter, XdpFilter};
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_policy::ir::Direction;
use weir_policy::ir::eval::packet::{Frame, parse};
use weir_test_support::Packet;
use weir_test_support::attack::{Attack, Step};

/// What an attack led to.
pub struct Decided {
    /// What happened to each packet.
    pub packets: Vec<Seen>,
    /// What each verdict means.
    words: HashMap<Verdict, Words>,
    /// The states of the flows at the end; `None` if the policy does not track.
    pub flows: Option<Vec<String>>,
}

/// What happened to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The verdict with its reason.
    pub verdict: Verdict,
    /// The states of all flows after it, if they are expected.
    pub flows: Option<Vec<String>>,
}

/// What a verdict means.
#[derive(Clone, Debug)]
pub struct Words {
    /// The verdict itself.
    pub action: Action,
    /// The built-in reason.
    pub reason: Option<&'static str>,
    /// The state in the rule that decided: `ct state STATE accept`.
    pub state: Option<String>,
    /// The verdict with its reason, for messages.
    pub shown: String,
}

impl Decided {
    /// What happened to a packet, in words.
    pub fn words(&self, seen: &Seen) -> &Words {
        &self.words[&seen.verdict]
    }
}

/// A policy on all engines.
pub struct Engines<'a> {
    policy: &'a Policy,
    /// The chains of both directions, upstream first.
    chains: [usize; 2],
    native: NativeFilter,
    xdp: XdpFilter,
    /// See [`engines::as_p4`].
    p4: Vec<(&'static str, NativeFilter)>,
}

/// Whether packets of an attack leave something behind for the next one, besides flows.
pub fn remembers(policy: &Policy) -> bool {
    !policy.program.limiters.is_empty() || policy.program.additions_max() > 0
}

impl<'a> Engines<'a> {
    /// Compiles and loads a policy. Needs clang, and root for the kernel.
    pub fn load(policy: &'a Policy) -> Result<Self, String> {
        let chain = |direction| {
            let missing = || format!("the policy has no {} chain", direction_name(direction));
            policy.program.chain(None, direction).ok_or_else(missing)
        };
        let chains = [chain(Direction::Upstream)?, chain(Direction::Downstream)?];
        let native = policy.native().map_err(|failure| format!("native: {failure}"))?;
        let xdp = policy.xdp().map_err(|failure| format!("xdp (needs root): {failure}"))?;
        Ok(Engines { policy, chains, native, xdp, p4: engines::as_p4(policy)? })
    }

    /// Runs the packets on the interpreter, native code, the kernel and as P4, without flows before. Adds differences between
    /// them to `wrong`.
    pub fn decide(&mut self, attack: &Attack, wrong: &mut Vec<String>) -> Result<Decided, String> {
        let policy = self.policy;
        let tables = self.native.flow_table().into_iter().chain(self.xdp.flow_table());
        tables.chain(self.p4.iter().filter_map(|(_, p4)| p4.flow_table())).for_each(|table| table.clear());
        let mut eval = EvalFilter::new(&policy.program, policy.answers()).with_slots(policy.slot_rules());
        let mut run = Run { policy, chains: self.chains, steps: &attack.steps, sent: Vec::new(), cookie: 0 };
        let decided = run.through(&mut eval)?;
        run.compare(&mut self.native, "native", &decided, wrong)?;
        run.compare(&mut self.xdp, "xdp", &decided, wrong)?;
        for (name, p4) in &mut self.p4 {
            run.compare(p4, name, &decided, wrong)?;
        }
        Ok(decided)
    }
}

fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Upstream => "upstream",
        Direction::Downstream => "downstream",
    }
}

struct Run<'a> {
    policy: &'a Policy,
    /// Upstream and downstream.
    chains: [usize; 2],
    steps: &'a [Step],
    /// The packets that were sent, with their cookies. Other engines get the same.
    sent: Vec<Packet>,
    /// The number of the last SYN-ACK that was sent in place of a SYN.
    cookie: u32,
}

impl Run<'_> {
    fn compare(
        &mut self,
        filter: &mut dyn Filter,
        name: &str,
        expected: &Decided,
        wrong: &mut Vec<String>,
    ) -> Result<(), String> {
        let other = self.through(filter)?;
        let both = self.steps.iter().zip(expected.packets.iter().zip(&other.packets));
        if let Some((at, (step, (one, other)))) = both.enumerate().find(|(_, (_, (one, other)))| one != other) {
            let (line, one, other) = (step.line, &expected.words(one).shown, &words(self.policy, other.verdict).shown);
            wrong.push(format!("line {line}: packet {at}: {one} by the interpreter, {other} by {name}"));
        } else if expected.flows != other.flows {
            let (one, other) = (expected.flows.as_ref().map(Vec::len), other.flows.as_ref().map(Vec::len));
            wrong.push(format!("line 1: {one:?} flows at the end by the interpreter, {other:?} by {name}"));
        }
        Ok(())
    }

    /// Runs all packets. Successive packets of one direction are one burst, unless flows are expected between them.
    fn through(&mut self, filter: &mut dyn Filter) -> Result<Decided, String> {
        let mut packets = Vec::with_capacity(self.steps.len());
        let together = |one: &Step, next: &Step| {
            one.is_upstream == next.is_upstream && one.flows.is_none() && next.cookie.is_none()
        };
        let steps = self.steps;
        for run in steps.chunk_by(together) {
            for step in run.iter().skip(self.sent.len().saturating_sub(packets.len())) {
                let packet = step.with_cookie(self.cookie).map_err(|error| format!("line {}: {error}", step.line))?;
                self.sent.push(packet);
            }
            let first = packets.len();
            self.decide(filter, run, first, &mut packets)?;
            if run.last().is_some_and(|step| step.flows.is_some())
                && let Some(last) = packets.last_mut()
            {
                last.flows = self.flows(filter, self.sent[first + run.len() - 1].time_ns);
            }
        }
        let end_ns = self.sent.iter().map(|packet| packet.time_ns).max().unwrap_or(0);
        let mut known = HashMap::new();
        for Seen { verdict, .. } in &packets {
            known.entry(*verdict).or_insert_with(|| words(self.policy, *verdict));
        }
        Ok(Decided { packets, words: known, flows: self.flows(filter, end_ns) })
    }

    fn decide(
        &mut self,
        filter: &mut dyn Filter,
        run: &[Step],
        first: usize,
        packets: &mut Vec<Seen>,
    ) -> Result<(), String> {
        let chain = self.chains[usize::from(!run[0].is_upstream)];
        for set in &mut frame_sets(&self.sent[first..first + run.len()]) {
            for burst in set.bursts() {
                let mut verdicts = [Verdict(u32::MAX); BURST_MAX];
                filter.decide(chain, &burst, &mut verdicts).map_err(|error| format!("{}: {error}", filter.name()))?;
                let verdicts = &verdicts[..burst.len()];
                packets.extend(verdicts.iter().map(|&verdict| Seen { verdict, flows: None }));
                filter.rewritten(&burst, verdicts, &mut |index, bytes, _| {
                    if verdicts[index].action() == Some(Action::Reply) {
                        let frame = Frame { bytes, wire_len: bytes.len() as u32, link: burst.link(), time_ns: 0 };
                        self.cookie = parse(frame).0.seq;
                    }
                });
            }
        }
        Ok(())
    }

    /// The states of the flows that have not expired.
    fn flows(&self, filter: &dyn Filter, time_ns: u64) -> Option<Vec<String>> {
        let timeouts = self.policy.program.tracking?.timeouts();
        let mut states = Vec::new();
        filter.flows(&mut |key, flow| {
            if !timeouts.has_passed(flow, key.protocol(), ticks(time_ns)) {
                states.push(flow.state.name().to_owned());
            }
        });
        states.sort();
        Some(states)
    }
}

fn words(policy: &Policy, verdict: Verdict) -> Words {
    let program = &policy.program;
    let rule = verdict.reason().rule_index().map(|index| program.rules[usize::from(index)].text.as_str());
    let state = rule.and_then(|text| text.strip_suffix(" accept")?.rsplit_once("ct state ")).map(|(_, state)| state);
    Words {
        action: verdict.action().expect("engines write verdicts"),
        reason: verdict.reason().builtin_name(),
        state: state.map(str::to_owned),
        shown: engines::verdict(program, verdict),
    }
}
