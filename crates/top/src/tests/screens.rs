//! The screen at three sizes.

use super::scenes::{self, Counters, attacked, model, peace, show, whole};
use crate::{Event, Key, Model, Snapshot, frame};
use serde_json::{Value, json};
use std::time::Duration;

/// The screen of a model at three sizes.
fn screens(model: &Model) -> String {
    let screen = |(columns, lines)| format!("{columns}x{lines}\n{}", frame(model, columns, lines));
    [(80, 24), (120, 40), (60, 20)].map(screen).join("\n")
}

#[test]
fn peace_is_one_quiet_screen() {
    let mut model = model();
    show(&mut model, (0..40).map(|second| whole(second, peace(second))));
    insta::assert_snapshot!(screens(&model));
}

#[test]
fn an_attack_shows_victim_rate_and_what_is_held() {
    let mut model = model();
    show(&mut model, (0..40).map(attacked));
    insta::assert_snapshot!(screens(&model));
}

#[test]
fn a_trial_shows_its_end_and_its_keys() {
    let trial = |second: u64| {
        let mut value = whole(second, peace(second));
        value["status"]["confirm_left_s"] = json!(45.4);
        value["status"]["posture"] = json!("high");
        value["status"]["automatic"] = json!({ "posture": "high", "in_place_of": null });
        value
    };
    let mut model = model();
    show(&mut model, (0..3).map(trial));
    insta::assert_snapshot!(screens(&model));
}

#[test]
fn what_is_not_known_is_a_dash() {
    let bare = |second: u64| {
        let mut value = whole(second, peace(second));
        let object = value.as_object_mut().expect("an object");
        ["attacks", "features", "limits", "room"].iter().for_each(|part| _ = object.remove(*part));
        value["absent"] = json!({
            "attacks": "weir: attacks are not measured: start Weir with --mitigate",
            "features": "weir: the active policy does not observe",
        });
        value["status"]["flows"] = Value::Null;
        value["status"]["engine"] = Value::Null;
        value["stats"]["interfaces"][0]["rx_missed"] = Value::Null;
        value
    };
    let mut model = model();
    // One snapshot has no rates either.
    show(&mut model, (0..1).map(bare));
    let first = frame(&model, 80, 24);
    show(&mut model, (0..3).map(bare));
    insta::assert_snapshot!(format!("{first}\n{}", screens(&model)));
}

#[test]
fn losses_are_on_the_first_page() {
    let lossy = |second: u64| {
        let counters =
            Counters { passed: 500 * second, missed: 70 * second, unsent: 3 * second, ..Counters::default() };
        let mut value = whole(second, counters);
        value["attacks"] = scenes::attacks(&[], 12 * second);
        value["stats"]["additions"]["additions-overflow"] = json!(second);
        value["room"]["tables"][1]["refused"] = json!(31);
        value["status"]["flows"]["is_short"] = json!(true);
        value["status"]["interfaces"][1]["state"] = json!("no-link");
        value["status"]["updates"]["refusals"] = json!([{
            "table": "bad", "file": "/f", "reason": "it has 3 entries in place of 120,000", "since_s": 90.0, "times": 4
        }]);
        value
    };
    let mut model = model();
    show(&mut model, (0..5).map(lossy));
    insta::assert_snapshot!(screens(&model));
}

#[test]
fn a_weir_that_went_away_leaves_no_rates() {
    let mut model = model();
    let now = show(&mut model, (0..20).map(attacked));
    let gone = Snapshot { problem: Some("/run/weir.sock: Connection refused".to_owned()), ..Snapshot::default() };
    for second in 1..=8 {
        model.update(Event::Snapshot(Box::new(gone.clone())), now + Duration::from_secs(second));
    }
    insta::assert_snapshot!(screens(&model));
}

#[test]
fn what_works_beside_the_policy_is_in_the_first_line() {
    let title = |status: Value| {
        let mut model = model();
        let mut value = whole(1, peace(1));
        value["status"].as_object_mut().expect("an object").extend(status.as_object().expect("an object").clone());
        show(&mut model, [value]);
        let screen = frame(&model, 120, 40);
        let mut lines = screen.lines().map(str::to_owned);
        (lines.next().unwrap_or_default(), lines.find(|line| line.contains("no more")).unwrap_or_default())
    };
    let shadow = json!({ "policy": "/new.weir", "posture": null, "every": 100 });
    let mut failed = shadow.clone();
    failed["failed"] = json!("a panic");
    for (status, said, notice) in [
        (json!({ "captures": 0 }), "up 1h02m  ", ""),
        (json!({ "captures": 1 }), "up 1h02m  1 capture ", ""),
        (json!({ "captures": 2, "shadow": shadow }), "up 1h02m  shadow 1/100  2 captures ", ""),
        (json!({ "shadow": failed }), "shadow FAILED ", " the shadow /new.weir judges no more packets: a panic"),
    ] {
        let (title, noticed) = title(status);
        assert!(title.contains(said) && noticed == notice, "{title}\n{noticed}");
    }
}

#[test]
fn workers_show_how_busy_they_are() {
    let busy = |second: u64| {
        let mut value = whole(second, peace(second));
        value["status"]["workers_cpu_ms"] = json!({ "0": 970 * second, "1": 4 * second, "2": 1001 * second });
        value
    };
    let mut model = model();
    show(&mut model, [busy(1)]);
    assert!(!frame(&model, 80, 24).contains("busy:"), "one snapshot has no rates");
    show(&mut model, [busy(2)]);
    let screen = frame(&model, 80, 24);
    assert!(screen.contains(" workers busy: 0 97%, 1 0.4%, 2 100%"), "{screen}");
}

#[test]
fn panels_cover_the_screen() {
    let mut model = model();
    let now = show(&mut model, (0..20).map(attacked));
    let mut pressed = |key: Key| {
        model.update(Event::Key(key), now);
        let screen = frame(&model, 60, 20);
        model.update(Event::Key(Key::Escape), now);
        screen
    };
    let screens = [Key::Char('?'), Key::Enter, Key::Char('d'), Key::Char('/')].map(&mut pressed);
    insta::assert_snapshot!(screens.join("\n"));
}

#[test]
fn a_tiny_terminal_is_told_what_is_needed() {
    let model = model();
    for (columns, lines) in [(59, 20), (60, 19), (20, 4), (1, 1), (0, 0)] {
        let screen = frame(&model, columns, lines);
        let words: String = screen.split_whitespace().collect();
        assert!(columns < 20 || words.contains("needs60columnsand20lines"), "{columns}x{lines}: {screen}");
    }
}

#[test]
fn every_size_can_be_drawn() {
    let mut model = model();
    let now = show(&mut model, (0..20).map(attacked));
    for key in [None, Some(Key::Char('?')), Some(Key::Enter)] {
        key.into_iter().for_each(|key| _ = model.update(Event::Key(key), now));
        for (columns, lines) in [(60, 20), (61, 21), (72, 23), (99, 29), (100, 30), (200, 60), (1000, 1000)] {
            let screen = frame(&model, columns, lines);
            assert!(screen.lines().all(|line| line.chars().count() <= columns.into()), "{columns}x{lines}");
        }
    }
}

#[test]
fn no_byte_of_a_packet_or_a_name_controls_the_terminal() {
    let evil = "\u{1b}[2J\u{9b}31m\r\n\u{202e}x";
    let mut value = attacked(20);
    for path in [
        "/attacks/attacks/2/victim",
        "/attacks/attacks/2/kind",
        "/attacks/mode",
        "/features/addresses/0/address",
        "/features/upstream/samples/sources/0/value",
        "/room/tables/0/table",
        "/room/slots/0/slot",
        "/status/engine",
        "/status/posture",
        "/status/interfaces/0/interface",
        "/stats/upstream/total/rules/0/rule",
    ] {
        *value.pointer_mut(path).expect(path) = json!(evil);
    }
    value["status"]["interfaces"][0]["state"] = json!("down");
    value["status"]["mixed"] = json!([evil]);
    value["stats"]["upstream"]["total"]["drops"] = json!({ evil: 5 });
    value["absent"] = json!({ "features": evil });
    let mut model = model();
    let now = show(&mut model, [attacked(19), value]);
    let is_bad = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!frame(&model, 120, 40).contains(is_bad));
    // The filter, a message and the explanation too.
    for key in [Key::Char('/'), Key::Char('\u{202e}'), Key::Enter, Key::Escape, Key::Enter] {
        model.update(Event::Key(key), now);
        assert!(!frame(&model, 120, 40).contains(is_bad));
    }
    model.update(Event::Answered(Err(evil.to_owned())), now);
    assert!(!frame(&model, 120, 40).contains(is_bad));
}
