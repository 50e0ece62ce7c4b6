//! `smartnic`: Miano et al., *Introducing SmartNICs in Server-Based Data Plane Processing* (2019), section V, with Weir
//! on the host that it protects, and what an operator would use instead.
//!
//! * What dropping costs by number of sources (`drops.rs`): Fig. 2a and 2b; with 1K and 128K sources in turn
//!   (`growth.rs`); and what Weir's program alone takes of it (`program.rs`).
//! * The CPU of the host (`load.rs`): Fig. 3, with cards.
//! * Requests that a web server completes (`web.rs`): Fig. 4a and 4b, with cards.

mod blocker;
mod blockers;
mod chart;
mod door;
mod drops;
mod growth;
mod load;
mod netfilter;
mod paper;
mod program;
mod sources;
mod web;

use crate::live::{generating_core, wire};
use crate::need::Need;
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Axis, Member, Picks, Scenario};
use crate::stateful::segments::checksum;
use blockers::BLOCKERS;
use door::{Door, HOST_CORE, MAC, VICTIM};
use drops::Effort;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_engine::clang::Clang;
use weir_engine::traffic::{self, SMALL_FRAME_BYTES};
use weir_instruments::generate::Generator;

pub use chart::draw as plot;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "smartnic",
    paper: "SmartNIC Fig. 2-4: XDP on four cores drops 26 Mpps of up to 1K sources, and 10 Mpps of 128K; iptables 2.5 to 4.5, and nothing above 4K",
    needs: &[
        Need::Root,
        Need::Processors(2),
        Need::Clang,
        Need::Program("ip"),
        Need::Program("ethtool"),
        Need::Program("unshare"),
    ],
    axes: &[
        Axis {
            name: "part",
            members: &[
                Member::plain("drops"),
                Member::plain("growth"),
                Member::plain("program"),
                Member::plain("load"),
                Member::plain("web"),
            ],
        },
        Axis { name: "blocker", members: &BLOCKERS },
    ],
    smoke_only: &[blockers::DROP_ALL, blockers::ALONE, "weir-card-hybrid", "nft-netdev", "ipset", "iptables"],
    picks: Picks::Members,
    seconds: Scaled { full: 1200, quick: 300, smoke: 20 },
    run,
    plot,
};

const EFFORT: Scaled<Effort> = Scaled {
    full: Effort {
        rounds: 7,
        packets: 1 << 19,
        paced: 150_000,
        settling: 100_000,
        during: Duration::from_millis(1500),
        counts: &[1, 16, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17],
        rates: &[0, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 4_000_000],
    },
    quick: Effort {
        rounds: 2,
        packets: 1 << 16,
        paced: 20_000,
        settling: 100_000,
        during: Duration::from_millis(300),
        counts: &[1, 16, 256, 1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 17],
        rates: &[0, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 4_000_000],
    },
    smoke: Effort {
        rounds: 1,
        packets: 1 << 10,
        paced: 1 << 10,
        settling: 1 << 10,
        during: Duration::from_millis(30),
        counts: &[1, 256],
        rates: &[0, 100_000],
    },
};

/// Runs the scenario.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let (attackers, source) = sources::attackers(plan)?;
    let effort = EFFORT.at(plan.scale);
    let rows = wire::in_namespace(|| {
        if generating_core()? == HOST_CORE {
            return Err(Failure::Runtime("weir: the generator and the host need a core each".to_owned()));
        }
        let names = working(plan)?;
        let without_card: Vec<&str> = names.iter().copied().filter(|name| !blockers::has_card(name)).collect();
        let serving: Vec<&str> = names.iter().copied().filter(|name| blockers::SERVING.contains(name)).collect();
        let generator = Generator::compile(&Clang::find()?)?;
        // It leaves through the interface of each host in turn.
        let mut generator = Generator::load(&generator, 0, &attack(), &attackers[..1])?;
        let mut rows = Vec::new();
        for part in plan.each("part") {
            rows.extend(match part {
                "drops" => drops::rows(&without_card, &attackers, &mut generator, effort)?,
                "growth" => growth::rows(&without_card, &attackers, &mut generator, effort)?,
                "program" => program::rows(&without_card, &attackers, effort)?,
                "load" => load::rows(&names, &attackers, &mut generator, effort)?,
                _ => web::rows(&serving, &attackers, &mut generator, effort)?,
            });
        }
        Ok(rows)
    })?;
    Ok(rows.into_iter().map(|row| row.of("source", source)).chain(paper::rows()).collect())
}

/// The blockers, without those of netfilter that this kernel does not have: their program may be there, and their
/// module not.
fn working(plan: &Plan<'_>) -> Result<Vec<&'static str>, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let mut names = Vec::new();
    for &name in plan.members("blocker") {
        if blockers::is_of_netfilter(name) {
            let door = Door::open("tried")?;
            let source = [VICTIM.to_bits()];
            let blocked = blockers::start(name, &door, folder.path(), &source);
            if let Err(failure) = blocked.and_then(|mut blocker| blocker.block(&door, &source)) {
                plan.leave_out(name, &failure);
                continue;
            }
        }
        names.push(name);
    }
    Ok(names)
}

/// A packet of the attack: UDP, with 64 bytes on the wire and a right checksum.
fn attack() -> [u8; SMALL_FRAME_BYTES] {
    let mut frame = traffic::small_packet(0);
    frame[..6].copy_from_slice(&MAC);
    frame[30..34].copy_from_slice(&VICTIM.octets());
    let sum = checksum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}
