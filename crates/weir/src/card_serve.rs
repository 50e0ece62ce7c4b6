//! `weir card serve`: a card in software between two interfaces, for tests and for users without a card.

use crate::cli::CardServeOptions;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_abi::card::TRAILER_BYTES_MAX;
use weir_card::device::{Device, FromHost, FromNetwork};
use weir_command::failure::Failure;
use weir_command::report;
use weir_daemon::interfaces::claim::{ClaimTarget, Claimant, Claims, PortKind};
use weir_engine::live::afpacket::bump::{Bump, Passage};
use weir_engine::live::{PortReading, Side};
use weir_planning::card::profile;

/// How long the process waits for frames before it looks whether it has to end.
const WAIT: Duration = Duration::from_millis(50);

/// What the card did, printed at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Served {
    /// Frames from the network, and how many of them the card dropped.
    pub from_network: u64,
    #[allow(missing_docs)]
    pub dropped: u64,
    /// Frames that the software sent to the network, and its control frames.
    pub to_network: u64,
    #[allow(missing_docs)]
    pub control: u64,
    /// Frames for which there was no room in a receive queue.
    pub missed: u64,
    /// Frames that an interface did not take: queue full, link down, too long.
    pub unsent: u64,
}

/// Runs the command.
///
/// # Errors
/// The profile cannot be read, or an interface cannot be used.
pub fn run(options: &CardServeOptions) -> Result<(), Failure> {
    let profile = profile(&options.profile)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|error| Failure::system(format_args!("signal {signal}"), error))?;
    }
    let names = [&options.network, &options.host];
    let targets = ClaimTarget::of(names.into_iter(), PortKind::Kernel)?;
    let _claims = Claims::take(&targets, Claimant::Weir, Duration::ZERO)?;
    let mut bump = Bump::open(names.map(String::as_str))?;
    let [network, host] = bump.mtus()?;
    if host < network + TRAILER_BYTES_MAX as u32 {
        return Err(Failure::Rejected(format!(
            "weir: {}: its MTU is {host}, but a frame of {} with a trailer needs {}: `ip link set {} mtu {}`, and the same at \
             its other end",
            options.host,
            options.network,
            network + TRAILER_BYTES_MAX as u32,
            options.host,
            network + TRAILER_BYTES_MAX as u32
        )));
    }
    eprintln!("weir: {} between {} and {}", profile.name, options.network, options.host);
    let mut device = Device::new(profile);
    let mut served = Served::default();
    while !stop.load(Ordering::Relaxed) {
        bump.step(WAIT, |from, frame| handle(&mut device, &mut served, from, frame))?;
    }
    for PortReading { rx_missed, tx_full, tx_link_down, tx_too_long, .. } in bump.counters() {
        served.missed += rx_missed;
        served.unsent += tx_full + tx_link_down + tx_too_long;
    }
    if options.json { report::print_json(&served) } else { report::print(&describe(&served)) }
}

/// The network is on the lower side.
fn handle(device: &mut Device, served: &mut Served, from: Side, frame: &[u8]) -> Passage {
    if from == Side::Lower {
        served.from_network += 1;
        return match device.from_network(frame) {
            FromNetwork::Passed(trailer) => Passage::Passed(trailer),
            FromNetwork::Dropped => {
                served.dropped += 1;
                Passage::Dropped
            }
        };
    }
    match device.from_host(frame) {
        FromHost::ToNetwork => {
            served.to_network += 1;
            Passage::Passed(vec![])
        }
        FromHost::Answer(answer) => {
            served.control += 1;
            Passage::Answered(answer)
        }
    }
}

fn describe(served: &Served) -> String {
    let Served { from_network, dropped, to_network, control, missed, unsent } = served;
    format!(
        "{from_network} frames from the network, {dropped} of them dropped; {to_network} to it; {control} control \
         frames; {missed} missed, {unsent} not sent\n"
    )
}
