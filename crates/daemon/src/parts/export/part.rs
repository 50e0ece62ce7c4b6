//! Joins exports to the rest of the daemon: options, taps, counters and the thread.

use crate::generations::controller::Controller;
use crate::generations::generation::Loader;
use crate::interfaces::states;
use crate::options::RunOptions;
use crate::parts::export::collector::{self, Collector};
use crate::parts::export::exporter::Exporter;
use crate::parts::export::feed::Feed;
use crate::parts::export::options::ExportOptions;
use crate::parts::export::ports::Ports;
use crate::parts::export::tapped::{self, Tapped};
use crate::parts::part::{Part, Running};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_command::failure::Failure;
use weir_engine::live::Datapath;
use weir_engine::live::os::speed::LinkSpeed;
use weir_export::flows::Bounds;
use weir_export::sflow::sample::InterfaceCounters;
use weir_export::{ipfix, sflow};

/// Pause between two looks at the taps. Their queues have room for the copies of this time.
const TICK: Duration = Duration::from_millis(10);
/// The observation domain of all flows.
const DOMAIN: u32 = 1;

/// `--sflow` and `--ipfix` as a part of the daemon.
pub struct ExportPart<'o> {
    given: &'o ExportOptions,
    is_host: bool,
    sflow: Option<(Collector, IpAddr)>,
    ipfix: Option<Collector>,
    thread: Option<ExportThread>,
    exporter: Option<Arc<Mutex<Exporter>>>,
    /// Records of IPFIX that the program before this one in its process has sent.
    sequence: u32,
}

/// The thread that reads taps and sends datagrams. It ends when this value is dropped.
struct ExportThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<'o> ExportPart<'o> {
    /// The part, if there is a collector.
    ///
    /// # Errors
    /// An option is for a collector that is not given, or there is no way to a collector.
    pub fn of(options: &'o RunOptions) -> Result<Option<Self>, Failure> {
        let given = &options.export;
        if given.sflow.is_none() && given.ipfix.is_none() {
            return match given.export_every {
                Some(_) => Err(Failure::Rejected("weir: --export-every needs --sflow or --ipfix".to_owned())),
                None => Ok(None),
            };
        }
        let sflow = given.sflow.as_deref().map(|to| connect("--sflow", to, sflow::PORT)).transpose()?;
        let ipfix = given.ipfix.as_deref().map(|to| connect("--ipfix", to, ipfix::PORT)).transpose()?;
        let sflow = sflow.map(|(collector, own)| (collector, given.export_agent.unwrap_or(own)));
        let ipfix = ipfix.map(|(collector, _)| collector);
        Ok(Some(ExportPart {
            given,
            is_host: !options.host.is_empty(),
            sflow,
            ipfix,
            thread: None,
            exporter: None,
            sequence: 0,
        }))
    }
}

fn connect(option: &str, to: &str, default_port: u16) -> Result<(Collector, IpAddr), Failure> {
    let connected = collector::resolve(to, default_port).and_then(Collector::connect);
    connected.map_err(|error| Failure::Rejected(format!("weir: {option} {to}: {error}")))
}

impl<L: Loader> Part<L> for ExportPart<'_> {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let controller = running.door.controller.clone();
        let (one_in, per_second) = (self.given.every(), self.given.sflow_drops);
        let ports = Ports::of(&controller.ports(), self.is_host);
        let mut exporter = Exporter::new(one_in, ports, tapped::now().clock_ms);
        let samples = Tapped::samples(&running.taps, one_in)?;
        let mut drops = None;
        if let Some((collector, agent)) = self.sflow.take() {
            exporter = exporter.with_sflow(collector, agent, per_second);
            drops = (per_second > 0).then(|| Tapped::drops(&running.taps, per_second)).transpose()?;
        }
        if let Some(collector) = self.ipfix.take() {
            exporter = exporter.with_ipfix(collector, DOMAIN, Bounds::default());
        }
        let exporter = Arc::new(Mutex::new(exporter.starting_at(self.sequence)));
        self.exporter = Some(exporter.clone());
        let shown = exporter.clone();
        controller.report(move |status| status.export = Some(lock(&shown).status()));
        self.thread = Some(ExportThread::start(exporter, Feed::new(samples, drops), controller)?);
        Ok(())
    }

    fn name(&self) -> &'static str {
        "export"
    }

    /// Collectors get what waits. Counters of sFlow begin anew, which its uptime tells.
    fn hand_over(&mut self) -> Option<Vec<u8>> {
        let sequence = lock(self.exporter.as_ref()?).hand_over(tapped::now());
        Some(sequence.to_be_bytes().to_vec())
    }

    fn continue_with(&mut self, handed: Vec<u8>) {
        self.sequence = handed.try_into().map_or(0, u32::from_be_bytes);
    }

    fn finish(&mut self) {
        self.thread = None;
    }
}

impl ExportThread {
    fn start<D: Datapath + 'static>(
        exporter: Arc<Mutex<Exporter>>,
        mut feed: Feed<Tapped>,
        controller: Arc<Controller<D>>,
    ) -> Result<Self, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let body = move || {
            loop {
                // Packets that were decided before the end are read after it.
                let ends = own.load(Ordering::Acquire);
                let mut exporter = lock(&exporter);
                let has_more = feed.read(&mut exporter, tapped::now());
                exporter.step(tapped::now(), |ports| counters(&controller, ports));
                if ends && !has_more {
                    exporter.finish(tapped::now());
                    return;
                }
                drop(exporter);
                if !has_more {
                    thread::sleep(TICK);
                }
            }
        };
        let thread = thread::Builder::new().name("weir-export".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Failure::system("a thread for exports", error))?;
        Ok(ExportThread { stop, thread: Some(thread) })
    }
}

impl Drop for ExportThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _panicked = thread.join();
        }
    }
}

fn lock(exporter: &Mutex<Exporter>) -> MutexGuard<'_, Exporter> {
    exporter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counters of all interfaces.
fn counters<D: Datapath>(controller: &Controller<D>, ports: &Ports) -> Vec<InterfaceCounters> {
    ports.counters(&controller.stats().interfaces, &states::status(&controller.ports()), LinkSpeed::read)
}
