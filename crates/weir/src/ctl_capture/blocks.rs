//! The blocks of a pcapng stream, whole.

use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use weir_engine::capture::packet_stream;

/// The longest block that the daemon sends is a packet of 9,216 bytes with its comment, or a header.
const BLOCK_BYTES_MAX: usize = 1 << 16;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It stands before the packets of each file: a section or an interface.
    Header,
    /// A packet.
    Packet,
    /// Statistics of an interface.
    Statistics,
}

/// A block.
pub struct Block(pub Vec<u8>);

impl Block {
    /// What it is.
    pub fn kind(&self) -> Kind {
        match u32::from_le_bytes([self.0[0], self.0[1], self.0[2], self.0[3]]) {
            packet_stream::PACKET => Kind::Packet,
            packet_stream::STATISTICS => Kind::Statistics,
            _ => Kind::Header,
        }
    }

    /// The bytes between its lengths.
    pub fn body(&self) -> &[u8] {
        &self.0[8..self.0.len() - 4]
    }
}

/// Reads blocks.
pub struct Blocks(BufReader<UnixStream>);

impl Blocks {
    /// The blocks of a connection.
    pub fn new(stream: BufReader<UnixStream>) -> Self {
        Blocks(stream)
    }

    /// The next block; `None` at the end.
    ///
    /// # Errors
    /// The connection fails, or ends inside a block.
    pub fn next(&mut self) -> io::Result<Option<Block>> {
        let mut head = [0; 8];
        match self.0.read(&mut head[..1])? {
            0 => return Ok(None),
            _ => self.0.read_exact(&mut head[1..])?,
        }
        let bytes = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if !(12..=BLOCK_BYTES_MAX).contains(&bytes) || !bytes.is_multiple_of(4) {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("a block of {bytes} bytes")));
        }
        let mut block = vec![0; bytes];
        block[..8].copy_from_slice(&head);
        self.0.read_exact(&mut block[8..])?;
        Ok(Some(Block(block)))
    }

    /// Whether no further block was received yet.
    pub fn is_last_that_waits(&self) -> bool {
        self.0.buffer().is_empty()
    }
}
