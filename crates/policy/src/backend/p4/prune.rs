//! Drops assignments of metadata that nothing reads, and lists the metadata that is left.

use super::model::{Assign, Extract, Load, Next, Pipeline, Place, Source, State, Step, Term, Value};
use std::collections::BTreeSet;

/// Drops what nothing reads, and sets the metadata.
pub(super) fn prune(pipeline: &mut Pipeline) {
    loop {
        let reads = reads(pipeline);
        let is_read = |to: &Place| to.metadata().is_none() || reads.contains(to);
        let mut dropped = false;
        for state in &mut pipeline.states {
            let before = state.steps.len();
            state.steps.retain(|step| is_read(&step.to));
            dropped |= state.steps.len() < before;
        }
        if !dropped {
            break;
        }
    }
    let mut places = reads(pipeline);
    let controls = pipeline.controls.iter().map(|control| &control.steps);
    controls.for_each(|steps| written(steps, &mut places));
    pipeline.metadata = places.into_iter().filter(|place| place.metadata().is_some()).collect();
    // The widest come first, so that each field is aligned.
    pipeline.metadata.sort_by_key(|place| u16::MAX - place.bits);
}

/// The places that are read. That an assignment reads what it changes does not count.
fn reads(pipeline: &Pipeline) -> BTreeSet<Place> {
    let mut places = BTreeSet::new();
    pipeline.states.iter().for_each(|state| of_state(state, &mut places));
    of_steps(&pipeline.ingress, &mut places);
    of_steps(&pipeline.last, &mut places);
    pipeline.controls.iter().for_each(|control| of_steps(&control.steps, &mut places));
    places
}

fn of_state(state: &State, places: &mut BTreeSet<Place>) {
    if let Some(Extract::Varying(_, size)) = &state.extract {
        places.insert(size.clone());
    }
    state.steps.iter().for_each(|step| of_assign(step, places));
    match &state.next {
        Next::Accept | Next::To(_) => {}
        Next::Select { key, .. } => of_load(key, places),
        Next::If { term, .. } => of_term(term, places),
    }
}

fn of_assign(Assign { to, from, .. }: &Assign, places: &mut BTreeSet<Place>) {
    match from {
        Source::Load(load) if load.place != *to => of_load(load, places),
        Source::Load(_) | Source::Constant(_) => {}
    }
}

fn of_load(load: &Load, places: &mut BTreeSet<Place>) {
    places.insert(load.place.clone());
}

fn of_source(source: &Source, places: &mut BTreeSet<Place>) {
    if let Source::Load(load) = source {
        of_load(load, places);
    }
}

fn of_term(term: &Term, places: &mut BTreeSet<Place>) {
    match term {
        Term::In { value: Value::Narrow(load), .. } => of_load(load, places),
        Term::In { value: Value::Wide(hi, lo), .. } => [hi, lo].into_iter().for_each(|load| of_load(load, places)),
        Term::Above(place, limit) => places.extend([place.clone(), limit.clone()]),
    }
}

fn of_steps(steps: &[Step], places: &mut BTreeSet<Place>) {
    for step in steps {
        match step {
            Step::Note(_) | Step::Match { .. } => {}
            Step::If { terms, body } => {
                terms.iter().for_each(|term| of_term(term, places));
                of_steps(body, places);
            }
            Step::Assign(assign) => of_assign(assign, places),
            Step::Count(source) | Step::Decide { reason: source, .. } => of_source(source, places),
            Step::Call { inputs, .. } => inputs.iter().for_each(|source| of_source(source, places)),
        }
    }
}

/// Adds the places that steps write.
fn written(steps: &[Step], places: &mut BTreeSet<Place>) {
    for step in steps {
        match step {
            Step::If { body, .. } => written(body, places),
            Step::Assign(assign) => {
                places.insert(assign.to.clone());
            }
            Step::Call { outputs, .. } => places.extend(outputs.iter().cloned()),
            Step::Note(_) | Step::Match { .. } | Step::Count(_) | Step::Decide { .. } => {}
        }
    }
}
