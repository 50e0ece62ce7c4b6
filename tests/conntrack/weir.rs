//! The interpreter with a policy that shows the state of each packet.

use crate::engines::{arrival, load};
use weir_abi::flow::Flow;
use weir_abi::{Link, Reason};
use weir_loading::Policy;
use weir_loading::eval::SlotAnswers;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::{self, Frame, Packet};

/// The sizes of tables: for all flows, and for one.
const LARGE: u32 = 16_384;
const SMALL: u32 = 64;

/// A policy whose rules show the state.
pub fn policy(size: u32) -> Policy {
    let states = ["established", "related", "new", "untracked"].map(|state| format!("  ct state {state} accept\n"));
    let text = format!(
        "tracking {{ size {size}; embryonic 100%; unproven 100%; invalid drop }}\n\
         upstream {{\n{0}  drop\n}}\ndownstream {{\n{0}  drop\n}}\n",
        states.concat()
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("states.weir");
    std::fs::write(&path, text).expect("it can be written");
    load(&path).unwrap_or_else(|problem| panic!("{problem}"))
}

/// The policies for all flows and for one.
pub struct Policies {
    pub all: Policy,
    pub one: Policy,
}

impl Policies {
    pub fn load() -> Self {
        Policies { all: policy(LARGE), one: policy(SMALL) }
    }
}

/// The interpreter.
pub struct Weir<'a> {
    policy: &'a Policy,
    evaluator: Evaluator<'a, SlotAnswers>,
    time_ns: u64,
}

/// The judgement on a packet.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The state in nftables' words.
    pub shown: String,
    /// Why it is invalid.
    pub reason: Option<Reason>,
    /// The number of the side that sent it, as flows count sides.
    pub sender: usize,
}

/// An IP packet as a frame.
pub fn frame(packet: &[u8], time_ns: u64) -> Frame<'_> {
    Frame { bytes: packet, wire_len: packet.len() as u32, link: Link::RawIp, time_ns }
}

/// The parsed packet.
pub fn parsed(packet: &[u8]) -> Packet {
    packet::parse(frame(packet, 0)).0
}

impl<'a> Weir<'a> {
    /// Begins without flows.
    pub fn new(policy: &'a Policy) -> Self {
        Weir { policy, evaluator: Evaluator::new(&policy.program, policy.answers()), time_ns: 1_000_000_000 }
    }

    /// The flow, if there is one only.
    pub fn flow(&self) -> Option<Flow> {
        let mut found = None;
        self.evaluator.flows(&mut |_, flow| found = Some(*flow));
        found
    }

    /// Judges an IP packet, a microsecond after the one before.
    pub fn judge(&mut self, packet: &[u8]) -> Judged {
        self.time_ns += 1000;
        let sender = arrival(packet).side();
        let verdict = self.evaluator.decide(sender, frame(packet, self.time_ns), &mut ());
        match verdict.reason().rule_index() {
            Some(rule) => {
                let text = &self.policy.program.rules[usize::from(rule)].text;
                Judged { shown: text.split(' ').nth(2).unwrap_or_default().to_owned(), reason: None, sender }
            }
            None => Judged { shown: "invalid".to_owned(), reason: Some(verdict.reason()), sender },
        }
    }
}
