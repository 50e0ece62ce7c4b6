//! Through which interfaces packets of this machine may leave: what the routes say, and what lies below.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use crate::live::os::netlink::{Malformed, Message, Route, attributes, word};

/// Attributes of routes and links (linux/rtnetlink.h, linux/if_link.h).
const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINK_NETNSID: u16 = 37;
/// Bytes of `struct rtmsg` and of `struct ifinfomsg`.
const ROUTE_BYTES: usize = 12;
const LINK_BYTES: usize = 16;

/// What the kernel says of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Link {
    index: u32,
    name: String,
    /// The interface below it, as of a VLAN, or the other end of a veth. `None` if that is in another namespace.
    other: Option<u32>,
    /// The bridge or bond that it belongs to.
    master: Option<u32>,
}

/// The names of the interfaces through which packets from one address to another may leave: the one of the route, those
/// below it (VLANs, bridges), and the other ends of veths.
///
/// # Errors
/// There is no such route, or the kernel does not say.
pub fn towards(from: IpAddr, to: IpAddr) -> io::Result<BTreeSet<String>> {
    let mut route = Route::open()?;
    let out = outgoing(&mut route, from, to)?;
    let mut body = [0; LINK_BYTES];
    body[0] = libc::AF_UNSPEC as u8;
    let request = Message::new(libc::RTM_GETLINK, 0, &body);
    let links = route.dump(&request, |kind, body| match kind {
        libc::RTM_NEWLINK => read_link(body).map(Some),
        _ => Ok(None),
    })?;
    Ok(reached(&links.map_err(crate::live::os::netlink::Refusal::into_error)?, out))
}

/// The interface of the route.
fn outgoing(route: &mut Route, from: IpAddr, to: IpAddr) -> io::Result<u32> {
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    let (from, to) = (octets(from), octets(to));
    let mut body = [0; ROUTE_BYTES];
    body[0] = if to.len() == 4 { libc::AF_INET } else { libc::AF_INET6 } as u8;
    (body[1], body[2]) = (8 * to.len() as u8, 8 * from.len() as u8);
    let request = Message::new(libc::RTM_GETROUTE, 0, &body).put(RTA_DST, &to).put(RTA_SRC, &from);
    let found = route.ask(request)?.map_err(crate::live::os::netlink::Refusal::into_error)?;
    let body = found.filter(|(kind, _)| *kind == libc::RTM_NEWROUTE).map(|(_, body)| body).unwrap_or_default();
    let index = attributes(body.get(ROUTE_BYTES..).unwrap_or_default()).find_map(|attribute| match attribute {
        Ok((RTA_OIF, value)) => word(value, 0),
        _ => None,
    });
    index.ok_or_else(|| io::Error::other("the route has no interface"))
}

fn read_link(body: &[u8]) -> Result<Link, Malformed> {
    let mut link = Link { index: word(body, 4).ok_or(Malformed)?, ..Link::default() };
    let mut is_elsewhere = false;
    for attribute in attributes(body.get(LINK_BYTES..).ok_or(Malformed)?) {
        match attribute? {
            (IFLA_IFNAME, value) => link.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            (IFLA_LINK, value) => link.other = word(value, 0).filter(|&other| other != 0),
            (IFLA_MASTER, value) => link.master = word(value, 0),
            (IFLA_LINK_NETNSID, _) => is_elsewhere = true,
            _ => {}
        }
    }
    link.other = link.other.filter(|_| !is_elsewhere);
    Ok(link)
}

/// The names of the interfaces that packets through `out` may pass.
fn reached(links: &[Link], out: u32) -> BTreeSet<String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![out]);
    while let Some(index) = next.pop() {
        if reached.insert(index) {
            next.extend(links.iter().filter(|link| link.index == index).filter_map(|link| link.other));
            next.extend(links.iter().filter(|link| link.master == Some(index)).map(|link| link.index));
        }
    }
    links.iter().filter(|link| reached.contains(&link.index)).map(|link| link.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, other: Option<u32>, master: Option<u32>) -> Link {
        Link { index, name: name.to_owned(), other, master }
    }

    #[test]
    fn what_lies_below_an_interface_is_reached() {
        let links = [
            link(1, "lo", None, None),
            link(2, "eth0", None, Some(5)),
            link(3, "eth1", None, None),
            link(4, "eth1.100", Some(3), None),
            link(5, "br0", None, None),
            link(6, "veth0", Some(7), Some(5)),
            link(7, "veth1", Some(6), None),
        ];
        let names = |out: u32| reached(&links, out).into_iter().collect::<Vec<_>>();
        assert_eq!(names(1), ["lo"]);
        assert_eq!(names(3), ["eth1"], "not the VLANs above it");
        assert_eq!(names(4), ["eth1", "eth1.100"]);
        assert_eq!(names(5), ["br0", "eth0", "veth0", "veth1"]);
    }

    #[test]
    fn the_kernel_knows_the_way_to_itself() {
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(towards(here, here).expect("there is a loopback").into_iter().collect::<Vec<_>>(), ["lo"]);
        assert!(towards(IpAddr::from([192, 0, 2, 77]), here).is_err(), "no address of this machine");
    }
}
