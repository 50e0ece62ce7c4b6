//! Checks the labels of layouts, then measures them in turns on the same keys.

use crate::data::Data;
use crate::data::keys::{KeyMix, Keys};
use crate::row::Row;
use crate::tables::layouts::{Builder, Built, Find};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::time::Instant;
use weir_abi::{BURST_MAX, Layout};
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_engine::tsc;
use weir_instruments::lookup::Bytes;
use weir_schemes::Scheme;
use weir_tables::{Reference, Table};

/// One key of this many is checked with the reference, which is slow. All keys are checked with a fast layout.
pub const REFERENCE_ONE_IN: usize = 16;

/// Maximum number of builds of a table.
const BUILDS: usize = 5;
/// Builds are not repeated after this time in seconds.
const BUILD_S_MAX: f64 = 1.0;

/// A layout with a built table.
#[derive(Debug)]
pub struct Entrant {
    /// Its name.
    pub layout: &'static str,
    /// `single`, `burst`, or the name of a mode of DPDK.
    pub mode: String,
    /// Its lookup.
    pub find: Find,
    /// The lookup that returns labels, if the timed one does not.
    pub find_labels: Option<Find>,
    /// Its table, unless the code keeps the table.
    pub built: Option<Rc<Built>>,
    /// Size of the table in bytes.
    pub bytes: usize,
    /// Build time in seconds.
    pub build_s: Spread,
}

impl Entrant {
    fn table(&self) -> Bytes<'_> {
        self.built.as_ref().map_or(Bytes::Own, |built| built.bytes())
    }
}

/// Builds the table up to [`BUILDS`] times.
///
/// # Errors
/// The layout cannot contain the table. The text gives the reason.
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

/// The correct labels of a table.
pub struct Oracle {
    reference: Reference,
    /// A fast layout, which is checked against the reference.
    quick: Built,
}

impl Oracle {
    /// Makes the oracle of a table.
    ///
    /// # Errors
    /// None of the fast layouts can contain the table.
    pub fn new(table: &Table) -> Result<Self, Failure> {
        let quick = Builder::Layout(Layout::Dxr16x4).build(table);
        let quick = quick.or_else(|_| Builder::Layout(Layout::Range6).build(table));
        let quick = quick.or_else(|_| Builder::Scheme(Scheme::Radix).build(table));
        Ok(Oracle { reference: table.reference(), quick: quick.map_err(Failure::Runtime)? })
    }

    /// The label of each key. Every `step`th label is compared with the reference.
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

/// Compares the labels of every layout with the expected ones.
///
/// # Errors
/// A layout returns a wrong label.
pub fn check(data: &Data, entrants: &[Entrant], keys: &Keys, expected: &[u32]) -> Result<(), Failure> {
    let mut labels = vec![0; keys.len()];
    for entrant in entrants {
        labels.fill(u32::MAX);
        entrant.find_labels.as_ref().unwrap_or(&entrant.find).run(entrant.table(), keys, &mut labels);
        compare(&format!("{} ({}) of {}", entrant.layout, entrant.mode, data.name), keys, &labels, expected)?;
    }
    Ok(())
}

/// Compares labels with the expected ones. `who` is for messages.
///
/// # Errors
/// A label is wrong.
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
    Failure::Runtime(format!("bench tables: {who} finds label {found} for {key}, but {right} is correct"))
}

/// Times a turn of each entrant in every round. Returns cycles per key. One round more comes first, which is not
/// counted.
pub fn turns<T>(entrants: &[T], keys: &Keys, rounds: usize, mut turn: impl FnMut(&T, &Keys)) -> Vec<Spread> {
    let mut samples: Vec<Vec<f64>> = vec![Vec::with_capacity(rounds); entrants.len()];
    for round in 0..=rounds {
        for (entrant, samples) in entrants.iter().zip(&mut samples) {
            // An untimed turn restores the caches after the previous entrant.
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

/// Measures the entrants. Returns a row for each.
pub fn run(data: &Data, mix: KeyMix, entrants: &[Entrant], keys: &Keys, rounds: usize) -> Vec<Row> {
    let mut labels = [0; BURST_MAX];
    let turn = |entrant: &Entrant, keys: &Keys| entrant.find.run_bursts(entrant.table(), keys, &mut labels);
    let spreads = turns(entrants, keys, rounds, turn);
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
