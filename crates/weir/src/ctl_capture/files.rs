//! Where the packets of a capture are written: standard output, a file, or several files in turn.

use super::blocks::{Block, Kind};
use crate::cli::CaptureOptions;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weir_command::failure::Failure;

/// The output of a capture.
pub struct Files {
    out: Out,
    /// The blocks that stand before the packets of each file.
    headers: Vec<Vec<u8>>,
    /// The files that are there, the oldest first.
    names: Vec<PathBuf>,
    path: PathBuf,
    rotate: Option<u64>,
    keep: usize,
    /// Number of the current file, from 1.
    number: u32,
    /// Bytes and packets in the current file.
    bytes: u64,
    packets: u64,
}

enum Out {
    Standard(io::Stdout),
    File(BufWriter<File>),
}

impl Files {
    /// Opens the first file. Packets may be private, so only its owner can read it.
    ///
    /// # Errors
    /// It cannot be opened, or standard output is a terminal.
    pub fn of(capture: &CaptureOptions) -> Result<Self, Failure> {
        let mut files = Files {
            out: Out::Standard(io::stdout()),
            headers: Vec::new(),
            names: Vec::new(),
            path: capture.output.clone(),
            rotate: capture.rotate,
            keep: capture.files.map_or(usize::MAX, |files| files as usize),
            number: 0,
            bytes: 0,
            packets: 0,
        };
        if capture.output.as_os_str() != "-" {
            files.begin().map_err(|error| Failure::file(files.current(), error))?;
        } else if io::stdout().is_terminal() {
            let problem = "weir: packets are not written to a terminal: use `-o FILE`, or a pipe";
            return Err(Failure::Rejected(problem.to_owned()));
        }
        Ok(files)
    }

    /// The name of a file: `x.pcapng`, or `x-0001.pcapng` and so on.
    fn name(&self, number: u32) -> PathBuf {
        if self.rotate.is_none() {
            return self.path.clone();
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let extension = self.path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
        self.path.with_file_name(format!("{stem}-{number:04}{}", extension.unwrap_or_default()))
    }

    /// Begins the next file, with the headers. Deletes the oldest one if there are too many.
    fn begin(&mut self) -> io::Result<()> {
        if let Out::File(file) = &mut self.out {
            file.flush()?;
        }
        self.number += 1;
        let name = self.name(self.number);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&name)?;
        self.names.push(name);
        if self.names.len() > self.keep {
            fs::remove_file(self.names.remove(0))?;
        }
        self.out = Out::File(BufWriter::new(file));
        (self.bytes, self.packets) = (0, 0);
        let headers = std::mem::take(&mut self.headers);
        let written = headers.iter().try_for_each(|header| self.put(header));
        self.headers = headers;
        written
    }

    fn put(&mut self, block: &[u8]) -> io::Result<()> {
        self.bytes += block.len() as u64;
        match &mut self.out {
            Out::Standard(out) => out.write_all(block),
            Out::File(file) => file.write_all(block),
        }
    }

    /// Writes a block. With `is_last` no other waits, so the reader of the output sees it now.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write(&mut self, block: &Block, is_last: bool) -> io::Result<()> {
        let bytes = block.0.len() as u64;
        match block.kind() {
            Kind::Header => self.headers.push(block.0.clone()),
            Kind::Packet => {
                if self.packets > 0 && self.rotate.is_some_and(|rotate| self.bytes + bytes > rotate) {
                    self.begin()?;
                }
                self.packets += 1;
            }
            Kind::Statistics => {}
        }
        self.put(&block.0)?;
        if is_last { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            Out::Standard(out) => out.flush(),
            Out::File(file) => file.flush(),
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(&mut self) -> Result<(), Failure> {
        match self.flush() {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::file(self.current(), error)),
            _ => Ok(()),
        }
    }

    /// The file that is written.
    pub fn current(&self) -> &Path {
        self.names.last().unwrap_or(&self.path)
    }

    /// The files that are there, the oldest first.
    pub fn names(&self) -> &[PathBuf] {
        &self.names
    }
}
