//! The bytes of messages.
//!
//! ```text
//! struct nlmsghdr   u32 length | u16 type | u16 flags | u32 sequence | u32 port      then a body, then attributes
//! struct nlattr     u16 length | u16 type                                            then a value, padded to 4 bytes
//! ```
//! Lengths include the headers, but not the padding. An attribute may contain attributes.

/// Bytes of `struct nlmsghdr` and of `struct nlattr`.
pub const HEADER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
/// Messages and attributes begin at multiples of this.
const ALIGNED: usize = 4;
/// Flags in the type of an attribute: it is nested, it is in network byte order.
const KIND_FLAGS: u16 = 0xc000;

/// The kernel's message does not have the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A request that is being written.
#[derive(Clone, Debug)]
pub struct Message(Vec<u8>);

impl Message {
    /// A message with a body, the structure behind the header.
    pub fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        let mut message = Message(bytes);
        message.pad();
        message
    }

    /// Adds an attribute.
    pub fn put(mut self, kind: u16, value: &[u8]) -> Self {
        let bytes = u16::try_from(ATTRIBUTE_BYTES + value.len()).expect("attributes of requests are short");
        self.0.extend_from_slice(&bytes.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.pad();
        self
    }

    /// Adds an attribute that contains those which `fill` adds.
    pub fn nest(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let at = self.0.len();
        self.0.extend_from_slice(&[0; ATTRIBUTE_BYTES]);
        let mut filled = fill(self);
        let bytes = u16::try_from(filled.0.len() - at).expect("attributes of requests are short");
        filled.0[at..at + 2].copy_from_slice(&bytes.to_ne_bytes());
        filled.0[at + 2..at + 4].copy_from_slice(&kind.to_ne_bytes());
        filled
    }

    /// The bytes to send.
    pub fn bytes(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).expect("requests are short");
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }

    fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(ALIGNED), 0);
    }
}

/// A message of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Its type.
    pub kind: u16,
    /// Its flags.
    pub flags: u16,
    /// The number of the request that it answers.
    pub sequence: u32,
    /// What follows the header.
    pub body: &'a [u8],
}

/// The messages of a datagram.
pub fn answers(datagram: &[u8]) -> impl Iterator<Item = Result<Answer<'_>, Malformed>> {
    parts(datagram, |rest| {
        let header = rest.get(..HEADER_BYTES)?;
        let length = word(header, 0)? as usize;
        let body = rest.get(HEADER_BYTES..length)?;
        let (kind, flags) = (half(header, 4)?, half(header, 6)?);
        Some((Answer { kind, flags, sequence: word(header, 8)?, body }, length))
    })
}

/// The attributes in some bytes: type and value of each.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), Malformed>> {
    parts(bytes, |rest| {
        let (length, kind) = (usize::from(half(rest, 0)?), half(rest, 2)?);
        Some(((kind & !KIND_FLAGS, rest.get(ATTRIBUTE_BYTES..length)?), length))
    })
}

/// Reads parts one after the other. `read` returns a part and its length without padding. The last part may lack its
/// padding. After a malformed one there is nothing.
fn parts<'a, P>(
    bytes: &'a [u8],
    read: impl Fn(&'a [u8]) -> Option<(P, usize)>,
) -> impl Iterator<Item = Result<P, Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let Some((part, length)) = read(rest) else {
            rest = &[];
            return Some(Err(Malformed));
        };
        rest = rest.get(length.next_multiple_of(ALIGNED)..).unwrap_or(&[]);
        Some(Ok(part))
    })
}

/// A word of 32 bits.
pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A word of 64 bits.
pub fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Answer, Malformed, Message, answers, attributes};

    fn message() -> Vec<u8> {
        let message = Message::new(44, 5, &[1, 2, 3, 4]).put(1, b"ab\0");
        message.nest(2, |inner| inner.put(3, &[9]).put(4, &[])).bytes(7)
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let bytes = message();
        assert_eq!(bytes.len(), 16 + 4 + 8 + 4 + 8 + 4);
        let twice = [bytes.clone(), bytes.clone()].concat();
        let read: Vec<Answer<'_>> = answers(&twice).map(|one| one.expect("it is whole")).collect();
        let expected = Answer { kind: 44, flags: 5, sequence: 7, body: &bytes[16..] };
        assert_eq!(read, [expected; 2]);
        let own: Vec<(u16, &[u8])> = attributes(&read[0].body[4..]).map(|one| one.expect("it is whole")).collect();
        assert_eq!(own[0], (1, b"ab\0".as_slice()));
        let inner: Vec<_> = attributes(own[1].1).collect();
        assert_eq!((own[1].0, inner), (2, vec![Ok((3, [9].as_slice())), Ok((4, [].as_slice()))]));
    }

    #[test]
    fn what_is_cut_off_is_malformed_and_ends_there() {
        let bytes = message();
        for length in 1..bytes.len() {
            assert_eq!(answers(&bytes[..length]).collect::<Vec<_>>(), [Err(Malformed)], "{length}");
        }
        // Lengths that are too short for a header, and one beyond the end.
        for length in [0_u16, 3, 60_000] {
            let mut bytes = bytes[20..].to_vec();
            bytes[..2].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [Err(Malformed)], "{length}");
        }
        for length in [0_u32, 15, u32::MAX] {
            let mut bytes = bytes.clone();
            bytes[..4].copy_from_slice(&length.to_ne_bytes());
            assert_eq!(answers(&bytes).collect::<Vec<_>>(), [Err(Malformed)], "{length}");
        }
    }
}
