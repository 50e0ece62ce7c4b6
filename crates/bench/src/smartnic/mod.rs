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
use crate::options::Options;
use crate::row::Row;
use crate::stateful::segments::checksum;
use crate::stateful::selected;
use blockers::BLOCKERS;
use door::{HOST_CORE, MAC, VICTIM};
use weir::failure::Failure;
use weir_engine::clang::Clang;
use weir_engine::traffic::{self, SMALL_FRAME_BYTES};
use weir_engine::xdp::generate::Generator;

/// The parts of the scenario.
const PARTS: [&str; 5] = ["drops", "growth", "program", "load", "web"];

pub use chart::svg as plot;

/// Runs the scenario. `--only` selects parts, blockers, or both.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let known: Vec<&str> = PARTS.iter().chain(&BLOCKERS).copied().collect();
    if let Some(unknown) = options.only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::Rejected(format!("weir: --only {unknown}: unknown; known are {}", known.join(", "))));
    }
    let (attackers, source) = sources::attackers(&options.data)?;
    let names = selected(&BLOCKERS, &options.only);
    let without_card: Vec<&str> = names.iter().copied().filter(|name| !blockers::has_card(name)).collect();
    let serving: Vec<&str> = names.iter().copied().filter(|name| blockers::SERVING.contains(name)).collect();
    let effort = if options.quick { drops::QUICK } else { drops::FULL };
    let rows = wire::in_namespace(|| {
        if generating_core()? == HOST_CORE {
            return Err(Failure::Runtime("weir: the generator and the host need a core each".to_owned()));
        }
        let generator = Generator::compile(&Clang::find()?)?;
        // It leaves through the interface of each host in turn.
        let mut generator = Generator::load(&generator, 0, &attack(), &attackers[..1])?;
        let mut rows = Vec::new();
        for part in selected(&PARTS, &options.only) {
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

/// A packet of the attack: UDP, with 64 bytes on the wire and a right checksum.
fn attack() -> [u8; SMALL_FRAME_BYTES] {
    let mut frame = traffic::small_packet(0);
    frame[..6].copy_from_slice(&MAC);
    frame[30..34].copy_from_slice(&VICTIM.octets());
    let sum = checksum(&frame[14..34], 0);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}
