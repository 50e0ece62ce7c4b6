//! The state of links: read on request, and the kernel's notifications of changes (rtnetlink(7), `RTMGRP_LINK`).
//!
//! A notification only says which link to read again. So lost, late or repeated ones do no harm.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

use crate::live::os::netlink::{Malformed, Message, Route, answers, attributes, word};

/// Bytes of `struct ifinfomsg`, and offsets of index and flags in it.
const LINK_BYTES: usize = 16;
const INDEX_AT: usize = 4;
const FLAGS_AT: usize = 8;
/// Attributes of a link (linux/if_link.h).
const NAME: u16 = 3;
const MTU: u16 = 4;
const CARRIER: u16 = 33;
/// `RTMGRP_LINK`
const LINKS: u32 = 1;
/// The kernel's longest notification is shorter.
const DATAGRAM_BYTES: usize = 32 << 10;
/// Notifications that are read at once. If more wait, every link may have changed.
const READ_MAX: usize = 256;

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkNow {
    /// Its current name.
    pub name: String,
    /// It is administratively up.
    pub up: bool,
    /// It is up, and its link has another end that is up.
    pub has_link: bool,
    /// Maximum number of bytes after the link header.
    pub mtu: u32,
}

/// Reads the state of the interface with that index; `None` if there is none.
///
/// # Errors
/// There are too many open files, or the kernel's answer is malformed.
pub fn read(index: u32) -> io::Result<Option<LinkNow>> {
    let mut body = [0; LINK_BYTES];
    body[INDEX_AT..INDEX_AT + 4].copy_from_slice(&index.to_ne_bytes());
    let answer = Route::open()?.ask(Message::new(libc::RTM_GETLINK, 0, &body))?;
    match answer {
        Ok(Some((_, body))) => match parsed(&body) {
            Ok(link) => Ok(Some(link)),
            Err(Malformed) => Err(io::Error::new(io::ErrorKind::InvalidData, "the state of a link is malformed")),
        },
        Ok(None) => Ok(None),
        Err(refusal) if refusal.error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
        Err(refusal) => Err(refusal.into_error()),
    }
}

fn parsed(body: &[u8]) -> Result<LinkNow, Malformed> {
    let flags = word(body, FLAGS_AT).ok_or(Malformed)? as i32;
    let is_running = flags & libc::IFF_RUNNING != 0;
    let mut link = LinkNow { name: String::new(), up: flags & libc::IFF_UP != 0, has_link: is_running, mtu: 0 };
    for attribute in attributes(body.get(LINK_BYTES..).ok_or(Malformed)?) {
        let (kind, value) = attribute?;
        match kind {
            NAME => link.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            MTU => link.mtu = word(value, 0).ok_or(Malformed)?,
            // The flag follows it up to a second late.
            CARRIER => link.has_link = value.first().is_some_and(|carrier| *carrier != 0),
            _ => {}
        }
    }
    link.has_link &= link.up;
    Ok(link)
}

/// A socket that is told of changes of links in the network namespace in which it was opened.
pub struct LinkWatch {
    socket: OwnedFd,
    datagram: Vec<u8>,
}

impl LinkWatch {
    /// Watches from now on.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        Ok(LinkWatch { socket, datagram: vec![0; DATAGRAM_BYTES] })
    }

    /// Whether one of the interfaces with these indices may have changed since the last call. Does not wait.
    pub fn may_have_changed(&mut self, own: &[u32]) -> bool {
        let mut changed = false;
        for _ in 0..READ_MAX {
            match recv(&self.socket, &mut self.datagram[..], RecvFlags::TRUNC) {
                Ok((bytes, length)) => changed |= length > bytes || names_one(&self.datagram[..bytes], own),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return changed,
                // Notifications were lost.
                Err(_) => changed = true,
            }
        }
        true
    }
}

/// Whether notifications are about one of these interfaces, or are not understood.
fn names_one(datagram: &[u8], own: &[u32]) -> bool {
    answers(datagram).any(|answer| match answer {
        Ok(answer) => word(answer.body, INDEX_AT).is_none_or(|index| own.contains(&index)),
        Err(Malformed) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::os::device::Device;

    #[test]
    fn loopback_is_read_and_what_is_not_there_is_none() {
        let device = Device::open("lo").expect("every machine has it");
        let link = read(device.index()).expect("it can be read").expect("it is there");
        assert_eq!((link.name.as_str(), link.mtu), ("lo", device.mtu().expect("it is there")));
        assert_eq!(link.up, device.flags().expect("it has flags") & libc::IFF_UP != 0);
        assert_eq!(read(i32::MAX as u32).expect("the kernel answers"), None);
    }

    #[test]
    fn what_the_kernel_says_is_read_through_its_lengths() {
        let message = |flags: i32, carrier: &[u8]| {
            let mut body = [0; LINK_BYTES];
            body[INDEX_AT..INDEX_AT + 4].copy_from_slice(&7_u32.to_ne_bytes());
            body[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&flags.to_ne_bytes());
            let message = Message::new(libc::RTM_NEWLINK, 0, &body).put(NAME, b"eth7\0");
            message.put(MTU, &9000_u32.to_ne_bytes()).put(CARRIER, carrier).bytes(0)
        };
        let both = libc::IFF_UP | libc::IFF_RUNNING;
        for (flags, carrier, up, has_link) in
            [(both, 1, true, true), (both, 0, true, false), (libc::IFF_UP, 1, true, true), (0, 1, false, false)]
        {
            let bytes = message(flags, &[carrier]);
            let link = LinkNow { name: "eth7".to_owned(), up, has_link, mtu: 9000 };
            assert_eq!(parsed(&bytes[16..]), Ok(link), "{flags:x} {carrier}");
            assert!(names_one(&bytes, &[1, 7]) && !names_one(&bytes, &[1, 8]));
        }
        let bytes = message(both, &[1]);
        (17..bytes.len() - 4).for_each(|end| assert!(names_one(&bytes[..end], &[]), "{end}"));
        assert_eq!(parsed(&bytes[16..30]), Err(Malformed));
        assert_eq!(parsed(&bytes[16..16 + LINK_BYTES + 12 + 6]), Err(Malformed), "a cut attribute");
    }

    #[test]
    fn a_watch_that_hears_nothing_says_so() {
        let mut watch = LinkWatch::open().expect("a socket");
        assert!(!watch.may_have_changed(&[i32::MAX as u32]));
    }
}
