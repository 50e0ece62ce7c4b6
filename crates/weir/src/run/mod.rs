//! `weir run`: a policy between interfaces, in the foreground, until SIGINT or SIGTERM.

mod account;
mod carry;
pub mod controller;
mod dpdk;
pub mod generation;
pub mod guard;
mod limits_log;
pub mod stats;
pub mod tally;

use crate::cli::{LiveEngine, RunOptions};
use crate::control::server::Server;
use crate::failure::Failure;
use crate::signals;
use carry::CarriedLinks;
use controller::Controller;
use generation::{Generation, KernelLoader, Loader, NativeLoader};
use guard::Guard;
use limits_log::LimitsLog;
use stats::Status;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_engine::live::afpacket::AfPacketLane;
use weir_engine::live::afxdp::{AfXdpLane, Waiting};
use weir_engine::live::xdp::{KernelPath, Ports};
use weir_engine::live::{Datapath, Interfaces, Lane, Loaded, Workers};

/// How often buckets that nobody charges are brought to the present: those of addresses come round in nine minutes at the earliest.
const REFRESH: Duration = Duration::from_secs(60);
/// How often the main thread looks whether something is due.
const TICK: Duration = Duration::from_millis(50);

/// Runs the command.
///
/// # Errors
/// The policy is wrong, an interface cannot be used, or a worker fails.
pub fn run(options: &RunOptions) -> Result<(), Failure> {
    refuse_repeats(options)?;
    dpdk::refuse_misfits(options)?;
    if options.busy_poll && options.engine != LiveEngine::Afxdp {
        return Err(Failure::Rejected("weir: --busy-poll is of the engine afxdp".to_owned()));
    }
    if options.limits_room.is_some() && options.engine != LiveEngine::Xdp {
        return Err(Failure::Rejected(
            "weir: --limits-room is of the engine xdp; others have all the room there is".to_owned(),
        ));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::Runtime(format!("signal {signal}: {error}")))?;
    }
    signals::clean_up()?;
    // Before any interface is touched: another Weir may hold them.
    let log = LimitsLog::open(options)?;
    let server = Server::listen(&options.control)?;
    let outlets = Outlets { server, log };
    let interfaces = interfaces(options);
    match options.engine {
        LiveEngine::Xdp => {
            let ports = Arc::new(Ports::of(&interfaces)?);
            let loader = KernelLoader::new(ports.clone(), options.limits_room);
            run_on(options, outlets, &stop, loader, |first| Ok(KernelPath::start(ports, first)?))
        }
        LiveEngine::Afpacket => {
            run_workers(options, outlets, &stop, || Ok(boxed(AfPacketLane::open(&interfaces, options.workers)?)))
        }
        LiveEngine::Afxdp => {
            let waiting = if options.busy_poll { Waiting::BusyPoll } else { Waiting::Sleep };
            let open = || AfXdpLane::open(&interfaces, options.workers, waiting);
            run_workers(options, outlets, &stop, || Ok(boxed(open()?)))
        }
        LiveEngine::Dpdk => run_workers(options, outlets, &stop, || dpdk::lanes(options, &interfaces)),
    }
}

/// Where a running Weir says what it does.
struct Outlets {
    server: Server,
    log: Option<LimitsLog>,
}

/// Runs the command on workers in user space, each with a lane.
fn run_workers(
    options: &RunOptions,
    outlets: Outlets,
    stop: &AtomicBool,
    open: impl FnOnce() -> Result<Vec<Box<dyn Lane>>, Failure>,
) -> Result<(), Failure> {
    run_on(options, outlets, stop, NativeLoader::default(), |first| Ok(Workers::start(open()?, first)?))
}

/// Runs the command on one kind of datapath; `start` takes the interfaces.
fn run_on<L: Loader>(
    options: &RunOptions,
    outlets: Outlets,
    stop: &AtomicBool,
    loader: L,
    start: impl FnOnce(&Loaded<<L::Datapath as Datapath>::Code>) -> Result<L::Datapath, Failure>,
) -> Result<(), Failure> {
    let Outlets { mut server, log } = outlets;
    let first = match Generation::prepare(&options.policy, &loader) {
        // Told to end before it has begun.
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
        prepared => prepared?,
    };
    let loaded = first.loaded(None)?;
    let on_exit = first.program().on_exit;
    let guard = Arc::new(Guard::start(interfaces(options), on_exit)?);
    let ran = (|| {
        let datapath = start(&loaded)?;
        guard.take_over(on_exit)?;
        let controller = Arc::new(Mutex::new(Controller::new(datapath, first, guard.clone())));
        report_start(options, &controller);
        let log = log.map(|log| log.start(controller.clone()));
        server.serve(controller.clone(), loader.clone());
        let carried = options.carry_link.then(|| CarriedLinks::watch(&interfaces(options))).transpose()?;
        let ended = watch(&controller, &guard, carried, &loader, stop);
        drop(server);
        let stopped = thread::scope(|scope| {
            scope.spawn(|| guard.open_early());
            end(&controller)
        });
        if let Some(log) = log {
            log.end();
        }
        stopped.and(ended)
    })();
    ran.and(guard.end())
}

fn interfaces(options: &RunOptions) -> Interfaces {
    Interfaces { lower: options.lower.clone(), upper: options.upper.clone(), divert: options.divert.clone() }
}

fn report_start<D: Datapath>(options: &RunOptions, controller: &Mutex<Controller<D>>) {
    let Status { workers, access, .. } = controller.lock().unwrap_or_else(PoisonError::into_inner).status();
    access.iter().for_each(|access| eprintln!("weir: {access}"));
    eprintln!(
        "weir: {} between {} and {}, {workers} workers; control at {}",
        options.policy.display(),
        options.lower.join(", "),
        options.upper.join(", "),
        options.control.display()
    );
}

/// Packets that come back in where they went out would go round for ever.
fn refuse_repeats(options: &RunOptions) -> Result<(), Failure> {
    let mut known = HashSet::new();
    let mut interfaces = options.lower.iter().chain(&options.upper).chain(&options.divert);
    match interfaces.find(|name| !known.insert(name.as_str())) {
        Some(repeated) => Err(Failure::Rejected(format!("weir: the interface {repeated} is given twice"))),
        None => Ok(()),
    }
}

/// Until told to stop, or a worker fails.
fn watch<L: Loader>(
    controller: &Mutex<Controller<L::Datapath>>,
    guard: &Guard,
    mut carried: Option<CarriedLinks>,
    loader: &L,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut refreshed = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if refreshed.elapsed() > REFRESH {
            loader.refresh();
            refreshed = Instant::now();
        }
        thread::sleep(TICK);
        guard.renew();
        if let Some(carried) = &mut carried {
            carried.step(guard);
        }
        let mut controller = controller.lock().unwrap_or_else(PoisonError::into_inner);
        if controller.has_failed() {
            break;
        }
        if controller.tick()? {
            eprintln!("weir: not confirmed in time: back to generation {}", controller.status().generation);
        }
    }
    Ok(())
}

/// Stops the workers; says why one failed.
fn end<D: Datapath>(controller: &Mutex<Controller<D>>) -> Result<(), Failure> {
    controller.lock().unwrap_or_else(PoisonError::into_inner).stop()
}

fn boxed<L: Lane + 'static>(lanes: Vec<L>) -> Vec<Box<dyn Lane>> {
    lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect()
}
