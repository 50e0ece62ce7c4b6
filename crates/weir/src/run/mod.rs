//! `weir run`: runs a policy between interfaces in the foreground, until SIGINT or SIGTERM.

mod account;
mod automatic;
pub mod card;
mod carding;
mod carry;
pub mod claim;
pub mod controller;
pub mod descriptors;
mod door;
mod dpdk;
mod features;
mod feeds;
mod flow_room;
mod flows;
pub mod generation;
pub mod guard;
pub mod hybrid;
mod hybriding;
mod interfaces;
mod ledger;
mod limits_log;
mod log_file;
mod mitigating;
mod mitigation;
mod own_connection;
mod preparation;
mod requests;
mod saving;
mod server;
mod slots;
pub mod succession;
mod table_answers;
mod table_list;
mod table_ticks;
pub mod tables;
mod tally;

use crate::cli::{LiveEngine, RunOptions};
use crate::failure::Failure;
use crate::signals;
use card::Card;
use carry::CarriedLinks;
use claim::{ClaimTarget, Claimant, Claims, PortKind};
use controller::Controller;
use door::Door;
use features::FeatureTurns;
use feeds::Updates;
use flow_room::RoomWatch;
use generation::{Generation, KernelLoader, Loader, NativeLoader};
use guard::Guard;
use limits_log::LimitsLog;
use mitigation::Mitigation;
use saving::StateFolder;
use serde_json::json;
use server::Server;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use succession::Change;
use table_ticks::TableTicks;
use weir_control::{Active, Status};
use weir_engine::bundle::trust::Trust;
use weir_engine::live::afpacket::AfPacketLane;
use weir_engine::live::afxdp::{AfXdpLane, Waiting};
use weir_engine::live::samples::SampleReader;
use weir_engine::live::xdp::{KernelPath, Ports};
use weir_engine::live::{Datapath, Interfaces, Lane, Loaded, Workers};
use weir_policy::ir::OnExit;

/// Interval of setting the words of full buckets to the present. Words of address buckets wrap around after nine
/// minutes at the earliest.
const REFRESH: Duration = Duration::from_secs(60);
/// Interval of the main loop.
const TICK: Duration = Duration::from_millis(50);
/// Pause before another try to end a trial.
const TRIAL_PAUSE: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// The policy is invalid, an interface cannot be used, or a worker fails.
pub fn run(options: &RunOptions) -> Result<(), Failure> {
    descriptors::raise()?;
    run_with(options).map_err(descriptors::explain)
}

fn run_with(options: &RunOptions) -> Result<(), Failure> {
    refuse_repeats(options)?;
    dpdk::check_options(options)?;
    options.card.check().map_err(|problem| Failure::Rejected(format!("weir: {problem}")))?;
    hybriding::check(options)?;
    if options.busy_poll && options.engine != LiveEngine::Afxdp {
        return Err(Failure::Rejected("weir: --busy-poll is only for the engine afxdp".to_owned()));
    }
    if !options.host.is_empty() && options.engine != LiveEngine::Xdp {
        return Err(Failure::Rejected("weir: --host is only for the engine xdp".to_owned()));
    }
    if options.limits_room.is_some() && options.engine != LiveEngine::Xdp {
        return Err(Failure::Rejected(
            "weir: --limits-room is only for the engine xdp; other engines need no reserved room".to_owned(),
        ));
    }
    options
        .confirm
        .map_or(Ok(()), succession::check_length)
        .map_err(|refusal| Failure::Rejected(format!("weir: {refusal}")))?;
    let trust = options.trust.read()?;
    own_connection::check(options, &trust)?;
    let signals = Signals::register()?;
    signals::clean_up()?;
    // Claims come first, because another Weir may use the interfaces.
    let targets = claim_targets(options)?;
    let claims = Claims::take(&targets, Claimant::Weir, Duration::ZERO)?;
    let log = LimitsLog::open(options)?;
    let server = Server::listen(&options.control)?;
    let samples = mitigating::reader(options)?;
    let interfaces = interfaces(options);
    let held = Held { targets, claims, server, log, interfaces: interfaces.clone(), samples: samples.clone() };
    match options.engine {
        LiveEngine::Xdp => {
            let ports = match options.host.as_slice() {
                [] => Ports::of(&interfaces)?,
                host => Ports::of_host(host)?,
            };
            let ports = Arc::new(ports.with_samples(samples.as_ref().and_then(|samples| samples.ring())));
            let loader =
                KernelLoader::new(ports.clone(), options.limits_room, trust).behind(hybriding::splitter(options)?);
            let readers = loader.shared().tables().readers().clone();
            let start = |first: &_| Ok(KernelPath::start(ports, first, Some(&readers))?);
            run_on(options, held, &signals, loader, start)
        }
        LiveEngine::Afpacket => {
            let open = || AfPacketLane::open(&interfaces, options.workers);
            run_workers(options, trust, held, &signals, || Ok(boxed(open()?)))
        }
        LiveEngine::Afxdp => {
            let waiting = if options.busy_poll { Waiting::BusyPoll } else { Waiting::Sleep };
            let open = || AfXdpLane::open(&interfaces, options.workers, waiting);
            run_workers(options, trust, held, &signals, || Ok(boxed(open()?)))
        }
        LiveEngine::Dpdk => run_workers(options, trust, held, &signals, || dpdk::lanes(options, &interfaces)),
    }
}

/// The claimed interfaces: the given ones, and kernel interfaces of virtual DPDK ports.
fn claim_targets(options: &RunOptions) -> Result<Vec<ClaimTarget>, Failure> {
    let behind = dpdk::kernel_interfaces(options)?;
    let ports = if options.engine == LiveEngine::Dpdk { PortKind::Dpdk } else { PortKind::Kernel };
    ClaimTarget::of(options.lower.iter().chain(&options.upper).chain(&options.host).chain(&behind), ports)
}

/// Flags that signals set.
#[derive(Clone, Default)]
struct Signals {
    /// SIGINT or SIGTERM.
    stop: Arc<AtomicBool>,
    /// SIGHUP: the lists are read again.
    hang_up: Arc<AtomicBool>,
}

impl Signals {
    fn register() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let signals = Signals::default();
        for (signal, flag) in [(SIGINT, &signals.stop), (SIGTERM, &signals.stop), (SIGHUP, &signals.hang_up)] {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|error| Failure::system(format_args!("signal {signal}"), error))?;
        }
        Ok(signals)
    }
}

/// The resources of a running Weir besides its interfaces.
struct Held {
    targets: Vec<ClaimTarget>,
    claims: Claims,
    server: Server,
    log: Option<LimitsLog>,
    interfaces: Interfaces,
    samples: Option<Arc<SampleReader>>,
}

/// Runs the command with workers in user space, each with a lane.
fn run_workers(
    options: &RunOptions,
    trust: Trust,
    held: Held,
    signals: &Signals,
    open: impl FnOnce() -> Result<Vec<Box<dyn Lane>>, Failure>,
) -> Result<(), Failure> {
    let loader = NativeLoader::new(trust).behind(hybriding::splitter(options)?);
    let samples = held.samples.as_ref().and_then(|samples| samples.queue());
    run_on(options, held, signals, loader, |first| Ok(Workers::start_with(open()?, first, samples.as_ref())?))
}

/// Runs the command with one kind of datapath, which `start` starts.
fn run_on<L: Loader>(
    options: &RunOptions,
    held: Held,
    signals: &Signals,
    loader: L,
    start: impl FnOnce(&Loaded<<L::Datapath as Datapath>::Code>) -> Result<L::Datapath, Failure>,
) -> Result<(), Failure> {
    let Held { targets, claims, mut server, log, interfaces, samples } = held;
    let state = options.state_folder.as_deref().map(|path| StateFolder::open(path, loader.shared())).transpose()?;
    let first = match Generation::prepare(&options.policy, &loader) {
        // Stopped before the start.
        Err(_) if signals.stop.load(Ordering::Relaxed) => return Ok(()),
        prepared => prepared?,
    };
    mitigating::check(options, &first)?;
    carding::check(options, first.program())?;
    let loaded = first.loaded(None)?;
    // Until the first policy is confirmed, everything passes when Weir ends.
    let on_exit = if options.confirm.is_some() { OnExit::Forward } else { first.program().on_exit };
    let guard = guard(options, &interfaces, &targets, on_exit)?;
    let ran = (|| {
        // Its interfaces are as they will be without Weir.
        let (opened, card_claims) = carding::open(options, &targets)?.unzip();
        let link = hybriding::open(options, loader.splitter())?;
        let datapath = start(&loaded)?;
        let opened = opened.map_or_else(|| carding::open_port(options), |opened| Ok(Some(opened)))?;
        guard.take_over(on_exit)?;
        let controller = Arc::new(Controller::new(datapath, first, guard.clone(), options.confirm)?);
        let door = Arc::new(Door::new(controller.clone(), loader.clone(), Arc::default()));
        link.map(|link| hybriding::start(options, link, &door)).transpose()?;
        report_start(options, &controller);
        let log = log.map(|log| log.start(controller.clone()));
        let saving = state.map(|state| state.start(&controller, &loader)).transpose()?;
        end_what_is_due(Arc::downgrade(&door))?;
        feeds::start(Arc::downgrade(&door))?;
        hybriding::follow(options, &door)?;
        let card = opened.map(|opened| carding::start(options, opened, &door)).transpose()?;
        let mitigation = samples.map(|samples| mitigating::start(options, samples, &door, card.clone()));
        let mitigation = mitigation.transpose()?;
        let asked = door.clone();
        server.serve(move |request| asked.request(request).map(|reply| json!(reply)))?;
        let carried = options.carry_link.then(|| CarriedLinks::watch(&interfaces)).transpose()?;
        watch(&controller, &guard, carried, &loader, signals, &door.updates);
        drop(server);
        // Actions are undone while workers can still take changes up.
        mitigation.iter().for_each(Mitigation::end);
        card.iter().for_each(Card::end);
        hybriding::end(&controller);
        // A new Weir is not refused from now on, but waits for the guard.
        drop((claims, card_claims));
        guard.before_stop();
        let stopped = thread::scope(|scope| {
            scope.spawn(|| guard.open_early());
            controller.stop()
        });
        if let Some(log) = log {
            log.end();
        }
        if let Some(saving) = saving {
            saving.end();
        }
        stopped.and(controller.check_confirmed())
    })();
    ran.and(guard.end())
}

/// What ensures `on-exit`.
fn guard(
    options: &RunOptions,
    interfaces: &Interfaces,
    targets: &[ClaimTarget],
    on_exit: OnExit,
) -> Result<Arc<Guard>, Failure> {
    let guard = match options.host.as_slice() {
        [] => Guard::of_link(interfaces.clone(), targets.to_vec(), on_exit)?,
        host => Guard::of_host(host),
    };
    if options.confirm.is_some()
        && let Some(problem) = guard.cannot_forward()
    {
        let why = "there would be no way back, since nothing can pass here without weir";
        return Err(Failure::Rejected(format!("weir: --confirm: {why}: {problem}")));
    }
    Ok(Arc::new(guard))
}

/// The interfaces of the datapath.
fn interfaces(options: &RunOptions) -> Interfaces {
    Interfaces { lower: options.lower.clone(), upper: options.upper.clone(), divert: options.divert.clone() }
}

fn report_start<D: Datapath>(options: &RunOptions, controller: &Controller<D>) {
    let Status { workers, access, .. } = controller.status();
    access.iter().for_each(|access| eprintln!("weir: {access}"));
    let place = match options.host.as_slice() {
        [] => format!("between {} and {}", options.lower.join(", "), options.upper.join(", ")),
        host => format!("on this host at {}", host.join(", ")),
    };
    let (policy, control) = (options.policy.display(), options.control.display());
    eprintln!("weir: {policy} {place}, {workers} workers; control at {control}");
    if let Some(time) = options.confirm {
        let time = humantime::format_duration(time);
        eprintln!("weir: on trial: unless `weir ctl confirm` comes within {time}, weir ends and everything passes");
    }
}

/// Refuses repeated interfaces, on which packets would loop for ever.
fn refuse_repeats(options: &RunOptions) -> Result<(), Failure> {
    let mut known = HashSet::new();
    let mut interfaces = options.lower.iter().chain(&options.upper).chain(&options.divert).chain(&options.host);
    match interfaces.find(|name| !known.insert(name.as_str())) {
        Some(repeated) => Err(Failure::Rejected(format!("weir: the interface {repeated} is given twice"))),
        None => Ok(()),
    }
}

/// The main loop, until a signal stops it or a worker fails. It never waits for an activation.
fn watch<L: Loader>(
    controller: &Controller<L::Datapath>,
    guard: &Guard,
    mut carried: Option<CarriedLinks>,
    loader: &L,
    signals: &Signals,
    updates: &Updates,
) {
    let (mut refreshed, mut table_ticks) = (Instant::now(), TableTicks::default());
    let (mut feature_turns, mut room) = (FeatureTurns::default(), RoomWatch::default());
    while !signals.stop.load(Ordering::Relaxed) && !controller.has_failed() && !controller.has_given_up() {
        if signals.hang_up.swap(false, Ordering::Relaxed) {
            updates.request_reload();
        }
        if refreshed.elapsed() > REFRESH {
            loader.shared().refresh(weir_state::now_ns());
            refreshed = Instant::now();
        }
        if room.is_due(Instant::now())
            && let Some(flows) = requests::flow_room(controller, loader.shared())
        {
            room.see(&flows).iter().for_each(|said| eprintln!("weir: {said}"));
        }
        thread::sleep(TICK);
        guard.renew();
        loader.shared().tables().free();
        if let Err(failure) = table_ticks.keep(loader) {
            eprintln!("weir: {failure}");
        }
        if let Err(failure) = feature_turns.keep(loader) {
            eprintln!("weir: {failure}");
        }
        if let Some(carried) = &mut carried {
            carried.step(guard);
        }
    }
}

/// Starts a thread that ends trials and leases of postures in time, as long as the door exists.
fn end_what_is_due<L: Loader>(door: Weak<Door<L>>) -> Result<(), Failure> {
    let watch = move || {
        while let Some(door) = door.upgrade() {
            if let Some(due) = door.controller.due() {
                let is_trial = due == Change::Timeout;
                match Failure::catch(|| door.make_due(due)) {
                    Ok(true) if is_trial => {
                        let Status { generation, posture, .. } = door.controller.status();
                        eprintln!("weir: not confirmed in time: rolled back to {}", Active { generation, posture });
                    }
                    // The controller has said that the posture has ended.
                    Ok(_) => {}
                    Err(failure) => {
                        let (what, then) = match is_trial {
                            true => ("not confirmed in time", "the confirmed policy"),
                            false => ("the automatic posture was not renewed", "the operator's posture"),
                        };
                        eprintln!("weir: {what}, but {then} cannot be activated: {failure}");
                        thread::sleep(TRIAL_PAUSE);
                    }
                }
            }
            drop(door);
            thread::sleep(TICK);
        }
    };
    let started = thread::Builder::new().name("weir-trials".to_owned()).spawn(watch);
    started.map(drop).map_err(|error| Failure::system("a thread for trials", error))
}

fn boxed<L: Lane + 'static>(lanes: Vec<L>) -> Vec<Box<dyn Lane>> {
    lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect()
}

#[cfg(test)]
mod still;
