//! Compares the counters of the policy alone with those behind a card.
//!
//! A measurement decides packets until enough of them are undisturbed (`weir_instruments::quiet`), so counters of
//! measurements are of different packets. Here each way decides each packet once more, and what this adds to its
//! counters is compared.

use weir_abi::{BURST_MAX, Counter, Link, Reason, Verdict};
use weir_command::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::{EngineError, Filter, FrameBurst, NativeFilter};

/// Number of frames that are in memory at the same time.
const TOGETHER: usize = 1024;

/// What the filter counts when it decides each frame once.
///
/// # Errors
/// The filter fails.
pub fn counted<F: AsRef<[u8]>>(
    filter: &mut NativeFilter,
    frames: &[F],
    mut decide: impl FnMut(&mut NativeFilter, &FrameBurst<'_>, &mut [Verdict]) -> Result<(), EngineError>,
) -> Result<Vec<Counter>, Failure> {
    let before = filter.counters();
    let mut verdicts = [Verdict(0); BURST_MAX];
    for frames in frames.chunks(TOGETHER) {
        let frames = frames.iter().map(AsRef::as_ref);
        let set = FrameSet::new(Link::Ethernet, frames.map(|frame| (frame, frame.len() as u32)));
        for burst in set.bursts() {
            decide(filter, &burst, &mut verdicts)?;
        }
    }
    let added = |(after, before): (Counter, Counter)| Counter {
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
    };
    Ok(filter.counters().into_iter().zip(before).map(added).collect())
}

/// Checks that both ways have counted the same. Two counters exist only behind a card: packets with
/// answers, and packets without.
///
/// # Errors
/// They differ. The message names the first counter that does.
pub fn agree(alone: &[Counter], behind: &[Counter]) -> Result<(), Failure> {
    let is_of_card = |place: usize| {
        [Reason::COUNTER_ANSWERED, Reason::COUNTER_ALONE].iter().any(|reason| usize::from(reason.0) == place)
    };
    if alone.len() != behind.len() {
        let lengths = format!("{} counters behind the card, and {} alone", behind.len(), alone.len());
        return Err(Failure::Runtime(format!("the policy has {lengths}")));
    }
    let differs = |&place: &usize| !is_of_card(place) && alone[place] != behind[place];
    let Some(first) = (0..alone.len()).find(differs) else { return Ok(()) };
    let others = match (first + 1..alone.len()).filter(differs).count() {
        0 => String::new(),
        others => format!("; {others} more counters differ"),
    };
    let [behind, alone] =
        [behind[first], alone[first]].map(|Counter { packets, bytes }| format!("{packets} ({bytes} bytes)"));
    Err(Failure::Runtime(format!("packets of {}: {behind} behind the card, {alone} alone{others}", name(first))))
}

/// The name of a counter.
fn name(place: usize) -> String {
    let reason = Reason(u16::try_from(place).expect("reasons have 16 bits"));
    match (reason.builtin_name(), reason.rule_index()) {
        (Some(name), _) => format!("reason `{name}`"),
        (None, Some(rule)) => format!("rule {rule}"),
        (None, None) => format!("reason {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_rules_must_agree_and_those_of_the_card_need_not() {
        let alone = vec![Counter::default(); 40];
        let with = |places: &[u16]| {
            let mut counters = alone.clone();
            places.iter().for_each(|&place| counters[usize::from(place)] = Counter { packets: 7, bytes: 420 });
            counters
        };
        assert!(agree(&alone, &with(&[Reason::COUNTER_ANSWERED.0, Reason::COUNTER_ALONE.0])).is_ok());
        let message = |places: &[u16]| agree(&alone, &with(places)).expect_err("they differ").message().to_owned();
        let of_rule = "packets of rule 1: 7 (420 bytes) behind the card, 0 (0 bytes) alone";
        assert_eq!(message(&[Reason::RULE_BASE + 1]), of_rule);
        let of_two = message(&[Reason::RULE_BASE + 1, Reason::RULE_BASE + 3]);
        assert_eq!(of_two, format!("{of_rule}; 1 more counters differ"));
        assert!(agree(&alone, &alone[1..]).is_err());
    }
}
