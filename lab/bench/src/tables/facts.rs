//! The columns of the paper's Table 1.

use crate::data::Data;
use crate::row::Row;
use crate::tables::layouts::Built;
use std::collections::HashSet;
use weir_abi::Layout;
use weir_schemes::{Characteristics, Scheme};

/// Adds N, L and delta.
pub fn table(row: Row, data: &Data) -> Row {
    let facts = data.table.facts();
    let bits: usize = facts.by_length.iter().enumerate().map(|(len, &count)| len * count).sum();
    let labels4 = data.table.prefixes4().iter().map(|prefix| prefix.label);
    let labels: HashSet<u32> = labels4.chain(data.table.prefixes6().iter().map(|prefix| prefix.label)).collect();
    row.number("prefixes", facts.entries as f64)
        .number("mean_length_bits", bits as f64 / facts.entries.max(1) as f64)
        .number("labels", labels.len() as f64)
}

/// Adds mu, phi, rho and M.
pub fn layout(row: Row, data: &Data, built: &Built) -> Row {
    let row = row.number("bytes", built.size() as f64);
    let characteristics = match built {
        Built::Scheme(image) => Some(Characteristics::of(&data.table, image)),
        // The layout contains the same arrays as the scheme.
        Built::Image(image) if image.layout() == Layout::Dxr16x4 => {
            Scheme::D16X4R.build(&data.table).ok().map(|image| Characteristics::of(&data.table, &image))
        }
        Built::Image(_) => None,
    };
    let Some(characteristics) = characteristics else { return row };
    let optional = |row: Row, field: &str, value: Option<f64>| match value {
        Some(value) => row.number(field, value),
        None => row,
    };
    let row = optional(row, "hit_ratio", characteristics.hit_ratio);
    let row = optional(row, "footprint_ratio", characteristics.footprint_ratio);
    optional(row, "range_words", characteristics.ranges.map(|ranges| ranges as f64))
}
