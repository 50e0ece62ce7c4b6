//! Reads a capture as a stream of bursts.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use weir_abi::{BURST_MAX, Frame, Link};

use super::buffer::Buffer;
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
    /// The packets as the capture has them, but for lengths in `completed`.
    records: Vec<Frame>,
    /// Bytes of each packet in front of its frame.
    headers: Vec<usize>,
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

// SAFETY: the pointers in `frames` and `records` point into `buffer`, which the reader owns. They are used only through a burst that
// borrows the reader.
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
            headers: Vec::with_capacity(BURST_MAX),
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
        let mut link = None;
        while self.frames.len() < BURST_MAX {
            match self.step(&mut link) {
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
        let link = link.expect("a burst that is not empty has a link layer");
        Ok(Some(CaptureBurst {
            // SAFETY: every frame points to `cap` bytes of the window, and `cap <= len` (see `step`). The window moves
            // only in the next call, which needs the borrow that this burst holds.
            frames: unsafe { FrameBurst::from_raw(&self.frames, link, self.stamps_ns[0]) }.with_times(&self.times_ns),
            // SAFETY: as above.
            records: unsafe { FrameBurst::from_raw(&self.records, link, self.stamps_ns[0]) },
            headers: &self.headers,
            completed: &self.completed,
            stamps_ns: &self.stamps_ns,
            interface_ids: &self.interface_ids,
            interfaces: &self.interfaces,
            first_packet,
        }))
    }

    /// Adds the record at the start of the window to the burst, if it belongs there.
    #[inline]
    fn step(&mut self, link: &mut Option<Link>) -> Result<Progress, CaptureFault> {
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
        let (link_type, fcs_bytes) = (interface.link_type, u32::from(interface.fcs_bytes));
        let record = &rest[packet.data..][..packet.cap as usize];
        let Some(inner) = link_header::inner(link_type, record) else { return Ok(self.leave_out(&packet, link_type)) };
        if *link.get_or_insert(inner.link) != inner.link {
            return Ok(Progress::Full);
        }
        let len = packet.len.max(packet.cap);
        let header = inner.at.start as u32;
        let behind = (record.len() - inner.at.end) as u32;
        // The datapath does not see the check sequence, which the snaplen may have cut.
        let frame_len = len.saturating_sub(header + behind + fcs_bytes);
        let cap = (inner.at.len() as u32).min(frame_len);
        let record = self.buffer.rest_mut()[packet.data..][..packet.cap as usize].as_mut();
        if self.completes_segments
            && let Some(done) = segment::complete(&mut record[inner.at.start..][..cap as usize], inner.link, frame_len)
        {
            self.notes.completed += 1;
            self.notes.longer += u64::from(done.is_longer);
            self.completed.push((self.frames.len(), inner.at.start + done.at));
        }
        let data = record.as_ptr();
        self.frames.push(Frame { data: data.wrapping_add(inner.at.start), cap, len: frame_len });
        self.records.push(Frame { data, cap: packet.cap, len });
        self.headers.push(inner.at.start);
        self.last_ns = packet.stamp_ns.unwrap_or(self.last_ns);
        self.stamps_ns.push(self.last_ns);
        self.clock_ns = self.clock_ns.max(self.last_ns);
        self.times_ns.push(self.clock_ns);
        self.interface_ids.push(packet.interface);
        self.buffer.consume(packet.bytes as u64);
        Ok(Progress::Taken)
    }

    /// Leaves out a packet. It counts in the numbers of packets, so a burst ends before it.
    fn leave_out(&mut self, packet: &Packet, link_type: u16) -> Progress {
        if !self.frames.is_empty() {
            return Progress::Full;
        }
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
        self.headers.clear();
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
    headers: &'a [usize],
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
        let (bytes, len) = (self.records.bytes(index), self.records.wire_len(index));
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
        &self.records.bytes(index)[..self.headers[index]]
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
