//! A policy on a card and in software: both parts with their tables, and the way of a frame through them.

use crate::interpreter;
use weir_abi::{Counter, Layout, Verdict};
use weir_card::body::Body;
use weir_card::eval::{Card, Configuration};
use weir_card::receive::{Configured, Port, Received};
use weir_card::split::{Split, split};
use weir_card::{Lookups, Profile};
use weir_loading::Policy;
use weir_loading::eval::SlotAnswers;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::{Program, RuleId};
use weir_tables::Image;
use weir_test_support::Packet;

/// The secret of the tests' cards.
pub const TOKEN: u64 = 0x5a_1122_3344;

/// Both parts, with the images of the card's lookups.
pub struct Hybrid {
    pub profile: Profile,
    pub split: Split,
    images: Vec<Image>,
    pub epoch: u16,
}

/// Images `d16x4r`: the card reads the first half, the software the second.
#[derive(Clone, Copy)]
pub struct Images<'a>(&'a [Image]);

impl Lookups for Images<'_> {
    fn begin(&self, lookup: usize, address: u32) -> u32 {
        self.0[lookup].view().stages().expect("the layout is d16x4r").begin(address)
    }

    fn finish(&self, lookup: usize, entry: u32, low: u16) -> u32 {
        self.0[lookup].view().stages().expect("the layout is d16x4r").finish(entry, low)
    }
}

/// The image of a table for a card.
fn image(policy: &Policy, table: &str) -> Option<Image> {
    policy.tables().named(table)?.entries.build(Layout::Dxr16x4).ok()
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
        let sizes = |table: &str| Some(image(policy, table)?.view().stages()?.blocks());
        let split = split(program, counters, 0, profile, &sizes, wanted);
        let images = split.card.lookups.iter().map(|lookup| image(policy, &lookup.name).expect("it was counted"));
        Hybrid { profile: profile.clone(), images: images.collect(), split, epoch }
    }

    pub fn lookups(&self) -> Images<'_> {
        Images(&self.images)
    }

    /// The card's configuration.
    pub fn configuration(&self) -> Configuration<'_, Images<'_>> {
        Configuration { program: &self.split.card, lookups: self.lookups(), token: TOKEN, epoch: self.epoch }
    }

    /// A card with the configuration.
    pub fn card(&self) -> Card<'_, Images<'_>> {
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
    lookups: Images<'a>,
}

impl<'a> Software<'a> {
    pub fn new(hybrid: &'a Hybrid, before: &Hybrid, program: &'a Program, policy: &Policy) -> Self {
        let (port, lookups) = (hybrid.port(before), hybrid.lookups());
        Software { hybrid, evaluator: interpreter::new(program, policy), port, lookups }
    }

    /// Handles what the card has made of a packet, perhaps changed on its way.
    pub fn handle(&mut self, packet: &Packet, received: &[u8]) -> Handled {
        let Split { plain, answered, card, .. } = &self.hybrid.split;
        let original = interpreter::frame(packet);
        match self.port.receive(received) {
            Received::Answered { packet, body } => {
                let body = Body::new(&card.body, body, &self.lookups);
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
