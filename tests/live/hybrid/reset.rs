//! A card that loses its configuration is opened again. Until then only packets with its seal pass.

use super::{ByReason, PACKETS, POLICY, Served, alone, behind_card, reasons, status};
use crate::device_under_test::{Running, Setup, wait_until};
use crate::hosts::{Host, Hosts};
use crate::put;
use crate::tables::done;
use crate::traffic::{Listener, frames, interpreted, send};
use std::path::Path;
use weir_control::Request;

each_engine_behind_card!(a_card_that_was_reset_is_opened_again);
fn a_card_that_was_reset_is_opened_again(hosts: &Hosts, card: &Host, folder: &Path, setup: &Setup) {
    put(folder, "p.weir", POLICY);
    let served = Served::start(card, folder);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", setup);
    let once = frames(PACKETS);
    let (verdicts, report) = interpreted(folder, "p.weir", "upstream", &once);
    let passed: Vec<&Vec<u8>> = once.iter().zip(&verdicts).filter(|(_, v)| *v == "accept").map(|(f, _)| f).collect();
    let listener = Listener::noting(&hosts.server, "s", |notes: &mut Vec<Vec<u8>>, burst| {
        notes.extend((0..burst.len()).map(|at| burst.bytes(at).to_vec()));
        notes.len()
    });
    send(&hosts.client, "c", &once);
    // What the card has dropped is accounted before it forgets.
    running.wait_for("all are counted", |stats| reasons(stats) == alone(&report, 1).0);
    assert_eq!(status(&running).reopened, 0);

    // Another process has another card's memories: none.
    drop(served);
    let served = Served::start(card, folder);
    send(&hosts.client, "c", &once);
    let unsealed = |of: &ByReason| of.get("unsealed").copied().unwrap_or_default();
    let expected = |times: u64, refused: u64| {
        let mut expected = alone(&report, times).0;
        expected.insert("unsealed".to_owned(), refused);
        expected
    };
    let refused = once.len() as u64;
    running.wait_for("frames without a seal are refused", |stats| unsealed(&reasons(stats)) >= refused);

    wait_until("the card is opened again", || status(&running).reopened == 1);
    let now = status(&running);
    assert!(now.sealed && now.problem.is_none() && now.alone.is_none(), "{now:#?}\n{}", running.log());
    assert!(running.log().contains("have room for a trailer of 64 (MTU "), "{}", running.log());
    assert!(running.log().contains("it had lost its configuration and was opened again"), "{}", running.log());
    // Answers of a card without a configuration had no known seal at first.
    let before = unsealed(&reasons(&running.stats()));
    send(&hosts.client, "c", &once);
    let stats = running.wait_for("all are counted", |stats| reasons(stats) == expected(2, before));
    assert_eq!(stats.upstream.current.from_card.map(|from| from.alone), Some(0), "answers decide again");
    let after = status(&running);
    assert!(after.frames.answered.frames > 0 && after.rules.iter().any(|rule| rule.dropped == 2), "{after:#?}");
    let arrived = listener.notes(2 * passed.len());
    assert!(arrived.iter().eq(std::iter::repeat_n(&passed, 2).flatten().copied()), "{} arrived", arrived.len());
    assert_eq!(running.stop(), 0);
    served.stop();
}

/// The policy stays as it is while the card is dead. Tables change, and are the software's from then on.
#[test]
fn a_dead_card_refuses_another_policy_and_nothing_else() {
    behind_card("afpacket", |hosts, card, folder, setup| {
        put(folder, "p.weir", POLICY);
        put(folder, "q.weir", "upstream { udp dport 9 drop; accept }\ndownstream { accept }\n");
        let served = Served::start(card, folder);
        let running = Running::start_as(&hosts.weir, folder, "p.weir", setup);
        let first = running.status().generation;
        let second = running.load(&folder.join("q.weir"));
        drop(served);
        let activate = || running.ask(&Request::Activate { generation: second, confirm_s: None });
        for _ in 0..2 {
            let refused = activate().expect_err("the card is dead").to_string();
            assert!(refused.contains("the card has not answered for"), "{refused}");
            assert_eq!(running.status().generation, first);
        }
        done(&running, "bad add 192.0.2.0/24");
        let now = status(&running);
        assert!(now.alone.as_ref().is_some_and(|why| why.contains("table bad was changed")), "{now:#?}");
        wait_until("its silence is noticed", || status(&running).problem.is_some());

        let served = Served::start(card, folder);
        wait_until("the card is opened again", || status(&running).reopened == 1);
        activate().expect("the card answers");
        assert_eq!(running.status().generation, second);
        assert_eq!(running.stop(), 0);
        served.stop();
    });
}
