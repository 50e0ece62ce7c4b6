//! A session of the software with the simulated card, and the plain configuration.

use crate::bench::{Bench, NO_STALLS, Port, Sent, profile};
use crate::configure::{frame, no_seal, seal, send, table};
use crate::equal::any_of;
use crate::programs::{Images, images, program};
use proptest::test_runner::TestRunner;
use std::time::Duration;
use weir_abi::Link;
use weir_abi::card::{control, memory};
use weir_card::eval::{Card, Configuration};
use weir_card::session::{Done, Session, Step};
use weir_policy::ir::eval::packet::Frame;

const TOKEN: u64 = 0x5a_1122_3344;

/// Does what the session asks for.
fn run(session: &mut Session, bench: &mut Bench) -> Done {
    loop {
        match session.poll(Duration::ZERO) {
            Step::Send(frame) => {
                let answers = bench.run(&[Sent::new(Port::Host, frame.to_vec())], NO_STALLS);
                answers.iter().for_each(|answer| session.receive(&answer.bytes, Duration::ZERO));
            }
            Step::Done(done) => return done,
            other => panic!("{other:?}"),
        }
    }
}

fn from_network(bench: &mut Bench, bytes: &[u8]) -> Option<Vec<u8>> {
    bench.run(&[Sent::new(Port::Wire, bytes.to_vec())], NO_STALLS).pop().map(|left| left.bytes)
}

#[test]
fn a_session_opens_configures_and_leaves_the_card() {
    let mut bench = Bench::new();
    let (profile, images) = (profile(), images());
    let program = any_of(&mut TestRunner::deterministic(), &program());
    let packet = weir_test_support::packet("eth / ip saddr=10.1.2.3 / tcp dport=22").expect("it reads").bytes;
    let mut session = Session::new(&profile, TOKEN);
    session.write_plain().expect("every card has registers");
    assert_eq!(run(&mut session, &mut bench), Done::Written);
    session.commit();
    assert_eq!(run(&mut session, &mut bench), Done::Committed { before: vec![] });
    assert_eq!(from_network(&mut bench, &packet), Some(packet.clone()), "a plain card appends nothing");

    let lookups = images.iter().take(program.lookups.len()).enumerate();
    let tables = lookups.flat_map(|(lookup, image)| table(lookup, image));
    let configured = session.write_program(&program, tables.collect()).expect("it fits");
    assert_eq!(run(&mut session, &mut bench), Done::Written);
    session.commit();
    assert_eq!(run(&mut session, &mut bench), Done::Committed { before: vec![] });
    let mut card = Card::new(&profile);
    card.commit(Configuration { program: &program, lookups: Images(&images), token: TOKEN, epoch: configured.epoch });
    let whole = Frame { bytes: &packet, wire_len: packet.len() as u32, link: Link::Ethernet, time_ns: 0 };
    assert_eq!(from_network(&mut bench, &packet), card.handle(whole));
    session.count();
    assert_eq!(run(&mut session, &mut bench), Done::Counted(card.dropped().to_vec()));

    let plain = session.write_plain().expect("every card has registers");
    run(&mut session, &mut bench);
    session.commit();
    assert_eq!(run(&mut session, &mut bench), Done::Committed { before: card.dropped().to_vec() });
    assert_eq!(from_network(&mut bench, &packet), Some(packet));
    let asked = send(&mut bench, vec![frame(control::READ, memory::CONFIG, 0, 1, 9, &[])]);
    let sealed = asked[0].bytes.ends_with(&seal(TOKEN, plain.epoch).to_le_bytes());
    assert!(sealed && seal(TOKEN, plain.epoch) != no_seal(), "answers have the seal of the plain configuration");
}
