//! Sessions with a card in software, over a link that loses frames.

use super::*;
use crate::body::BodyLayout;
use crate::control::Control;
use crate::device::{Device, FromHost, FromNetwork};
use crate::field::CardField;
use crate::program::{Act, CardPattern, CardRule, Compare};
use crate::receive::{Port, Received};
use std::collections::BTreeMap;
use weir_abi::card::control;
use weir_policy::field::Guard;
use weir_policy::ir::RuleId;

const TOKEN: u64 = 0x5a_1122_3344;
const TICK: Duration = Duration::from_millis(10);

fn profile() -> Profile {
    Profile::parse(Profile::shipped("open-nic").expect("it comes with Weir")).expect("it reads")
}

/// Drops packets to one port, and says which have another destination port.
fn program(dropped: u16, first: u16) -> CardProgram {
    let port = |port: u16| CardPattern {
        header: Guard::Udp,
        compare: Some(Compare {
            field: CardField::Dport,
            mask: u32::MAX,
            ranges: vec![(port.into(), port.into())],
            negated: false,
        }),
    };
    CardProgram {
        patterns: vec![port(dropped), port(first)],
        rules: vec![
            CardRule { patterns: vec![0], act: Act::Drop(0) },
            CardRule { patterns: vec![1], act: Act::End(1) },
        ],
        lookups: vec![],
        options_alone: false,
        dropped: vec![RuleId(0)],
        body: BodyLayout { ends: 1, ..BodyLayout::default() },
    }
}

fn packet(dport: u16) -> Vec<u8> {
    weir_test_support::packet(&format!("eth / ip / udp dport={dport} / payload 18")).expect("it reads").bytes
}

/// A card behind a link that loses frames in both directions, `lost` of 256.
struct Link {
    device: Device,
    lost: u32,
    seed: u32,
    now: Duration,
    /// Commits that reached the card.
    commits: usize,
}

impl Link {
    fn new(lost: u32) -> Self {
        Link { device: Device::new(profile()), lost, seed: 1, now: Duration::ZERO, commits: 0 }
    }

    fn passes(&mut self) -> bool {
        self.seed = self.seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.seed >> 24 >= self.lost
    }

    /// Does what a session asks for, until its task ends.
    fn run(&mut self, session: &mut Session) -> Result<Done, SessionError> {
        loop {
            let answer = match session.poll(self.now) {
                Step::Send(frame) => {
                    let frame = frame.to_vec();
                    self.passes().then(|| self.carry(&frame)).filter(|_| self.passes())
                }
                Step::Wait(until) => {
                    self.now = until.max(self.now + TICK);
                    None
                }
                Step::Done(done) => return Ok(done),
                Step::Failed(error) => return Err(error),
                Step::Idle => panic!("a task was begun"),
            };
            if let Some(answer) = answer {
                session.receive(&answer, self.now);
            }
        }
    }

    fn carry(&mut self, frame: &[u8]) -> Vec<u8> {
        self.commits += usize::from(Control::of(frame).expect("sessions send control frames").op() == control::COMMIT);
        match self.device.from_host(frame) {
            FromHost::Answer(answer) => answer,
            FromHost::ToNetwork => panic!("a control frame does not go to the network"),
        }
    }

    fn open(&mut self) -> Session {
        let mut session = Session::new(&profile(), TOKEN);
        session.write_plain().expect("every card has registers");
        assert_eq!(self.run(&mut session), Ok(Done::Written));
        session.commit();
        assert_eq!(self.run(&mut session), Ok(Done::Committed { before: vec![] }));
        session
    }

    fn configure(&mut self, session: &mut Session, program: &CardProgram) -> Vec<Counter> {
        session.write_program(program, vec![]).expect("it fits");
        assert_eq!(self.run(session), Ok(Done::Written));
        session.commit();
        match self.run(session) {
            Ok(Done::Committed { before }) => before,
            other => panic!("{other:?}"),
        }
    }
}

/// What software gets of a packet.
fn received(link: &mut Link, session: &Session, dport: u16) -> Option<u8> {
    let packet = packet(dport);
    let FromNetwork::Passed(trailer) = link.device.from_network(&packet) else { return None };
    let own = session.active().expect("it is open");
    let port = Port { token: TOKEN, own, others: vec![] };
    match port.receive(&[packet, trailer].concat()) {
        Received::Answered { body, .. } => Some(body[0]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_session_configures_a_card_and_reads_its_counters() {
    let mut link = Link::new(0);
    let mut session = link.open();
    assert_eq!(link.device.from_network(&packet(1)), FromNetwork::Passed(vec![]), "a plain card appends nothing");
    assert_eq!(link.configure(&mut session, &program(1, 2)), []);
    let all = |link: &mut Link, session: &Session| [1, 2, 3].map(|dport| received(link, session, dport));
    assert_eq!(all(&mut link, &session), [None, Some(1), Some(0)]);
    let dropped = [Counter { packets: 1, bytes: packet(1).len() as u64 }];
    session.count();
    assert_eq!(link.run(&mut session), Ok(Done::Counted(dropped.to_vec())));
    assert_eq!(link.configure(&mut session, &program(3, 1)), dropped);
    assert_eq!(all(&mut link, &session), [Some(1), Some(0), None]);
    // The other bank had the first program; what differs is written.
    assert_eq!(link.configure(&mut session, &program(1, 2)), dropped);
    assert_eq!(all(&mut link, &session), [None, Some(1), Some(0)]);
    session.write_plain().expect("every card has registers");
    assert_eq!(link.run(&mut session), Ok(Done::Written));
    session.commit();
    assert_eq!(link.run(&mut session), Ok(Done::Committed { before: dropped.to_vec() }));
    assert_eq!(link.device.from_network(&packet(1)), FromNetwork::Passed(vec![]));
}

#[test]
fn the_next_session_takes_a_configured_card_over() {
    let mut link = Link::new(0);
    let mut first = link.open();
    link.configure(&mut first, &program(1, 2));
    let mut second = Session::new(&profile(), TOKEN + 1);
    second.write_plain().expect("every card has registers");
    link.run(&mut second).expect("answers have the seal of the first session");
    second.commit();
    assert_eq!(link.run(&mut second), Ok(Done::Committed { before: vec![] }));
    // The first one is told apart by its token.
    first.count();
    assert!(matches!(link.run(&mut first), Err(SessionError::Silent { .. })));
}

/// A fifth of the frames is lost each way. Each configuration is committed once, and no counter is lost or counted
/// twice.
#[test]
fn lost_frames_are_repeated_and_commits_are_not() {
    let mut link = Link::new(50);
    let mut session = link.open();
    let mut carried_out = link.commits;
    for round in 0..100u16 {
        let (dropped, first) = if round % 2 == 0 { (1, 2) } else { (2, 1) };
        let before = link.configure(&mut session, &program(dropped, first));
        let expected = if round == 0 { vec![] } else { vec![u64::from(round - 1)] };
        assert_eq!(before.iter().map(|counter| counter.packets).collect::<Vec<_>>(), expected, "round {round}");
        carried_out += 1;
        assert_eq!(link.commits, carried_out, "round {round}");
        for _ in 0..round {
            assert_eq!(received(&mut link, &session, dropped), None);
        }
        assert_eq!(received(&mut link, &session, first), Some(1));
    }
}

#[test]
fn a_silent_card_is_an_error_and_a_commit_in_doubt_is_settled() {
    let mut link = Link::new(256);
    let mut session = Session::new(&profile(), TOKEN);
    session.write_plain().expect("every card has registers");
    let error = link.run(&mut session).expect_err("nobody answers").to_string();
    assert_eq!(error, "the card has not answered for 10.2 s; asked for: write words 0 to 5 of CONFIG");
    link.lost = 0;
    let mut session = link.open();
    for carried_out in [false, true] {
        session.write_program(&program(1, 2), vec![]).expect("it fits");
        assert_eq!(link.run(&mut session), Ok(Done::Written));
        session.commit();
        let Step::Send(frame) = session.poll(link.now) else { panic!("the commit is sent") };
        let frame = frame.to_vec();
        if carried_out {
            link.carry(&frame);
        }
        link.lost = 256;
        let error = link.run(&mut session).expect_err("no answer").to_string();
        assert!(error.ends_with("asked for: commit the configuration"), "{error}");
        assert!(session.is_in_doubt());
        link.lost = 0;
        session.commit();
        assert!(matches!(link.run(&mut session), Ok(Done::Committed { .. })));
        assert!(!session.is_in_doubt());
        assert_eq!(received(&mut link, &session, 2), Some(1));
    }
}

#[test]
fn what_is_no_card_or_a_smaller_one_is_said() {
    let mut link = Link::new(0);
    let mut session = link.open();
    link.device = Device::new(Profile { patterns: 1, ..profile() });
    // Another card: its answers have the seal of a card without a configuration.
    session.write_program(&program(1, 2), vec![]).expect("it fits");
    assert_eq!(link.run(&mut session), Err(SessionError::Unconfigured));

    let mut session = link.open();
    session.write_program(&program(1, 2), vec![]).expect("the profile says so");
    let error = link.run(&mut session).expect_err("there is one pattern").to_string();
    assert!(error.starts_with("word 32 of PATTERNS is 0x0 instead of 0x1272: the card is smaller"), "{error}");

    let large = Memory { number: memory::EXTENSION, words: vec![1; 32_768 * 16 + 1] };
    let error = link.open().write_program(&program(1, 2), vec![large]).expect_err("too large").to_string();
    assert_eq!(error, "EXTENSION 0 needs 524289 words, the profile has 524288");

    // A device that only sends frames back with another seal.
    let mut session = Session::new(&profile(), TOKEN);
    session.write_plain().expect("every card has registers");
    assert_eq!(link.run(&mut session), Ok(Done::Written));
    session.commit();
    let Step::Send(frame) = session.poll(link.now) else { panic!("the commit is sent") };
    let mut answer = Control::of(frame).expect("it is one").answer(Some(&[]));
    answer.extend(Seal { token: 1, control: true, answers: false, body: 0, epoch: 1 }.word().to_le_bytes());
    session.receive(&answer, link.now);
    assert_eq!(link.run(&mut session), Err(SessionError::WrongSeal));
}

#[test]
fn forged_answers_change_nothing() {
    let mut link = Link::new(0);
    let mut session = link.open();
    session.write_program(&program(1, 2), vec![]).expect("it fits");
    let Step::Send(frame) = session.poll(link.now) else { panic!("a write is sent") };
    let answer = Control::of(frame).expect("it is one").answer(None);
    let own = Seal { token: TOKEN, control: true, answers: false, body: 0, epoch: 1 };
    // A refusal with each wrong seal, and a frame without one.
    for seal in [Seal { token: TOKEN ^ 1, ..own }, Seal { control: false, ..own }, Seal { answers: true, ..own }] {
        session.receive(&[&answer[..], &seal.word().to_le_bytes()].concat(), link.now);
    }
    session.receive(&answer, link.now);
    assert_eq!(link.run(&mut session), Ok(Done::Written));
    session.commit();
    session.poll(link.now);
    session.receive(&[&answer[..], &own.word().to_le_bytes()].concat(), link.now);
    link.now += Duration::from_secs(1);
    assert!(matches!(link.run(&mut session), Ok(Done::Committed { .. })));
}

#[test]
fn a_card_that_was_reset_is_noticed_and_opened_again() {
    let mut link = Link::new(0);
    let mut session = link.open();
    // Also without counters.
    let nothing = CardProgram { patterns: vec![], rules: vec![], dropped: vec![], ..program(1, 2) };
    for program in [nothing, program(1, 2)] {
        link.configure(&mut session, &program);
        session.count();
        assert!(matches!(link.run(&mut session), Ok(Done::Counted(_))));
        link.device = Device::new(profile());
        session.count();
        assert_eq!(link.run(&mut session), Err(SessionError::Unconfigured));
        // So is it by the next write and the next commit.
        session.write_plain().expect("every card has registers");
        assert_eq!(link.run(&mut session), Err(SessionError::Unconfigured));
        session = link.open();
    }
    let before = link.now;
    link.lost = 256;
    session.count();
    let error = link.run(&mut session).expect_err("nobody answers").to_string();
    assert!(error.ends_with("asked for: read words 0 to 0 of CONFIG"), "{error}");
    assert_eq!(link.now - before, Duration::from_millis(2700), "{error}");
}

/// Tries are counted, however long a try takes. A session that asks a silent card again gives up after fewer tries,
/// until the card answers.
#[test]
fn a_dead_card_is_given_up_after_a_few_tries() {
    for late in [Duration::ZERO, Duration::from_secs(60)] {
        let mut link = Link::new(0);
        let mut session = link.open();
        // How often the first frame that waits for an answer was sent, and how long that took.
        let fails = |link: &mut Link, session: &mut Session| {
            let (began, mut sent) = (link.now, BTreeMap::<Vec<u8>, u32>::new());
            loop {
                match session.poll(link.now) {
                    Step::Send(frame) => *sent.entry(frame.to_vec()).or_default() += 1,
                    // A busy machine lets the session wait for longer than it asked for.
                    Step::Wait(until) => link.now = until + late,
                    Step::Failed(SessionError::Silent { .. }) => break,
                    other => panic!("{other:?}"),
                }
            }
            (sent.into_values().max().expect("there were frames"), link.now - began)
        };
        let after = |millis: u64, waits: u32| Duration::from_millis(millis) + late * waits;
        session.count();
        assert_eq!(fails(&mut link, &mut session), (7, after(2700, 7)));
        session.write_program(&program(1, 2), vec![]).expect("it fits");
        assert_eq!(fails(&mut link, &mut session), (3, after(700, 3)));
        link.configure(&mut session, &program(1, 2));
        session.count();
        assert_eq!(fails(&mut link, &mut session), (7, after(2700, 7)), "it had answered");
        session.write_plain().expect("every card has registers");
        assert_eq!(link.run(&mut session), Ok(Done::Written));
        session.commit();
        // The commit is sent once, then the read that asks what became of it.
        assert_eq!(fails(&mut link, &mut session), (7, after(2900, 8)));
        assert!(session.is_in_doubt());
        session.commit();
        assert_eq!(fails(&mut link, &mut session), (3, after(700, 3)));
        session.commit();
        assert!(matches!(link.run(&mut session), Ok(Done::Committed { .. })));
        assert!(!session.is_in_doubt());
    }
}

/// An attacker sends the seal of a card without a configuration, which is not secret. Only the answer that the session
/// waits for is believed.
#[test]
fn a_reset_cannot_be_claimed_blindly() {
    let mut link = Link::new(0);
    let mut session = link.open();
    session.count();
    let Step::Send(frame) = session.poll(link.now) else { panic!("a read is sent") };
    let frame = frame.to_vec();
    let forged = |frame: &[u8]| {
        let answer = Control::of(frame).expect("it is one").answer(Some(&[0]));
        [&answer[..], &UNCONFIGURED.word().to_le_bytes()].concat()
    };
    for number in [0u16, 1, 77] {
        session.receive(&forged(&Request::read(memory::CONFIG, 0, 1).frame(number.wrapping_sub(1000))), link.now);
        session.receive(&forged(&Request::commit().frame(number)), link.now);
    }
    link.carry(&frame);
    assert!(matches!(link.run(&mut session), Ok(Done::Counted(_))));
}
