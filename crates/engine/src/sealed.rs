//! Frames from a card: which seals are known, and what a frame is (`docs/reference/card-layout.md`).
//!
//! A card appends a trailer to each frame: a body of answers, and the seal. The front of a datapath compares the last
//! eight bytes of each frame with the seals that it knows, removes the trailer, and chooses the chain. Nothing behind
//! it sees trailers, but the chain that reads the body. `weir_card::receive` is the reference.

use std::ops::Range;
use std::sync::mpsc::SyncSender;

use weir_abi::card::{SEAL_BYTES, Seal, TRAILER_BYTES_MAX};
use weir_abi::kernel::{CARD_ALONE, CARD_ANSWERED, CARD_CONTROL, CARD_SEALS_MAX, CARD_UNSEALED, CardSeal, CardSeals};
use weir_abi::{BURST_MAX, Frame};

use crate::FrameBurst;

/// A configuration of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configured {
    /// The epoch.
    pub epoch: u16,
    /// Bytes of the body.
    pub body: u8,
}

/// The chain of a policy that reads answers, and the configuration of the card that gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Index of the chain.
    pub chain: usize,
    /// The configuration.
    pub configured: Configured,
}

/// What happens to frames without a seal of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithoutSeal {
    /// The card has perhaps no configuration yet, so nothing was appended: the plain chain decides the frame as it is.
    Alone,
    /// The card has answered the first commit: the frame is dropped and counted as `unsealed`.
    Drop,
    /// As `Drop`, while the software finds out whether the card has lost its configuration. Answers to control frames
    /// may have the seal of a card without one.
    DropOpening,
}

/// A card in front of an interface, as the datapath knows it.
#[derive(Clone, Debug)]
pub struct CardPort {
    /// The card's secret, 40 bits.
    pub token: u64,
    /// Configurations whose frames may arrive, besides the configuration of the active policy: at most
    /// [`CardPort::KNOWN_MAX`].
    pub known: Vec<Configured>,
    /// What happens to other frames.
    pub without_seal: WithoutSeal,
    /// Where workers put the card's answers to control frames, with their seals, which say the active epoch; a frame
    /// without room is lost. Programs in the kernel pass these frames up instead: a raw socket on the interface
    /// receives them.
    pub control: Option<SyncSender<Vec<u8>>>,
}

impl CardPort {
    /// Maximum number of configurations besides the configuration of the active policy.
    pub const KNOWN_MAX: usize = 4;
}

/// What a frame from a card's port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet with answers for the active policy.
    Answered,
    /// A packet that the policy decides alone.
    Alone,
    /// An answer of the card to a control frame.
    Control,
    /// A frame without a seal of the card, where that is refused.
    Unsealed,
}

/// The seals that a port knows, as numbers.
#[derive(Clone, Debug)]
pub struct Seals {
    /// The seal of answers for the active policy; `None` if it reads none.
    answered: Option<u64>,
    /// The other seals, each with the kind of frame that has it.
    others: Vec<(u64, Received)>,
    without_seal: WithoutSeal,
}

/// The seal of a card without a configuration. Any sender can use it.
const UNCONFIGURED: u64 = Seal { token: 0, control: true, answers: false, body: 0, epoch: 0 }.word();

impl Seals {
    /// The seals of a port, under a policy that reads answers of `own`.
    pub fn new(port: &CardPort, own: Option<Configured>) -> Self {
        let seal = |Configured { epoch, body }: Configured, answers: bool, control: bool| {
            let body = if answers { body } else { 0 };
            Seal { token: port.token, control, answers, body, epoch }.word()
        };
        let alone = |known| (seal(known, false, false), Received::Alone);
        let control = |known| (seal(known, false, true), Received::Control);
        // The seal of its own answers is apart.
        let mut others: Vec<_> = own.into_iter().flat_map(|own| [alone(own), control(own)]).collect();
        for &known in port.known.iter().filter(|known| Some(**known) != own) {
            others.extend([alone(known), (seal(known, true, false), Received::Alone), control(known)]);
        }
        if port.without_seal != WithoutSeal::Drop {
            others.push((UNCONFIGURED, Received::Control));
        }
        Seals { answered: own.map(|own| seal(own, true, false)), others, without_seal: port.without_seal }
    }

    /// The seals as programs in the kernel read them, the seal of answers first.
    pub(crate) fn for_kernel(&self) -> CardSeals {
        let answered = self.answered.map(|word| (word, Received::Answered));
        let mut seals = CardSeals::default();
        seals.without = kind(self.without());
        for (word, received) in answered.into_iter().chain(self.others.iter().copied()) {
            let trailer = u32::from(Seal::of(word).body) + SEAL_BYTES as u32;
            seals.seals[seals.count as usize] = CardSeal { word, kind: kind(received), trailer };
            seals.count += 1;
        }
        seals
    }

    /// What a frame without a seal is.
    fn without(&self) -> Received {
        match self.without_seal {
            WithoutSeal::Alone => Received::Alone,
            WithoutSeal::Drop | WithoutSeal::DropOpening => Received::Unsealed,
        }
    }

    /// What a frame is, and the bytes of its trailer.
    pub fn receive(&self, frame: &[u8]) -> (Received, usize) {
        let without = (self.without(), 0);
        let Some((rest, seal)) = frame.split_last_chunk::<SEAL_BYTES>() else { return without };
        let word = u64::from_le_bytes(*seal);
        let body = usize::from(Seal::of(word).body);
        let found = match self.answered {
            Some(answered) if answered == word => Some(Received::Answered),
            _ => self.others.iter().find(|(known, _)| *known == word).map(|(_, received)| *received),
        };
        match found {
            Some(received) if body <= rest.len() => (received, SEAL_BYTES + body),
            _ => without,
        }
    }
}

/// The number by which programs in the kernel know it.
fn kind(received: Received) -> u32 {
    match received {
        Received::Answered => CARD_ANSWERED,
        Received::Alone => CARD_ALONE,
        Received::Control => CARD_CONTROL,
        Received::Unsealed => CARD_UNSEALED,
    }
}

// The seals of a port fit the kernel's memory for it: three seals for each configuration, and the seal of an
// unconfigured card.
const _: () = assert!(3 * (CardPort::KNOWN_MAX + 1) < CARD_SEALS_MAX);

/// A burst without its trailers.
pub struct SealedBurst<'a> {
    whole: FrameBurst<'a>,
    /// The frames, cut.
    frames: [Frame; BURST_MAX],
    received: [Received; BURST_MAX],
    /// Bytes that were removed from each frame.
    trailers: [u8; BURST_MAX],
    /// Whether all frames are of one kind.
    is_uniform: bool,
}

/// `weir_answered()` of compiled code: which frames of a burst have a seal, and the frames without their trailers.
pub(crate) type AnsweredFn = unsafe extern "C" fn(*const Frame, *mut Frame, u32, u64, u32) -> u64;

const _: () = assert!(TRAILER_BYTES_MAX <= u8::MAX as usize);

/// Frames whose last line is fetched ahead of the one that is compared.
const AHEAD: usize = 16;

impl<'a> SealedBurst<'a> {
    /// A burst whose frames are still to be read.
    fn unread(whole: FrameBurst<'a>) -> Self {
        SealedBurst {
            whole,
            frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
            received: [Received::Alone; BURST_MAX],
            trailers: [0; BURST_MAX],
            is_uniform: false,
        }
    }

    /// Compares all seals of a burst, by compiled code if all frames have answers for the active policy.
    ///
    /// # Safety
    /// `answered` is the function of code of this version.
    pub(crate) unsafe fn read_by(answered: AnsweredFn, seals: &Seals, whole: FrameBurst<'a>) -> Self {
        let Some(seal) = seals.answered.filter(|_| !whole.is_empty()) else { return SealedBurst::read(seals, whole) };
        let mut burst = SealedBurst::unread(whole);
        let trailer = SEAL_BYTES + usize::from(Seal::of(seal).body);
        let (frames, count) = (whole.frames(), whole.len() as u32);
        // SAFETY: the frames are readable, there is room for as many, and the function is what the caller says.
        let found = unsafe { answered(frames.as_ptr(), burst.frames.as_mut_ptr(), count, seal, trailer as u32) };
        if found != u64::MAX >> (BURST_MAX - frames.len()) {
            return SealedBurst::read(seals, whole);
        }
        burst.received = [Received::Answered; BURST_MAX];
        burst.trailers[..frames.len()].fill(trailer as u8);
        burst.is_uniform = true;
        burst
    }

    /// Compares all seals of a burst.
    pub fn read(seals: &Seals, whole: FrameBurst<'a>) -> Self {
        let mut burst = SealedBurst::unread(whole);
        let frames = whole.frames();
        frames.iter().take(AHEAD).for_each(prefetch_end);
        for (index, frame) in frames.iter().enumerate() {
            if let Some(later) = frames.get(index + AHEAD) {
                prefetch_end(later);
            }
            // The end of a frame in several buffers is not here.
            let bytes = if frame.cap == frame.len { whole.bytes(index) } else { &[] };
            let (received, trailer) = seals.receive(bytes);
            let cut = trailer as u32;
            burst.frames[index] = Frame { cap: frame.cap - cut, len: frame.len - cut, ..*frame };
            (burst.received[index], burst.trailers[index]) = (received, trailer as u8);
        }
        burst
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Bytes that were removed from the end of each frame; 0 behind the last one.
    pub fn trailers(&self) -> &[u8; BURST_MAX] {
        &self.trailers
    }

    /// A frame with its trailer.
    pub fn sealed(&self, index: usize) -> &[u8] {
        self.whole.bytes(index)
    }

    /// All frames, without their trailers.
    pub fn cut(&self) -> FrameBurst<'_> {
        // SAFETY: the frames are the frames of `whole` at the same indices, each cut by its trailer.
        unsafe { self.whole.cut(0, &self.frames[..self.len()], 0) }
    }

    /// Successive frames of the same kind, from the one with the index `from` on: the kind, and the frames. If they
    /// have answers, the bodies are behind them.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn run(&self, from: usize) -> (Received, FrameBurst<'_>) {
        let (received, range) = self.range(from);
        let behind = match received {
            Received::Answered => usize::from(self.trailers[from]) - SEAL_BYTES,
            Received::Alone | Received::Control | Received::Unsealed => 0,
        };
        // SAFETY: the frames are the frames of `whole` at the same indices, each cut by its trailer. All with answers
        // have the same seal, so the same body.
        (received, unsafe { self.whole.cut(from, &self.frames[range], behind) })
    }

    fn range(&self, from: usize) -> (Received, Range<usize>) {
        let received = self.received[from];
        if self.is_uniform {
            return (received, from..self.len());
        }
        let same = self.received[from..self.len()].iter().take_while(|other| **other == received);
        (received, from..from + same.count())
    }
}

/// Fetches the end of a frame.
fn prefetch_end(frame: &Frame) {
    let _end = frame.data.wrapping_add((frame.cap as usize).saturating_sub(SEAL_BYTES));
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program sees, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(_end.cast());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_set::FrameSet;
    use weir_abi::Link;

    const OWN: Configured = Configured { epoch: 7, body: 3 };
    const EARLIER: Configured = Configured { epoch: 6, body: 2 };

    fn port(without_seal: WithoutSeal) -> CardPort {
        CardPort { token: 0x12_3456_789a, known: vec![EARLIER], without_seal, control: None }
    }

    fn frame(epoch: u16, answers: bool, control: bool, body: u8) -> Vec<u8> {
        let seal = Seal { token: 0x12_3456_789a, control, answers, body, epoch };
        [&[9; 60][..], &vec![1; body.into()], &seal.word().to_le_bytes()].concat()
    }

    #[test]
    fn every_seal_has_its_kind() {
        let seals = Seals::new(&port(WithoutSeal::Drop), Some(OWN));
        assert_eq!(seals.receive(&frame(7, true, false, 3)), (Received::Answered, 11));
        assert_eq!(seals.receive(&frame(7, false, false, 0)), (Received::Alone, 8));
        assert_eq!(seals.receive(&frame(6, true, false, 2)), (Received::Alone, 10), "answers of another epoch");
        assert_eq!(seals.receive(&frame(6, false, false, 0)), (Received::Alone, 8));
        assert_eq!(seals.receive(&frame(7, false, true, 0)), (Received::Control, 8));
        let none = (Received::Unsealed, 0);
        for wrong in [frame(5, true, false, 3), frame(6, true, false, 3), frame(7, true, true, 3), vec![0; 7], vec![]] {
            assert_eq!(seals.receive(&wrong), none, "{wrong:?}");
        }
        let whole = frame(7, true, false, 3);
        assert_eq!(seals.receive(&whole[61..]), none, "a seal without room for its body");
        for bit in 0..64 {
            let mut flipped = whole.clone();
            flipped[63 + bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seals.receive(&flipped), none, "bit {bit}");
        }
    }

    #[test]
    fn without_a_policy_that_reads_answers_all_packets_are_decided_alone() {
        let seals = Seals::new(&CardPort { known: vec![OWN], ..port(WithoutSeal::Drop) }, None);
        assert_eq!(seals.receive(&frame(7, true, false, 3)), (Received::Alone, 11));
    }

    #[test]
    fn before_the_first_commit_frames_stay_as_they_are() {
        let seals = Seals::new(&port(WithoutSeal::Alone), Some(OWN));
        assert_eq!(seals.receive(&[9; 60]), (Received::Alone, 0));
        assert_eq!(seals.receive(&frame(7, true, false, 3)), (Received::Answered, 11));
        let answer = [&[9; 60][..], &UNCONFIGURED.to_le_bytes()].concat();
        assert_eq!(seals.receive(&answer), (Received::Control, 8));
        assert_eq!(Seals::new(&port(WithoutSeal::Drop), None).receive(&answer), (Received::Unsealed, 0));
        let opening = Seals::new(&port(WithoutSeal::DropOpening), Some(OWN));
        assert_eq!(opening.receive(&answer), (Received::Control, 8));
        assert_eq!(opening.receive(&[9; 60]), (Received::Unsealed, 0));
    }

    #[test]
    fn runs_are_frames_of_one_kind_in_order_without_their_trailers() {
        let seals = Seals::new(&port(WithoutSeal::Drop), Some(OWN));
        let frames = [
            frame(7, true, false, 3),
            frame(7, true, false, 3),
            frame(6, true, false, 2),
            vec![9; 60],
            frame(7, true, false, 3),
        ];
        let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)));
        let set = set.with_times(1..=5);
        let burst = SealedBurst::read(&seals, set.burst(0));
        assert_eq!(burst.trailers()[..5], [11, 11, 10, 0, 11]);
        let (mut from, mut runs) = (0, vec![]);
        while from < burst.len() {
            let (kind, run) = burst.run(from);
            assert!((0..run.len()).all(|index| run.bytes(index) == [9; 60] && run.wire_len(index) == 60));
            assert!((0..run.len()).all(|index| run.time_ns(index) == (from + index + 1) as u64));
            runs.push((kind, run.len(), run.behind(0).to_vec()));
            from += run.len();
        }
        let answered = |count| (Received::Answered, count, vec![1; 3]);
        let one = |kind| (kind, 1, vec![]);
        assert_eq!(runs, [answered(2), one(Received::Alone), one(Received::Unsealed), answered(1)]);
    }

    #[test]
    fn the_kernel_has_room_for_all_seals_of_a_port() {
        let known: Vec<Configured> =
            (0..CardPort::KNOWN_MAX as u16).map(|epoch| Configured { epoch, body: 1 }).collect();
        let seals = |known| Seals::new(&CardPort { known, ..port(WithoutSeal::DropOpening) }, Some(OWN)).for_kernel();
        assert_eq!(seals(known).count as usize, CARD_SEALS_MAX);
        assert_eq!(seals(vec![OWN]).count, 4, "its own three and that of an unconfigured card");
    }

    /// A port whose frames are in several buffers shows only their beginnings.
    #[test]
    fn a_frame_that_is_not_here_as_a_whole_has_no_seal() {
        let seals = Seals::new(&port(WithoutSeal::Drop), Some(OWN));
        let whole = frame(7, true, false, 3);
        let set = FrameSet::new(Link::Ethernet, [(&whole[..], whole.len() as u32 + 1)]);
        assert_eq!(SealedBurst::read(&seals, set.burst(0)).run(0).0, Received::Unsealed);
    }
}
