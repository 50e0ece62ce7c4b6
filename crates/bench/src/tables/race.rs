//! Checks what layouts answer, then lets them take turns on the same keys.

use crate::data::Data;
use crate::data::keys::{KeyMix, Keys};
use crate::row::Row;
use crate::tables::layouts::{Builder, Built, Find};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Instant;
use weir::failure::Failure;
use weir_abi::{BURST_MAX, Layout};
use weir_engine::lookup::Bytes;
use weir_engine::measure::Spread;
use weir_engine::tsc;
use weir_tables::scheme::Scheme;
use weir_tables::{Reference, Table};

/// The reference is asked for one key in so many, since it is slow; a layout that it agrees with for all of them.
pub const REFERENCE_ONE_IN: usize = 16;

/// Rounds in which every layout has its turn.
const ROUNDS: usize = 11;

/// Builds of a table, unless they take long.
const BUILDS: usize = 5;
/// Builds are not repeated beyond.
const BUILD_S_MAX: f64 = 1.0;

/// A layout that holds the table.
#[derive(Debug)]
pub struct Entrant {
    /// Its name.
    pub layout: &'static str,
    /// `single`, `burst`, or what a peer calls its own.
    pub mode: String,
    /// Its lookup.
    pub find: Find,
    /// The lookup that tells labels, if the timed one does not.
    pub find_labels: Option<Find>,
    /// Its table, unless the code keeps it itself.
    pub built: Option<Rc<Built>>,
    /// Bytes that lookups read.
    pub bytes: usize,
    /// Seconds that building took.
    pub build_s: Spread,
}

impl Entrant {
    fn table(&self) -> Bytes<'_> {
        self.built.as_ref().map_or(Bytes::Own, |built| built.bytes())
    }
}

/// Builds the table a few times.
///
/// # Errors
/// The layout cannot hold it: the text says why.
pub fn build(builder: Builder, table: &Table) -> Result<(Built, Spread), String> {
    let mut samples: Vec<f64> = Vec::new();
    loop {
        let start = Instant::now();
        let built = builder.build(table)?;
        samples.push(start.elapsed().as_secs_f64());
        if samples.len() == BUILDS || samples.iter().sum::<f64>() > BUILD_S_MAX {
            return Ok((built, Spread::of(samples).expect("at least one")));
        }
    }
}

/// What every layout must answer.
pub struct Oracle {
    reference: Reference,
    /// Fast, and itself checked against the reference.
    quick: Built,
}

impl Oracle {
    /// For a table.
    ///
    /// # Errors
    /// Neither of the quick layouts can hold it.
    pub fn new(table: &Table) -> Result<Self, Failure> {
        let quick = Builder::Layout(Layout::Dxr16x4).build(table);
        let quick = quick.or_else(|_| Builder::Layout(Layout::Range6).build(table));
        let quick = quick.or_else(|_| Builder::Scheme(Scheme::Radix).build(table));
        Ok(Oracle { reference: table.reference(), quick: quick.map_err(Failure::Runtime)? })
    }

    /// The label of each key; every `step`th is asked of the reference too.
    pub fn labels(&self, keys: &Keys, step: usize) -> Result<Vec<u32>, Failure> {
        let quick4 = |key: u32| match &self.quick {
            Built::Image(image) => image.view().find4(key),
            Built::Scheme(image) => image.view().find(key),
        };
        let labels: Vec<u32> = match keys {
            Keys::V4(keys) => keys.iter().map(|&key| quick4(key)).collect(),
            Keys::V6 { hi, lo } => {
                let Built::Image(image) = &self.quick else { unreachable!("compiler bug: a scheme with IPv6 keys") };
                let view = image.view();
                hi.iter().zip(lo).map(|(&hi, &lo)| view.find6(u128::from(hi) << 64 | u128::from(lo))).collect()
            }
        };
        let reference = |index: usize| match keys {
            Keys::V4(keys) => self.reference.find4(keys[index]),
            Keys::V6 { hi, lo } => self.reference.find6(u128::from(hi[index]) << 64 | u128::from(lo[index])),
        };
        match (0..keys.len()).step_by(step).find(|&index| labels[index] != reference(index)) {
            Some(index) => Err(wrong("the oracle", keys, index, labels[index], reference(index))),
            None => Ok(labels),
        }
    }
}

/// Compares what every layout answers with what it must.
///
/// # Errors
/// A layout answers wrongly.
pub fn check(data: &Data, entrants: &[Entrant], keys: &Keys, expected: &[u32]) -> Result<(), Failure> {
    let mut labels = vec![0; keys.len()];
    for entrant in entrants {
        labels.fill(u32::MAX);
        entrant.find_labels.as_ref().unwrap_or(&entrant.find).run(entrant.table(), keys, &mut labels);
        compare(&format!("{} ({}) of {}", entrant.layout, entrant.mode, data.name), keys, &labels, expected)?;
    }
    Ok(())
}

/// Compares the labels that `who` found.
///
/// # Errors
/// One is wrong.
pub fn compare(who: &str, keys: &Keys, labels: &[u32], expected: &[u32]) -> Result<(), Failure> {
    match (0..keys.len()).find(|&index| labels[index] != expected[index]) {
        Some(index) => Err(wrong(who, keys, index, labels[index], expected[index])),
        None => Ok(()),
    }
}

fn wrong(who: &str, keys: &Keys, index: usize, found: u32, right: u32) -> Failure {
    let key = match keys {
        Keys::V4(keys) => Ipv4Addr::from(keys[index]).to_string(),
        Keys::V6 { hi, lo } => Ipv6Addr::from(u128::from(hi[index]) << 64 | u128::from(lo[index])).to_string(),
    };
    Failure::Runtime(format!("bench tables: {who} finds label {found} for {key}, right is {right}"))
}

/// Times a turn of each entrant, round after round, and gives the cycles a key; the first round counts for nothing.
pub fn rounds<T>(entrants: &[T], keys: &Keys, mut turn: impl FnMut(&T, &Keys)) -> Vec<Spread> {
    let mut samples: Vec<Vec<f64>> = vec![Vec::with_capacity(ROUNDS); entrants.len()];
    for round in 0..=ROUNDS {
        for (entrant, samples) in entrants.iter().zip(&mut samples) {
            // No turn pays for what the one before threw out of the caches.
            turn(entrant, keys);
            let start = tsc::now();
            turn(entrant, keys);
            let cycles = (tsc::now() - start) as f64 / keys.len() as f64;
            if round > 0 {
                samples.push(cycles);
            }
        }
    }
    samples.into_iter().map(|samples| Spread::of(samples).expect("there are rounds")).collect()
}

/// A row for each entrant.
pub fn run(data: &Data, mix: KeyMix, entrants: &[Entrant], keys: &Keys) -> Vec<Row> {
    let mut labels = [0; BURST_MAX];
    let spreads = rounds(entrants, keys, |entrant, keys| entrant.find.run_bursts(entrant.table(), keys, &mut labels));
    let row = |(entrant, spread): (&Entrant, Spread)| {
        Row::default()
            .of("table", &data.name)
            .of("source", data.source)
            .of("layout", entrant.layout)
            .of("keys", mix.name())
            .of("mode", &entrant.mode)
            .spread("cycles_per_lookup", spread)
            .number("bytes", entrant.bytes as f64)
            .spread("build_s", entrant.build_s)
    };
    entrants.iter().zip(spreads).map(row).collect()
}
