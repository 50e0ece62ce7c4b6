//! A pipeline as instructions of SWX, which has no structure but jumps.

use super::externs::Kind;
use super::fields::Meta;
use super::lines::{Label, Lines, Printed};
use super::model::{ACCEPT, Assign, Extract, Next, Operator, Pipeline, Place, Source, State, Step, Term, Value};
use super::search::{self, Ways};
use std::collections::HashMap;
use weir_abi::Reason;

/// The instructions of a pipeline.
pub(super) fn lower(pipeline: &Pipeline) -> Vec<Printed> {
    let mut lines = Lines::default();
    let (parsed, deparse) = (lines.named("parsed"), lines.named("deparse"));
    lines.line(format!("rx {}", Meta::Port.place().path));
    // The first state extracts the arrival header. A mailbox keeps what was written to it.
    let length = format!("mov e.{}.length h.arrival.length", pipeline.objects[0].name);
    parser(&pipeline.states, parsed, &length, &mut lines);
    lines.bind(parsed);
    let mut body = Body { pipeline, deparse, lines: &mut lines };
    body.steps(&pipeline.ingress);
    body.chains();
    lines.bind(deparse);
    Body { pipeline, deparse, lines: &mut lines }.steps(&pipeline.last);
    emit(pipeline, &mut lines);
    lines.finish()
}

/// `first` is the line behind what the first state extracts.
fn parser(states: &[State], parsed: Label, first: &str, lines: &mut Lines) {
    let mut labels: HashMap<&str, Label> =
        states.iter().map(|state| (&*state.name, lines.named(&state.name))).collect();
    labels.insert(ACCEPT, parsed);
    for (index, state) in states.iter().enumerate() {
        lines.bind(labels[&*state.name]);
        match &state.extract {
            None => {}
            Some(Extract::Whole(header)) => lines.line(format!("extract h.{header}")),
            Some(Extract::Varying(header, size)) => lines.line(format!("extract h.{header} {}", size.path)),
            Some(Extract::Ahead(header)) => lines.line(format!("lookahead h.{header}")),
        }
        if index == 0 {
            lines.line(first.to_owned());
        }
        state.steps.iter().for_each(|step| assign(step, lines));
        let target = |name: &str| labels[name];
        match &state.next {
            Next::Accept => lines.jump("jmp", parsed, ""),
            Next::To(next) => lines.jump("jmp", target(next), ""),
            Next::Select { key, cases, otherwise } => {
                let place = lines.whole(key);
                for (number, next) in cases {
                    lines.jump("jmpeq", target(next), &format!("{} {number:#x}", place.path));
                }
                lines.jump("jmp", target(otherwise), "");
            }
            Next::If { term: condition, then, otherwise } => {
                let (then, otherwise) = (target(then), target(otherwise));
                term(condition, Ways { inside: then, outside: otherwise, next: Some(otherwise) }, lines);
                lines.jump("jmp", otherwise, "");
            }
        }
    }
}

/// Jumps by a condition.
fn term(term: &Term, ways: Ways, lines: &mut Lines) {
    match term {
        Term::In { value, set, negated } => {
            let ways = match negated {
                true => Ways { inside: ways.outside, outside: ways.inside, ..ways },
                false => ways,
            };
            match value {
                Value::Narrow(load) => search::narrow(lines, load, set, ways),
                Value::Wide(hi, lo) => search::wide(lines, (hi, lo), set, ways),
            }
        }
        Term::Above(place, limit) => {
            lines.jump("jmpgt", ways.inside, &format!("{} {}", place.path, limit.path));
            if ways.next != Some(ways.outside) {
                lines.jump("jmp", ways.outside, "");
            }
        }
    }
}

fn assign(Assign { to, operator, from }: &Assign, lines: &mut Lines) {
    let word = match operator {
        Operator::Set => "mov",
        Operator::Add => "add",
        Operator::Subtract => "sub",
        Operator::Or => "or",
    };
    match from {
        Source::Constant(number) => lines.line(format!("{word} {} {number:#x}", to.path)),
        Source::Load(load) if load.is_plain() => lines.line(format!("{word} {} {}", to.path, load.place.path)),
        // A narrow place would cut off the higher bits before the shift.
        Source::Load(load) if to.bits >= load.place.bits && !to.path.starts_with("h.") => lines.cut(load, to),
        Source::Load(load) => {
            let place = lines.whole(load);
            lines.line(format!("mov {} {}", to.path, place.path));
        }
    }
}

struct Body<'a> {
    pipeline: &'a Pipeline,
    deparse: Label,
    lines: &'a mut Lines,
}

impl Body<'_> {
    fn chains(&mut self) {
        let labels: Vec<Label> = self
            .pipeline
            .controls
            .iter()
            .enumerate()
            .map(|(number, control)| self.lines.named(&format!("chain_{number}_{}", short(&control.name))))
            .collect();
        for (number, label) in labels.iter().enumerate().skip(1) {
            self.lines.jump("jmpeq", *label, &format!("h.arrival.chain {number:#x}"));
        }
        for (control, label) in self.pipeline.controls.iter().zip(labels) {
            self.lines.bind(label);
            self.lines.note(&format!("Chain {}", control.name));
            self.steps(&control.steps);
        }
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Note(text) => self.lines.note(text),
                Step::If { terms, body } => self.when(terms, body),
                Step::Assign(step) => assign(step, self.lines),
                Step::Match { rule, verdict } => {
                    let reason = Source::Constant(Reason::rule(rule.0).0.into());
                    self.count(&reason);
                    if let Some(action) = verdict {
                        self.decide(*action as u8, &reason);
                    }
                }
                Step::Count(reason) => self.count(reason),
                Step::Call { object, inputs, outputs } => self.call(*object, inputs, outputs),
                Step::Decide { action, reason } => self.decide(*action as u8, reason),
            }
        }
    }

    fn when(&mut self, terms: &[Term], body: &[Step]) {
        let end = self.lines.label();
        for condition in terms {
            let next = self.lines.label();
            term(condition, Ways { inside: next, outside: end, next: Some(next) }, self.lines);
            self.lines.bind(next);
        }
        self.steps(body);
        self.lines.bind(end);
    }

    fn set(&mut self, to: &Place, from: &Source) {
        assign(&Assign::set(to, from.clone()), self.lines);
    }

    fn count(&mut self, reason: &Source) {
        let name = &self.pipeline.objects[0].name;
        self.set(&Place { path: format!("e.{name}.reason").into(), bits: 32 }, reason);
        self.lines.line(format!("extern e.{name}.run"));
    }

    fn decide(&mut self, action: u8, reason: &Source) {
        self.lines.line(format!("mov h.arrival.verdict {action:#x}"));
        self.set(&Place::header("h.arrival.reason", 16), reason);
        self.lines.jump("jmp", self.deparse, "");
    }

    fn call(&mut self, object: usize, inputs: &[Source], outputs: &[Place]) {
        let object = &self.pipeline.objects[object];
        debug_assert!(object.kind != Kind::Counter);
        let (mut inputs, mut outputs) = (inputs.iter(), outputs.iter());
        let mail = |name: &str| format!("e.{}.{name}", object.name);
        for (name, bits, _) in object.kind.mail().iter().filter(|(_, _, taken)| !taken) {
            let from = inputs.next().expect("compiler bug: an input for each field");
            self.set(&Place { path: mail(name).into(), bits: *bits }, from);
        }
        self.lines.line(format!("extern e.{}.run", object.name));
        for (name, _, _) in object.kind.mail().iter().filter(|(_, _, taken)| *taken) {
            let to = outputs.next().expect("compiler bug: a place for each answer");
            self.lines.line(format!("mov {} {}", to.path, mail(name)));
        }
    }
}

/// A name that leaves room for what comes before it. Names have less than 64 bytes.
fn short(name: &str) -> &str {
    &name[..name.len().min(48)]
}

/// Emits the headers that were extracted. Almost no packet has extension headers, so they are jumped over.
fn emit(pipeline: &Pipeline, lines: &mut Lines) {
    let is_extension = |name: &str| name.starts_with("ext_");
    let mut after = None;
    for header in pipeline.headers.iter().filter(|header| !header.is_ahead) {
        if is_extension(&header.name) && after.is_none() {
            let label = lines.named("behind_extensions");
            lines.jump("jmpnv", label, &format!("h.{}", header.name));
            after = Some(label);
        } else if let (false, Some(label)) = (is_extension(&header.name), after) {
            lines.bind(label);
        }
        lines.line(format!("emit h.{}", header.name));
        if !is_extension(&header.name) {
            after = None;
        }
    }
    lines.line("tx 0".to_owned());
}
