//! Frames: pieces of a file that are read whole or not at all.
//!
//! ```text
//!   file    header, frames
//!   header  "weirkeep"  version u32  purpose u32  number u64  check u32      28 bytes, all numbers little-endian
//!   frame   length u32  check u32  payload                                    the check is of the payload
//! ```
//! A check is a CRC-32C. A reader stops at the first frame that is not complete or whose check is wrong.

use std::io::Read;

/// What the payloads of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// All tables at one time, with a last record that says so.
    Snapshot = 1,
    /// Changes since the snapshot of the same number.
    Journal = 2,
    /// The debts of limits at one time, with a last record too.
    Debts = 3,
    /// Flows, record by record. The number of such a file is the number of the table's slots.
    Flows = 4,
}

impl Purpose {
    /// The version of the format.
    fn version(self) -> u32 {
        match self {
            // Version 1 did not say when a deadline was written.
            Purpose::Snapshot | Purpose::Journal | Purpose::Debts => 2,
            Purpose::Flows => 3,
        }
    }

    /// The oldest version that can be read.
    fn oldest(self) -> u32 {
        match self {
            Purpose::Snapshot | Purpose::Journal | Purpose::Debts => 1,
            // Before, sides of flows were not the sides of arrival of their packets.
            Purpose::Flows => 3,
        }
    }

    /// Whether files of a version can be read.
    fn reads(self, version: u32) -> bool {
        (self.oldest()..=self.version()).contains(&version)
    }
}

const MAGIC: &[u8; 8] = b"weirkeep";
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 28;
/// Bytes in front of a payload.
const FRAME_BYTES: usize = 8;
/// Longest payload. A longer one is damage.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// The header of a file.
pub(super) fn header(purpose: Purpose, number: u64) -> Vec<u8> {
    header_of(purpose.version(), purpose, number)
}

pub(super) fn header_of(version: u32, purpose: Purpose, number: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend((purpose as u32).to_le_bytes());
    bytes.extend(number.to_le_bytes());
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}

/// Appends a frame with the payload that `write` appends.
pub(super) fn append_frame(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend([0; FRAME_BYTES]);
    write(bytes);
    let payload = &bytes[start + FRAME_BYTES..];
    let (length, check) = (payload.len() as u32, crc32c(payload));
    bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
    bytes[start + 4..start + 8].copy_from_slice(&check.to_le_bytes());
}

/// Whether another version of Weir wrote a file, which this one cannot read.
pub(super) fn is_of_other_version(bytes: &[u8], purpose: Purpose) -> bool {
    bytes.starts_with(MAGIC) && version(bytes).is_some_and(|version| !purpose.reads(version))
}

/// The version in a header.
fn version(header: &[u8]) -> Option<u32> {
    header.get(8..12).map(|version| u32::from_le_bytes(version.try_into().expect("four bytes")))
}

/// The version of a file with this purpose and number.
///
/// # Errors
/// The file does not begin with such a header.
fn check_header(bytes: &[u8], purpose: Purpose, number: u64) -> Result<u32, String> {
    let found = bytes.get(..HEADER_BYTES).ok_or("the header is incomplete")?;
    let version = version(found).ok_or("the header is incomplete")?;
    match () {
        () if found[..8] != *MAGIC => Err("this is not a file of Weir's state".to_owned()),
        () if !purpose.reads(version) => {
            let own = purpose.version();
            Err(format!("another version of Weir wrote it: format {version}, not {own}"))
        }
        () if found == header_of(version, purpose, number) => Ok(version),
        () => Err("the header is damaged".to_owned()),
    }
}

/// The payloads of a file that is in memory, as a reference for tests.
#[cfg(test)]
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
}

#[cfg(test)]
impl<'a> Frames<'a> {
    /// The frames of a file with this purpose and number.
    ///
    /// # Errors
    /// The file does not begin with such a header.
    pub fn open(bytes: &'a [u8], purpose: Purpose, number: u64) -> Result<Self, String> {
        check_header(bytes, purpose, number).map(|_| Frames { bytes, at: HEADER_BYTES })
    }

    /// Position of the next frame in the file.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The next payload, or `None` at the end.
    ///
    /// # Errors
    /// The frame is damaged or incomplete. No frame after it can be read.
    pub fn next(&mut self) -> Result<Option<&'a [u8]>, String> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return Ok(None);
        }
        let word =
            |at: usize| rest.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
        let (Some(length), Some(check)) = (word(0), word(4)) else { return Err("incomplete".to_owned()) };
        if length as usize > PAYLOAD_BYTES_MAX {
            return Err("damaged".to_owned());
        }
        let payload = rest.get(FRAME_BYTES..FRAME_BYTES + length as usize).ok_or("incomplete")?;
        if crc32c(payload) != check {
            return Err("damaged".to_owned());
        }
        self.at += FRAME_BYTES + payload.len();
        Ok(Some(payload))
    }
}

/// The payloads of a file that is read piece by piece, because it may be larger than memory should hold.
pub(super) struct FrameReader<R> {
    from: R,
    version: u32,
    at: u64,
    payload: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// The frames of a file with this purpose, and the number in its header.
    ///
    /// # Errors
    /// The file cannot be read, or does not begin with such a header.
    pub fn open(mut from: R, purpose: Purpose) -> Result<(Self, u64), String> {
        let mut bytes = Vec::new();
        from.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let number = bytes.get(16..24).map_or(0, |number| u64::from_le_bytes(number.try_into().expect("eight bytes")));
        let version = check_header(&bytes, purpose, number)?;
        Ok((FrameReader { from, version, at: HEADER_BYTES as u64, payload: Vec::new() }, number))
    }

    /// The frames of a file with this purpose and number.
    ///
    /// # Errors
    /// The file cannot be read, or does not begin with such a header.
    pub fn open_numbered(from: R, purpose: Purpose, number: u64) -> Result<Self, String> {
        match FrameReader::open(from, purpose)? {
            (frames, found) if found == number => Ok(frames),
            _ => Err("the header is damaged".to_owned()),
        }
    }

    /// The version of the format.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Position of the next frame in the file.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The next payload, or `None` at the end.
    ///
    /// # Errors
    /// The frame cannot be read, or is damaged or incomplete. No frame after it can be read.
    pub fn next(&mut self) -> Result<Option<&[u8]>, String> {
        match self.read(FRAME_BYTES)? {
            0 => return Ok(None),
            FRAME_BYTES => {}
            _ => return Err("incomplete".to_owned()),
        }
        let word = |at: usize| u32::from_le_bytes(self.payload[at..at + 4].try_into().expect("four bytes"));
        let (length, check) = (word(0) as usize, word(4));
        if length > PAYLOAD_BYTES_MAX {
            return Err("damaged".to_owned());
        }
        if self.read(length)? < length {
            return Err("incomplete".to_owned());
        }
        if crc32c(&self.payload) != check {
            return Err("damaged".to_owned());
        }
        self.at += (FRAME_BYTES + length) as u64;
        Ok(Some(&self.payload))
    }

    /// Reads up to `count` bytes, and returns how many there were.
    fn read(&mut self, count: usize) -> Result<usize, String> {
        self.payload.clear();
        let read = self.from.by_ref().take(count as u64).read_to_end(&mut self.payload);
        read.map_err(|error| error.to_string())
    }
}

/// CRC-32C (Castagnoli), as in iSCSI (RFC 3720, appendix B.4).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, &byte| CRC_OF_BYTE[usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

const CRC_OF_BYTE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_those_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    /// What is found in a file, piece by piece: frames, the position behind them, and the damage.
    fn streamed(bytes: &[u8]) -> Result<(usize, usize, Option<String>), String> {
        let (mut frames, number) = FrameReader::open(bytes, Purpose::Journal)?;
        assert_eq!(number, 7);
        let mut found = 0;
        loop {
            match frames.next().map(|payload| payload.is_some()) {
                Ok(true) => found += 1,
                end => return Ok((found, frames.at() as usize, end.err())),
            }
        }
    }

    #[test]
    fn a_file_is_read_up_to_its_damage() {
        let mut file = header(Purpose::Journal, 7);
        assert_eq!(file.len(), HEADER_BYTES);
        append_frame(&mut file, |bytes| bytes.extend(b"one"));
        append_frame(&mut file, |_| {});
        let whole = file.len();
        append_frame(&mut file, |bytes| bytes.extend(b"three"));
        let read = |bytes: &[u8]| {
            let streamed = streamed(bytes);
            let mut frames = Frames::open(bytes, Purpose::Journal, 7).inspect_err(|_| assert!(streamed.is_err()))?;
            let mut found = Vec::new();
            let end = loop {
                match frames.next() {
                    Ok(Some(payload)) => found.push(payload.to_vec()),
                    Ok(None) => break None,
                    Err(damage) => break Some(damage),
                }
            };
            let found = (found.len(), frames.at(), end);
            assert_eq!(streamed.as_ref(), Ok(&found));
            Ok::<_, String>(found)
        };
        assert_eq!(read(&file), Ok((3, file.len(), None)));
        for cut in whole + 1..file.len() {
            assert_eq!(read(&file[..cut]), Ok((2, whole, Some("incomplete".to_owned()))));
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            match read(&damaged) {
                Ok((found, _, end)) => assert!(found < 3 && end.is_some(), "byte {at}"),
                Err(_) => assert!(at < HEADER_BYTES, "byte {at}"),
            }
        }
        assert!(
            Frames::open(&file, Purpose::Snapshot, 7).is_err() && Frames::open(&file, Purpose::Journal, 8).is_err()
        );
        assert!(Frames::open(b"weir", Purpose::Journal, 7).is_err());
    }
}
