//! Lets a policy judge copies of packets, and compares its verdicts with those of the active policy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use weir_abi::packet::L3;
use weir_abi::{BURST_MAX, Link, Reason, Verdict};
use weir_command::comparison::{Compared, Comparing};
use weir_command::report;
use weir_control::Comparison;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::tap::{Copied, PolicyNames};
use weir_engine::{EngineError, Filter, NativeFilter};
use weir_policy::ir::Program;
use weir_policy::ir::eval::packet::{self, Frame};

/// Most sources that are counted separately.
const SOURCES_MAX: usize = 1 << 16;

/// A policy that judges.
pub struct Judge {
    program: Program,
    filter: NativeFilter,
    /// Its chains, by the side on which packets arrive.
    chains: [usize; 2],
    comparing: Comparing,
    /// Copies of one side, which are judged together.
    waiting: Vec<Copied>,
    /// The names of the active policy that decided the last packet.
    names: Arc<PolicyNames>,
}

impl Judge {
    /// A policy that has judged nothing.
    pub fn new(program: Program, filter: NativeFilter, chains: [usize; 2]) -> Self {
        let (comparing, waiting) = (Comparing::new(SOURCES_MAX), Vec::with_capacity(BURST_MAX));
        Judge { program, filter, chains, comparing, waiting, names: Arc::default() }
    }

    /// Takes a copy. It is judged with the next [`Judge::finish`] at the latest.
    ///
    /// # Errors
    /// The engine fails.
    pub fn take(&mut self, copy: Copied) -> Result<(), EngineError> {
        let key = |copy: &Copied| (copy.from, copy.link, Arc::as_ptr(&copy.names));
        if self.waiting.len() == BURST_MAX || self.waiting.first().is_some_and(|first| key(first) != key(&copy)) {
            self.finish()?;
        }
        self.waiting.push(copy);
        Ok(())
    }

    /// Judges the copies that wait.
    ///
    /// # Errors
    /// The engine fails.
    pub fn finish(&mut self) -> Result<(), EngineError> {
        let Some(first) = self.waiting.first() else { return Ok(()) };
        if !Arc::ptr_eq(&first.names, &self.names) {
            let names = first.names.clone();
            self.name();
            self.names = names;
        }
        let mut verdicts = [Verdict(0); BURST_MAX];
        let (from, link) = (self.waiting[0].from, self.waiting[0].link);
        let frames = FrameSet::new(link, self.waiting.iter().map(|copy| (&copy.bytes[..], copy.wire_len)))
            .with_times(self.waiting.iter().map(|copy| copy.at_ns));
        self.filter.decide(self.chains[from as usize], &frames.burst(0), &mut verdicts)?;
        for (copy, verdict) in self.waiting.iter().zip(verdicts) {
            let compared = Compared { old: copy.verdict, new: verdict, bytes: copy.wire_len.into() };
            self.comparing.add(compared, || source(copy, link));
        }
        self.waiting.clear();
        Ok(())
    }

    /// What differs so far.
    pub fn comparison(&mut self) -> Comparison {
        self.name();
        self.comparing.comparison()
    }

    fn name(&mut self) {
        let Judge { program, comparing, names, .. } = self;
        comparing.name(|reason| named(names, reason), |reason| report::reason_name(program, reason));
    }
}

/// The name of a reason of the active policy.
fn named(names: &PolicyNames, reason: Reason) -> String {
    match (names.rule(reason), reason.builtin_name()) {
        (Some(rule), _) => rule.at.clone(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => format!("reason {}", reason.0),
    }
}

fn source(copy: &Copied, link: Link) -> Option<IpAddr> {
    let frame = Frame { bytes: &copy.bytes, wire_len: copy.wire_len, link, time_ns: copy.at_ns };
    let packet = packet::parse(frame).0;
    match packet.l3 {
        L3::Ipv4 => Some(Ipv4Addr::from(packet.saddr as u32).into()),
        L3::Ipv6 => Some(Ipv6Addr::from(packet.saddr).into()),
        L3::Arp | L3::None => None,
    }
}
