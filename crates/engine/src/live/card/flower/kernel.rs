//! What is asked of the kernel about filters, and what its refusals mean.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::filter::{Counting, Filter, Place, Version};
use crate::live::os::netlink::{Refusal, Route};

/// Changes that a probe makes at most.
pub const PROBE_CHANGES: u32 = 4;

/// Sources that no packet has.
const PROBES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::BROADCAST),
    IpAddr::V6(Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff)),
];

impl Counting {
    /// For the operator.
    pub fn described(self) -> &'static str {
        match self {
            Counting::Immediate => "counters are read from the card",
            Counting::Delayed => {
                "the driver reads counters from time to time, so the last packets of an entry that leaves are not counted"
            }
        }
    }
}

/// Makes sure that received packets have a hook for filters.
pub fn hook(route: &mut Route, place: Place) -> io::Result<()> {
    match route.ask(place.hook())? {
        Ok(_) => Ok(()),
        // There is one, of whichever kind.
        Err(refusal) if is(&refusal, libc::EEXIST) => Ok(()),
        Err(refusal) if is(&refusal, libc::ENOENT) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel has no clsact (CONFIG_NET_SCH_INGRESS)"))
        }
        Err(refusal) => Err(refusal.into_error()),
    }
}

/// Deletes the filters of those processes that `is_meant` holds for.
pub fn clean(route: &mut Route, place: Place, is_meant: impl Fn(u64) -> bool) -> io::Result<()> {
    for version in Version::BOTH {
        let filters = list(route, place, version)?;
        if filters.iter().any(|filter| filter.owner.is_none()) {
            let pref = place.pref_of(version);
            let problem = format!("filters of preference {pref} are not Weir's: choose another one with `pref=`");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
        }
        let meant = filters.iter().filter(|filter| filter.owner.is_some_and(&is_meant));
        let requests = meant.map(|filter| place.delete(filter.handle, version));
        for outcome in route.request(requests.collect())? {
            match outcome {
                // The filter is gone already.
                Err(refusal) if !is(&refusal, libc::ENOENT) => return Err(refusal.into_error()),
                _ => {}
            }
        }
    }
    Ok(())
}

/// All filters of a version.
pub fn list(route: &mut Route, place: Place, version: Version) -> io::Result<Vec<Filter>> {
    let listed = route.dump(&place.list(version), |kind, body| match kind {
        libc::RTM_NEWTFILTER => Filter::read(body),
        _ => Ok(None),
    })?;
    match listed {
        Ok(filters) => Ok(filters),
        // There is no hook, so there are no filters.
        Err(refusal) if is(&refusal, libc::EINVAL) || is(&refusal, libc::ENOENT) => Ok(Vec::new()),
        Err(refusal) => Err(refusal.into_error()),
    }
}

/// Tries filters of both versions. Returns how the card counts.
pub fn probe(route: &mut Route, place: Place, interface: &str) -> io::Result<Counting> {
    let mut first = None;
    for counting in [Counting::Immediate, Counting::Delayed] {
        let added = PROBES.into_iter().try_for_each(|source| {
            let added = put(route, place, 1, source, counting)?;
            added.map_err(|refusal| unsupported(refusal, source, interface))?;
            match route.ask(place.delete(1, Version::of(source)))? {
                Ok(_) => Ok(()),
                Err(refusal) => Err(refusal.into_error()),
            }
        });
        match added {
            Ok(()) => return Ok(counting),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    Err(first.expect("two were tried"))
}

/// Adds a filter, and makes sure that a card has it.
pub fn put(
    route: &mut Route,
    place: Place,
    handle: u32,
    source: IpAddr,
    counting: Counting,
) -> io::Result<Result<(), Refusal>> {
    let reply = match route.ask(place.add(handle, source, counting))? {
        Ok(reply) => reply,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let filter = reply.and_then(|(_, body)| Filter::read(&body).ok().flatten());
    let is_taken = filter.is_some_and(|filter| {
        filter.handle == handle
            && filter.source == Some(source)
            && filter.owner == Some(place.owner)
            && filter.is_in_card
    });
    if is_taken {
        return Ok(Ok(()));
    }
    // The filter would drop nothing.
    let _refused = route.ask(place.delete(handle, Version::of(source)))?;
    let error = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    Ok(Err(Refusal { error, words: "the driver has not taken the filter".to_owned() }))
}

/// What is missing where a filter is refused.
fn unsupported(refusal: Refusal, source: IpAddr, interface: &str) -> io::Error {
    let is_missing = is(&refusal, libc::ENOENT);
    let is_software = is(&refusal, libc::EOPNOTSUPP) || is(&refusal, libc::EINVAL);
    let error = refusal.into_error();
    let problem = match source {
        _ if is_missing => format!("the kernel has no flower (CONFIG_NET_CLS_FLOWER): {error}"),
        _ if !is_software => return error,
        IpAddr::V4(_) => format!(
            "the driver takes no flower filters with skip_sw: {error}; if the card can do it, `ethtool -K {interface} hw-tc-offload on`"
        ),
        IpAddr::V6(_) => format!("the driver takes no flower filters of IPv6 sources: {error}"),
    };
    io::Error::new(io::ErrorKind::Unsupported, problem)
}

/// Whether the kernel refuses with this error number.
pub fn is(refusal: &Refusal, number: i32) -> bool {
    refusal.error.raw_os_error() == Some(number)
}
