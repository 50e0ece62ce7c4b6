//! The way past Weir: what comes in at an interface goes out of the one opposite, unjudged and unchanged.
//!
//! An XDP program does it that no process holds, so that it stays when everything else has gone; it is found again by its name alone, without
//! bpffs. Interfaces are opposite each other by their numbers, counted round where one side has more. What is attached and not known by that name is somebody else's,
//! and is never taken away.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use libbpf_rs::libbpf_sys::BPF_MAP_TYPE_DEVMAP_HASH;

use crate::EngineError;
use crate::live::bond;
use crate::live::device::Device;
use crate::live::lane::Interfaces;
use crate::live::link::LinkSwitch;
use crate::live::redirect::{self, Key};
use crate::live::resident::{self, Place, Resident};

/// Its name in the kernel where the interface took packets for others already.
const NAME: &CStr = c"weir_bypass";
/// Its name where the interface does so because of it, and no longer than it stands.
const NAME_TAKES_ALL: &CStr = c"weir_bypass_all";

/// Where a bypass is, or is to be.
pub struct Bypass {
    /// Each interface, and the one opposite.
    ways: Vec<[LinkSwitch; 2]>,
}

impl Bypass {
    /// Between the interfaces of both sides; nothing is looked at yet.
    pub fn between(interfaces: &Interfaces) -> Self {
        let Interfaces { lower, upper, .. } = interfaces;
        let mut ways = Vec::new();
        for (ins, outs) in [(lower, upper), (upper, lower)] {
            for (into, out) in ins.iter().zip(outs.iter().cycle()) {
                ways.push([LinkSwitch::new(into), LinkSwitch::new(out)]);
            }
        }
        Bypass { ways }
    }

    /// Whether a bypass stands on one of the interfaces.
    ///
    /// # Errors
    /// An interface is not there, or has somebody else's program.
    pub fn stands(&self) -> Result<bool, EngineError> {
        let mut stands = false;
        for [into, _] in &self.ways {
            stands |= own(into.interface(), into.index()?)?.is_some();
        }
        Ok(stands)
    }

    /// Lets everything pass from now on. A bypass that stands already is replaced without a gap. Returns the interfaces on which the kernel
    /// stands in for a driver.
    ///
    /// # Errors
    /// The first that went wrong; what can be done is done.
    pub fn raise(&self) -> Result<Vec<String>, EngineError> {
        let mut errors = Errors::default();
        let mut indices = BTreeMap::new();
        for [into, _] in &self.ways {
            if let Some(index) = errors.keep(into.index()) {
                indices.insert(into.interface(), index);
            }
        }
        let index = |link: &LinkSwitch| indices.get(link.interface()).copied();
        let there: Vec<(&LinkSwitch, u32, u32)> =
            self.ways.iter().filter_map(|[into, out]| Some((into, index(into)?, index(out)?))).collect();
        let opposite: Vec<(u32, u32)> = there.iter().map(|&(_, from, to)| (from, to)).collect();
        if opposite.is_empty() {
            return errors.or(vec![]);
        }
        let programs = Programs::load(&opposite)?;
        for (link, from, _) in &there {
            errors.keep(programs.attach(link, *from));
        }
        // Some drivers take redirected packets only once they run a program themselves: now all do.
        let mut generic = Vec::new();
        for (link, from, to) in &there {
            if errors.keep(settle(link, *from, *to)) == Some(Place::Kernel) {
                generic.push(link.interface().to_owned());
            }
        }
        errors.or(generic)
    }

    /// Takes it away wherever it stands. Returns whether it stood anywhere.
    ///
    /// # Errors
    /// The first that went wrong; what can be done is done. That an interface is gone, or has somebody else's program, is no error.
    pub fn lift(&self) -> Result<bool, EngineError> {
        let (mut stood, mut errors) = (false, Errors::default());
        for [into, _] in &self.ways {
            let Ok(index) = into.index() else { continue };
            match lift(into.interface(), index) {
                Err(EngineError::ForeignXdp { .. }) => {}
                lifted => stood |= errors.keep(lifted).unwrap_or_default(),
            }
        }
        errors.or(stood)
    }
}

/// Takes a bypass away from an interface, so that something else can be attached at once. Returns whether there was one.
///
/// # Errors
/// Somebody else's program is attached there.
pub(super) fn lift(interface: &str, index: u32) -> Result<bool, EngineError> {
    let Some(bypass) = own(interface, index)? else { return Ok(false) };
    bypass.detach().map_err(|source| failed(interface, source))?;
    if bypass.name.as_c_str() == NAME_TAKES_ALL {
        LinkSwitch::new(interface).take_own()?;
    }
    Ok(true)
}

/// The bypass on an interface, if there is one.
fn own(interface: &str, index: u32) -> Result<Option<Resident>, EngineError> {
    let found = Resident::on(index).map_err(|source| failed(interface, source))?;
    match found {
        Some(found) if ![NAME, NAME_TAKES_ALL].contains(&found.name.as_c_str()) => Err(EngineError::ForeignXdp {
            interface: interface.to_owned(),
            program: found.id,
            name: found.name.to_string_lossy().into_owned(),
            mode: found.place.name(),
        }),
        own => Ok(own),
    }
}

/// The program, under both names.
struct Programs {
    plain: OwnedFd,
    takes_all: OwnedFd,
}

impl Programs {
    /// For the interfaces of such indices, each with the one opposite.
    fn load(opposite: &[(u32, u32)]) -> Result<Self, EngineError> {
        let failed = |source: io::Error| EngineError::Xdp { object: "bypass".to_owned(), problem: source.to_string() };
        let size = opposite.len() as u32;
        let map = redirect::map(BPF_MAP_TYPE_DEVMAP_HASH, c"weir_opposite", size).map_err(failed)?;
        opposite.iter().try_for_each(|&(from, to)| redirect::set(&map, from, to)).map_err(failed)?;
        let load = |name| redirect::program(name, &map, Key::IngressIndex).map_err(failed);
        Ok(Programs { plain: load(NAME)?, takes_all: load(NAME_TAKES_ALL)? })
    }

    /// Lets one of them stand on an interface, in the driver if that knows how.
    fn attach(&self, link: &LinkSwitch, index: u32) -> Result<(), EngineError> {
        let failed = |source| failed(link.interface(), source);
        bond::refuse(&Device::open(link.interface())?)?;
        if let Some(standing) = own(link.interface(), index)? {
            let same = if standing.name.as_c_str() == NAME_TAKES_ALL { &self.takes_all } else { &self.plain };
            return standing.replace(same).map_err(failed);
        }
        let promiscuous = link.state()?.promiscuous;
        let program = if promiscuous { &self.plain } else { &self.takes_all };
        // What the driver says no to, for whichever reason, the kernel may do; and else says why not.
        resident::attach(index, program, Place::Driver)
            .or_else(|_| resident::attach(index, program, Place::Kernel))
            .map_err(failed)?;
        // Only now: whoever finds the program undoes this.
        if promiscuous { Ok(()) } else { link.take_all() }
    }
}

/// Sees to it that what the bypass on `from` redirects arrives at `to`. Returns where it runs.
fn settle(link: &LinkSwitch, from: u32, to: u32) -> Result<Place, EngineError> {
    let failed = |source| failed(link.interface(), source);
    let Some(standing) = own(link.interface(), from)? else { return Ok(Place::Kernel) };
    if standing.place == Place::Driver && !resident::takes_redirected(to).map_err(failed)? {
        standing.move_to(Place::Kernel).map_err(failed)?;
        return Ok(Place::Kernel);
    }
    Ok(standing.place)
}

/// The first of several errors.
#[derive(Default)]
struct Errors(Option<EngineError>);

impl Errors {
    fn keep<T>(&mut self, result: Result<T, EngineError>) -> Option<T> {
        result.map_err(|error| _ = self.0.get_or_insert(error)).ok()
    }

    fn or<T>(self, value: T) -> Result<T, EngineError> {
        self.0.map_or(Ok(value), Err)
    }
}

fn failed(interface: &str, source: io::Error) -> EngineError {
    EngineError::Interface { interface: interface.to_owned(), source }
}
