//! Compiles, loads and attaches the programs of the card.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, Object};
use memmap2::MmapRaw;
use weir_abi::kernel::Mode;
use weir_abi::wire_card::{TO_INNER, TO_OUTER};
use weir_tables::limit_image::Logged;

use super::netns::within;
use super::spec::CardSpec;
use super::table::{COUNT_BYTES, Counters};
use crate::EngineError;
use crate::clang::{BpfObject, BpfShape, Clang, DataSizes, Hook};
use crate::live::device::Device;
use crate::live::link::LinkSwitch;
use crate::live::resident::{self, AttachMode, Resident};
use crate::xdp::load::{Plan, load_object, map};
use crate::xdp::{failed, find};

/// The programs that pass packets on and stay, and the one that drops.
const OUTER: &str = "weir_card_outer";
const INNER: &str = "weir_card_inner";
const DROP: &str = "weir_card_drop";
/// The maps, and the section of the counters.
const TABLE: &str = "weir_card_table";
const CPU: &str = "weir_card_cpu";
const WAYS: &str = "weir_card_ways";
const HELD: &str = "weir_card_held";
const COUNTS: &str = ".bss.card";
/// Maximum MTU at which packets come in one buffer with every driver.
const PLAIN_MTU: u32 = 1500;

/// Only this process has a descriptor of the array with [`DROP`]. The kernel empties it when the last one is closed.
pub struct DropSwitch(#[expect(dead_code, reason = "it is held open")] MapHandle);

/// The programs in the kernel.
pub struct Loaded {
    pub table: MapHandle,
    pub cpu: MapHandle,
    pub counters: Counters,
    pub drop_switch: DropSwitch,
    pub access: Vec<String>,
}

/// Loads the programs and attaches those that pass packets on.
pub fn load(spec: &CardSpec) -> Result<Loaded, EngineError> {
    let cpus = weir_state::cpus().map_err(|error| failed("number of CPUs", error.to_string()))?;
    let stride = (spec.entries + spec.cpu_entries).next_power_of_two();
    let object = compile(spec, cpus, stride)?;
    within(spec.namespace.as_deref(), || {
        let ends = [Device::open(&spec.outer)?, Device::open(&spec.inner)?];
        let jumbo = ends[0].mtu()?.max(ends[1].mtu()?) > PLAIN_MTU;
        let mode = Mode { jumbo: jumbo.into(), ..Mode::default() };
        let plan = Plan { mode, lengths: &[], sizes: None, shared: &[], program: &|_| true, map: &|_| true };
        let object = load_object("card", &object, &plan)?;
        let memory = map(&object, COUNTS, cpus * stride * COUNT_BYTES)?;
        let held = handle(&object, HELD)?;
        set(&held, 0, find(&object, DROP)?.as_fd().as_raw_fd() as u32)?;
        let ways = handle(&object, WAYS)?;
        set(&ways, TO_OUTER, ends[0].index())?;
        set(&ways, TO_INNER, ends[1].index())?;
        let access = attach(&object, &ends)?;
        let counters = Counters::new(memory, cpus, stride);
        Ok(Loaded {
            table: handle(&object, TABLE)?,
            cpu: handle(&object, CPU)?,
            counters,
            drop_switch: DropSwitch(held),
            access,
        })
    })
}

fn compile(spec: &CardSpec, cpus: usize, stride: usize) -> Result<BpfObject, EngineError> {
    let source = format!(
        "#define CARD_TABLE {}\n#define CARD_CPU {}\n#define CARD_CPU_NS {}\n#define CARD_CPUS {cpus}\n\
         #define CARD_STRIDE {stride}\n#include \"wire_card.h\"\n",
        spec.entries,
        spec.cpu_entries,
        spec.cpu_slowdown.as_nanos(),
    );
    let sizes = DataSizes::Known { tables: vec![], limits: None };
    let shape = BpfShape { sizes, counters: 1, logged: Logged::Nothing, hook: Hook::Received };
    Ok(Clang::find()?.bpf("card", &source, &shape)?.object)
}

/// A descriptor of a map, which stays open when the object is closed.
fn handle(object: &Object, name: &str) -> Result<MapHandle, EngineError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| failed(name, "the object has no such map".to_owned()))?;
    MapHandle::try_from(&map).map_err(|error| failed(name, error.to_string()).caused_by_libbpf(&error))
}

fn set(map: &MapHandle, key: u32, value: u32) -> Result<(), EngineError> {
    let done = map.update(&key.to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY);
    done.map_err(|error| failed(&map.name().to_string_lossy(), error.to_string()).caused_by_libbpf(&error))
}

/// Attaches the programs to the interfaces, the outer one first. They replace the programs of an earlier card. Returns
/// how they run.
fn attach(object: &Object, ends: &[Device; 2]) -> Result<Vec<String>, EngineError> {
    let names = [OUTER, INNER];
    let mut is_new = Vec::new();
    for (device, name) in ends.iter().zip(names) {
        is_new.push(own(device, name)?.is_none());
    }
    for (device, name) in ends.iter().zip(names) {
        let done = put(device, name, find(object, name)?.as_fd())
            // A card takes all packets, also those that are not addressed to it. It goes on doing so without Weir.
            .and_then(|()| LinkSwitch::new(device.name()).take_all());
        if let Err(error) = done {
            // One end alone would pass packets that the other does not take.
            if is_new.contains(&true) {
                detach(ends)?;
            }
            return Err(error);
        }
    }
    let mut access = Vec::new();
    for ((device, opposite), name) in ends.iter().zip(ends.iter().rev()).zip(names) {
        access.push(settle(device, opposite, name)?);
    }
    Ok(access)
}

/// Attaches a program, in the driver if possible.
fn put(device: &Device, name: &str, program: BorrowedFd<'_>) -> Result<(), EngineError> {
    match own(device, name)? {
        Some(standing) => standing.replace(program),
        None => resident::attach(device.index(), program, AttachMode::Driver)
            .or_else(|_| resident::attach(device.index(), program, AttachMode::Kernel)),
    }
    .map_err(|source| device.failed(source))
}

/// Detaches the card from its interfaces.
fn detach(ends: &[Device; 2]) -> Result<(), EngineError> {
    for (device, name) in ends.iter().zip([OUTER, INNER]) {
        own(device, name)?.map_or(Ok(()), |standing| standing.detach()).map_err(|source| device.failed(source))?;
    }
    Ok(())
}

/// The program of an earlier card on an interface, if any.
fn own(device: &Device, name: &str) -> Result<Option<Resident>, EngineError> {
    let found = Resident::on(device.index()).map_err(|source| device.failed(source))?;
    match found {
        Some(found) if found.name.as_bytes() != name.as_bytes() => Err(EngineError::ForeignXdp {
            interface: device.name().to_owned(),
            program: found.id,
            name: found.name.to_string_lossy().into_owned(),
            mode: found.mode.name(),
        }),
        own => Ok(own),
    }
}

/// Moves a program where its packets arrive at the opposite interface. Returns how it runs.
fn settle(device: &Device, opposite: &Device, name: &str) -> Result<String, EngineError> {
    let failed = |source| device.failed(source);
    let standing = own(device, name)?.ok_or_else(|| failed(io::Error::other("the card was detached")))?;
    let takes = resident::takes_redirected(opposite.index()).map_err(failed)?;
    let (here, there) = (device.name(), opposite.name());
    Ok(match (standing.mode, takes) {
        (AttachMode::Driver, true) => format!("card: {here}: XDP in the driver"),
        (AttachMode::Driver, false) => {
            standing.move_to(AttachMode::Kernel).map_err(failed)?;
            format!(
                "card: {here}: XDP in the kernel, which is slow: {there} takes no packets from a driver; for virtual interfaces, `ethtool -K PEER gro on` at the other end of {there}"
            )
        }
        _ => format!("card: {here}: XDP in the kernel, which is slow"),
    })
}

impl Counters {
    fn new(memory: MmapRaw, cpus: usize, stride: usize) -> Self {
        Counters { memory, cpus, stride }
    }
}
