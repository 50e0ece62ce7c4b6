//! Control frames: a configuration as frames, and the card's answers.

use crate::bench::{Bench, Left, NO_STALLS, Port, Sent};
use weir_abi::card::{Seal, control, memory};
use weir_card::image::{Memory, memories};
use weir_card::program::CardProgram;
use weir_tables::Image;

/// Bytes of the shortest answer without its seal.
const ANSWER_BYTES_MIN: usize = 60;

/// A control frame. `count` is what its header says; it may differ from the words that follow.
pub fn frame(op: u8, memory: u8, first: u32, count: u16, number: u16, words: &[u32]) -> Vec<u8> {
    let mut bytes = b"\x02card!\x02host!".to_vec();
    bytes.extend(control::ETHER_TYPE.to_be_bytes());
    bytes.extend([op, memory]);
    bytes.extend(first.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(number.to_le_bytes());
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.resize(bytes.len().max(ANSWER_BYTES_MIN), 0);
    bytes
}

/// The answer to a control frame, with the seal of the active epoch.
pub fn answer(frame: &[u8], words: &[u32], seal: u64) -> Vec<u8> {
    let mut bytes =
        [&frame[6..12], &frame[..6], &frame[12..14], &[frame[14] | control::ANSWER], &frame[15..24]].concat();
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
    bytes.resize(bytes.len().max(ANSWER_BYTES_MIN), 0);
    bytes.extend(seal.to_le_bytes());
    bytes
}

/// The seal of answers.
pub fn seal(token: u64, epoch: u16) -> u64 {
    Seal { token, control: true, answers: false, body: 0, epoch }.word()
}

/// The seal of answers before the first commit.
pub fn no_seal() -> u64 {
    seal(0, 0)
}

/// The frames that write some memory.
fn writes(memory: &Memory) -> impl Iterator<Item = Vec<u8>> {
    memory.words.chunks(control::WORDS_MAX).enumerate().map(|(index, words)| {
        let first = (index * control::WORDS_MAX) as u32;
        frame(control::WRITE, memory.number, first, words.len() as u16, index as u16, words)
    })
}

/// The memories of a table's image.
pub fn table(lookup: usize, image: &Image) -> [Memory; 2] {
    let stages = image.view().stages().expect("the layout is d16x4r");
    weir_card::image::table(lookup, stages.direct(), stages.extension())
}

/// The frames of a configuration: all memories but tables whole, so that nothing of an earlier one stays; then a
/// commit.
pub fn configuration(program: &CardProgram, token: u64, epoch: u16) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for mut memory in memories(program, token, epoch) {
        let size = match memory.number {
            memory::PATTERNS => 64 * memory::PATTERN_WORDS,
            memory::RULES => 128 * memory::RULE_WORDS,
            memory::SELECT => 56,
            memory::LOOKUPS => 6,
            _ => memory.words.len(),
        };
        memory.words.resize(size, 0);
        frames.extend(writes(&memory));
    }
    frames.push(frame(control::COMMIT, 0, 0, 0, epoch, &[]));
    frames
}

/// Sends control frames alone, and expects an answer to each.
pub fn send(bench: &mut Bench, frames: Vec<Vec<u8>>) -> Vec<Left> {
    let sent: Vec<Sent> = frames.into_iter().map(|bytes| Sent::new(Port::Host, bytes)).collect();
    let answers = bench.run(&sent, NO_STALLS);
    assert_eq!(answers.len(), sent.len());
    answers
}

/// Writes tables, one a lookup, into the bank that is not active.
pub fn write_tables(bench: &mut Bench, images: &[Image]) {
    let memories = images.iter().enumerate().flat_map(|(lookup, image)| table(lookup, image));
    send(bench, memories.flat_map(|memory| writes(&memory).collect::<Vec<_>>()).collect());
}

/// Reads words.
pub fn read(bench: &mut Bench, memory: u8, first: u32, count: u16) -> Vec<u32> {
    let answers = send(bench, vec![frame(control::READ, memory, first, count, 0, &[])]);
    let (words, _) = answers[0].bytes[control::HEADER_BYTES..].as_chunks::<4>();
    words[..usize::from(count)].iter().map(|word| u32::from_le_bytes(*word)).collect()
}
