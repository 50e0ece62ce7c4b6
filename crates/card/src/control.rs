//! Control frames: what software asks of a card, and the card's answers (`docs/reference/card-layout.md`).

use weir_abi::card::control;
pub use weir_abi::card::control::WORDS_MAX;

/// Bytes of the shortest control frame, and of the shortest answer without its seal.
pub const FRAME_BYTES_MIN: usize = 60;
/// The addresses of a control frame: locally administered, one of a card and one of its software.
const TO_CARD: [u8; 12] = *b"\x02card!\x02host!";
const ADDRESSES: usize = 12;
const ETHER_TYPE: usize = 12;
const OP: usize = 14;
const MEMORY: usize = 15;
const FIRST: usize = 16;
const COUNT: usize = 20;
const NUMBER: usize = 22;
const WORD: usize = size_of::<u32>();

/// What a control frame asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The operation ([`weir_abi::card::control`]).
    pub op: u8,
    /// The number of the memory.
    pub memory: u8,
    /// The first word.
    pub first: u32,
    /// Number of words.
    pub count: u16,
    /// The words of a write.
    pub words: Vec<u32>,
}

impl Request {
    /// Writes words.
    ///
    /// # Panics
    /// There are more than [`WORDS_MAX`].
    pub fn write(memory: u8, first: u32, words: &[u32]) -> Self {
        assert!(words.len() <= WORDS_MAX, "compiler bug: too many words for a control frame");
        Request { op: control::WRITE, memory, first, count: words.len() as u16, words: words.to_vec() }
    }

    /// Reads words.
    pub fn read(memory: u8, first: u32, count: u16) -> Self {
        Request { op: control::READ, memory, first, count, words: vec![] }
    }

    /// Makes the bank that is not active the active one.
    pub fn commit() -> Self {
        Request { op: control::COMMIT, memory: 0, first: 0, count: 0, words: vec![] }
    }

    /// The frame. `number` comes back in the answer.
    pub fn frame(&self, number: u16) -> Vec<u8> {
        let mut bytes = TO_CARD.to_vec();
        bytes.extend(control::ETHER_TYPE.to_be_bytes());
        bytes.extend([self.op, self.memory]);
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.count.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        self.words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.resize(bytes.len().max(FRAME_BYTES_MIN), 0);
        bytes
    }
}

/// A control frame, or the answer to one without its seal.
#[derive(Clone, Copy, Debug)]
pub struct Control<'f>(&'f [u8]);

impl<'f> Control<'f> {
    /// The frame, if it is one.
    pub fn of(frame: &'f [u8]) -> Option<Self> {
        let is_one = frame.len() >= control::HEADER_BYTES && frame[ETHER_TYPE..OP] == control::ETHER_TYPE.to_be_bytes();
        is_one.then_some(Control(frame))
    }

    /// The operation.
    pub fn op(self) -> u8 {
        self.0[OP]
    }

    /// The number of the memory.
    pub fn memory(self) -> u8 {
        self.0[MEMORY]
    }

    /// The first word.
    pub fn first(self) -> u32 {
        u32::from_le_bytes([self.0[FIRST], self.0[FIRST + 1], self.0[FIRST + 2], self.0[FIRST + 3]])
    }

    /// The number of words that the header names.
    pub fn count(self) -> u16 {
        u16::from_le_bytes([self.0[COUNT], self.0[COUNT + 1]])
    }

    /// The number of the frame.
    pub fn number(self) -> u16 {
        u16::from_le_bytes([self.0[NUMBER], self.0[NUMBER + 1]])
    }

    /// The words behind the header, without a last one that is not whole.
    pub fn words(self) -> impl Iterator<Item = u32> + use<'f> {
        let (words, _) = self.0[control::HEADER_BYTES..].as_chunks::<WORD>();
        words.iter().map(|word| u32::from_le_bytes(*word))
    }

    /// The card's answer: words that were read, or a refusal, without its seal.
    pub fn answer(self, words: Option<&[u32]>) -> Vec<u8> {
        let [half, ether_type] = [ADDRESSES / 2, ETHER_TYPE];
        let mut bytes =
            [&self.0[half..ADDRESSES], &self.0[..half], &self.0[ether_type..control::HEADER_BYTES]].concat();
        bytes[OP] |= control::ANSWER;
        match words {
            None => bytes[COUNT..NUMBER].fill(0),
            Some(words) => words.iter().for_each(|word| bytes.extend(word.to_le_bytes())),
        }
        bytes.resize(bytes.len().max(FRAME_BYTES_MIN), 0);
        bytes
    }
}
