//! The card in software equals the interpreter: random programs, which a session writes as words, and random packets.

#[path = "rtl/programs.rs"]
mod programs;

use programs::{Images, images, program};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::time::Duration;
use weir_abi::Link;
use weir_card::Profile;
use weir_card::device::{Device, FromHost, FromNetwork};
use weir_card::eval::{Card, Configuration};
use weir_card::image::table;
use weir_card::session::{Done, Session, Step};
use weir_policy::ir::eval::packet::Frame;
use weir_test_support::mutation::mutated;
use weir_test_support::strategy;

const TOKEN: u64 = 0x5a_1122_3344;
const PROGRAMS: usize = 60;
const PACKETS: usize = 300;

fn any_of<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> S::Value {
    strategy.new_tree(runner).expect("the strategy rejects nothing").current()
}

/// Does what the session asks for, over a link that loses nothing.
fn run(session: &mut Session, device: &mut Device) -> Done {
    loop {
        match session.poll(Duration::ZERO) {
            Step::Send(frame) => {
                let FromHost::Answer(answer) = device.from_host(frame) else { panic!("a control frame") };
                session.receive(&answer, Duration::ZERO);
            }
            Step::Done(done) => return done,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn words_of_a_configuration_do_what_the_interpreter_does() {
    let mut runner = TestRunner::deterministic();
    let profile = Profile::parse(Profile::shipped("open-nic").expect("it comes with Weir")).expect("it reads");
    let (programs, packets) = (program(), mutated(strategy::packets(&Default::default())));
    let images = images();
    let mut device = Device::new(profile.clone());
    let mut session = Session::new(&profile, TOKEN);
    session.write_plain().expect("every card has registers");
    run(&mut session, &mut device);
    session.commit();
    run(&mut session, &mut device);
    let (mut dropped, mut answered) = (0, 0);
    for _ in 0..PROGRAMS {
        let program = any_of(&mut runner, &programs);
        let tables = images.iter().take(program.lookups.len()).enumerate().flat_map(|(lookup, image)| {
            let stages = image.view().stages().expect("the layout is d16x4r");
            table(lookup, stages.direct(), stages.extension())
        });
        let configured = session.write_program(&program, tables.collect()).expect("it fits");
        run(&mut session, &mut device);
        session.commit();
        run(&mut session, &mut device);
        let mut card = Card::new(&profile);
        let lookups = Images(&images);
        card.commit(Configuration { program: &program, lookups, token: TOKEN, epoch: configured.epoch });
        for _ in 0..PACKETS {
            let packet = any_of(&mut runner, &packets).bytes;
            let frame = Frame { bytes: &packet, wire_len: packet.len() as u32, link: Link::Ethernet, time_ns: 0 };
            let expected = card.handle(frame);
            let passed = match device.from_network(&packet) {
                FromNetwork::Dropped => None,
                FromNetwork::Passed(trailer) => Some([packet, trailer].concat()),
            };
            assert_eq!(passed, expected, "by {program:#?}");
            dropped += usize::from(expected.is_none());
            answered += usize::from(expected.is_some_and(|bytes| bytes[bytes.len() - 6] & 0x40 != 0));
        }
        session.count();
        assert_eq!(run(&mut session, &mut device), Done::Counted(card.dropped().to_vec()));
    }
    assert!(dropped > 100 && answered > 1_000, "{dropped} dropped, {answered} answered");
}
