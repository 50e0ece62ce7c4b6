//! Writes packets of a capture, such as those passed or dropped, to a capture of the same format.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use weir_abi::Link;

use super::interface::NS_PER_S;
use super::pcapng::{BYTE_ORDER_MAGIC, COMMENT_BYTES_MAX, block, option};
use super::{CAPTURED_BYTES_MAX, CaptureBurst, CaptureForm, Interface, Resolution, link_type_of, pcap};
use crate::EngineError;
use crate::output::OutputFile;

/// Size of the write buffer.
const BUFFER_BYTES: usize = 256 * 1024;

/// Writes pcap or pcapng, little-endian. Link types, interfaces and time resolutions are taken from the input.
pub struct CaptureWriter {
    path: PathBuf,
    out: BufWriter<OutputFile>,
    form: CaptureForm,
    /// Number of interfaces described so far; pcapng only.
    described: usize,
    /// The link layers of packets that do not come from a capture. Each is an interface.
    own_links: Vec<Link>,
}

impl CaptureWriter {
    /// Creates the file. It appears under its name only when it is finished. A capture without packets is valid.
    pub fn create(path: &Path, form: CaptureForm) -> Result<Self, EngineError> {
        let output = OutputFile::create(path);
        Self::to_output(path, output.map_err(|source| EngineError::Io { path: path.to_owned(), source })?, form)
    }

    /// Writes to an open output; `name` is for messages.
    pub fn to_output(name: &Path, output: OutputFile, form: CaptureForm) -> Result<Self, EngineError> {
        let out = BufWriter::with_capacity(BUFFER_BYTES, output);
        let mut writer = Self::new(name, out, form);
        writer.write_header("").map_err(|source| EngineError::Io { path: name.to_owned(), source })?;
        Ok(writer)
    }

    fn new(name: &Path, out: BufWriter<OutputFile>, form: CaptureForm) -> Self {
        CaptureWriter { path: name.to_owned(), out, form, described: 0, own_links: Vec::new() }
    }

    /// Creates a pcapng file for packets that do not come from a capture ([`CaptureWriter::write_own`]). It begins with
    /// a comment, truncated to [`COMMENT_BYTES_MAX`] bytes.
    pub fn create_own(path: &Path, comment: &str) -> Result<Self, EngineError> {
        let failed = |source| EngineError::Io { path: path.to_owned(), source };
        let out = BufWriter::with_capacity(BUFFER_BYTES, OutputFile::create(path).map_err(failed)?);
        let mut writer = Self::new(path, out, CaptureForm::Pcapng);
        writer.write_header(&comment[..comment.floor_char_boundary(COMMENT_BYTES_MAX)]).map_err(failed)?;
        Ok(writer)
    }

    /// Writes a packet to a file from [`CaptureWriter::create_own`]. `time_ns` is since 1970.
    pub fn write_own(&mut self, link: Link, time_ns: u64, bytes: &[u8], wire_len: u32) -> Result<(), EngineError> {
        let written = self.write_own_packet(link, time_ns, bytes, wire_len);
        written.map_err(|source| EngineError::Io { path: self.path.clone(), source })
    }

    /// Writes packet `index` of a burst. All bursts must come from one capture.
    pub fn write(&mut self, burst: &CaptureBurst<'_>, index: usize) -> Result<(), EngineError> {
        let (bytes, wire_len) = burst.record(index);
        self.write_packet(burst, index, &bytes, wire_len)
    }

    /// Writes a changed frame, `wire_len` bytes long on the wire, in place of packet `index` of a burst. A link header
    /// that the datapath does not parse stays in front of it.
    pub fn write_changed(
        &mut self,
        burst: &CaptureBurst<'_>,
        index: usize,
        bytes: &[u8],
        wire_len: u32,
    ) -> Result<(), EngineError> {
        match burst.header(index) {
            [] => self.write_packet(burst, index, bytes, wire_len),
            header => {
                let record = [header, bytes].concat();
                self.write_packet(burst, index, &record, wire_len + header.len() as u32)
            }
        }
    }

    fn write_packet(
        &mut self,
        burst: &CaptureBurst<'_>,
        index: usize,
        bytes: &[u8],
        wire_len: u32,
    ) -> Result<(), EngineError> {
        let written = match self.form {
            CaptureForm::Pcap { resolution, .. } => self.write_pcap(burst, index, resolution, bytes, wire_len),
            CaptureForm::Pcapng => self.write_pcapng(burst, index, bytes, wire_len),
        };
        written.map_err(|source| EngineError::Io { path: self.path.clone(), source })
    }

    /// Writes the buffered packets.
    pub fn flush(&mut self) -> Result<(), EngineError> {
        self.out.flush().map_err(|source| EngineError::Io { path: self.path.clone(), source })
    }

    /// Writes the buffered packets and gives the file its name.
    pub fn finish(self) -> Result<(), EngineError> {
        let CaptureWriter { path, out, .. } = self;
        let output = out.into_inner().map_err(io::IntoInnerError::into_error);
        output.and_then(OutputFile::finish).map_err(|source| EngineError::Io { path, source })
    }

    fn write_header(&mut self, comment: &str) -> io::Result<()> {
        match self.form {
            CaptureForm::Pcap { link_type, resolution, fcs_bytes } => {
                let nanoseconds = resolution == Resolution::NANOSECONDS;
                let magic = if nanoseconds { pcap::MAGIC_NS } else { pcap::MAGIC_US };
                let words = [magic, 4 << 16 | 2, 0, 0, CAPTURED_BYTES_MAX, pcap::link_field(link_type, fcs_bytes)];
                self.write_words(&words)
            }
            CaptureForm::Pcapng => {
                let padded = (comment.len() as u32).next_multiple_of(4);
                let bytes = 28 + if comment.is_empty() { 0 } else { 8 + padded };
                self.write_words(&[block::SECTION, bytes, BYTE_ORDER_MAGIC, 1, u32::MAX, u32::MAX])?;
                if !comment.is_empty() {
                    self.write_words(&[u32::from(option::COMMENT) | (comment.len() as u32) << 16])?;
                    self.write_padded(comment.as_bytes())?;
                    self.write_words(&[u32::from(option::END)])?;
                }
                self.write_words(&[bytes])
            }
        }
    }

    fn write_pcap(
        &mut self,
        burst: &CaptureBurst<'_>,
        index: usize,
        resolution: Resolution,
        bytes: &[u8],
        wire_len: u32,
    ) -> io::Result<()> {
        let ns = burst.stamp_ns(index);
        let seconds = u32::try_from(ns / NS_PER_S).unwrap_or(u32::MAX);
        let fraction = resolution.stamp(ns % NS_PER_S) as u32;
        self.write_words(&[seconds, fraction, bytes.len() as u32, wire_len])?;
        self.out.write_all(bytes)
    }

    fn write_pcapng(&mut self, burst: &CaptureBurst<'_>, index: usize, bytes: &[u8], wire_len: u32) -> io::Result<()> {
        let id = burst.interface_id(index);
        while self.described <= id as usize {
            self.write_interface(&burst.interfaces()[self.described])?;
            self.described += 1;
        }
        let stamp = burst.interfaces()[id as usize].resolution.written().stamp(burst.stamp_ns(index));
        self.write_enhanced(id, stamp, bytes, wire_len)
    }

    fn write_own_packet(&mut self, link: Link, time_ns: u64, bytes: &[u8], wire_len: u32) -> io::Result<()> {
        let id = match self.own_links.iter().position(|known| *known == link) {
            Some(id) => id,
            None => {
                let (link_type, resolution) = (link_type_of(link), Resolution::NANOSECONDS);
                self.write_interface(&Interface {
                    link_type,
                    snap_bytes: 0,
                    resolution,
                    offset_s: 0,
                    fcs_bytes: 0,
                    name: None,
                })?;
                self.own_links.push(link);
                self.own_links.len() - 1
            }
        };
        self.write_enhanced(id as u32, time_ns, bytes, wire_len)
    }

    fn write_enhanced(&mut self, id: u32, stamp: u64, bytes: &[u8], wire_len: u32) -> io::Result<()> {
        let (high, low) = ((stamp >> 32) as u32, stamp as u32);
        let block_bytes = 32 + (bytes.len() as u32).next_multiple_of(4);
        self.write_words(&[block::ENHANCED_PACKET, block_bytes, id, high, low, bytes.len() as u32, wire_len])?;
        self.write_padded(bytes)?;
        self.write_words(&[block_bytes])
    }

    fn write_interface(&mut self, interface: &Interface) -> io::Result<()> {
        let name = interface.name.as_deref().unwrap_or_default();
        let name_bytes = if name.is_empty() { 0 } else { 4 + (name.len() as u32).next_multiple_of(4) };
        let fcs_bytes = if interface.fcs_bytes == 0 { 0 } else { 8 };
        let block_bytes = 20 + name_bytes + fcs_bytes + 8 + 4;
        self.write_words(&[block::INTERFACE, block_bytes, u32::from(interface.link_type), interface.snap_bytes])?;
        if !name.is_empty() {
            self.write_words(&[u32::from(option::NAME) | (name.len() as u32) << 16])?;
            self.write_padded(name)?;
        }
        if interface.fcs_bytes != 0 {
            self.write_words(&[u32::from(option::FCS_LENGTH) | 1 << 16, u32::from(interface.fcs_bytes)])?;
        }
        let resolution = u32::from(interface.resolution.written().to_option());
        self.write_words(&[u32::from(option::RESOLUTION) | 1 << 16, resolution, u32::from(option::END), block_bytes])
    }

    fn write_words(&mut self, words: &[u32]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.out.write_all(&word.to_le_bytes()))
    }

    fn write_padded(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.write_all(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()])
    }
}
