//! What events change: snapshots, time and keys.

use super::scenes::{attacked, model, peace, show, whole};
use crate::{Command, Event, Key, Model, Rates, Setup, Snapshot, frame};
use std::time::Duration;

fn screen(model: &Model) -> String {
    frame(model, 80, 24)
}

fn rates(model: &Model) -> &Rates {
    model.current().expect("it is live")
}

fn press(model: &mut Model, keys: &[Key], now: Duration) -> Option<Command> {
    keys.iter().map(|&key| model.update(Event::Key(key), now)).last().flatten()
}

#[test]
fn rates_are_by_the_clock_of_weir() {
    let mut model = model();
    // The second snapshot comes late: by the clock of Weir there are four seconds between them.
    show(&mut model, [whole(0, peace(0)), whole(4, peace(4))]);
    assert_eq!((rates(&model).upstream.packets, rates(&model).upstream.bits), (Some(500.0), Some(800_000.0)));
    assert_eq!((rates(&model).upstream.dropped, rates(&model).lost), (Some(0.0), Some(0.0)));
}

#[test]
fn a_restart_has_no_rate_and_is_said() {
    let mut model = model();
    let mut after = whole(60, peace(2));
    after["status"]["uptime_s"] = 2.0.into();
    let now = show(&mut model, [whole(50, peace(50)), whole(51, peace(51)), after]);
    assert_eq!(rates(&model), &Rates::default());
    assert!(screen(&model).contains("Weir was restarted"), "{}", screen(&model));
    let mut next = whole(61, peace(3));
    next["status"]["uptime_s"] = 3.0.into();
    model.update(Event::Snapshot(Box::new(super::scenes::snapshot(next))), now + Duration::from_secs(1));
    assert_eq!(rates(&model).upstream.packets, Some(500.0));
    model.update(Event::Tick, now + Duration::from_secs(31));
    assert!(!screen(&model).contains("Weir was restarted"));
}

#[test]
fn a_counter_that_goes_back_has_no_rate() {
    let mut model = model();
    let mut back = whole(2, peace(2));
    back["stats"]["upstream"]["total"]["passed"] = 1.into();
    show(&mut model, [whole(1, peace(1)), back]);
    assert_eq!((rates(&model).upstream.passed, rates(&model).upstream.packets), (None, Some(500.0)));
}

#[test]
fn a_weir_that_hangs_or_is_gone_has_no_rates_until_it_answers_again() {
    let mut model = model();
    let now = show(&mut model, (0..3).map(|second| whole(second, peace(second))));
    assert!(model.current().is_some());
    model.update(Event::Tick, now + Duration::from_secs(4));
    assert!(model.current().is_none());
    assert!(screen(&model).contains("NO ANSWER for 4s, all figures are as old: it does not answer"));
    let gone = Snapshot { problem: Some("Connection refused".to_owned()), ..Snapshot::default() };
    model.update(Event::Snapshot(Box::new(gone)), now + Duration::from_secs(5));
    assert!(screen(&model).contains("NO ANSWER for 5s, all figures are as old: Connection refused"));
    let again = super::scenes::snapshot(whole(9, peace(9)));
    model.update(Event::Snapshot(Box::new(again)), now + Duration::from_secs(9));
    // The rate over the time without answers is the rate by Weir's clock.
    assert_eq!(rates(&model).upstream.packets, Some(500.0));
}

#[test]
fn nothing_is_changed_without_a_yes() {
    let mut model = model();
    let mut value = attacked(20);
    value["status"]["confirm_left_s"] = 9.0.into();
    let now = show(&mut model, [value]);
    press(&mut model, &[Key::Char('a')], now);
    assert!(screen(&model).contains("nothing waits against attack 3"));
    press(&mut model, &[Key::Down], now);
    let commands =
        [('a', Command::Accept(2)), ('d', Command::Dismiss(2)), ('c', Command::Confirm), ('r', Command::Rollback)];
    for (key, command) in commands {
        for no in [Key::Char('n'), Key::Escape, Key::Enter, Key::Char(key), Key::Char(' ')] {
            assert_eq!(press(&mut model, &[Key::Char(key), no], now), None);
            assert!(screen(&model).contains("nothing was changed"));
        }
        assert_eq!(press(&mut model, &[Key::Char(key), Key::Char('y')], now), Some(command));
        // One yes is one command.
        assert_eq!(press(&mut model, &[Key::Char('y')], now), None);
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let mut model = model();
    let mut value = whole(1, peace(1));
    value["status"]["rollback_to"] = serde_json::Value::Null;
    let now = show(&mut model, [value]);
    for (key, said) in [
        ('a', "there is no attack"),
        ('d', "there is no attack"),
        ('e', "there is no attack to explain"),
        ('c', "no policy is on trial"),
        ('r', "there is no policy to roll back to"),
    ] {
        press(&mut model, &[Key::Char(key)], now);
        assert!(screen(&model).contains(said), "{key}");
        assert_eq!(press(&mut model, &[Key::Char('y')], now), None);
    }
    model.update(Event::Answered(Err("weir: no\nmore".to_owned())), now);
    assert!(screen(&model).contains(" weir: no\n"));
    model.update(Event::Tick, now + Duration::from_secs(6));
    assert!(!screen(&model).contains("weir: no"));
}

#[test]
fn a_recording_cannot_be_changed_and_has_rates_at_its_end() {
    let mut model = Model::new(Setup {
        from: "x.jsonl".to_owned(),
        is_recording: true,
        has_colour: false,
        explain: |_| String::new(),
    });
    let now = show(&mut model, (0..20).map(attacked));
    model.update(Event::EndOfRecording, now);
    model.update(Event::Tick, now + Duration::from_secs(60));
    assert!(model.current().is_some());
    assert!(screen(&model).contains("end of recording"));
    assert_eq!(press(&mut model, &[Key::Char('d'), Key::Char('y')], now), None);
    press(&mut model, &[Key::Char('d')], now);
    assert!(screen(&model).contains("a recording cannot be changed"));
}

#[test]
fn the_selection_follows_its_attack() {
    let mut model = model();
    let now = show(&mut model, (0..20).map(attacked));
    assert_eq!(model.selected_attack(), Some(3));
    press(&mut model, &[Key::Down], now);
    assert_eq!(model.selected_attack(), Some(2));
    // Another order moves the row, and not the selection.
    press(&mut model, &[Key::Char('s'), Key::Char('s')], now);
    assert_eq!(model.selected_attack(), Some(2));
    press(&mut model, &[Key::PageDown], now);
    press(&mut model, &[Key::PageUp, Key::Up], now);
    let first = model.rows().first().map(|row| row.attack);
    assert_eq!(model.selected_attack(), first);
}

#[test]
fn a_filter_is_a_part_of_victim_kind_or_state() {
    let mut model = model();
    let now = show(&mut model, (0..20).map(attacked));
    let numbers = |model: &Model| model.rows().iter().map(|row| row.attack).collect::<Vec<_>>();
    assert_eq!(numbers(&model), [3, 2, 1]);
    for (filter, expected) in [("2001:", vec![2]), ("REFLECT", vec![3]), ("over", vec![1]), ("zz", vec![])] {
        press(&mut model, &[Key::Char('/')], now);
        filter.chars().for_each(|c| _ = press(&mut model, &[Key::Char(c)], now));
        press(&mut model, &[Key::Enter], now);
        assert_eq!(numbers(&model), expected, "{filter}");
        press(&mut model, &[Key::Escape], now);
    }
    assert_eq!(numbers(&model), [3, 2, 1]);
}

#[test]
fn a_paused_screen_stays_and_goes_on_with_the_latest() {
    let mut model = model();
    let now = show(&mut model, (0..3).map(|second| whole(second, peace(second))));
    press(&mut model, &[Key::Char('p')], now);
    let paused = screen(&model);
    assert!(paused.contains("PAUSED"));
    model.update(Event::Snapshot(Box::new(super::scenes::snapshot(attacked(20)))), now + Duration::from_secs(1));
    assert!(screen(&model).contains("no attack"));
    press(&mut model, &[Key::Char('p')], now + Duration::from_secs(1));
    assert!(screen(&model).contains("ATTACK"));
}

#[test]
fn keys_end_the_screen() {
    for key in [Key::Char('q'), Key::Interrupt] {
        let mut model = model();
        press(&mut model, &[key], Duration::ZERO);
        assert!(model.is_done());
    }
    // An open panel takes the first key, but Ctrl-C always ends.
    let mut model = model();
    press(&mut model, &[Key::Char('?'), Key::Char('q')], Duration::ZERO);
    assert!(!model.is_done());
    press(&mut model, &[Key::Char('/'), Key::Char('q'), Key::Interrupt], Duration::ZERO);
    assert!(model.is_done());
}
