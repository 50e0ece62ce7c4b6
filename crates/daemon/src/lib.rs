//! `weir run`: runs a policy between interfaces in the foreground, until SIGINT or SIGTERM.
//!
//! | folder | content |
//! | --- | --- |
//! | `interfaces` | claims, the guard of the link, the operator's own connection, the state of links |
//! | `generations` | policies that are loaded, which of them is active, and their counts |
//! | `captures` | copies of packets for clients |
//! | `door.rs`, `requests` | the one entrance for every change, and what clients ask for |
//! | `parts` | everything else that a running Weir does: cards, mitigation, feeds, saving, logs |
#![forbid(unsafe_code)]

#[macro_use]
extern crate weir_command;

mod captures;
pub mod door;
pub mod generations;
pub mod interfaces;
mod kept;
mod notify;
pub mod options;
pub mod parts;
pub mod requests;
mod server;
mod signals;
mod upgrade;

use captures::{Captures, Streams};
use door::Door;
use generations::beginning;
use generations::beginning::Beginning;
use generations::controller::Controller;
use generations::generation::{Generation, KernelLoader, Loader, LoaderCode, NativeLoader};
use generations::succession;
use interfaces::claim::{ClaimTarget, Claimant, Claims};
use interfaces::{descriptors, own_connection};
use kept::Keeper;
use options::RunOptions;
use parts::part::{Parts, Running};
use parts::{hybrid, mitigation};
use serde_json::json;
use server::{Answered, Server};
use signals::Flags;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use upgrade::{Ends, NotUpgraded, Resumed, Upgrades};
use weir_command::failure::Failure;
use weir_command::signals::clean_up;
use weir_configuration::Configuration;
use weir_control::{Request, Status};
use weir_engine::bundle::trust::Trust;
use weir_engine::live::samples::SampleReader;
use weir_engine::live::tap::Taps;
use weir_engine::live::xdp::{KernelPath, Ports};
use weir_engine::live::{Counts, Datapath, Interfaces, Loaded, Workers};
use weir_state::UsedBy;

/// Interval of the main loop.
const TICK: Duration = Duration::from_millis(50);

/// Runs the command. `configuration` is where options come from, if there is a file.
///
/// # Errors
/// The policy is invalid, an interface cannot be used, or a worker fails.
pub fn run(options: &RunOptions, configuration: Option<&Arc<Configuration>>) -> Result<(), Failure> {
    if !options.try_policies.is_empty() {
        check_options(options)?;
        return upgrade::try_policies(options);
    }
    // Descriptors that were handed over are looked for before others are opened.
    let (resumed, upgrades) = (Resumed::find()?, Upgrades::begin());
    descriptors::raise()?;
    run_with(options, configuration, resumed, upgrades).map_err(descriptors::explain)
}

/// Refuses options that contradict each other, before anything is taken.
///
/// # Errors
/// The reason.
pub fn check_options(options: &RunOptions) -> Result<(), Failure> {
    interfaces::check(options)?;
    parts::check(options)?;
    let trial = options.confirm.map_or(Ok(()), succession::check_length);
    trial.map_err(|refusal| Failure::Rejected(format!("weir: {refusal}")))
}

fn run_with(
    options: &RunOptions,
    configuration: Option<&Arc<Configuration>>,
    mut resumed: Option<Resumed>,
    upgrades: Arc<Upgrades>,
) -> Result<(), Failure> {
    let located = |failure| match configuration {
        Some(configuration) => configuration.locate(failure),
        None => failure,
    };
    check_options(options).map_err(located)?;
    for (key, line) in configuration.map(|configuration| configuration.overridden()).unwrap_or_default() {
        eprintln!("weir: `--{key}` of the command line is used in place of line {line} of the configuration");
    }
    let trust = options.trust.read()?;
    if resumed.is_none() {
        own_connection::check(options, &trust)?;
    }
    let flags = Flags::register()?;
    notify::start()?;
    if resumed.is_some() {
        notify::progress_until_ready();
    }
    clean_up()?;
    // Claims come first, because another Weir may use the interfaces.
    let targets = interfaces::claim_targets(options)?;
    let in_kernel = options.engine.runs_in_kernel();
    let (claims, server) = match &mut resumed {
        Some(resumed) => (resumed.claims(&targets)?, resumed.server(options)?),
        None => (Claims::take(&targets, Claimant::Weir, Duration::ZERO)?, Server::listen(&options.control)?),
    };
    let taken = Taken {
        targets,
        claims,
        server,
        interfaces: interfaces::interfaces(options),
        samples: mitigation::reader(options)?,
        taps: if in_kernel { Taps::of_kernel()? } else { Taps::of_workers() },
        flags,
        resumed,
        upgrades,
        configuration: configuration.cloned(),
    };
    match in_kernel {
        true => run_kernel(options, trust, taken),
        false => run_workers(options, trust, taken),
    }
}

/// What a running Weir has taken before its policy is loaded.
struct Taken {
    targets: Vec<ClaimTarget>,
    claims: Claims,
    server: Server,
    interfaces: Interfaces,
    samples: Option<Arc<SampleReader>>,
    taps: Arc<Taps>,
    flags: Flags,
    /// What the program before this one in its process has handed over.
    resumed: Option<Resumed>,
    upgrades: Arc<Upgrades>,
    configuration: Option<Arc<Configuration>>,
}

/// Runs the command with programs in the kernel.
fn run_kernel(options: &RunOptions, trust: Trust, mut taken: Taken) -> Result<(), Failure> {
    let ports = match options.host.as_slice() {
        [] => Ports::of(&taken.interfaces)?,
        host => Ports::of_host(host)?,
    };
    let ports = ports.with_samples(taken.samples.as_ref().and_then(|samples| samples.ring()));
    let ports = ports.counting_from(taken.resumed.as_ref().map_or(&[], Resumed::missed));
    let ports = Arc::new(ports.with_taps(taken.taps.clone()));
    let loader = KernelLoader::new(ports.clone(), options.limits_room, trust).behind(hybrid::splitter(options)?);
    let used_by = UsedBy::Kernel { limits_room: options.limits_room };
    let shared = taken.resumed.as_mut().map(|resumed| resumed.shared(used_by)).transpose()?;
    let loader = loader.continuing(shared);
    let held = taken.resumed.as_mut().map(Resumed::links).transpose()?.flatten();
    let counts = taken.resumed.as_mut().map(Resumed::counters).unwrap_or_default();
    let readers = loader.shared().tables().readers().clone();
    run_on(options, taken, loader, |first| match held {
        Some(held) => Ok(KernelPath::take_over(ports, first, Some(&readers), held, &counts)?),
        None => Ok((KernelPath::start(ports, first, Some(&readers))?, Vec::new())),
    })
}

/// Runs the command with workers in user space, each with a lane.
fn run_workers(options: &RunOptions, trust: Trust, mut taken: Taken) -> Result<(), Failure> {
    let shared = taken.resumed.as_mut().map(|resumed| resumed.shared(UsedBy::Workers)).transpose()?;
    let loader = NativeLoader::new(trust).of(options.engine).with(options.controller.controller());
    let loader = loader.behind(hybrid::splitter(options)?).continuing(shared);
    let samples = taken.samples.as_ref().and_then(|samples| samples.queue());
    let (interfaces, taps) = (taken.interfaces.clone(), taken.taps.clone());
    run_on(options, taken, loader, |first| {
        let lanes = options.engine.lanes(&interfaces, &options.lanes())?;
        Ok((Workers::start_with(lanes, first, samples.as_ref(), taps)?, Vec::new()))
    })
}

/// Runs the command with one kind of datapath. Long: the stages of a start and of an end, in order. `start` starts the
/// datapath, and returns what programs before it have counted meanwhile.
fn run_on<L: Loader>(
    options: &RunOptions,
    taken: Taken,
    loader: L,
    start: impl FnOnce(&Loaded<LoaderCode<L>>) -> Result<(L::Datapath, Vec<Counts>), Failure>,
) -> Result<(), Failure> {
    let Taken { targets, claims, mut server, interfaces, samples, taps, flags, mut resumed, upgrades, configuration } =
        taken;
    let restored = resumed.as_mut().and_then(|resumed| resumed.restored.take());
    let handed = resumed.as_mut().map(|resumed| std::mem::take(&mut resumed.parts)).unwrap_or_default();
    let mut parts = parts::all::<L>(options, samples, &upgrades, restored)?;
    parts.continue_with(handed);
    parts.restore(&loader)?;
    let keeper = Keeper::of(options);
    let check = |first: &Generation<LoaderCode<L>>| parts.check(first);
    let beginning = match &mut resumed {
        Some(resumed) => resumed.continued(&loader),
        None => kept::first(options, keeper.as_ref(), &loader, check, || flags.is_stopped())
            .and_then(|first| beginning::with(options, first)),
    };
    let beginning = match beginning {
        // Stopped before the start.
        Err(_) if flags.is_stopped() => return Ok(()),
        prepared => prepared?,
    };
    if resumed.is_some() {
        parts.check(beginning.active())?;
    }
    let (loaded, on_exit) = (beginning.loaded()?, beginning.on_exit);
    let guard = match &mut resumed {
        Some(resumed) => Arc::new(resumed.guard(options, &interfaces, &targets)?),
        None => interfaces::guard(options, &interfaces, &targets, on_exit)?,
    };
    let ran = (|| {
        // A card is opened while the interfaces are in the state that they have without Weir.
        parts.open(&targets, &loader)?;
        let (datapath, counted) = start(&loaded)?;
        parts.engine_opened()?;
        guard.take_over(on_exit)?;
        let Beginning { ready, succession, .. } = beginning;
        let controller = Controller::with(datapath, ready, succession, guard.clone());
        let controller = Arc::new(match &mut resumed {
            Some(resumed) => controller.continuing(resumed.counts(counted)),
            None => controller,
        });
        let engine = options.engine.name();
        controller.report(move |status| status.engine = Some(engine.to_owned()));
        match resumed {
            Some(resumed) => upgrades.note_carried(resumed.end(loader.shared())),
            None => report_start(options, &controller),
        }
        let door = Door::new(controller.clone(), loader, Arc::default()).configured(configuration);
        let door = Arc::new(door);
        let captures = Captures::new(taps.clone(), &interfaces, &options.host);
        let streams = captures.streams();
        controller.report(captures.counts());
        let running =
            Running { door: door.clone(), guard: guard.clone(), interfaces: &interfaces, taps, flags: &flags };
        let begun = keeper.as_ref().map_or(Ok(()), |keeper| keeper.start(&running.door));
        let begun = begun.and_then(|()| parts.start(&running));
        let answer = move |request| match request {
            Request::Capture(filter) => captures.begin(&filter, &door.controller.active()),
            request => door.request(request).map(|reply| Answered::from(json!(reply))),
        };
        let begun = begun.and_then(|()| server.serve(answer));
        let waited = begun.is_ok().then(|| wait(&mut parts, &running, (&upgrades, &claims, &server), &streams));
        drop(server);
        // Actions are undone while workers can still take changes up.
        parts.end(&running);
        begun?;
        // A new Weir is not refused from now on, but waits for the guard.
        drop(claims);
        guard.before_stop();
        let stopped = thread::scope(|scope| {
            scope.spawn(|| guard.open_early());
            controller.stop()
        });
        parts.finish();
        waited.unwrap_or(Ok(())).and(stopped).and(controller.check_confirmed())
    })();
    ran.and(guard.end())
}

/// The main loop, which never waits for an activation. It ends when Weir is to end. An upgrade leaves it only if the
/// datapath was stopped and there is no new program.
fn wait<L: Loader>(
    parts: &mut Parts<'_, L>,
    running: &Running<'_, L>,
    (upgrades, claims, server): (&Upgrades, &Claims, &Server),
    captures: &Streams,
) -> Result<(), Failure> {
    let Running { door, guard, flags, .. } = running;
    let controller = &door.controller;
    while !flags.is_stopped() && !controller.has_failed() && !controller.has_given_up() {
        parts.step(running);
        if let Some(plan) = upgrades.take_plan() {
            captures.end();
            let handed = parts.hand_over();
            let ends = Ends { door, guard, claims, server, flags, handed, upgrades: upgrades.count() };
            let NotUpgraded { failure, is_stopped } = upgrade::hand_over(plan, &ends);
            parts.go_on();
            captures.go_on();
            upgrades.refuse(failure.message());
            if is_stopped {
                return Err(failure);
            }
        }
        thread::sleep(TICK);
    }
    Ok(())
}

fn report_start<D: Datapath>(options: &RunOptions, controller: &Controller<D>) {
    let Status { workers, access, .. } = controller.status();
    for access in &access {
        match access.starts_with("warning: ") {
            true => warning!("weir: {access}"),
            false => eprintln!("weir: {access}"),
        }
    }
    let place = match options.host.as_slice() {
        [] => format!("between {} and {}", options.lower.join(", "), options.upper.join(", ")),
        host => format!("on this host at {}", host.join(", ")),
    };
    let (policy, control) = (options.policy.display(), options.control.display());
    eprintln!("weir: {policy} {place}, {workers} workers; control at {control}");
    if let Some(time) = options.confirm {
        let time = humantime::format_duration(time);
        notice!("weir: on trial: unless `weir ctl confirm` comes within {time}, weir ends and everything passes");
    }
}
