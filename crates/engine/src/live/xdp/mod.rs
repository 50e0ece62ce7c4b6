//! Policies in the kernel. Packets are decided where the driver receives them, and are sent to the other side from
//! there. No worker is involved.
//!
//! ```text
//!   lower 0 --- weir_upstream ----- devices[2] --> upper 0        A generation has programs, tables, counters and
//!   lower 1 --- weir_upstream ----- devices[3] --> upper 1        device maps of its own. A change replaces the program
//!   upper 0 --- weir_downstream --- devices[0] --> lower 0        of each interface, one after the other; each packet
//!   upper 1 --- weir_downstream --- devices[1] --> lower 1        is decided by one program.
//! ```
//! Programs are attached by links, and nothing is pinned. They are detached when the process ends, however it ends.
//!
//! On the host that Weir protects, the upper side is the host itself. Packets of the downstream direction are decided
//! where the kernel hands them to the interface:
//!
//! ```text
//!   eth0 --- weir_upstream ------ XDP_PASS --> the host
//!   eth0 <-- weirtc_downstream --- TCX_NEXT ---- the host
//! ```

mod behind_card;
mod books;
mod code;
mod counted;
mod ports;
mod program_reader;
mod replace;

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_abi::kernel::{CardSeals, PORTS_MAX, PortCounters};
use weir_state::Grace;
use weir_tables::live::Readers;

use books::{Books, Counting, blocks};
use code::Losses;
use code::PortBlocks;
pub use code::{KernelCode, Received, Sent};
pub use counted::{HandedCounts, HeldCounts};
use ports::Port;
pub use ports::Ports;
pub use program_reader::ProgramReader;
pub(in crate::live) use program_reader::prepare_grace;
use replace::{Outcome, replace_all};

use crate::EngineError;
use crate::live::checksum;
use crate::live::datapath::{Counts, Datapath, HandedLink, HandedPath, Loaded, PortStatus, Reading, Readings, Stray};
use crate::live::lane::{PortNature, Role};
use crate::live::os::inherited::Kept;
use crate::live::programs::attach::{Attached, Egress, HeldLink, Mode};
use crate::live::programs::resident;
use crate::sealed::{CardPort, Seals};
use crate::xdp::failed;

/// An attached program.
enum Hook {
    /// On what an interface receives.
    Received(Attached),
    /// On what a host sends.
    Sent(Egress),
}

impl Hook {
    fn replace(&self, program: BorrowedFd<'_>) -> Result<(), EngineError> {
        match self {
            Hook::Received(attached) => attached.replace(program),
            Hook::Sent(attached) => attached.replace(program),
        }
    }

    fn hand_over(&self, kept: &mut Kept) -> io::Result<HandedLink> {
        match self {
            Hook::Received(attached) => HandedLink::keep(attached.descriptors(), Some(attached.mode), kept),
            Hook::Sent(attached) => HandedLink::keep((attached.descriptor(), None), None, kept),
        }
    }

    fn mode(&self) -> Option<Mode> {
        match self {
            Hook::Received(attached) => Some(attached.mode),
            Hook::Sent(_) => None,
        }
    }
}

/// A datapath of programs between interfaces.
pub struct KernelPath {
    ports: Arc<Ports>,
    /// One for each receiving port, in order; none after a stop.
    attached: Mutex<Arc<Vec<Hook>>>,
    /// The mode of each XDP program, in the order of the ports. They come first.
    modes: Vec<Mode>,
    cpus: usize,
    books: Mutex<Books>,
    /// The cards in front of interfaces.
    cards: Mutex<HashMap<String, CardPort>>,
    /// Held during a change.
    changing: Mutex<()>,
    grace: Grace,
    /// For tables that change.
    _reader: Option<ProgramReader>,
    /// The error is the reason why packets that cannot be sent are counted as sent. `None` if programs send none.
    losses: Option<Result<Losses, EngineError>>,
}

impl KernelPath {
    /// Attaches the policy's programs to the ports. Writers of tables learn from `readers` when programs have ended;
    /// without it no table changes.
    ///
    /// # Errors
    /// Another program is attached to an interface, or the process lacks the right to attach one.
    pub fn start(
        ports: Arc<Ports>,
        first: &Loaded<KernelCode>,
        readers: Option<&Readers>,
    ) -> Result<Self, EngineError> {
        Self::begin(ports, first, readers, |port, program, is_host| {
            let (interface, index) = (&port.interface, port.index);
            Ok(match (is_host, port.role) {
                (false, _) => Hook::Received(Attached::attach(interface, index, program)?),
                (true, Role::Upper) => Hook::Sent(Egress::attach(interface, index, program)?),
                (true, _) => Hook::Received(Attached::attach_for_host(interface, index, program)?),
            })
        })
    }

    /// Puts the policy's programs in place of those that the program before this one in its process has attached to
    /// the same ports. Each port has one of both at any time.
    ///
    /// # Errors
    /// A held link is not of its port. Ports before that have the new programs.
    ///
    /// Returns what each of `counts` has counted until then. Their ports are a part of the ports of the new datapath.
    pub fn take_over(
        ports: Arc<Ports>,
        first: &Loaded<KernelCode>,
        readers: Option<&Readers>,
        held: Vec<HeldLink>,
        counts: &[HeldCounts],
    ) -> Result<(Self, Vec<Counts>), EngineError> {
        let (given, needed) = (held.len(), ports.receiving().len());
        if given != needed {
            let problem = format!("{given} links were handed over for {needed} ports");
            return Err(failed("programs of interfaces", problem));
        }
        let mut held = held.into_iter();
        let path = Self::begin(ports, first, readers, |port, program, is_host| {
            let (interface, index) = (&port.interface, port.index);
            let held = held.next().expect("there is one for each port");
            Ok(match (is_host, port.role) {
                (true, Role::Upper) => Hook::Sent(Egress::take_over(held, interface, index, program)?),
                _ => Hook::Received(Attached::take_over(held, interface, index, program)?),
            })
        })?;
        // Replaced programs may still be running.
        path.grace.wait();
        let since = counts.iter().map(HeldCounts::since).map(|(counted, ports)| {
            let mut books = path.books();
            books.past = blocks(&books.past, &ports, u64::wrapping_add);
            counted
        });
        let since = since.collect();
        Ok((path, since))
    }

    /// Starts with the programs that `attach` attaches to the ports. It knows whether they are of a host.
    fn begin(
        ports: Arc<Ports>,
        first: &Loaded<KernelCode>,
        readers: Option<&Readers>,
        mut attach: impl FnMut(&Port, BorrowedFd<'_>, bool) -> Result<Hook, EngineError>,
    ) -> Result<Self, EngineError> {
        first.code.announce(&ports, &first.names);
        let losses = (!ports.is_host()).then(|| Losses::listen(first.code.file(), &ports));
        let _reader = readers.map(ProgramReader::start).transpose()?;
        let (counting, grace) = (Counting::of(&first.code), prepare_grace()?);
        let mut attached = Vec::new();
        for port in ports.receiving() {
            let program = first.code.program(first.chains[port.role as usize]);
            attached.push(attach(port, program, ports.is_host())?);
        }
        let modes = attached.iter().filter_map(Hook::mode).collect();
        let cpus = counting.counts.len();
        let past = vec![[PortCounters::default(); PORTS_MAX]; cpus];
        let (active, strays) = (first.clone(), Vec::new());
        let books = Mutex::new(Books { active, open: vec![counting], closed: Vec::new(), past, strays });
        let (attached, changing) = (Mutex::new(Arc::new(attached)), Mutex::default());
        let cards = Mutex::default();
        Ok(KernelPath { ports, attached, modes, cpus, books, cards, changing, grace, _reader, losses })
    }

    /// The program for a receiving port: the one in front of the chain, if the port is behind a card.
    fn program<'c>(&self, policy: &'c Loaded<KernelCode>, number: usize) -> Result<BorrowedFd<'c>, EngineError> {
        let port = &self.ports.receiving()[number];
        let chain = policy.chains[port.role as usize];
        if port.role != Role::Lower || !lock(&self.cards).contains_key(&port.interface) {
            return Ok(policy.code.program(chain));
        }
        let front = policy.code.behind_card().and_then(|card| card.front(chain));
        front.ok_or_else(|| not_for_cards(&port.interface))
    }

    /// Writes the seals of all ports for a policy.
    fn write_seals(&self, policy: &Loaded<KernelCode>) {
        let Some(behind_card) = policy.code.behind_card() else { return };
        let own = policy.answered.map(|answered| answered.configured);
        let cards = lock(&self.cards);
        let mut seals = Box::new([CardSeals::default(); PORTS_MAX]);
        for (number, port) in self.ports.receiving().iter().enumerate() {
            if let Some(card) = cards.get(&port.interface) {
                seals[number] = Seals::new(card, own).for_kernel();
            }
        }
        behind_card.write(&seals);
    }

    /// The longest frame that a program gets from a port; `None` if the kernel gives it any. A driver refuses an MTU
    /// that its programs cannot take, but not every driver does.
    fn longest(&self, number: usize) -> Option<u32> {
        let is_native = self.modes.get(number) == Some(&Mode::Native);
        (is_native && !self.ports.jumbo()).then_some(ports::ONE_BUFFER_BYTES)
    }

    /// The ports with these counts.
    fn statuses(&self, total: &PortBlocks) -> Vec<PortStatus> {
        let lost = self.losses.as_ref().and_then(|losses| losses.as_ref().ok()).map(Losses::port_counts);
        let mut statuses = Vec::new();
        let mut names = self.ports.presence().names();
        for (worker, block) in total.iter().enumerate() {
            for (number, port) in self.ports.all().iter().enumerate() {
                let lost = lost.as_ref().map_or_else(PortCounters::default, |lost| lost[worker][number]);
                let mut reading = ports::reading(block[number], lost);
                // Cards count lost packets per interface, not per CPU. They are reported for the first CPU.
                if let Some(then) = port.missed.filter(|_| worker == 0) {
                    let now = self.ports.presence().missed(port.index);
                    reading.rx_missed = now.map_or(0, |now| now.saturating_sub(then));
                }
                let interface = names.of(port.index, &port.interface);
                statuses.push(PortStatus {
                    worker,
                    interface,
                    role: port.role,
                    nature: PortNature { kernel_index: port.index, longest: self.longest(number) },
                    has_link: true,
                    reading,
                    knows_missed: port.missed.is_some(),
                });
            }
        }
        statuses
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }

    /// How packets of the host reach the programs.
    fn access_of_host(&self) -> Vec<String> {
        let ways = self.ports.receiving().iter().zip(&self.modes).map(|(port, mode)| {
            let interface = self.ports.name(port);
            let mode = match mode {
                Mode::Native => "XDP in the driver".to_owned(),
                Mode::Generic => format!(
                    "its driver does not support XDP, so the kernel runs the program, which is slow, and several \
                     packets may be joined to one before (`ethtool -K {interface} gro off`)"
                ),
            };
            let tags = format!("; rules do not see VLAN tags that it strips (`ethtool -K {interface} rxvlan off`)");
            format!("{interface}: {mode}{}", if port.takes_tags_off { &tags } else { "" })
        });
        ways.collect()
    }
}

/// The refusal of a policy that was not split for a card.
fn not_for_cards(interface: &str) -> EngineError {
    let source = io::Error::other("is behind a card, and the policy was not split for one");
    EngineError::Interface { interface: interface.to_owned(), source }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Datapath for KernelPath {
    type Code = KernelCode;

    /// Replaces the program of each interface. A packet that an earlier program started with is decided and counted by
    /// that program.
    ///
    /// If one program cannot be replaced, the others get the previous one back.
    fn activate(&self, policy: &Loaded<KernelCode>) -> Result<(), EngineError> {
        policy.code.check_answered(policy.answered)?;
        let _one_at_a_time = lock(&self.changing);
        let attached = lock(&self.attached).clone();
        if attached.is_empty() {
            return Err(EngineError::Stopping);
        }
        let (before, strays, is_new) = {
            let mut books = self.books();
            let is_new = books.open(&policy.code);
            (books.active.clone(), books.strays.clone(), is_new)
        };
        self.write_seals(policy);
        policy.code.announce(&self.ports, &policy.names);
        let put = |number: usize, policy: &Loaded<KernelCode>| attached[number].replace(self.program(policy, number)?);
        let outcome = replace_all(attached.len(), policy, &before, strays, put);
        // Replaced programs may still be running.
        self.grace.wait();
        match outcome {
            Outcome::Replaced => {
                self.books().replaced(policy, is_new);
                Ok(())
            }
            Outcome::Failed { strays, error } => {
                self.books().not_replaced(strays);
                Err(error)
            }
        }
    }

    /// Puts the program in front of the chain on the interface, or takes it away. Seals change for the next packet.
    fn set_card(&self, interface: &str, card: Option<CardPort>) -> Result<(), EngineError> {
        let _one_at_a_time = lock(&self.changing);
        let refuse = |what: &str| {
            Err(EngineError::Interface { interface: interface.to_owned(), source: io::Error::other(what.to_owned()) })
        };
        let is_lower = |port: &Port| port.role == Role::Lower && port.interface == interface;
        let Some(number) = self.ports.receiving().iter().position(is_lower).filter(|_| !self.ports.is_host()) else {
            return refuse("it is not on the lower side");
        };
        if card.as_ref().is_some_and(|card| card.known.len() > CardPort::KNOWN_MAX) {
            return refuse("the card has too many configurations");
        }
        let attached = lock(&self.attached).clone();
        let Some(hook) = attached.get(number) else { return Err(EngineError::Stopping) };
        let active = self.books().active.clone();
        if card.is_some() && active.code.behind_card().is_none() {
            return Err(not_for_cards(interface));
        }
        let before = match card {
            Some(card) => lock(&self.cards).insert(interface.to_owned(), card),
            None => lock(&self.cards).remove(interface),
        };
        // Programs of the interface may still read the seals, so they end before these are gone.
        if lock(&self.cards).contains_key(interface) {
            self.write_seals(&active);
        }
        if lock(&self.cards).contains_key(interface) != before.is_some() {
            hook.replace(self.program(&active, number)?)?;
        }
        self.grace.wait();
        Ok(())
    }

    fn workers(&self) -> usize {
        self.cpus
    }

    fn readings(&self) -> Readings<KernelCode> {
        let books = self.books();
        let (mut active, mut others): (Vec<_>, Vec<_>) = books.open.iter().partition(|one| books.is_active(one));
        let active = active.pop().expect("the active code has an account").reading();
        let closed = books.closed.iter().map(|one| Reading { code: one.code.clone(), counts: one.counts.clone() });
        Readings { active, others: others.drain(..).map(Counting::reading).chain(closed).collect() }
    }

    fn take_final(&self) -> Vec<Reading<KernelCode>> {
        std::mem::take(&mut self.books().closed)
    }

    fn strays(&self) -> Vec<Stray<KernelCode>> {
        let interface = |number: usize| format!("interface {}", self.ports.receiving()[number].interface);
        let books = self.books();
        let strays = books.strays.iter();
        strays.map(|(number, policy)| Stray { part: interface(*number), policy: policy.clone() }).collect()
    }

    fn ports(&self) -> Vec<PortStatus> {
        let total = {
            let books = self.books();
            let open = books.open.iter().map(Counting::port_counts);
            open.fold(books.past.clone(), |sum, ports| blocks(&sum, &ports, u64::wrapping_add))
        };
        self.statuses(&total)
    }

    fn access(&self) -> Vec<String> {
        if self.ports.is_host() {
            return self.access_of_host();
        }
        let ways = self.ports.receiving().iter().zip(&self.modes).map(|(port, mode)| {
            let mode = match mode {
                Mode::Native => "XDP in the driver",
                Mode::Generic => "its driver does not support XDP, so the kernel runs the program, which is slow",
            };
            let interface = self.ports.name(port);
            let tags = format!("; rules do not see VLAN tags that it strips (`ethtool -K {interface} rxvlan off`)");
            let finished = if port.driver.is_virtual() { checksum::FINISHED } else { "" };
            format!("{interface}: {mode}{finished}{}", if port.takes_tags_off { &tags } else { "" })
        });
        let closed = self.ports.all().iter().filter(|port| matches!(resident::takes_redirected(port.index), Ok(false)));
        let closed = closed.map(|port| {
            let help = match port.driver.name.as_str() {
                "veth" => "switch GRO on at its other end (`ethtool -K PEER gro on`)",
                _ => "its driver cannot: use the engine afxdp or afpacket",
            };
            let (name, why) = (self.ports.name(port), "all packets to it are dropped as tx-unsupported");
            format!("warning: {name} accepts no packets from XDP programs, {why}: {help}")
        });
        let native = self.modes.contains(&Mode::Native);
        let ways = ways.chain(closed.filter(|_| native));
        let deaf = |error: &EngineError| format!("packets that an interface cannot send are counted as sent: {error}");
        ways.chain(self.losses.as_ref().and_then(|losses| losses.as_ref().err()).map(deaf)).collect()
    }

    fn has_failed(&self) -> bool {
        self.ports.gone().is_some()
    }

    fn hand_over(&self, kept: &mut Kept) -> io::Result<Option<HandedPath<KernelCode>>> {
        let _one_at_a_time = lock(&self.changing);
        let attached = lock(&self.attached).clone();
        let links = attached.iter().map(|hook| hook.hand_over(kept)).collect::<io::Result<_>>()?;
        let missed = self.ports.missed();
        let books = self.books();
        let (mut counts, mut total) = (Vec::new(), books.past.clone());
        for one in &books.open {
            let (reading, ports, handed) = one.hand_over(kept)?;
            total = blocks(&total, &ports, u64::wrapping_add);
            counts.push((reading, handed));
        }
        counts.sort_by_key(|(reading, _)| !Arc::ptr_eq(&reading.code, &books.active.code));
        drop(books);
        Ok(Some(HandedPath { links, counts, ports: self.statuses(&total), missed }))
    }

    /// Detaches the programs. A change in progress keeps them until its end.
    fn stop(&self) -> Result<(), EngineError> {
        let gone = self.ports.gone().map(|port| port.interface.clone());
        let attached = std::mem::take(&mut *lock(&self.attached));
        drop(attached);
        match gone {
            Some(interface) => Err(EngineError::Interface { interface, source: io::Error::other("it was removed") }),
            None => Ok(()),
        }
    }
}
