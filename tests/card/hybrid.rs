//! A policy on a card and in software: both parts with their tables, and the way of a frame through them.

use crate::interpreter;
use weir_abi::{Counter, Verdict};
use weir_card::Profile;
use weir_card::body::Body;
use weir_card::eval::{Card, Configuration};
use weir_card::receive::{Configured, Port, Received};
use weir_card::split::{Split, split};
use weir_loading::Policy;
use weir_loading::eval::SlotAnswers;
use weir_planning::card::{CardImages, CardTables};
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::{Program, RuleId};
use weir_test_support::Packet;

/// The secret of the tests' cards.
pub const TOKEN: u64 = 0x5a_1122_3344;

/// Both parts, with the images of the card's lookups.
pub struct Hybrid {
    pub profile: Profile,
    pub split: Split,
    images: CardImages,
    pub epoch: u16,
}

impl Hybrid {
    /// Splits the only chain of a form of the policy's program.
    pub fn new(
        policy: &Policy,
        program: &Program,
        profile: &Profile,
        epoch: u16,
        wanted: &dyn Fn(RuleId) -> bool,
    ) -> Self {
        let counters = &policy.text().expect("policies of tests are text").lowered.counters;
        let split = split(program, counters, 0, profile, &CardTables::new(policy), wanted);
        let images = CardImages::new(policy, &split);
        Hybrid { profile: profile.clone(), images, split, epoch }
    }

    /// The card's configuration.
    pub fn configuration(&self) -> Configuration<'_, &CardImages> {
        Configuration { program: &self.split.card, lookups: &self.images, token: TOKEN, epoch: self.epoch }
    }

    /// A card with the configuration.
    pub fn card(&self) -> Card<'_, &CardImages> {
        let mut card = Card::new(&self.profile);
        card.commit(self.configuration());
        card
    }

    fn configured(&self) -> Configured {
        Configured { epoch: self.epoch, body: self.split.card.body.bytes() as u8 }
    }

    /// The software's view of the card's port, after another configuration.
    pub fn port(&self, before: &Hybrid) -> Port {
        Port { token: TOKEN, own: self.configured(), others: vec![before.configured()] }
    }

    /// Adds what the card has dropped to the counters of the software.
    pub fn add_dropped(&self, counters: &mut [Counter], dropped: &[Counter]) {
        for (rule, dropped) in self.split.card.dropped.iter().zip(dropped) {
            let counter = &mut counters[usize::from(weir_abi::Reason::rule(rule.0).0)];
            counter.packets += dropped.packets;
            counter.bytes += dropped.bytes;
        }
    }
}

/// How the software has handled a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    Answered(Verdict),
    Alone(Verdict),
    /// The frame has no seal, or is no packet.
    Refused,
}

/// The software: the interpreter of its program, and the port.
pub struct Software<'a> {
    pub hybrid: &'a Hybrid,
    pub evaluator: Evaluator<'a, SlotAnswers>,
    port: Port,
}

impl<'a> Software<'a> {
    pub fn new(hybrid: &'a Hybrid, before: &Hybrid, program: &'a Program, policy: &Policy) -> Self {
        Software { hybrid, evaluator: interpreter::new(program, policy), port: hybrid.port(before) }
    }

    /// Handles what the card has made of a packet, perhaps changed on its way.
    pub fn handle(&mut self, packet: &Packet, received: &[u8]) -> Handled {
        let Split { plain, answered, card, .. } = &self.hybrid.split;
        let original = interpreter::frame(packet);
        match self.port.receive(received) {
            Received::Answered { packet, body } => {
                let body = Body::new(&card.body, body, &self.hybrid.images);
                let frame = Frame { bytes: packet, ..original };
                Handled::Answered(self.evaluator.decide_answered(*answered, frame, &body, &mut ()))
            }
            Received::Alone { packet } => {
                let frame = Frame { bytes: packet, ..original };
                Handled::Alone(self.evaluator.decide(*plain, frame, &mut ()))
            }
            Received::Control { .. } | Received::Unsealed => Handled::Refused,
        }
    }
}
