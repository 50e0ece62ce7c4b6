//! What a table costs in a scheme, in the terms of the paper's Table 1.

use std::collections::HashSet;

use weir_tables::Table;

use crate::SchemeImage;

/// The characteristics of a table in a scheme, as in the paper's Table 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Characteristics {
    /// N: prefixes.
    pub prefixes: usize,
    /// L: mean prefix length in bits; 0 for an empty table.
    pub mean_length_bits: f64,
    /// delta: distinct labels in use.
    pub labels: usize,
    /// mu: the share of random keys that the direct and extension tables answer. DXR only.
    pub hit_ratio: Option<f64>,
    /// phi: bytes of the direct and extension tables, divided by 4 bytes for each value of the bits that they index.
    /// DXR only.
    pub footprint_ratio: Option<f64>,
    /// rho: 32-bit words of the range table. DXR only.
    pub ranges: Option<usize>,
    /// M: bytes of all sections, without the image's header.
    pub bytes: usize,
}

impl Characteristics {
    /// The characteristics of an image and of the table that it was built from.
    pub fn of(table: &Table, image: &SchemeImage) -> Self {
        let prefixes = table.prefixes4();
        let length: u64 = prefixes.iter().map(|prefix| u64::from(prefix.len)).sum();
        let labels: HashSet<u32> = prefixes.iter().map(|prefix| prefix.label).collect();
        let dxr = image.dxr();
        Characteristics {
            prefixes: prefixes.len(),
            mean_length_bits: if prefixes.is_empty() { 0.0 } else { length as f64 / prefixes.len() as f64 },
            labels: labels.len(),
            hit_ratio: dxr.map(|(shape, view)| view.hit_ratio(shape)),
            footprint_ratio: dxr.map(|(shape, view)| view.footprint_ratio(shape)),
            ranges: dxr.map(|(_, view)| view.ranges.len()),
            bytes: image.sections().iter().map(|&(_, bytes)| bytes).sum(),
        }
    }
}
