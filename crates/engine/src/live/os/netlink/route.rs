//! Requests to the kernel's routing subsystem, which has filters too.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt};

use super::message::{Answer, HEADER_BYTES, Malformed, Message, answers, attributes, word};

/// Flags of requests and answers (linux/netlink.h).
const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const ACK: u16 = libc::NLM_F_ACK as u16;
const DUMP: u16 = libc::NLM_F_DUMP as u16;
const INTERRUPTED: u16 = libc::NLM_F_DUMP_INTR as u16;
/// An acknowledgement repeats only the header of its request, and has attributes.
const CAPPED: u16 = 0x100;
const HAS_ATTRIBUTES: u16 = 0x200;
/// The kernel's words about an error (`NLMSGERR_ATTR_MSG`).
const WORDS: u16 = 1;
/// The kernel writes parts of at most 32 KiB.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Room for the answers to a batch.
const ROOM_BYTES: usize = 4 << 20;
/// Requests that are sent at once. Each answer takes up to 8 KiB of the kernel's memory.
const BATCH: usize = 64;
/// How often a dump is begun anew because something changed meanwhile.
const DUMPS: usize = 8;

/// Why the kernel refuses a request.
#[derive(Debug)]
pub struct Refusal {
    /// The error number.
    pub error: io::Error,
    /// The words of the kernel or of the driver; empty if there are none.
    pub words: String,
}

impl Refusal {
    /// The error with its words.
    pub fn into_error(self) -> io::Error {
        if self.words.is_empty() {
            return self.error;
        }
        io::Error::new(self.error.kind(), format!("{} ({})", self.words, self.error))
    }
}

/// What a request that was carried out has caused, if it asked for that (`NLM_F_ECHO`): type and body.
pub type Reply = Option<(u16, Vec<u8>)>;

/// A socket for requests in the network namespace in which it was opened.
pub struct Route {
    socket: OwnedFd,
    sequence: u32,
    datagram: Vec<u8>,
}

impl Route {
    /// Opens a socket.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
            let on: libc::c_int = 1;
            let bytes = size_of::<libc::c_int>() as libc::socklen_t;
            // SAFETY: the option is a number of that many bytes, which lives during the call.
            let failed = unsafe {
                libc::setsockopt(socket.as_raw_fd(), libc::SOL_NETLINK, option, (&raw const on).cast(), bytes)
            };
            if failed != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // A process that may change filters gets the room. Others get less, and are refused later.
        let _refused = sockopt::set_socket_recv_buffer_size_force(&socket, ROOM_BYTES);
        Ok(Route { socket, sequence: 0, datagram: vec![0; DATAGRAM_BYTES] })
    }

    /// Makes requests, several at once. `Message`s have the flags that are special to them. Returns the outcome of
    /// each.
    ///
    /// # Errors
    /// The socket fails. Some requests may have been carried out.
    pub fn request(&mut self, requests: Vec<Message>) -> io::Result<Vec<Result<Reply, Refusal>>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut requests = requests.into_iter().peekable();
        while requests.peek().is_some() {
            let first = self.sequence.wrapping_add(1);
            let mut bytes = Vec::new();
            for request in requests.by_ref().take(BATCH) {
                self.sequence = self.sequence.wrapping_add(1);
                bytes.extend(flagged(request.bytes(self.sequence), REQUEST | ACK));
            }
            self.send(&bytes)?;
            let count = self.sequence.wrapping_sub(first).wrapping_add(1) as usize;
            self.collect(first, count, &mut outcomes)?;
        }
        Ok(outcomes)
    }

    /// Makes one request.
    ///
    /// # Errors
    /// The socket fails, or the kernel refuses.
    pub fn ask(&mut self, request: Message) -> io::Result<Result<Reply, Refusal>> {
        Ok(self.request(vec![request])?.pop().expect("a request has an outcome"))
    }

    /// Reads all objects that a request asks for. `take` gets type and body of each.
    ///
    /// # Errors
    /// The socket fails, the kernel refuses, or its answer is malformed.
    pub fn dump<T>(
        &mut self,
        request: &Message,
        take: impl Fn(u16, &[u8]) -> Result<Option<T>, Malformed>,
    ) -> io::Result<Result<Vec<T>, Refusal>> {
        for _ in 0..DUMPS {
            self.sequence = self.sequence.wrapping_add(1);
            self.send(&flagged(request.clone().bytes(self.sequence), REQUEST | DUMP))?;
            let (mut taken, mut is_whole) = (Vec::new(), true);
            let end = loop {
                let length = self.receive()?;
                let end = read(&self.datagram[..length], self.sequence, |answer| {
                    is_whole &= answer.flags & INTERRUPTED == 0;
                    taken.extend(take(answer.kind, answer.body)?);
                    Ok(())
                })?;
                if let Some(end) = end {
                    break end;
                }
            };
            match end {
                Err(refusal) => return Ok(Err(refusal)),
                Ok(()) if is_whole => return Ok(Ok(taken)),
                Ok(()) => {}
            }
        }
        Err(io::Error::other("it changes faster than it can be read"))
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        match send(&self.socket, bytes, SendFlags::empty())? {
            sent if sent == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Receives a datagram into the buffer. Returns its length.
    fn receive(&mut self) -> io::Result<usize> {
        loop {
            match recv(&self.socket, &mut self.datagram[..], RecvFlags::TRUNC) {
                Ok((_, length)) if length > self.datagram.len() => return Err(malformed(Malformed)),
                Ok((_, length)) => return Ok(length),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The outcomes of a batch of requests, whose numbers begin with `first`.
    fn collect(&mut self, first: u32, count: usize, outcomes: &mut Vec<Result<Reply, Refusal>>) -> io::Result<()> {
        let (mut replies, mut ended) = (vec![None; count], 0);
        while ended < count {
            let length = self.receive()?;
            for answer in answers(&self.datagram[..length]) {
                let answer = answer.map_err(malformed)?;
                let at = answer.sequence.wrapping_sub(first) as usize;
                // Answers to earlier requests may be left if one failed.
                let Some(reply) = replies.get_mut(at) else { continue };
                if i32::from(answer.kind) == libc::NLMSG_ERROR {
                    outcomes.push(acknowledged(&answer)?.map(|()| reply.take()));
                    ended += 1;
                } else {
                    *reply = Some((answer.kind, answer.body.to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// Sets flags in a message.
fn flagged(mut message: Vec<u8>, flags: u16) -> Vec<u8> {
    let own = u16::from_ne_bytes([message[6], message[7]]);
    message[6..8].copy_from_slice(&(own | flags).to_ne_bytes());
    message
}

/// Reads a part of a dump. Returns how the dump ended, if it did.
fn read(
    datagram: &[u8],
    sequence: u32,
    mut take: impl FnMut(&Answer<'_>) -> Result<(), Malformed>,
) -> io::Result<Option<Result<(), Refusal>>> {
    for answer in answers(datagram) {
        let answer = answer.map_err(malformed)?;
        if answer.sequence != sequence {
            continue;
        }
        match i32::from(answer.kind) {
            libc::NLMSG_DONE | libc::NLMSG_ERROR => return Ok(Some(acknowledged(&answer)?)),
            _ => take(&answer).map_err(malformed)?,
        }
    }
    Ok(None)
}

/// Reads an acknowledgement: an error number, 0 for success, and in one of a request its header.
fn acknowledged(answer: &Answer<'_>) -> io::Result<Result<(), Refusal>> {
    let number = word(answer.body, 0).ok_or(Malformed).map_err(malformed)? as i32;
    if number >= 0 {
        return Ok(Ok(()));
    }
    let is_error = i32::from(answer.kind) == libc::NLMSG_ERROR;
    let header = if is_error { HEADER_BYTES } else { 0 };
    // A request that is repeated as a whole has its own length.
    let repeated = match answer.flags & CAPPED {
        0 if is_error => word(answer.body, 4).map_or(header, |length| (length as usize).next_multiple_of(4)),
        _ => header,
    };
    let rest = answer.body.get(4 + repeated..).filter(|_| answer.flags & HAS_ATTRIBUTES != 0).unwrap_or(&[]);
    let words = attributes(rest).map_while(Result::ok).find(|(kind, _)| *kind == WORDS).map_or(&[][..], |one| one.1);
    let words = String::from_utf8_lossy(words).trim_end_matches('\0').to_owned();
    Ok(Err(Refusal { error: io::Error::from_raw_os_error(number.wrapping_neg()), words }))
}

fn malformed(_: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is malformed")
}

#[cfg(test)]
mod tests {
    use super::{Answer, CAPPED, HAS_ATTRIBUTES, acknowledged};

    fn refused(flags: u16, body: &[u8]) -> (Option<i32>, String) {
        let answer = Answer { kind: libc::NLMSG_ERROR as u16, flags, sequence: 1, body };
        let refusal = acknowledged(&answer).expect("it is whole").expect_err("it is refused");
        (refusal.error.raw_os_error(), refusal.words)
    }

    #[test]
    fn an_acknowledgement_has_an_error_and_words() {
        let header = [36, 0, 0, 0, 44, 0, 5, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        let words = [9, 0, 1, 0, b'f', b'u', b'l', b'l', 0, 0, 0, 0];
        let no_space = (-libc::ENOSPC).to_ne_bytes();
        let capped = [&no_space[..], &header, &words].concat();
        assert_eq!(refused(CAPPED | HAS_ATTRIBUTES, &capped), (Some(libc::ENOSPC), "full".to_owned()));
        assert_eq!(refused(CAPPED, &capped), (Some(libc::ENOSPC), String::new()));
        let whole = [&no_space[..], &header, &[7; 20], &words].concat();
        assert_eq!(refused(HAS_ATTRIBUTES, &whole), (Some(libc::ENOSPC), "full".to_owned()));
        // What is cut off has no words, and without a number it is no acknowledgement.
        (4..whole.len() - 4).for_each(|end| assert_eq!(refused(HAS_ATTRIBUTES, &whole[..end]).1, "", "{end}"));
        let short = Answer { kind: libc::NLMSG_ERROR as u16, flags: 0, sequence: 1, body: &[1, 2, 3] };
        assert!(acknowledged(&short).is_err());
        assert_eq!(refused(0, &i32::MIN.to_ne_bytes()).0, Some(i32::MIN));
    }
}
