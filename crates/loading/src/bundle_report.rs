//! What a bundle carries beside its code: the program as IR, for reports and for the interpreter.

use crate::shape::shape;
use serde::{Deserialize, Serialize};
use weir_engine::bundle::Bundle;
use weir_policy::ir::{self, Program};
use weir_tables::Image;

/// As a bundle's manifest holds it.
#[derive(Serialize, Deserialize)]
struct BundleReport {
    ir: String,
    labels: Vec<Vec<String>>,
}

/// For the manifest of a bundle: the program, and the labels of each slot.
pub(crate) fn written(program: &Program, labels: &[Vec<String>]) -> serde_json::Value {
    let report = BundleReport { ir: program.to_string(), labels: labels.to_vec() };
    serde_json::to_value(report).expect("strings are JSON")
}

/// The program of a bundle, and the labels of each slot.
///
/// # Errors
/// It is no IR of this version, or not that of the bundle's code.
pub(crate) fn read(bundle: &Bundle) -> Result<(Program, Vec<Vec<String>>), String> {
    let report: BundleReport =
        serde_json::from_value(bundle.artifact.report.clone()).map_err(|error| error.to_string())?;
    let program = ir::parse::parse(&report.ir)?;
    let same = shape(&program) == bundle.shape()
        && report.labels.len() == program.slots.len()
        && program.slots.iter().zip(&bundle.images).all(|(slot, image)| answers_for(image, slot));
    if !same {
        return Err("its IR and its code are of different policies".to_owned());
    }
    Ok((program, report.labels))
}

/// Whether an image is of as many tables as the slot has.
fn answers_for(image: &Image, slot: &ir::Slot) -> bool {
    !slot.is_fused() || image.view().labels() == (1 << slot.tables().len()) - 1
}
