//! Fuzz targets for control frames of a card: what a card makes of any frame, and what a session makes of any answer.

use std::time::Duration;
use weir_abi::card::{SEAL_BYTES, Seal, TRAILER_BYTES_MAX, control};
use weir_card::Profile;
use weir_card::body::BodyLayout;
use weir_card::control::{Control, FRAME_BYTES_MIN, Request, WORDS_MAX};
use weir_card::device::{Device, FromHost, FromNetwork};
use weir_card::field::CardField;
use weir_card::program::{Act, CardPattern, CardProgram, CardRule, Compare};
use weir_card::session::{Done, Session, SessionError, Step};
use weir_policy::field::Guard;
use weir_policy::ir::RuleId;

/// A card with little memory.
const PROFILE: &str = "\
name fuzzed
vlan 1
options yes
ip6 yes
match protocol sport dport tcp-flags saddr daddr ttl length icmp-type icmp-code vlan-id tcp-window
carry protocol sport dport saddr daddr
patterns 8
ranges 2
rules 8
counters 4
lookups 1
blocks 4
metadata 448
reconfigure 2ms
";
/// Longer than the longest control frame.
const FRAME_BYTES_MAX: usize = 2048;
const TOKEN: u64 = 0x12_3456_789a;

fn profile() -> Profile {
    Profile::parse(PROFILE).expect("the profile is valid")
}

/// Bytes of the input, one after the other.
struct Input<'d>(&'d [u8]);

impl<'d> Input<'d> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn take(&mut self, count: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn word(&mut self) -> u32 {
        let mut word = [0; size_of::<u32>()];
        let taken = self.take(word.len());
        word[..taken.len()].copy_from_slice(taken);
        u32::from_le_bytes(word)
    }
}

/// Any frames from the software and from the network. Each control frame has one answer, which reads as such, ends with
/// a control seal and names the request. What the card appends is a whole trailer, or nothing.
pub(crate) fn card_device(data: &[u8]) {
    device(data);
}

/// What a card has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Handled {
    answers: usize,
    dropped: usize,
    sealed: usize,
}

fn device(data: &[u8]) -> Handled {
    let (mut device, mut handled) = (Device::new(profile()), Handled::default());
    let mut input = Input(data);
    while let Some(kind) = input.byte() {
        let frame = match kind {
            // Any bytes, as a control frame or another one.
            0..=31 => {
                let count = input.word() as usize % FRAME_BYTES_MAX;
                input.take(count).to_vec()
            }
            32..=63 => Request::commit().frame(kind.into()),
            64..=127 => {
                let (memory, first) = (input.byte().unwrap_or_default(), input.word());
                let count = usize::from(kind & 15).min(WORDS_MAX);
                let words: Vec<u32> = (0..count).map(|_| input.word()).collect();
                Request::write(memory, first, &words).frame(kind.into())
            }
            128..=191 => {
                let (memory, first, count) = (input.byte().unwrap_or_default(), input.word(), input.word() as u16);
                Request::read(memory, first, count).frame(kind.into())
            }
            192.. => {
                let count = input.word() as usize % FRAME_BYTES_MAX;
                from_network(&mut device, input.take(count), &mut handled);
                continue;
            }
        };
        match device.from_host(&frame) {
            FromHost::ToNetwork => assert!(Control::of(&frame).is_none(), "a control frame does not go to the network"),
            FromHost::Answer(answer) => {
                answers(&frame, &answer);
                handled.answers += 1;
            }
        }
    }
    handled
}

fn from_network(device: &mut Device, frame: &[u8], handled: &mut Handled) {
    match device.from_network(frame) {
        FromNetwork::Dropped => handled.dropped += 1,
        FromNetwork::Passed(trailer) if trailer.is_empty() => {}
        FromNetwork::Passed(trailer) => {
            let whole = SEAL_BYTES..=TRAILER_BYTES_MAX;
            assert!(whole.contains(&trailer.len()), "a trailer of {} bytes", trailer.len());
            handled.sealed += 1;
        }
    }
}

fn answers(frame: &[u8], answer: &[u8]) {
    let request = Control::of(frame).expect("only control frames are answered");
    let (rest, word) = answer.split_last_chunk::<SEAL_BYTES>().expect("an answer has a seal");
    assert!(rest.len() >= FRAME_BYTES_MIN && Seal::of(u64::from_le_bytes(*word)).control, "{answer:?}");
    let answer = Control::of(rest).expect("an answer is a control frame");
    assert_eq!((answer.op(), answer.number()), (request.op() | control::ANSWER, request.number()));
    assert_eq!((answer.memory(), answer.first()), (request.memory(), request.first()));
    assert!(answer.count() == request.count() || answer.count() == 0, "all words, or a refusal");
    let read = if request.op() == control::READ { usize::from(answer.count()) } else { 0 };
    assert!(answer.words().count() >= read, "{read} words were read");
}

/// A session with a card over a link. The input says which frames are lost or forged, and when the card is reset. If
/// the session reports that something is done, the card has done it.
pub(crate) fn card_session(data: &[u8]) {
    session(data);
}

/// How tasks of a session ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    committed: usize,
    counted: usize,
    unconfigured: usize,
    failed: usize,
}

fn session(data: &[u8]) -> Tally {
    let (mut input, mut tally) = (Input(data), Tally::default());
    let mut link = Link { device: Device::new(profile()), now: Duration::ZERO };
    let mut session = Session::new(&profile(), TOKEN);
    // A plain configuration comes first.
    let mut written = None;
    while let Some(order) = input.byte() {
        match (order % 8, &written) {
            (0, _) => link.device = Device::new(profile()),
            (1, Some(_)) => session.commit(),
            (2, _) if session.active().is_some() => session.count(),
            _ if session.is_in_doubt() => session.commit(),
            (3 | 4, _) if session.active().is_some() => {
                session.write_program(&program(u16::from(order)), vec![]).expect("it fits");
            }
            _ => {
                session.write_plain().expect("every card has registers");
            }
        }
        if order % 8 == 0 {
            continue;
        }
        match link.run(&mut session, &mut input) {
            None => return tally,
            Some(Ok(Done::Written)) => written = Some(()),
            Some(Ok(Done::Committed { .. })) => {
                written = None;
                link.check(&session);
                tally.committed += 1;
            }
            Some(Ok(Done::Counted(counters))) => {
                assert!(counters.len() <= 1, "{counters:?}");
                tally.counted += 1;
            }
            // Nothing is written, or what was written is not known any more.
            Some(Err(error)) => {
                let _named = error.to_string();
                let is_unconfigured = error == SessionError::Unconfigured;
                *if is_unconfigured { &mut tally.unconfigured } else { &mut tally.failed } += 1;
                if matches!(error, SessionError::Unconfigured | SessionError::WrongSeal) {
                    session = Session::new(&profile(), TOKEN);
                }
                if !session.is_in_doubt() {
                    written = None;
                }
            }
        }
    }
    tally
}

/// Drops packets to one port.
fn program(port: u16) -> CardProgram {
    let compare =
        Compare { field: CardField::Dport, mask: u32::MAX, ranges: vec![(port.into(), port.into())], negated: false };
    CardProgram {
        patterns: vec![CardPattern { header: Guard::Udp, compare: Some(compare) }],
        rules: vec![CardRule { patterns: vec![0], act: Act::Drop(0) }],
        lookups: vec![],
        options_alone: false,
        dropped: vec![RuleId(0)],
        body: BodyLayout::default(),
    }
}

struct Link {
    device: Device,
    now: Duration,
}

impl Link {
    /// Does what a session asks for, until its task or the input ends.
    fn run(&mut self, session: &mut Session, input: &mut Input<'_>) -> Option<Result<Done, SessionError>> {
        loop {
            match session.poll(self.now) {
                Step::Done(done) => return Some(Ok(done)),
                Step::Failed(error) => return Some(Err(error)),
                Step::Idle => panic!("a task was begun"),
                Step::Wait(until) => {
                    self.now = until.max(self.now + Duration::from_millis(1));
                    input.byte()?;
                }
                Step::Send(frame) => {
                    let frame = frame.to_vec();
                    self.carry(session, &frame, input)?;
                }
            }
        }
    }

    /// What becomes of a frame to the card, and of its answer.
    fn carry(&mut self, session: &mut Session, frame: &[u8], input: &mut Input<'_>) -> Option<()> {
        let what = input.byte()?;
        match what {
            // An attacker sends an answer with another secret, or any bytes.
            208..=223 => {
                let words: Vec<u32> = (0..what & 3).map(|_| input.word()).collect();
                let answer = Control::of(frame).expect("sessions send control frames").answer(Some(&words));
                let seal = Seal { token: (input.word().into()), control: true, answers: false, body: 0, epoch: 1 };
                session.receive(&[&answer[..], &seal.word().to_le_bytes()].concat(), self.now);
            }
            224..=231 => session.receive(input.take(usize::from(what)), self.now),
            _ => {}
        }
        // The request is lost.
        if (232..=239).contains(&what) {
            return Some(());
        }
        let FromHost::Answer(answer) = self.device.from_host(frame) else { panic!("sessions send control frames") };
        // The answer is lost, comes once or twice.
        let times = if what >= 240 { 0 } else { 1 + usize::from(what % 16 == 15) };
        (0..times).for_each(|_| session.receive(&answer, self.now));
        Some(())
    }

    /// The card has the configuration that the session says: frames have its seal, or none if it is plain.
    fn check(&mut self, session: &Session) {
        let active = session.active().expect("a commit was answered");
        let FromNetwork::Passed(trailer) = self.device.from_network(&[0; FRAME_BYTES_MIN]) else {
            panic!("the card drops only UDP")
        };
        let Some(word) = trailer.last_chunk::<SEAL_BYTES>() else { return };
        let seal = Seal::of(u64::from_le_bytes(*word));
        assert_eq!((seal.token, seal.epoch, seal.control), (TOKEN, active.epoch, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_do_what_they_are_named_for() {
        // Opens the card, configures it, counts, changes, finds it reset, opens and configures it again.
        let done = session(include_bytes!("../seeds/card_session/configured"));
        assert_eq!(done, Tally { committed: 5, counted: 1, unconfigured: 1, failed: 0 });
        let lossy = session(include_bytes!("../seeds/card_session/lossy"));
        assert!(lossy.committed > 0, "{lossy:?}");
        // The last two packets: one that the configuration drops, and one that it does not.
        let done = device(include_bytes!("../seeds/card_device/session"));
        assert!(done.answers > 10 && (done.dropped, done.sealed) == (1, 1), "{done:?}");
        let done = device(include_bytes!("../seeds/card_device/words"));
        assert_eq!((done.answers, done.sealed), (5, 1), "the last read ends at the largest number: {done:?}");
    }
}
