//! What programs in the kernel share with the engine that loads them: the maps of `datapath/kernel`, and of `kernel.h`
//! and `kernel_*.h` in the folders of features.
//!
//! The engine fills these maps before a program runs, or reads them while it counts. `tests/house/abi.rs` has the
//! compiler for BPF check every size and offset.

use crate::Addition;
use std::mem::offset_of;

use crate::packet::PacketView;

/// The most interfaces that programs stand between: `PORTS_MAX`.
pub const PORTS_MAX: usize = 64;
/// Interfaces are told apart by so many low values of their indices: `PORT_INDICES`.
pub const PORT_INDICES: usize = 4096;
/// Receive queues of an interface that are told apart: `PORT_QUEUES`.
pub const PORT_QUEUES: usize = 64;
/// The shortest frame that the kernel runs a program on: `REPLAY_BYTES_MIN`.
pub const REPLAY_BYTES_MIN: usize = 14;
/// Bytes of a header that lies behind a packet's first buffer: `FRAME_COPY_BYTES`.
pub const FRAME_COPY_BYTES: usize = 40;
/// Bytes that a checksum is computed of at a time: `SUM_BYTES`.
pub const SUM_BYTES: usize = 128;

/// Maximum number of additions to tables that wait on one CPU: `ADDITIONS_MAX`.
pub const ADDITIONS_MAX: usize = 8192;
/// Maximum number of additions that wait on all CPUs: `ADDITIONS_ALL`. With more than 32 CPUs, each has fewer.
pub const ADDITIONS_ALL: usize = 1 << 18;
/// Maximum number of CPUs for which the number falls: `ADDITIONS_CPUS_MAX`.
pub const ADDITIONS_CPUS_MAX: usize = 1 << 13;
/// Recent additions that one CPU knows: `RECENT_ADDITIONS`.
pub const RECENT_ADDITIONS: usize = 256;

/// Seals that a port behind a card knows: `CARD_SEALS_MAX`.
pub const CARD_SEALS_MAX: usize = 16;
/// Bytes for the answers about a CPU's packet: `CPU_ANSWERS_BYTES`.
pub const CPU_ANSWERS_BYTES: usize = 64;
/// A frame with answers for the active policy: `CARD_ANSWERED`.
pub const CARD_ANSWERED: u32 = 0;
/// A packet that the policy decides alone: `CARD_ALONE`.
pub const CARD_ALONE: u32 = 1;
/// An answer to a control frame: `CARD_CONTROL`.
pub const CARD_CONTROL: u32 = 2;
/// A frame without a seal, which is dropped: `CARD_UNSEALED`.
pub const CARD_UNSEALED: u32 = 3;

/// A seal: `struct card_seal`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CardSeal {
    /// The seal as a number.
    pub word: u64,
    /// What a frame with it is.
    pub kind: u32,
    /// Bytes that the card has appended to the frame.
    pub trailer: u32,
}

/// The seals of a port behind a card: `struct card_seals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CardSeals {
    /// Number of seals.
    pub count: u32,
    /// What a frame without a seal is.
    pub without: u32,
    zero: [u32; 2],
    /// The seals.
    pub seals: [CardSeal; CARD_SEALS_MAX],
}

/// The seals of all ports: `struct card_ports`. Programs read the half that `half` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CardPorts {
    /// 0 or 1.
    pub half: u32,
    zero: [u32; 15],
    /// By half and port.
    pub port: [[CardSeals; PORTS_MAX]; 2],
}

/// Programs stand between the interfaces of two sides: `LIVE_BETWEEN`.
pub const LIVE_BETWEEN: u32 = 1;
/// Programs stand between interfaces and the host that has them: `LIVE_HOST`.
pub const LIVE_HOST: u32 = 2;

/// What a program is loaded for: `struct mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Mode {
    /// 0 for frames of captures, [`LIVE_BETWEEN`] or [`LIVE_HOST`] on interfaces.
    pub live: u32,
    /// CPUs that there are counters for, a power of two, less 1.
    pub cpu_mask: u32,
    /// 1 if packets may be longer than their first buffer.
    pub jumbo: u32,
    /// 1 if senders may leave checksums to a card that is not there.
    pub finish: u32,
    /// 1 if samples go to a ring, 0 if they go to the divert port.
    pub samples: u32,
    /// 1 if taps may be opened.
    pub taps: u32,
}

impl Mode {
    /// In the order in which they lie in memory.
    pub fn words(self) -> [u32; size_of::<Mode>() / size_of::<u32>()] {
        let Mode { live, cpu_mask, jumbo, finish, samples, taps } = self;
        [live, cpu_mask, jumbo, finish, samples, taps]
    }
}

/// An interface: `struct port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Port {
    /// 0 lower, 1 upper.
    pub side: u8,
    /// 1 if senders may leave checksums to a card that is not there.
    pub unfinished: u8,
    zero: [u8; 2],
    /// Index of the interface if packets are received there, else 0.
    pub receives: u32,
    zeros: [u8; 56],
    /// The port opposite, by receive queue.
    pub out: [u8; PORT_QUEUES],
}

/// All interfaces: `struct ports`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Ports {
    /// Port, by the low bits of the interface's index.
    pub number: [u8; PORT_INDICES],
    /// Index of the interface, by port.
    pub index: [u32; PORTS_MAX],
    /// By number: lower ones first, then upper, then divert.
    pub port: [Port; PORTS_MAX],
    /// Port that diverted packets go out of; [`PORTS_MAX`] if there is none.
    pub divert: u32,
    /// Inode of the network namespace.
    pub namespace: u32,
}

/// What one CPU did at a port: `struct port_counters`. Packets that the kernel could not send are among those sent, and
/// in the counters of the programs that listen for losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes of the received packets.
    pub rx_bytes: u64,
    /// Packets handed over to be sent.
    pub tx_packets: u64,
    /// Bytes of the packets handed over to be sent.
    pub tx_bytes: u64,
    /// Packets that found the transmit queue full.
    pub tx_full: u64,
    /// Packets whose interface was down, or no more.
    pub tx_link_down: u64,
    /// Packets longer than the interface takes.
    pub tx_too_long: u64,
    /// Packets to be diverted where there is nowhere to divert them to.
    pub no_divert: u64,
    /// Packets that were sampled: a copy was diverted, not the packet.
    pub sampled: u64,
    /// Packets to an interface that takes none from programs.
    pub tx_unsupported: u64,
    /// Fills two cache lines.
    pub zero: [u64; 6],
}

impl PortCounters {
    /// Words of it.
    pub const WORDS: usize = size_of::<PortCounters>() / size_of::<u64>();

    /// From words in the order in which they lie in memory.
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [rx_packets, rx_bytes, tx_packets, tx_bytes, tx_full, tx_link_down, tx_too_long, rest @ ..] = words;
        let [no_divert, sampled, tx_unsupported, zero @ ..] = rest;
        PortCounters {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes,
            tx_full,
            tx_link_down,
            tx_too_long,
            no_divert,
            sampled,
            tx_unsupported,
            zero,
        }
    }

    /// In the order in which they lie in memory.
    pub fn words(self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let sent = [self.rx_packets, self.rx_bytes, self.tx_packets, self.tx_bytes];
        let lost = [self.tx_full, self.tx_link_down, self.tx_too_long];
        let other = [self.no_divert, self.sampled, self.tx_unsupported];
        words.iter_mut().zip(sent.into_iter().chain(lost).chain(other)).for_each(|(word, value)| *word = value);
        words
    }
}

/// A header that was copied: it is aligned to a cache line pair.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
pub struct HeaderCopy([u8; FRAME_COPY_BYTES]);

/// Where a program on one CPU keeps what it knows of a packet: `struct cpu_packet`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CpuPacket {
    /// What the parser found.
    pub packet: PacketView,
    /// What rules in parts say of sampling.
    pub sampled: u32,
    /// The halves of tables that rules in parts look up.
    pub halves: u64,
    /// Lookups at whose entries the packet was counted.
    pub counted: u64,
    /// Number of packets that a card splits a packet of the host into, at least 1.
    pub packets: u32,
    /// Bytes of the headers that it repeats.
    pub added: u32,
    /// A header that lies behind the packet's first buffer.
    pub copy: HeaderCopy,
}

/// Bytes in which a program on one CPU keeps what the tracker knows of a packet: `struct cpu_track`.
pub const CPU_TRACK_BYTES: usize = 512;

/// Words that programs read and the engine writes: `struct words`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Words {
    /// The half that is read of each table that can change: a bit for each of the first 64 slots.
    pub halves: u64,
    /// Always 0.
    pub zero: u32,
    /// Number of the policy in copies of packets ([`crate::tap`]).
    pub policy: u32,
    /// The bits of further slots.
    pub more: [u64; MORE_HALVES],
}

/// Where the bits of taps begin: a byte for each reason, behind [`Words`].
pub const WORDS_TAPS: usize = size_of::<Words>();

/// Number of words for the halves of slots after the first 64.
const MORE_HALVES: usize = 31;
/// Number of slots whose tables can change.
pub const SLOTS_THAT_CHANGE: usize = 64 * (1 + MORE_HALVES);

impl Words {
    /// Offset in bytes of the word with the bit of a slot.
    ///
    /// # Panics
    /// Panics if the slot is not below [`SLOTS_THAT_CHANGE`].
    pub fn halves_at(slot: usize) -> usize {
        assert!(slot < SLOTS_THAT_CHANGE, "a policy has fewer slots");
        match slot / 64 {
            0 => offset_of!(Words, halves),
            word => offset_of!(Words, more) + (word - 1) * size_of::<u64>(),
        }
    }
}

/// Where a program on one CPU computes checksums: `struct cpu_checksum`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CpuChecksum {
    /// What the parser found.
    pub packet: PacketView,
    zero: [u8; 32],
    /// What is summed up.
    pub words: [u64; SUM_BYTES / 8],
}

/// The beginning of a sampled packet: `struct sample_record`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SampleRecord {
    /// Length of the packet.
    pub len: u32,
    /// Bytes of it that follow.
    pub cap: u16,
    /// The side of the port at which it arrived: 0 lower, 1 upper.
    pub side: u16,
    /// The bytes.
    pub bytes: [u8; SAMPLE_BYTES],
}

/// Bytes of a sampled packet at most.
pub const SAMPLE_BYTES: usize = 256;

/// An addition that was appended before: `struct recent_addition`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RecentAddition {
    /// High half of the prefix.
    pub high: u64,
    /// Low half of the prefix.
    pub low: u64,
    /// The adder.
    pub adder: u64,
    /// The ring's epoch then, plus 1.
    pub epoch: u64,
}

/// Number of additions that wait on one of `cpus` CPUs at most. A power of two if `cpus` is one: `ring_records()`.
pub const fn ring_records(cpus: usize) -> usize {
    let of_all = ADDITIONS_ALL / if cpus < ADDITIONS_CPUS_MAX { cpus } else { ADDITIONS_CPUS_MAX };
    if of_all < ADDITIONS_MAX { of_all } else { ADDITIONS_MAX }
}

/// Bytes of the ring of one of `cpus` CPUs. All rings together have at most 6.3 MB, and 8.3 KB for each CPU.
pub const fn ring_bytes(cpus: usize) -> usize {
    offset_of!(AdditionRing, records) + ring_records(cpus) * size_of::<Addition>()
}

/// What rules on one CPU add to tables: `struct addition_ring`. Records from `tail` to `head` are waiting. With many
/// CPUs there are fewer records ([`ring_records`]).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AdditionRing {
    /// Number of additions that were appended.
    pub head: u64,
    /// Number of additions that found the ring full.
    pub lost: u64,
    zero: [u64; 6],
    /// Number of additions that were taken.
    pub tail: u64,
    /// Increased each time additions are taken.
    pub epoch: u64,
    zeros: [u64; 6],
    /// By hash. An addition that is there with the present epoch is not appended again.
    pub recent: [RecentAddition; RECENT_ADDITIONS],
    /// By number, modulo their count.
    pub records: [Addition; ADDITIONS_MAX],
}

/// What stands in front of a replayed frame: `struct replay_header`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ReplayHeader {
    /// Bytes of the frame.
    pub cap: u32,
    /// Bytes on the wire.
    pub len: u32,
    /// Link layer.
    pub link: u32,
    /// Bytes between this header and the frame.
    pub padding: u32,
    /// Time, the low half first.
    pub now_ns: [u32; 2],
}

impl ReplayHeader {
    /// In the order in which they lie in memory.
    pub fn words(self) -> [u32; size_of::<ReplayHeader>() / size_of::<u32>()] {
        let ReplayHeader { cap, len, link, padding, now_ns: [low, high] } = self;
        [cap, len, link, padding, low, high]
    }
}

/// What the kernel tells a program of a packet: `struct xdp_md`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct XdpContext {
    /// Where the packet begins.
    pub data: u32,
    /// Where it ends.
    pub data_end: u32,
    /// Where its metadata begins.
    pub data_meta: u32,
    /// Index of the interface that it came in at.
    pub ingress_ifindex: u32,
    /// Receive queue.
    pub rx_queue_index: u32,
    /// Index of the interface that it goes out of.
    pub egress_ifindex: u32,
}

impl XdpContext {
    /// In the order in which they lie in memory.
    pub fn words(self) -> [u32; size_of::<XdpContext>() / size_of::<u32>()] {
        let XdpContext { data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex } = self;
        [data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex]
    }
}

const _: () = assert!(size_of::<Port>() == 128 && size_of::<PortCounters>() == 128);
const _: () = assert!(size_of::<SampleRecord>() == 264);
const _: () = assert!(size_of::<CpuPacket>() == 256 && size_of::<CpuChecksum>() == 256);
const _: () = assert!(size_of::<RecentAddition>() == 32 && size_of::<AdditionRing>().is_multiple_of(64));
const _: () = assert!(size_of::<Words>() == 264);
const _: () = assert!(size_of::<ReplayHeader>() == 24 && size_of::<Ports>() == 12_552);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_of_many_cpus_take_little_memory() {
        assert_eq!([1, 32, 64, 512, 8192].map(ring_records), [8192, 8192, 4096, 512, 32]);
        assert_eq!(ring_bytes(1), size_of::<AdditionRing>());
        for cpus in (0..14).map(|bits| 1 << bits) {
            let bytes = ring_bytes(cpus);
            assert!(bytes.is_multiple_of(64) && cpus * bytes <= 6_300_000 + cpus * 8_320, "{cpus} CPUs: {bytes}");
        }
        assert!(512 * ring_bytes(512) < 11_000_000);
    }

    #[test]
    fn counters_are_read_as_they_are_written() {
        let words: [u64; PortCounters::WORDS] = std::array::from_fn(|at| if at < 10 { at as u64 + 1 } else { 0 });
        let counters = PortCounters::from_words(words);
        assert_eq!(counters.words(), words);
        assert_eq!((counters.rx_packets, counters.tx_full, counters.tx_unsupported), (1, 5, 10));
    }
}
