//! `weir run`: a policy between interfaces, in the foreground, until SIGINT or SIGTERM.

mod carry;
pub mod controller;
pub mod generation;
pub mod guard;
pub mod stats;
pub mod tally;

use crate::cli::{LiveEngine, RunOptions};
use crate::control::server::Server;
use crate::failure::Failure;
use carry::CarriedLinks;
use controller::Controller;
use generation::{Generation, Loader, NativeLoader};
use guard::Guard;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use weir_engine::live::afpacket::AfPacketLane;
use weir_engine::live::afxdp::AfXdpLane;
use weir_engine::live::{Datapath, Interfaces, Lane, Loaded, Workers};

/// How often the main thread looks whether something is due.
const TICK: Duration = Duration::from_millis(50);

/// Runs the command.
///
/// # Errors
/// The policy is wrong, an interface cannot be used, or a worker fails.
pub fn run(options: &RunOptions) -> Result<(), Failure> {
    refuse_repeats(options)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::Runtime(format!("signal {signal}: {error}")))?;
    }
    run_on(options, &stop, NativeLoader, |first| Ok(Workers::start(lanes(options)?, first)?))
}

/// Runs the command on one kind of datapath; `start` takes the interfaces.
fn run_on<L: Loader>(
    options: &RunOptions,
    stop: &AtomicBool,
    loader: L,
    start: impl FnOnce(&Loaded<<L::Datapath as Datapath>::Code>) -> Result<L::Datapath, Failure>,
) -> Result<(), Failure> {
    let first = Generation::prepare(&options.policy, &loader)?;
    let loaded = first.loaded(None)?;
    // Before any interface is touched: another Weir may hold them.
    let mut server = Server::listen(&options.control)?;
    let on_exit = first.program().on_exit;
    let guard = Arc::new(Guard::start(interfaces(options), on_exit)?);
    let ran = (|| {
        let datapath = start(&loaded)?;
        guard.take_over(on_exit)?;
        let controller = Arc::new(Mutex::new(Controller::new(datapath, first, guard.clone())));
        server.serve(controller.clone(), loader);
        report_start(options, &controller);
        let carried = options.carry_link.then(|| CarriedLinks::watch(&interfaces(options))).transpose()?;
        let ended = watch(&controller, &guard, carried, stop);
        guard.open_early();
        end(&controller).and(ended)
    })();
    drop(server);
    ran.and(guard.end())
}

fn report_start<D: Datapath>(options: &RunOptions, controller: &Mutex<Controller<D>>) {
    let workers = controller.lock().unwrap_or_else(PoisonError::into_inner).status().workers;
    eprintln!(
        "weir: {} between {} and {}, {workers} workers; control at {}",
        options.policy.display(),
        options.lower.join(", "),
        options.upper.join(", "),
        options.control.display()
    );
}

fn interfaces(options: &RunOptions) -> Interfaces {
    Interfaces { lower: options.lower.clone(), upper: options.upper.clone(), divert: options.divert.clone() }
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
fn watch<D: Datapath>(
    controller: &Mutex<Controller<D>>,
    guard: &Guard,
    mut carried: Option<CarriedLinks>,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    while !stop.load(Ordering::Relaxed) {
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

fn lanes(options: &RunOptions) -> Result<Vec<Box<dyn Lane>>, Failure> {
    let interfaces = interfaces(options);
    Ok(match options.engine {
        LiveEngine::Afpacket => boxed(AfPacketLane::open(&interfaces, options.workers)?),
        LiveEngine::Afxdp => {
            let opened = AfXdpLane::open(&interfaces, options.workers)?;
            for interface in &opened.generic {
                eprintln!("weir: the driver of {interface} knows no XDP: the kernel stands in for it, which is slow");
            }
            boxed(opened.lanes)
        }
    })
}

fn boxed<L: Lane + 'static>(lanes: Vec<L>) -> Vec<Box<dyn Lane>> {
    lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect()
}
