//! The flows of a port as the table of a card: rte_flow (docs/guide/card.md, docs/decisions/0052-flow-tables.md).
//!
//! A driver forgets flows when its port is closed or the process ends. So no flow outlives Weir.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use weir_abi::dpdk::FlowHits;
use weir_abi::wire_card::CardCount;

use super::port::{Port, Ports};
use super::shim::{self, Flow};
use crate::EngineError;
use crate::live::card::{DriverTable, Entry, Refused, Room};

/// The ports that are open. There are none after their last lane.
static OPEN: Mutex<Weak<Ports>> = Mutex::new(Weak::new());
/// Bytes for the words of a driver.
const WORDS_BYTES: usize = 256;
/// What a change takes until one was measured.
const UPDATE: Duration = Duration::from_millis(2);
/// Sources that no packet has.
const PROBES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::BROADCAST),
    IpAddr::V6(Ipv6Addr::new(0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff)),
];

/// Ports were opened.
pub(super) fn opened(ports: &Arc<Ports>) {
    *OPEN.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(ports);
}

/// A pointer to a flow of the driver. Only the driver reads the flow itself.
struct Handle(*mut Flow);

// SAFETY: DPDK's functions for flows may be called by any thread, and take a lock if their driver needs one.
unsafe impl Send for Handle {}

/// A source with its flow.
struct Source {
    flow: Handle,
    /// What was dropped when the counters were last read.
    count: CardCount,
}

/// The table.
pub struct FlowTable {
    room: Room,
    flows: Arc<Mutex<Flows>>,
}

/// Deletes all flows of a table when it is dropped. The table takes none from then on.
pub struct HeldFlows(Arc<Mutex<Flows>>);

/// The flows of a port.
struct Flows {
    ports: Weak<Ports>,
    name: String,
    sources: HashMap<IpAddr, Source>,
    is_given_up: bool,
}

impl FlowTable {
    /// The table of an open port, for at most `entries` sources. Asks its driver whether it takes flows of both IP
    /// versions that drop and count.
    ///
    /// # Errors
    /// The port is not open, or its driver does not take such flows.
    pub fn open(name: &str, entries: usize) -> Result<Self, EngineError> {
        let ports = OPEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let flows = Flows { ports, name: name.to_owned(), sources: HashMap::new(), is_given_up: false };
        PROBES.iter().try_for_each(|source| flows.check(*source)).map_err(|refused| {
            let driver = "its driver takes no flows that drop the packets of a source and count them (rte_flow)";
            let source = io::Error::new(io::ErrorKind::Unsupported, format!("{driver}: {refused}"));
            EngineError::Interface { interface: name.to_owned(), source }
        })?;
        Ok(FlowTable { room: Room::new(entries, UPDATE), flows: Arc::new(Mutex::new(flows)) })
    }

    /// The flows, for deleting all of them when the table itself cannot be used any more.
    pub fn held(&self) -> HeldFlows {
        HeldFlows(self.flows.clone())
    }
}

impl Drop for HeldFlows {
    fn drop(&mut self) {
        let mut flows = locked(&self.0);
        flows.is_given_up = true;
        flows.delete_all();
    }
}

fn locked(flows: &Mutex<Flows>) -> MutexGuard<'_, Flows> {
    flows.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flows {
    /// Does something with the port, which stays open meanwhile.
    fn on_port<R>(&self, work: impl FnOnce(&Port) -> io::Result<R>) -> io::Result<R> {
        let ports = self.ports.upgrade();
        let port = ports.as_ref().and_then(|ports| ports.ports.iter().find(|port| port.name == self.name));
        work(port.ok_or_else(|| io::Error::other("the port is not open"))?)
    }

    /// Asks the driver whether it would take a source.
    fn check(&self, source: IpAddr) -> io::Result<()> {
        self.on_port(|port| {
            with_words(|words| {
                // SAFETY: the port is open, and the words are writable.
                with_bytes(source, |address| unsafe {
                    let (at, bytes) = (address.as_ptr(), address.len());
                    shim::dpdk_flow_check(port.id, at, bytes, words.as_mut_ptr(), words.len())
                })
            })
        })
    }

    /// Adds a source that is not there.
    fn add(&mut self, source: IpAddr) -> io::Result<()> {
        if self.is_given_up {
            return Err(io::Error::other("the card was given up"));
        }
        let flow = self.on_port(|port| {
            let mut flow = std::ptr::null_mut();
            with_words(|words| {
                let mut number = 0;
                // SAFETY: the port is open. The number and the words are writable.
                flow = with_bytes(source, |address| unsafe {
                    let (at, bytes) = (address.as_ptr(), address.len());
                    shim::dpdk_flow_add(port.id, at, bytes, &raw mut number, words.as_mut_ptr(), words.len())
                });
                number
            })?;
            Ok(Handle(flow))
        })?;
        self.sources.insert(source, Source { flow, count: CardCount::default() });
        Ok(())
    }

    /// What a flow has dropped.
    fn hits(&self, flow: &Handle) -> io::Result<FlowHits> {
        self.on_port(|port| {
            let mut hits = FlowHits::default();
            // SAFETY: the port is open and has the flow. The hits and the words are writable.
            with_words(|words| unsafe {
                shim::dpdk_flow_read(port.id, flow.0, &raw mut hits, words.as_mut_ptr(), words.len())
            })?;
            Ok(hits)
        })
    }

    /// Deletes a source. Returns what it has dropped.
    fn delete(&mut self, source: IpAddr) -> io::Result<CardCount> {
        let Some(own) = self.sources.get(&source) else { return Ok(CardCount::default()) };
        // A counter that cannot be read must not keep the flow.
        let last = self.hits(&own.flow).map_or(own.count, |hits| later(own.count, hits));
        self.on_port(|port| {
            // SAFETY: the port is open and has the flow, which is not used afterwards. The words are writable.
            with_words(|words| unsafe { shim::dpdk_flow_delete(port.id, own.flow.0, words.as_mut_ptr(), words.len()) })
        })?;
        self.sources.remove(&source);
        Ok(last)
    }

    /// Deletes all sources. A port that is closed has no flows.
    fn delete_all(&mut self) {
        for source in self.sources.keys().copied().collect::<Vec<_>>() {
            let _closed = self.delete(source);
        }
    }

    fn read(&mut self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(self.sources.len());
        for (&source, own) in &self.sources {
            entries.push(Entry { source, count: later(own.count, self.hits(&own.flow)?) });
        }
        for entry in &entries {
            self.sources.entry(entry.source).and_modify(|own| own.count = entry.count);
        }
        Ok(entries)
    }
}

/// The flows are deleted while the port is open.
impl Drop for Flows {
    fn drop(&mut self) {
        self.delete_all();
    }
}

impl DriverTable for FlowTable {
    fn room(&self) -> &Room {
        &self.room
    }

    fn len(&self) -> usize {
        locked(&self.flows).sources.len()
    }

    fn sources(&self) -> Vec<IpAddr> {
        locked(&self.flows).sources.keys().copied().collect()
    }

    fn add(&mut self, source: IpAddr) -> Result<(), Refused> {
        let begun = Instant::now();
        let mut flows = locked(&self.flows);
        if flows.sources.contains_key(&source) {
            return Ok(());
        }
        let (added, entries) = (flows.add(source), flows.sources.len());
        drop(flows);
        match added {
            Ok(()) => self.room.changed(begun, 1),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                self.room.is_full_with(entries);
                return Err(Refused::Full);
            }
            Err(error) => return Err(Refused::Failed(error)),
        }
        Ok(())
    }

    fn delete(&mut self, sources: &[IpAddr]) -> Vec<Result<CardCount, Refused>> {
        let begun = Instant::now();
        let mut flows = locked(&self.flows);
        let outcomes: Vec<_> = sources.iter().map(|source| flows.delete(*source).map_err(Refused::Failed)).collect();
        drop(flows);
        self.room.changed(begun, sources.len());
        outcomes
    }

    fn read(&mut self) -> io::Result<Vec<Entry>> {
        locked(&self.flows).read()
    }
}

/// The later of two counts. A driver does not tell when the last packet came: before this look.
fn later(before: CardCount, FlowHits { packets, bytes }: FlowHits) -> CardCount {
    if packets <= before.packets {
        return before;
    }
    CardCount { packets, bytes, last_ns: weir_state::now_ns(), zero: 0 }
}

/// The bytes of an address as in a packet.
fn with_bytes<R>(source: IpAddr, work: impl FnOnce(&[u8]) -> R) -> R {
    match source {
        IpAddr::V4(four) => work(&four.octets()),
        IpAddr::V6(six) => work(&six.octets()),
    }
}

/// Calls a function of the driver, which returns a negative error number and writes words about it.
fn with_words(call: impl FnOnce(&mut [u8]) -> i32) -> io::Result<()> {
    let mut words = [0; WORDS_BYTES];
    let number = call(&mut words);
    if number >= 0 {
        return Ok(());
    }
    let error = io::Error::from_raw_os_error(number.wrapping_neg());
    let end = words.iter().position(|byte| *byte == 0).unwrap_or(WORDS_BYTES);
    let words = String::from_utf8_lossy(&words[..end]);
    Err(if words.is_empty() { error } else { io::Error::new(error.kind(), format!("{words} ({error})")) })
}
