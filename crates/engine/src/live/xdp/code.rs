//! A policy loaded into the kernel, ready to be attached to interfaces.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::libbpf_sys::{bpf_map_create_opts, bpf_prog_test_run_opts, bpf_test_run_opts};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object};
use memmap2::MmapRaw;
use weir_abi::kernel::{
    CPU_ANSWERS_BYTES, CPU_TRACK_BYTES, CpuChecksum, CpuPacket, LIVE_BETWEEN, LIVE_HOST, Mode, PORTS_MAX, PortCounters,
    WORDS_TAPS, XdpContext, ring_bytes,
};
use weir_abi::{Counter, Rewrite};
use weir_state::BoundState;
use weir_state::tables::{AdditionRings, ByRules, SelectedHalves};

use super::behind_card::BehindCard;
use super::counted::{CountedIn, HandedCounts, PortBlocks, counters, port_blocks};
use super::ports::Ports;
use crate::clang::BpfObject;
use crate::live::datapath::Counts;
use crate::live::os::inherited::Kept;
use crate::live::tap::{KernelTaps, PolicyBits, PolicyNames, Taps};
use crate::sealed::Answered;
use crate::xdp::load::{
    ADDITIONS, ANSWERS, COUNTERS, LOSSES, LoadedSizes, Plan, REWRITES, SAMPLES, TAPS_SECTION, TRACKS, WORDS,
    addition_rings, fill_tables, join_parts, load_object, map, part_of, program_name,
};
use crate::xdp::{failed, find};
use crate::{Bound, EngineError, ProgramShape};

/// Sections and maps of datapath/kernel/ports.h.
const PORTS: &str = ".bss.ports";
const PORT_COUNTERS: &str = ".bss.traffic";
/// Section of `struct cpu_packet` (datapath/kernel/cpu_packet.h).
const PACKETS: &str = ".bss.packets";
/// Section of `struct cpu_checksum` (datapath/kernel/checksum.h).
const CHECKSUMS: &str = ".bss.checksums";
/// Prefix of the sections that programs write.
const DATA: &str = ".bss";
const DEVICES: &str = "weir_devices";
const PAIRS: &str = "weir_pairs";

/// Number of CPUs with counters: the most that the machine can have, rounded up to a power of two.
fn cpus() -> Result<usize, EngineError> {
    weir_state::cpus().map_err(|error| failed("number of CPUs", error.to_string()))
}

fn mode(cpus: usize, ports: &Ports) -> Mode {
    let finish = ports.all().iter().any(|port| port.driver.is_virtual());
    let live = if ports.is_host() { LIVE_HOST } else { LIVE_BETWEEN };
    let samples = ports.samples().is_some().into();
    let (jumbo, taps) = (ports.jumbo().into(), ports.taps().is_some().into());
    Mode { live, cpu_mask: cpus as u32 - 1, jumbo, finish: finish.into(), samples, taps }
}

/// The programs of all chains with their tables and counters, for certain ports. They decide nothing until they are
/// attached.
pub struct KernelCode {
    /// The object that it was loaded from.
    file: BpfObject,
    /// One for each chain. They hold their maps. The object has a descriptor for each of those, and is closed after
    /// loading.
    programs: Vec<OwnedFd>,
    /// What interfaces behind a card need, if the policy reads a card's answers.
    behind_card: Option<BehindCard>,
    /// Kept open, because the kernel empties maps of programs when their last descriptor is closed.
    _parts: Vec<Option<OwnedFd>>,
    /// Number of counters per program.
    counters: usize,
    cpus: usize,
    counter_memory: MmapRaw,
    port_memory: MmapRaw,
    /// The maps of both.
    counted_in: CountedIn,
    /// Follows tables that change.
    _halves: Arc<SelectedHalves>,
    /// The taps that want its packets, if any may be opened.
    taps: Option<Arc<PolicyBits>>,
    /// Keeps the state of the programs, and lets later generations find it.
    _state: BoundState,
    /// The queues of what rules add to tables. They are emptied while this lives.
    _additions: Option<Arc<AdditionRings>>,
}

// SAFETY: the mappings keep their maps alive. They are only read, word by word.
unsafe impl Send for KernelCode {}
// SAFETY: as above.
unsafe impl Sync for KernelCode {}

/// A packet in the form that a driver passes to a program.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The whole packet.
    pub bytes: &'a [u8],
    /// Number of its bytes in the first buffer.
    pub first: usize,
    /// Index of the receiving interface.
    pub index: u32,
}

/// A packet that the host sends, in the form in which the kernel hands it to an interface.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// The whole packet.
    pub bytes: &'a [u8],
    /// Index of the interface.
    pub index: u32,
    /// Packets that the card makes of it, and their bytes; 0 if it sends the packet as it is.
    pub segments: [u32; 2],
}

/// The sections with memory for each CPU, and their lengths in bytes.
fn slots(program: &ProgramShape, cpus: usize) -> Vec<(&'static str, usize)> {
    let mut lengths = vec![
        (PACKETS, cpus * size_of::<CpuPacket>()),
        (CHECKSUMS, cpus * size_of::<CpuChecksum>()),
        (TAPS_SECTION, KernelTaps::bytes(cpus)),
    ];
    if program.state.adders > 0 {
        lengths.push((ADDITIONS, cpus * ring_bytes(cpus)));
    }
    if program.answered.is_some() {
        lengths.push((ANSWERS, cpus * CPU_ANSWERS_BYTES));
    }
    if program.state.flows.is_some() {
        lengths.push((TRACKS, cpus * CPU_TRACK_BYTES));
    }
    if program.rewrites {
        lengths.push((REWRITES, cpus * size_of::<Rewrite>()));
    }
    lengths
}

/// Whether a chain is for packets from the upper side. The chains of a posture are in the order of their directions.
fn is_downstream(number: usize) -> bool {
    number % 2 == 1
}

/// Whether a program is of a downstream chain, whole or a part.
fn is_of_downstream(program: &ProgramShape, name: &str) -> bool {
    let is_of = |chain: &str| part_of(name).is_some_and(|(_, of)| of == chain) || name == program_name(chain);
    program.chains.iter().enumerate().any(|(number, chain)| is_downstream(number) && is_of(chain))
}

/// Whether programs for these ports need a map. Linux before 6.8 verifies the functions of taps although nothing calls
/// them, so the maps of taps are always needed.
fn is_wanted(map: &str, ports: &Ports) -> bool {
    map != SAMPLES || ports.samples().is_some()
}

/// Whether a program decides packets of interfaces.
fn decides(name: &str) -> bool {
    !name.starts_with(LOSSES)
}

/// The program of a chain.
fn own_program(object: &Object, chain: &str) -> Result<OwnedFd, EngineError> {
    let name = program_name(chain);
    let descriptor = find(object, &name)?.as_fd().try_clone_to_owned();
    descriptor.map_err(|error| failed(&name, error.to_string()).caused_by(&error))
}

/// Loads the programs for what a host sends. They share all data with the programs for packets that the host receives,
/// which are loaded.
fn load_sent(
    name: &str,
    file: &BpfObject,
    program: &ProgramShape,
    received: &Object,
    plan: &Plan<'_>,
) -> Result<Object, EngineError> {
    let maps: Vec<_> = received.maps().collect();
    let own = maps.iter().map(|map| (map.name().to_string_lossy().into_owned(), map.as_fd()));
    let is_own = |section: &str| {
        let is_made = section.starts_with(DATA) && (plan.map)(section);
        is_made && plan.shared.iter().all(|(shared, _)| shared != section)
    };
    let own = own.filter(|(section, _)| is_own(section));
    let shared: Vec<(String, BorrowedFd<'_>)> = plan.shared.iter().cloned().chain(own).collect();
    let program = |name: &str| is_of_downstream(program, name);
    // Programs for packets that the host sends complete no checksums.
    let lengths = plan.lengths.iter().copied().filter(|&(section, _)| section != CHECKSUMS).collect::<Vec<_>>();
    let (mode, sizes) = (plan.mode, plan.sizes.clone());
    load_object(name, file, &Plan { mode, lengths: &lengths, sizes, shared: &shared, program: &program, map: plan.map })
}

impl KernelCode {
    /// Loads an object that [`crate::clang`] made for this data, for packets of these ports. `name` is for messages.
    /// On the ports of a host, `sent` has the programs for what it sends. Long: the steps
    /// of loading, in order.
    ///
    /// # Errors
    /// The process lacks the right to load BPF programs, the verifier refuses, or an interface was removed.
    pub fn load(
        name: &str,
        file: &BpfObject,
        sent: Option<&BpfObject>,
        program: &ProgramShape,
        bound: &Bound,
        ports: &Ports,
    ) -> Result<Arc<Self>, EngineError> {
        program.check(bound)?;
        let cpus = cpus()?;
        let stride = program.counters().next_power_of_two();
        let counter_bytes = cpus * 2 * stride * size_of::<Counter>();
        let port_bytes = cpus * PORTS_MAX * size_of::<PortCounters>();
        let mut shared = bound.state.maps();
        shared.extend(ports.samples().map(|ring| (SAMPLES.to_owned(), ring.map())));
        shared.extend(ports.taps().and_then(Taps::kernel).into_iter().flat_map(KernelTaps::maps));
        let mut lengths = slots(program, cpus);
        lengths.extend([(COUNTERS, counter_bytes), (PORT_COUNTERS, port_bytes)]);
        let plan = Plan {
            mode: mode(cpus, ports),
            lengths: &lengths,
            sizes: Some(LoadedSizes::of(bound)),
            shared: &shared,
            program: &|name| decides(name) && !(ports.is_host() && is_of_downstream(program, name)),
            map: &|name| is_wanted(name, ports),
        };
        let object = load_object(name, file, &plan)?;
        let sent = sent.map(|sent| load_sent(name, sent, program, &object, &plan)).transpose()?;
        let _parts =
            [Some(&object), sent.as_ref()].into_iter().flatten().map(join_parts).collect::<Result<Vec<_>, _>>()?;
        let _halves = fill_tables(&object, bound)?;
        set_ports(&object, ports)?;
        set_devices(&object, ports)?;
        let counter_memory = map(&object, COUNTERS, counter_bytes)?;
        let port_memory = map(&object, PORT_COUNTERS, port_bytes)?;
        let counted_in = counted_in(&object)?;
        let taps = ports.taps().map(|taps| {
            let memory = map(&object, WORDS, WORDS_TAPS + program.counters())?;
            Ok::<_, EngineError>(taps.policy_of_programs(memory, program.counters()))
        });
        let taps = taps.transpose()?;
        let behind_card = program.answered.map(|_| BehindCard::of(&object, program)).transpose()?;
        let own = |(number, chain): (usize, &String)| match &sent {
            Some(sent) if is_downstream(number) => own_program(sent, chain),
            _ => own_program(&object, chain),
        };
        let programs = program.chains.iter().enumerate().map(own).collect::<Result<_, _>>()?;
        let _additions = match bound.state.tables.as_ref().map(|tables| &tables.by_rules) {
            Some(ByRules::Queued(additions, adders)) => {
                let rings = Arc::new(addition_rings(&object, cpus)?);
                additions.register(rings.clone(), adders);
                Some(rings)
            }
            _ => None,
        };
        let (counters, file) = (program.counters(), file.clone());
        Ok(Arc::new(KernelCode {
            file,
            programs,
            behind_card,
            _parts,
            counters,
            cpus,
            counter_memory,
            port_memory,
            counted_in,
            taps,
            _halves,
            _state: bound.state.clone(),
            _additions,
        }))
    }

    /// Lets open taps find what they want of the policy, by the names of its rules, before its programs decide packets.
    pub fn announce(&self, ports: &Ports, names: &Arc<PolicyNames>) {
        if let Some((taps, bits)) = ports.taps().zip(self.taps.as_ref()) {
            taps.activate(bits, names);
        }
    }

    /// The program of a chain.
    pub(super) fn program(&self, chain: usize) -> BorrowedFd<'_> {
        self.programs[chain].as_fd()
    }

    /// What interfaces behind a card need, if the policy reads a card's answers.
    pub(super) fn behind_card(&self) -> Option<&BehindCard> {
        self.behind_card.as_ref()
    }

    /// Runs the program in front of a chain on a frame as if it had been received at an interface behind a card, as
    /// [`KernelCode::receive`] does.
    ///
    /// # Errors
    /// The kernel cannot run such a frame.
    ///
    /// # Panics
    /// The policy reads no card's answers, or the chain is not of packets from the lower side.
    pub fn receive_behind_card(&self, chain: usize, received: &Received<'_>) -> Result<u32, EngineError> {
        let front = self.behind_card.as_ref().and_then(|card| card.front(chain)).expect("a program in front");
        let first = received.first.min(received.bytes.len()) as u32;
        let context = XdpContext { data_end: first, ingress_ifindex: received.index, ..XdpContext::default() };
        self.run(front, received.bytes, &context.words())
    }

    /// Refuses answers if they do not belong to the chain that reads them.
    pub(super) fn check_answered(&self, answered: Option<Answered>) -> Result<(), EngineError> {
        let own = self.behind_card.as_ref().map(|card| card.answered);
        let given = answered.map(|Answered { chain, configured }| (chain, usize::from(configured.body)));
        match given.is_none() || given == own {
            true => Ok(()),
            false => Err(failed("a policy", format!("reads answers {own:?} (chain, bytes), the card gives {given:?}"))),
        }
    }

    /// Runs the program of a chain on a packet as if it had been received, without sending it (BPF_PROG_TEST_RUN).
    /// Returns the action for the driver (`enum xdp_action`). The packet is counted like any other.
    ///
    /// # Errors
    /// The kernel cannot run such a packet. Packets whose first buffer is shorter than possible need Linux 6.18.
    pub fn receive(&self, chain: usize, received: &Received<'_>) -> Result<u32, EngineError> {
        let first = received.first.min(received.bytes.len()) as u32;
        let context = XdpContext { data_end: first, ingress_ifindex: received.index, ..XdpContext::default() };
        self.run(self.program(chain), received.bytes, &context.words())
    }

    /// Runs the program of a downstream chain on a packet as if the host were sending it. Only on ports of a host.
    /// Returns the action for the kernel (`enum tcx_action`). The packet is counted like any other.
    ///
    /// # Errors
    /// The kernel cannot run such a packet: one of more than a page needs a newer kernel than Linux 6.18.
    pub fn send(&self, chain: usize, sent: &Sent<'_>) -> Result<i32, EngineError> {
        /// Words of `struct __sk_buff` (linux/bpf.h).
        const IFINDEX: usize = 10;
        const WIRE_LEN: usize = 40;
        const GSO_SEGS: usize = 41;
        let mut context = [0; GSO_SEGS + 1];
        context[IFINDEX] = sent.index;
        [context[GSO_SEGS], context[WIRE_LEN]] = sent.segments;
        self.run(self.program(chain), sent.bytes, &context).map(|action| action as i32)
    }

    /// Runs a program on a packet in a context (BPF_PROG_TEST_RUN).
    fn run(&self, program: BorrowedFd<'_>, packet: &[u8], context: &[u32]) -> Result<u32, EngineError> {
        let mut run = bpf_test_run_opts {
            sz: size_of::<bpf_test_run_opts>() as _,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as u32,
            ctx_in: context.as_ptr().cast(),
            ctx_size_in: size_of_val(context) as u32,
            ..Default::default()
        };
        // SAFETY: the kernel reads the packet and the context, which outlive the call, and writes only the options.
        match unsafe { bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut run) } {
            0 => Ok(run.retval),
            _ => Err(failed("test run of a packet", io::Error::last_os_error().to_string())),
        }
    }

    /// The object that it was loaded from.
    pub(super) fn file(&self) -> &BpfObject {
        &self.file
    }

    /// Packets and bytes since loading, by CPU and side.
    pub fn counts(&self) -> Counts {
        counters(&self.counter_memory, self.cpus, self.counters)
    }

    /// Keeps its counters open for the next program, which goes on from these values.
    pub(super) fn keep_counts(&self, values: (&Counts, &PortBlocks), kept: &mut Kept) -> io::Result<HandedCounts> {
        HandedCounts::keep(self.counted_in, self.counters, values, kept)
    }

    /// Counts of the ports since loading.
    pub(super) fn port_counts(&self) -> PortBlocks {
        port_blocks(&self.port_memory, self.cpus)
    }
}

/// Programs that count what the kernel could not send, until dropped.
pub(super) struct Losses {
    /// The links hold their programs, which hold their maps. The object has a descriptor for each of those, and is
    /// closed after loading.
    _links: Vec<Link>,
    cpus: usize,
    memory: MmapRaw,
}

// SAFETY: the mapping keeps its map alive. It is only read, word by word.
unsafe impl Send for Losses {}

impl Losses {
    /// Loads and attaches the programs, which every policy's object has.
    ///
    /// # Errors
    /// The kernel has no description of its types (BTF), or the process lacks the right to trace it.
    pub fn listen(object: &BpfObject, ports: &Ports) -> Result<Self, EngineError> {
        let cpus = cpus()?;
        let bytes = cpus * PORTS_MAX * size_of::<PortCounters>();
        let plan = Plan {
            mode: mode(cpus, ports),
            lengths: &[(PORT_COUNTERS, bytes)],
            sizes: None,
            shared: &[],
            program: &|name| name.starts_with(LOSSES),
            map: &|name| [PORTS, PORT_COUNTERS, ".rodata.mode"].contains(&name),
        };
        let object = load_object("losses", object, &plan)?;
        set_ports(&object, ports)?;
        let memory = map(&object, PORT_COUNTERS, bytes)?;
        let mut links = Vec::new();
        for program in object.progs_mut().filter(|program| program.autoload()) {
            let link = program
                .attach()
                .map_err(|error| failed(&program.name().to_string_lossy(), error.to_string()).caused_by_libbpf(&error));
            links.push(link?);
        }
        Ok(Losses { _links: links, cpus, memory })
    }

    /// Counts of packets lost at the ports.
    pub fn port_counts(&self) -> PortBlocks {
        port_blocks(&self.memory, self.cpus)
    }
}

/// The maps of the counters.
fn counted_in(object: &Object) -> Result<CountedIn, EngineError> {
    let number = |section: &str| {
        let map = object.maps().find(|map| map.name() == section).expect("it was mapped");
        weir_state::map_number(map.as_fd()).map_err(|error| failed(section, error.to_string()).caused_by(&error))
    };
    Ok(CountedIn { verdicts: number(COUNTERS)?, ports: number(PORT_COUNTERS)? })
}

fn set_ports(object: &Object, ports: &Ports) -> Result<(), EngineError> {
    let memory = map(object, PORTS, size_of::<weir_abi::kernel::Ports>())?;
    let bytes = ports.bytes();
    // SAFETY: the mapping is at least as long (checked by `map`), and no program runs yet.
    unsafe { memory.as_mut_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// Stores the device of each port in the object, and the pairs that get a packet and its copy.
fn set_devices(object: &Object, ports: &Ports) -> Result<(), EngineError> {
    let find = |name: &str| {
        let map = object.maps().find(|map| map.name() == name);
        map.ok_or_else(|| failed(name, "the object has no such map".to_owned()))
    };
    let (devices, pairs) = (find(DEVICES)?, find(PAIRS)?);
    let set = |map: &dyn MapCore, number: usize, value: u32, interface: &str| {
        let set = map.update(&(number as u32).to_ne_bytes(), &value.to_ne_bytes(), MapFlags::ANY);
        set.map_err(|error| EngineError::Interface { interface: interface.to_owned(), source: io::Error::other(error) })
    };
    for (number, port) in ports.all().iter().enumerate() {
        set(&devices, number, port.index, &port.interface)?;
    }
    let Some(divert) = ports.divert() else { return Ok(()) };
    for (number, port) in ports.receiving().iter().enumerate() {
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
        let pair = MapHandle::create(MapType::Devmap, Some("weir_pair"), 4, 4, 2, &options)
            .map_err(|error| failed(PAIRS, error.to_string()).caused_by_libbpf(&error))?;
        set(&pair, 0, port.index, &port.interface)?;
        set(&pair, 1, ports.all()[divert].index, &ports.all()[divert].interface)?;
        set(&pairs, number, pair.as_fd().as_raw_fd() as u32, &port.interface)?;
    }
    Ok(())
}
