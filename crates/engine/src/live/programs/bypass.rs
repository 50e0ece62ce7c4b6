//! The bypass of Weir: packets that arrive at an interface leave from the opposite one, unfiltered and unchanged.
//!
//! No process holds the bypass's XDP program, so it stays when all processes have ended. It is found again by its name
//! alone, without bpffs. Interfaces are opposite each other by number; the numbers of the larger side wrap around.
//! Programs of other names belong to other users and are never detached.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use libbpf_rs::libbpf_sys::BPF_MAP_TYPE_DEVMAP_HASH;

use crate::EngineError;
use crate::live::lane::Interfaces;
use crate::live::os::bond;
use crate::live::os::device::Device;
use crate::live::os::link::LinkSwitch;
use crate::live::programs::redirect::{self, Key};
use crate::live::programs::resident::{self, AttachMode, Resident};

/// The kernel's name of the program where the interface was promiscuous already.
const NAME: &CStr = c"weir_bypass";
/// The kernel's name where the bypass made the interface promiscuous. Removing the bypass reverts that.
const NAME_TAKES_ALL: &CStr = c"weir_bypass_all";

/// The interfaces of a bypass.
pub struct Bypass {
    /// Each interface with the opposite one.
    ways: Vec<[LinkSwitch; 2]>,
}

impl Bypass {
    /// A bypass between the interfaces of both sides. Does not access the interfaces.
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

    /// Whether a bypass is attached to one of the interfaces.
    ///
    /// # Errors
    /// An interface does not exist, or has a program of another user.
    pub fn stands(&self) -> Result<bool, EngineError> {
        let mut stands = false;
        for [into, _] in &self.ways {
            stands |= own(into.interface(), into.index()?)?.is_some();
        }
        Ok(stands)
    }

    /// Attaches the bypass, so that every packet passes from now on. An existing bypass is replaced without a gap.
    /// Returns the interfaces whose program runs in the kernel instead of the driver.
    ///
    /// # Errors
    /// The first error. All other interfaces are still processed.
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
        // Some drivers accept redirected packets only while they run a program themselves. Now all do.
        let mut generic = Vec::new();
        for (link, from, to) in &there {
            if errors.keep(settle(link, *from, *to)) == Some(AttachMode::Kernel) {
                generic.push(link.interface().to_owned());
            }
        }
        errors.or(generic)
    }

    /// Detaches the bypass from all interfaces. Returns whether it was attached to any. A missing interface, or a
    /// program of another user, is not an error.
    ///
    /// # Errors
    /// The first error. All other interfaces are still processed.
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

/// Detaches a bypass from an interface, so that another program can be attached at once. Returns whether there was one.
///
/// # Errors
/// A program of another user is attached there.
pub(in crate::live) fn lift(interface: &str, index: u32) -> Result<bool, EngineError> {
    let Some(bypass) = own(interface, index)? else { return Ok(false) };
    bypass.detach().map_err(|source| failed(interface, source))?;
    if bypass.name.as_c_str() == NAME_TAKES_ALL {
        LinkSwitch::new(interface).take_own()?;
    }
    Ok(true)
}

/// The bypass on an interface, if any.
fn own(interface: &str, index: u32) -> Result<Option<Resident>, EngineError> {
    let found = Resident::on(index).map_err(|source| failed(interface, source))?;
    match found {
        Some(found) if ![NAME, NAME_TAKES_ALL].contains(&found.name.as_c_str()) => Err(EngineError::ForeignXdp {
            interface: interface.to_owned(),
            program: found.id,
            name: found.name.to_string_lossy().into_owned(),
            mode: found.mode.name(),
        }),
        own => Ok(own),
    }
}

/// The program under both names.
struct Programs {
    plain: OwnedFd,
    takes_all: OwnedFd,
}

impl Programs {
    /// Loads the programs for interfaces with these indices, each with the index of the opposite one.
    fn load(opposite: &[(u32, u32)]) -> Result<Self, EngineError> {
        let failed = |source: io::Error| {
            EngineError::Xdp { object: "bypass".to_owned(), problem: source.to_string() }.caused_by(&source)
        };
        let size = opposite.len() as u32;
        let map = redirect::map(BPF_MAP_TYPE_DEVMAP_HASH, c"weir_opposite", size).map_err(failed)?;
        opposite.iter().try_for_each(|&(from, to)| redirect::set(&map, from, to)).map_err(failed)?;
        let load = |name| redirect::program(name, &map, Key::IngressIndex).map_err(failed);
        Ok(Programs { plain: load(NAME)?, takes_all: load(NAME_TAKES_ALL)? })
    }

    /// Attaches one of the programs to an interface, in the driver if possible.
    fn attach(&self, link: &LinkSwitch, index: u32) -> Result<(), EngineError> {
        let failed = |source| failed(link.interface(), source);
        bond::refuse(&Device::open(link.interface())?)?;
        if let Some(standing) = own(link.interface(), index)? {
            let same = if standing.name.as_c_str() == NAME_TAKES_ALL { &self.takes_all } else { &self.plain };
            return standing.replace(same).map_err(failed);
        }
        let promiscuous = link.state()?.promiscuous;
        let program = if promiscuous { &self.plain } else { &self.takes_all };
        // If the driver refuses for any reason, the kernel may accept. Otherwise the kernel's error is returned.
        resident::attach(index, program, AttachMode::Driver)
            .or_else(|_| resident::attach(index, program, AttachMode::Kernel))
            .map_err(failed)?;
        // Only after attaching: another process that finds the program can then undo this.
        if promiscuous { Ok(()) } else { link.take_all() }
    }
}

/// Ensures that packets which the bypass redirects from `from` arrive at `to`. Returns where the program runs.
fn settle(link: &LinkSwitch, from: u32, to: u32) -> Result<AttachMode, EngineError> {
    let failed = |source| failed(link.interface(), source);
    let Some(standing) = own(link.interface(), from)? else { return Ok(AttachMode::Kernel) };
    if standing.mode == AttachMode::Driver && !resident::takes_redirected(to).map_err(failed)? {
        standing.move_to(AttachMode::Kernel).map_err(failed)?;
        return Ok(AttachMode::Kernel);
    }
    Ok(standing.mode)
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
