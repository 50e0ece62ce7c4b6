//! What the answers of a card mean: counters, words that were written, commits.

use super::error::{SessionError, name};
use super::exchange::Exchange;
use crate::control::{Control, Request, WORDS_MAX};
use std::collections::BTreeMap;
use weir_abi::Counter;
use weir_abi::card::{control, memory};

/// The words that a bank is known to have, by memory and first word. Frames have the same places in each
/// configuration.
pub(super) type Known = BTreeMap<(u8, u32), Vec<u32>>;

/// Whether a frame answers the commit with a number.
pub(super) fn is_commit(answer: Control<'_>, number: u16) -> bool {
    answer.op() == control::COMMIT | control::ANSWER && answer.number() == number
}

/// The requests that read a number of counters.
pub(super) fn reads(memory: u8, counters: usize) -> impl Iterator<Item = Request> {
    let words = counters * memory::COUNTER_WORDS;
    (0..words).step_by(WORDS_MAX).map(move |first| {
        let count = WORDS_MAX.min(words - first);
        Request::read(memory, first as u32, count as u16)
    })
}

/// The counters that were read, `times` times: the smaller value of each.
pub(super) fn counters(exchange: &Exchange, times: usize) -> Vec<Counter> {
    let read = exchange.answers().filter(|(request, _)| request.memory != memory::CONFIG);
    let words: Vec<u32> = read.flat_map(|(_, words)| words.iter().copied()).collect();
    let (words, _) = words.as_chunks::<{ memory::COUNTER_WORDS }>();
    let number = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let counters: Vec<Counter> = words
        .iter()
        .map(|words| Counter { packets: number(words[0], words[1]), bytes: number(words[2], words[3]) })
        .collect();
    let count = counters.len() / times;
    let smaller = |one: Counter, other: &Counter| Counter {
        packets: one.packets.min(other.packets),
        bytes: one.bytes.min(other.bytes),
    };
    (0..count).map(|at| counters.iter().skip(at).step_by(count).fold(counters[at], smaller)).collect()
}

/// Compares what was read with what was written, and notes what the bank has.
pub(super) fn verify(exchange: &Exchange, written: &[Request], known: &mut Known) -> Result<(), SessionError> {
    for (request, (_, read)) in written.iter().zip(exchange.answers()) {
        let differs = request.words.iter().zip(read).position(|(should_be, is)| should_be != is);
        if let Some(at) = differs {
            return Err(SessionError::Unlike {
                memory: name(request.memory),
                at: request.first as usize + at,
                is: read[at],
                should_be: request.words[at],
            });
        }
    }
    known.extend(written.iter().map(|request| ((request.memory, request.first), request.words.clone())));
    Ok(())
}
