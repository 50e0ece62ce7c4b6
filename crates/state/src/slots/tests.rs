//! Tests of slots: numbers, cells, ends, copies, counters, and what is handed over.

use super::*;

fn numbers(slot: &RuleSlot) -> Vec<u32> {
    slot.list().iter().map(|rule| rule.record.number).collect()
}

fn rule(act: u32) -> SlotRule {
    let mut rule = SlotRule::ANY;
    rule.act = act;
    rule
}

fn active(slot: &RuleSlot) -> (u64, usize) {
    let word = slot.words.all()[0].load(Ordering::Relaxed);
    (word & 0xffff_ffff, (word >> 32) as usize)
}

#[test]
fn rules_keep_their_numbers_and_have_cells_of_their_own() {
    let slot = RuleSlot::new(Memory::Process, None).expect("it is little");
    for number in 1..=3 {
        assert_eq!(slot.add(rule(1), None, 3, 7), Ok(number));
    }
    assert_eq!(slot.add(rule(1), None, 3, 7), Err(SlotError::Full { size: 3 }));
    assert_eq!(slot.remove(2), Ok(()));
    assert_eq!(slot.remove(2), Err(SlotError::NoRule(2)));
    assert_eq!(slot.add(rule(0), None, 3, 7), Ok(4), "a number is never used again");
    assert_eq!(slot.replace(1, rule(2), Some(50), 7), Ok(()));
    assert_eq!(numbers(&slot), [1, 3, 4]);
    let cells: Vec<u32> = slot.list().iter().map(|rule| rule.record.cell).collect();
    let mut different = cells.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), cells.len());
    assert_eq!(active(&slot).0, 3);
    assert_eq!(slot.renew(1, Some(60)), Ok(SlotCounter::default()));
    assert_eq!(slot.renew(2, Some(60)), Err(SlotError::NoRule(2)));
    assert_eq!((slot.expire(59), slot.expire(60)), (0, 1));
    assert_eq!(numbers(&slot), [3, 4]);
    assert_eq!((slot.flush(), slot.flush()), (Ok(2), Ok(0)));
    assert_eq!(active(&slot).0, 0);
}

#[test]
fn the_copy_that_is_read_never_changes() {
    let readers = Readers::new();
    let mut reader = readers.register().expect("there is room");
    let slot = RuleSlot::new(Memory::Process, Some(readers)).expect("it is little");
    let burst = reader.start_burst();
    slot.add(rule(1), Some(1), 9, 0).expect("the other copy is free");
    let (count, copy) = active(&slot);
    assert_eq!(count, 1);
    // The burst may still read the first copy.
    assert_eq!(slot.add(rule(1), None, 9, 0), Err(SlotError::Behind));
    assert_eq!(active(&slot), (count, copy));
    assert_eq!(slot.expire(u64::MAX), 0, "it does not wait");
    let _ = burst;
    reader.start_burst();
    assert_eq!(slot.add(rule(1), None, 9, 0), Ok(2));
    assert_eq!(active(&slot), (2, 1 - copy));
    assert_eq!(slot.expire(u64::MAX), 0);
    reader.start_burst();
    assert_eq!(slot.expire(u64::MAX), 1);
    assert_eq!(numbers(&slot), [2]);
}

#[test]
fn rules_that_are_handed_over_keep_numbers_ends_and_counts() {
    let slot = RuleSlot::new(Memory::Process, None).expect("it is little");
    (1..=3).for_each(|end| _ = slot.add(rule(1), Some(100 * end), 9, 0).expect("there is room"));
    slot.remove(2).expect("it is there");
    let cell = slot.list()[1].record.cell as usize;
    slot.counters(cell).for_each(|words| words[0].store(5, Ordering::Relaxed));
    let handed = || slot.hand_over();
    let next = |handed| RuleSlot::handed(None, handed, Memory::Process, None, 7);
    let slot_of_next = next(handed()).expect("it is whole");
    let listed: Vec<_> = slot_of_next.list().iter().map(|one| (one.record.number, one.expires_ns)).collect();
    assert_eq!(listed, [(1, Some(100)), (3, Some(300))]);
    assert_eq!(slot_of_next.list()[1].counts.packets, 5 * STRIPES as u64);
    assert_eq!(slot_of_next.add(rule(1), None, 9, 0), Ok(4), "a number is never used again");
    let damages: [fn(&mut HandedRules); 4] = [
        |handed| handed.rules[0].record.truncate(3),
        |handed| handed.rules[0].record = vec![u64::MAX; SlotRule::WORDS],
        |handed| handed.rules[1].record = handed.rules[0].record.clone(),
        |handed| {
            handed.rules = (0..=RULES_MAX)
                .map(|_| HandedRule { record: vec![0; SlotRule::WORDS], expires_ns: None, counts: [0; 4] })
                .collect()
        },
    ];
    for damage in damages {
        let mut damaged = handed();
        damage(&mut damaged);
        assert!(next(damaged).is_err());
    }
}

#[test]
fn counters_of_a_new_rule_begin_at_0() {
    let slot = RuleSlot::new(Memory::Process, None).expect("it is little");
    slot.add(rule(1), None, 1, 0).expect("there is room");
    let cell = slot.list()[0].record.cell as usize;
    for (stripe, words) in (1..).zip(slot.counters(cell)) {
        words.iter().for_each(|word| word.store(stripe, Ordering::Relaxed));
    }
    let sum = (1..=STRIPES as u64).sum::<u64>();
    assert_eq!(slot.list()[0].counts, SlotCounter { packets: sum, bytes: sum, dropped: sum, dropped_bytes: sum });
    slot.replace(1, rule(1), None, 0).expect("it is there");
    assert_eq!(slot.list()[0].counts, SlotCounter::default());
}
