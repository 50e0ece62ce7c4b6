//! Reads a capture as a stream of bursts.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use weir_abi::{BURST_MAX, Frame, Link};

use super::buffer::Buffer;
use super::link_type::link_of;
use super::pcap::{self, Pcap};
use super::pcapng::{Pcapng, block};
use super::record::{Packet, Record};
use super::segment;
use super::{CaptureFault, CaptureNotes, Interface, Resolution, link_header, link_type_name};
use crate::{EngineError, FrameBurst};

/// What a capture is, for a writer of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureForm {
    /// pcap: one link type and one resolution for all packets.
    Pcap {
        /// LINKTYPE number.
        link_type: u16,
        /// Microseconds or nanoseconds.
        resolution: Resolution,
        /// Bytes of the check sequence at the end of each packet.
        fcs_bytes: u8,
    },
    /// pcapng: each interface has its own link type and resolution.
    Pcapng,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

/// Reads a capture as a stream of bursts.
pub struct CaptureReader {
    path: PathBuf,
    size_bytes: Option<u64>,
    buffer: Buffer,
    format: Format,
    interfaces: Vec<Interface>,
    /// The packets as the datapath sees them: without link headers that it does not parse.
    frames: Vec<Frame>,
    /// The packets as the capture has them, but for lengths in `completed`. Empty if frames are whole packets.
    records: Vec<Frame>,
    /// Lengths that were written into segments: index of the packet, and where in its record.
    completed: Vec<(usize, usize)>,
    completes_segments: bool,
    notes: CaptureNotes,
    stamps_ns: Vec<u64>,
    /// The time stamps, made monotonic.
    times_ns: Vec<u64>,
    interface_ids: Vec<u32>,
    packets: u64,
    last_ns: u64,
    /// The latest time stamp so far.
    clock_ns: u64,
}

// SAFETY: the pointers in `frames` and `records` point into `buffer`, which the reader owns. They are used only through
// a burst that borrows the reader.
unsafe impl Send for CaptureReader {}

impl CaptureReader {
    /// Opens a capture file.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let io = |source| EngineError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        let mut reader = Self::from_stream(path, Box::new(file))?;
        reader.size_bytes = metadata.is_file().then_some(metadata.len());
        Ok(reader)
    }

    /// Reads a capture from any source; `name` is for messages.
    pub fn from_stream(name: &Path, source: Box<dyn Read + Send>) -> Result<Self, EngineError> {
        let mut buffer = Buffer::new(source);
        buffer.fill().map_err(|source| EngineError::Io { path: name.to_owned(), source })?;
        let fault = |fault| EngineError::Capture { path: name.to_owned(), packet: 1, offset: 0, fault };
        let mut interfaces = Vec::new();
        let format = detect(buffer.rest()).map_err(fault)?;
        if let Format::Pcap(pcap) = &format {
            let interface = pcap.interface(buffer.rest()).map_err(fault)?;
            // Such a file has one link type.
            refuse_unread(&interface).map_err(fault)?;
            interfaces.push(interface);
            buffer.consume(pcap::FILE_HEADER_BYTES as u64);
        }
        Ok(CaptureReader {
            path: name.to_owned(),
            size_bytes: None,
            buffer,
            format,
            interfaces,
            frames: Vec::with_capacity(BURST_MAX),
            records: Vec::with_capacity(BURST_MAX),
            completed: Vec::new(),
            completes_segments: false,
            notes: CaptureNotes::default(),
            stamps_ns: Vec::with_capacity(BURST_MAX),
            times_ns: Vec::with_capacity(BURST_MAX),
            interface_ids: Vec::with_capacity(BURST_MAX),
            packets: 0,
            last_ns: 0,
            clock_ns: 0,
        })
    }

    /// This reader, which gives segments that a host left to its card the length of their frame. Their IP length is 0.
    pub fn completing_segments(self) -> Self {
        CaptureReader { completes_segments: true, ..self }
    }

    /// What was done with packets so far.
    pub fn notes(&self) -> &CaptureNotes {
        &self.notes
    }

    /// Size of the file; `None` if it is not a regular file.
    pub fn size_bytes(&self) -> Option<u64> {
        self.size_bytes
    }

    /// Number of bytes read so far.
    pub fn position_bytes(&self) -> u64 {
        self.buffer.offset()
    }

    /// The form to give a [`super::CaptureWriter`] for a capture of the same format.
    pub fn form(&self) -> CaptureForm {
        match &self.format {
            Format::Pcap(_) => {
                let Interface { link_type, resolution, fcs_bytes, .. } = self.interfaces[0];
                CaptureForm::Pcap { link_type, resolution, fcs_bytes }
            }
            Format::Pcapng(_) => CaptureForm::Pcapng,
        }
    }

    /// The next frames, or `None` at the end. Their number depends only on the contents of the file. Packets of a link
    /// type that is not read are left out and counted.
    ///
    /// # Errors
    /// [`EngineError::Capture`] at a damaged record, after all packets before it, or at the end of a capture if
    /// all its packets were left out. Every later call returns the same error.
    pub fn next_burst(&mut self) -> Result<Option<CaptureBurst<'_>>, EngineError> {
        self.clear();
        let mut kind = None;
        while self.frames.len() < BURST_MAX {
            match self.step(&mut kind) {
                Ok(Progress::Taken) => {}
                Ok(Progress::Full) => break,
                Ok(Progress::Empty(_)) if !self.frames.is_empty() => break,
                Ok(Progress::Empty(what)) if self.buffer.ended() => {
                    return match (self.buffer.skipping(), self.buffer.rest().is_empty()) {
                        (true, _) => Err(self.fault(CaptureFault::Truncated("an unknown block"))),
                        (false, true) => self.at_the_end(),
                        (false, false) => Err(self.fault(CaptureFault::Truncated(what))),
                    };
                }
                Ok(Progress::Empty(_)) => {
                    let filled = self.buffer.fill();
                    filled.map_err(|source| EngineError::Io { path: self.path.clone(), source })?;
                }
                // The record stays in the window: the next call finds the fault again, with an empty burst.
                Err(_) if !self.frames.is_empty() => break,
                Err(fault) => return Err(self.fault(fault)),
            }
        }
        let first_packet = self.packets + 1;
        self.packets += self.frames.len() as u64;
        let Kind { link, .. } = kind.expect("a burst that is not empty has a link layer");
        Ok(Some(CaptureBurst {
            // SAFETY: every frame points to `cap` bytes of the window, and `cap <= len` (see `step`). The window moves
            // only in the next call, which needs the borrow that this burst holds.
            frames: unsafe { FrameBurst::from_raw(&self.frames, link, self.stamps_ns[0]) }.with_times(&self.times_ns),
            // SAFETY: as above.
            records: unsafe { FrameBurst::from_raw(&self.records, link, self.stamps_ns[0]) },
            completed: &self.completed,
            stamps_ns: &self.stamps_ns,
            interface_ids: &self.interface_ids,
            interfaces: &self.interfaces,
            first_packet,
        }))
    }

    /// Adds the record at the start of the window to the burst, if it belongs there.
    #[inline]
    fn step(&mut self, burst: &mut Option<Kind>) -> Result<Progress, CaptureFault> {
        let rest = self.buffer.rest();
        let record = match &mut self.format {
            Format::Pcap(pcap) => pcap.record(rest)?,
            Format::Pcapng(pcapng) => pcapng.record(rest, &mut self.interfaces)?,
        };
        let packet = match record {
            Record::Packet(packet) => packet,
            Record::Other { bytes } => {
                self.buffer.consume(bytes);
                return Ok(Progress::Taken);
            }
            Record::Incomplete(what) => return Ok(Progress::Empty(what)),
        };
        let interface = &self.interfaces[packet.interface as usize];
        let record = &rest[packet.data..][..packet.cap as usize];
        let len = packet.len.max(packet.cap);
        let Some(Seen { kind, at, len }) = seen(interface, record, len) else { return Ok(self.leave_out(&packet)) };
        if *burst.get_or_insert(kind) != kind {
            return Ok(Progress::Full);
        }
        if self.completes_segments && segment::may_lack_length(&record[at.clone()], kind.link, len) {
            self.complete(&packet, at.clone(), kind.link, len);
        }
        let record = self.buffer.rest()[packet.data..].as_ptr();
        if !kind.is_whole {
            self.records.push(Frame { data: record, cap: packet.cap, len: packet.len.max(packet.cap) });
        }
        self.frames.push(Frame { data: record.wrapping_add(at.start), cap: (at.end - at.start) as u32, len });
        self.last_ns = packet.stamp_ns.unwrap_or(self.last_ns);
        self.stamps_ns.push(self.last_ns);
        self.clock_ns = self.clock_ns.max(self.last_ns);
        self.times_ns.push(self.clock_ns);
        self.interface_ids.push(packet.interface);
        self.buffer.consume(packet.bytes as u64);
        Ok(Progress::Taken)
    }

    /// Writes the length of a segment that has none.
    #[cold]
    #[inline(never)]
    fn complete(&mut self, packet: &Packet, at: Range<usize>, link: Link, len: u32) {
        let record = &mut self.buffer.rest_mut()[packet.data..][..packet.cap as usize];
        if let Some(done) = segment::complete(&mut record[at.clone()], link, len) {
            self.notes.completed += 1;
            self.notes.longer += u64::from(done.is_longer);
            self.completed.push((self.frames.len(), at.start + done.at));
        }
    }

    /// Leaves out a packet. It counts in the numbers of packets, so a burst ends before it.
    #[cold]
    #[inline(never)]
    fn leave_out(&mut self, packet: &Packet) -> Progress {
        if !self.frames.is_empty() {
            return Progress::Full;
        }
        let link_type = self.interfaces[packet.interface as usize].link_type;
        self.packets += 1;
        *self.notes.left_out.entry(link_type).or_insert(0) += 1;
        self.buffer.consume(packet.bytes as u64);
        Progress::Taken
    }

    /// A capture with packets has one whose link type is read.
    fn at_the_end(&self) -> Result<Option<CaptureBurst<'_>>, EngineError> {
        match self.notes.left_out.first_key_value() {
            Some((&number, _)) if self.notes.left_out_packets() == self.packets => {
                Err(self.fault(CaptureFault::LinkType { number, name: link_type_name(number) }))
            }
            _ => Ok(None),
        }
    }

    fn clear(&mut self) {
        self.frames.clear();
        self.records.clear();
        self.completed.clear();
        self.stamps_ns.clear();
        self.times_ns.clear();
        self.interface_ids.clear();
    }

    fn fault(&self, fault: CaptureFault) -> EngineError {
        let (packet, offset) = (self.packets + 1, self.buffer.offset());
        EngineError::Capture { path: self.path.clone(), packet, offset, fault }
    }
}

fn refuse_unread(interface: &Interface) -> Result<(), CaptureFault> {
    let number = interface.link_type;
    match link_header::is_read(number) {
        true => Ok(()),
        false => Err(CaptureFault::LinkType { number, name: link_type_name(number) }),
    }
}

/// What the frames of a burst have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    link: Link,
    /// Whether frames are whole packets, and not a part of them.
    is_whole: bool,
}

/// What the datapath sees of a packet: a part of its captured bytes, and the length of this part on the wire.
struct Seen {
    kind: Kind,
    at: Range<usize>,
    len: u32,
}

/// What the datapath sees of a packet. `None` if its link type is not read.
#[inline]
fn seen(interface: &Interface, record: &[u8], len: u32) -> Option<Seen> {
    match link_of(interface.link_type) {
        Some(link) if interface.fcs_bytes == 0 => {
            Some(Seen { kind: Kind { link, is_whole: true }, at: 0..record.len(), len })
        }
        _ => seen_inside(interface, record, len),
    }
}

/// As [`seen`], of a packet with bytes around the frame.
#[inline(never)]
fn seen_inside(interface: &Interface, record: &[u8], len: u32) -> Option<Seen> {
    let inner = link_header::inner(interface.link_type, record)?;
    let around = inner.at.start + record.len() - inner.at.end + usize::from(interface.fcs_bytes);
    // The datapath does not see the check sequence, which the snaplen may have cut.
    let len = len.saturating_sub(around as u32);
    let at = inner.at.start..inner.at.end.min(inner.at.start + len as usize);
    Some(Seen { kind: Kind { link: inner.link, is_whole: false }, at, len })
}

/// What `step` did with the record at the start of the window.
enum Progress {
    /// Added it to the burst, or skipped it.
    Taken,
    /// Left it, because another link layer begins.
    Full,
    /// Found no whole record in the window. The text names what is truncated.
    Empty(&'static str),
}

fn detect(start: &[u8]) -> Result<Format, CaptureFault> {
    if start.is_empty() {
        return Err(CaptureFault::Empty);
    }
    let Some(&magic) = start.first_chunk::<4>() else {
        return Err(CaptureFault::Truncated("the file header"));
    };
    if u32::from_le_bytes(magic) == block::SECTION {
        return Ok(Format::Pcapng(Pcapng::new()));
    }
    if let Some(pcap) = Pcap::detect(magic)? {
        return Ok(Format::Pcap(pcap));
    }
    match magic {
        [0x1f, 0x8b, ..] => Err(CaptureFault::Compressed("gzip")),
        [0x28, 0xb5, 0x2f, 0xfd] => Err(CaptureFault::Compressed("zstd")),
        [0xfd, b'7', b'z', b'X'] => Err(CaptureFault::Compressed("xz")),
        [0x04, 0x22, 0x4d, 0x18] => Err(CaptureFault::Compressed("lz4")),
        [b'B', b'Z', b'h', _] => Err(CaptureFault::Compressed("bzip2")),
        _ => Err(CaptureFault::NotACapture(u32::from_be_bytes(magic))),
    }
}

/// Frames of a capture, with their times, numbers and interfaces.
#[derive(Clone, Copy, Debug)]
pub struct CaptureBurst<'a> {
    frames: FrameBurst<'a>,
    records: FrameBurst<'a>,
    completed: &'a [(usize, usize)],
    stamps_ns: &'a [u64],
    interface_ids: &'a [u32],
    interfaces: &'a [Interface],
    first_packet: u64,
}

impl<'a> CaptureBurst<'a> {
    /// The frames for a filter. Their common time is the time of the first packet.
    pub fn frames(&self) -> &FrameBurst<'a> {
        &self.frames
    }

    /// Packet `index` as the capture has it, with its link header, and its length on the wire.
    pub fn record(&self, index: usize) -> (Cow<'a, [u8]>, u32) {
        let records = if self.records.is_empty() { &self.frames } else { &self.records };
        let (bytes, len) = (records.bytes(index), records.wire_len(index));
        match self.completed_at(index) {
            None => (Cow::Borrowed(bytes), len),
            Some(at) => {
                let mut bytes = bytes.to_vec();
                bytes[at..at + 2].fill(0);
                (Cow::Owned(bytes), len)
            }
        }
    }

    /// The bytes of packet `index` in front of its frame: a link header that the datapath does not parse.
    pub fn header(&self, index: usize) -> &'a [u8] {
        if self.records.is_empty() {
            return &[];
        }
        let start = self.frames.frames()[index].data as usize - self.records.frames()[index].data as usize;
        &self.records.bytes(index)[..start]
    }

    /// Whether packet `index` is a segment that got its length from the reader.
    pub fn is_completed(&self, index: usize) -> bool {
        self.completed_at(index).is_some()
    }

    fn completed_at(&self, index: usize) -> Option<usize> {
        self.completed.iter().find(|(packet, _)| *packet == index).map(|&(_, at)| at)
    }

    /// Number of the first packet in the capture, from 1.
    pub fn first_packet(&self) -> u64 {
        self.first_packet
    }

    /// Capture time of packet `index` of the burst, in ns since 1970. A packet without a time stamp has the time of the
    /// packet before it.
    pub fn stamp_ns(&self, index: usize) -> u64 {
        self.stamps_ns[index]
    }

    /// The interface of packet `index`, an index into [`CaptureBurst::interfaces`].
    pub fn interface_id(&self, index: usize) -> u32 {
        self.interface_ids[index]
    }

    /// The interfaces described so far, over all sections.
    pub fn interfaces(&self) -> &'a [Interface] {
        self.interfaces
    }
}
