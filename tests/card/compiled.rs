//! Compiled code reads a card's answers. The random policies, cards and tampering of `split`, in bursts: native
//! code and BPF behind a card decide, count and keep the state of the policy alone in the interpreter.

use crate::engines::{self, Decided, difference};
use crate::hybrid::{Hybrid, TOKEN};
use crate::interpreter;
use crate::split::{Case, Seen, Tamper, between_ticks, by_the_card, cases, sent};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use std::net::IpAddr;
use weir_abi::flow::{Flow, FlowKey};
use weir_abi::slot::SlotCounter;
use weir_abi::verdict::Sampled;
use weir_abi::{Action, AdditionCounts, Counter, EntryCounts, Reason, Verdict};
use weir_card::receive::Received;
use weir_engine::sealed::{self, SealedBurst, Seals};
use weir_engine::{CardPort, Configured, EngineError, Filter, FrameBurst, NativeFilter, WithoutSeal, XdpFilter};
use weir_loading::LoadError;
use weir_loading::eval::EvalFilter;
use weir_policy::ir::Program;
use weir_state::features::Snapshot;
use weir_state::limits::LimitCount;
use weir_test_support::Packet;

/// Number of random policies. Each takes a run of clang, every second one another for BPF, and every fourth one for
/// parts.
const POLICIES: u32 = 12;

fn wanted_policies() -> u32 {
    let wanted = std::env::var("WEIR_CARD_COMPILED").ok();
    wanted.map_or(POLICIES, |text| text.parse().expect("WEIR_CARD_COMPILED is a number"))
}

/// What an engine does with frames from a card's port.
trait BehindCard: Filter {
    /// Compares the seals of a burst.
    fn read<'a>(&self, seals: &Seals, burst: FrameBurst<'a>) -> SealedBurst<'a> {
        SealedBurst::read(seals, burst)
    }

    /// Decides a burst, by the chain `plain` where there are no answers. Calls `visit` with what leaves in place of
    /// packets, and counts frames by what they are in `kinds`.
    fn decide_sealed(
        &mut self,
        plain: usize,
        burst: &SealedBurst<'_>,
        verdicts: &mut [Verdict],
        visit: &mut dyn FnMut(usize, &[u8], u32),
        kinds: &mut [Counter],
    ) -> Result<(), EngineError>;
}

impl BehindCard for NativeFilter {
    fn read<'a>(&self, seals: &Seals, burst: FrameBurst<'a>) -> SealedBurst<'a> {
        self.read_sealed(seals, burst)
    }

    fn decide_sealed(
        &mut self,
        plain: usize,
        burst: &SealedBurst<'_>,
        verdicts: &mut [Verdict],
        visit: &mut dyn FnMut(usize, &[u8], u32),
        _: &mut [Counter],
    ) -> Result<(), EngineError> {
        NativeFilter::decide_sealed(self, plain, burst, verdicts)?;
        self.rewritten(&burst.cut(), &verdicts[..burst.len()], visit);
        Ok(())
    }
}

/// Programs in front of chains do this on interfaces (tests/kernel.rs). In a replay the test does.
impl BehindCard for XdpFilter {
    fn decide_sealed(
        &mut self,
        plain: usize,
        burst: &SealedBurst<'_>,
        verdicts: &mut [Verdict],
        visit: &mut dyn FnMut(usize, &[u8], u32),
        kinds: &mut [Counter],
    ) -> Result<(), EngineError> {
        let mut from = 0;
        while from < burst.len() {
            let (received, run) = burst.run(from);
            let own = &mut verdicts[from..from + run.len()];
            let reason = match received {
                sealed::Received::Answered | sealed::Received::Alone => {
                    // The chain that reads answers is the last.
                    let chain = if received == sealed::Received::Answered { plain + 1 } else { plain };
                    self.decide(chain, &run, own)?;
                    self.rewritten(&run, own, &mut |index, bytes, len| visit(from + index, bytes, len));
                    let is_answered = received == sealed::Received::Answered;
                    let counter = if is_answered { Reason::COUNTER_ANSWERED } else { Reason::COUNTER_ALONE };
                    kinds[usize::from(counter.0)].packets += run.len() as u64;
                    from += run.len();
                    continue;
                }
                sealed::Received::Unsealed => Reason::UNSEALED,
                sealed::Received::Control => Reason::CARD_CONTROL,
            };
            own.fill(Verdict::new(Action::Drop, reason, Sampled::No));
            kinds[usize::from(reason.0)].packets += run.len() as u64;
            from += run.len();
        }
        Ok(())
    }
}

/// The software behind a card's port. It gets frames with trailers.
struct Sealed<F> {
    filter: F,
    seals: Seals,
    /// What the last burst's packets leave as.
    leaving: Vec<(usize, Vec<u8>, u32)>,
    /// Frames by what they are, where the filter does not count them.
    kinds: Vec<Counter>,
}

impl<F: BehindCard> Sealed<F> {
    fn new(filter: F, seals: &Seals) -> Self {
        let kinds = vec![Counter::default(); filter.counters().len()];
        Sealed { filter, seals: seals.clone(), leaving: vec![], kinds }
    }
}

impl<F: BehindCard> Filter for Sealed<F> {
    fn name(&self) -> &str {
        self.filter.name()
    }

    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        let Sealed { filter, seals, leaving, kinds } = self;
        leaving.clear();
        let burst = filter.read(seals, *burst);
        let mut visit = |index: usize, bytes: &[u8], len: u32| leaving.push((index, bytes.to_vec(), len));
        filter.decide_sealed(chain, &burst, verdicts, &mut visit, kinds)
    }

    fn rewritten(&self, _: &FrameBurst<'_>, _: &[Verdict], visit: &mut dyn FnMut(usize, &[u8], u32)) {
        self.leaving.iter().for_each(|(index, bytes, len)| visit(*index, bytes, *len));
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters = self.filter.counters();
        for (counter, kind) in counters.iter_mut().zip(&self.kinds) {
            counter.packets += kind.packets;
        }
        counters
    }

    fn addition_counts(&self) -> AdditionCounts {
        self.filter.addition_counts()
    }

    fn entry_counts(&self, slot: usize, visit: &mut dyn FnMut(IpAddr, u8, EntryCounts)) {
        self.filter.entry_counts(slot, visit);
    }

    fn slot_counts(&self, slot: usize) -> Vec<SlotCounter> {
        self.filter.slot_counts(slot)
    }

    fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.filter.flows(visit);
    }

    fn take_features(&mut self) -> Result<Option<Snapshot>, EngineError> {
        self.filter.take_features()
    }

    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount)) {
        self.filter.limit_counts(limiter, visit);
    }
}

/// What happens to the packets of a case in front of the software.
#[derive(Default)]
struct Arriving {
    /// Each packet that the software or the card decides, as sent.
    decided: Vec<Packet>,
    /// Whether the card drops it.
    by_card: Vec<bool>,
    /// The frames that arrive.
    frames: Vec<Packet>,
    /// Whether the reference refuses a frame.
    refused: Vec<bool>,
    /// Frames that the reference decides by answers, and alone.
    kinds: [u64; 2],
}

fn arriving(case: &Case, hybrid: &Hybrid, before: &Hybrid) -> (Arriving, Vec<Counter>) {
    let (mut card, mut stale_card, port) = (hybrid.card(), before.card(), hybrid.port(before));
    let mut arriving = Arriving::default();
    // Software knows a frame of several buffers, or of a capture with a snap length, only in part.
    let packets = case.packets.iter().filter(|(packet, _)| packet.bytes.len() == packet.wire as usize).cloned();
    for (index, (packet, tamper)) in between_ticks(packets.collect()).enumerate() {
        let (packet, tamper) = sent(packet, tamper);
        let is_stale = index < case.stale;
        let passed = match &tamper {
            Tamper::Around { body, seal } => Some([&packet.bytes, &body[..], &seal.word().to_le_bytes()].concat()),
            _ if is_stale => stale_card.handle(interpreter::frame(&packet)),
            _ => card.handle(interpreter::frame(&packet)),
        };
        let frame = passed.map(|frame| tamper.on_the_link(frame, is_stale));
        let received = frame.as_ref().map(|frame| port.receive(frame));
        let is_refused = matches!(received, Some(Received::Unsealed | Received::Control { .. }));
        match received {
            Some(Received::Answered { .. }) => arriving.kinds[0] += 1,
            Some(Received::Alone { .. }) => arriving.kinds[1] += 1,
            _ => {}
        }
        if !is_refused {
            arriving.by_card.push(frame.is_none());
            arriving.decided.push(packet.clone());
        }
        if let Some(bytes) = frame {
            arriving.refused.push(is_refused);
            arriving.frames.push(Packet { wire: bytes.len() as u32, bytes, ..packet });
        }
    }
    (arriving, card.dropped().to_vec())
}

/// Runs the frames of a case through an engine. The result is about the decided packets.
fn behind_card(
    filter: &mut dyn Filter,
    (program, hybrid): (&Program, &Hybrid),
    (arriving, dropped): (&Arriving, &[Counter]),
    alone: &Decided,
) -> Result<Decided, TestCaseError> {
    let mut decided =
        engines::decide(filter, program, &mut engines::frame_sets(&arriving.frames)).map_err(TestCaseError::fail)?;
    let refusals = [Reason::UNSEALED, Reason::CARD_CONTROL];
    let counted: u64 =
        refusals.iter().map(|reason| std::mem::take(&mut decided.counters[usize::from(reason.0)]).packets).sum();
    let is_refusal = |verdict: &Verdict| refusals.contains(&verdict.reason());
    let refused: Vec<bool> = decided.verdicts[0].iter().map(is_refusal).collect();
    prop_assert_eq!(&refused, &arriving.refused, "what is refused");
    prop_assert_eq!(counted, refused.iter().filter(|refused| **refused).count() as u64);
    let kinds = [Reason::COUNTER_ANSWERED, Reason::COUNTER_ALONE];
    let kinds = kinds.map(|kind| std::mem::take(&mut decided.counters[usize::from(kind.0)]).packets);
    prop_assert_eq!(kinds, arriving.kinds, "decided by answers, and alone");
    hybrid.add_dropped(&mut decided.counters, dropped);
    let seen = Seen::default();
    // The index of each frame among the decided packets.
    let mut frames = decided.verdicts[0].iter().copied().enumerate().filter(|(_, verdict)| !is_refusal(verdict));
    let (mut verdicts, mut places) = (vec![], std::collections::HashMap::new());
    for (index, by_card) in arriving.by_card.iter().enumerate() {
        verdicts.push(match by_card {
            true => by_the_card(hybrid, alone.verdicts[0][index], &seen),
            false => {
                let (frame, verdict) = frames.next().expect("a frame for each packet");
                places.insert(frame, index);
                verdict
            }
        });
    }
    decided.leaves =
        decided.leaves.into_iter().map(|((chain, frame), bytes)| ((chain, places[&frame]), bytes)).collect();
    decided.verdicts = vec![verdicts];
    Ok(decided)
}

fn compiled_is_interpreted(case: &Case, nth: usize) -> Result<[usize; 3], TestCaseError> {
    let mut policy = case.policy()?;
    policy.keep_chains(&[0]);
    let program = policy.program.clone();
    let [hybrid, before] = case.hybrids(&policy, &program);
    let (arriving, dropped) = arriving(case, &hybrid, &before);
    let mut eval = EvalFilter::new(&program, policy.answers()).with_slots(policy.slot_rules());
    let alone = engines::decide(&mut eval, &program, &mut engines::frame_sets(&arriving.decided));
    let alone = alone.map_err(TestCaseError::fail)?;

    let mut again = case.policy()?;
    again.keep_chains(&[0]);
    let split = again.with_answers(hybrid.split.software.clone());
    let configured = |hybrid: &Hybrid| Configured { epoch: hybrid.epoch, body: hybrid.split.card.body.bytes() as u8 };
    let port =
        CardPort { token: TOKEN, known: vec![configured(&before)], without_seal: WithoutSeal::Drop, control: None };
    let seals = Seals::new(&port, Some(configured(&hybrid)));
    let fail = |error: LoadError| TestCaseError::fail(error.to_string());
    let native = Sealed::new(split.native().map_err(fail)?, &seals);
    let mut engines: Vec<(&str, Box<dyn Filter>)> = vec![("native", Box::new(native))];
    let data = split.bind_kernel_replay().map_err(fail)?;
    if nth.is_multiple_of(2) {
        engines.push(("xdp", Box::new(Sealed::new(split.xdp().map_err(fail)?, &seals))));
    }
    if nth.is_multiple_of(4) {
        let parts = split.compile_bpf_in_parts(&data, 4).and_then(|compiled| compiled.filter());
        let parts = parts.map_err(|error| TestCaseError::fail(error.to_string()))?;
        engines.push(("xdp in parts", Box::new(Sealed::new(parts, &seals))));
    }
    for (name, mut engine) in engines {
        let decided = behind_card(&mut *engine, (&program, &hybrid), (&arriving, &dropped), &alone)?;
        if let Some(difference) = difference(&program, &arriving.decided, &alone, &decided) {
            return Err(TestCaseError::fail(format!("{name}: {difference}\n{}", hybrid.split.software)));
        }
    }
    Ok([
        arriving.frames.len(),
        arriving.refused.iter().filter(|refused| **refused).count(),
        arriving.by_card.iter().filter(|by_card| **by_card).count(),
    ])
}

fn holds(is_attacked: bool) -> [usize; 3] {
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/card.regressions");
    let mut runner = TestRunner::new(Config {
        cases: wanted_policies() / 2,
        max_shrink_time: 60_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..Config::default()
    });
    let (seen, cases_run) = (std::cell::Cell::new([0; 3]), std::cell::Cell::new(0));
    let outcome = runner.run(&cases(is_attacked), |case| {
        let nth = cases_run.replace(cases_run.get() + 1);
        let one = compiled_is_interpreted(&case, nth)?;
        let all = seen.get();
        seen.set(std::array::from_fn(|index| all[index] + one[index]));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    seen.get()
}

#[test]
fn compiled_code_behind_a_card_decides_as_the_policy_alone() {
    let [frames, refused, _] = holds(false);
    assert!(frames > 20 * wanted_policies() as usize / 2 && refused == 0, "{frames} frames, {refused} refused");
}

#[test]
fn compiled_code_uses_no_metadata_that_is_not_the_cards() {
    let [frames, refused, _] = holds(true);
    assert!(refused * 10 > frames, "{refused} of {frames} frames refused");
}
