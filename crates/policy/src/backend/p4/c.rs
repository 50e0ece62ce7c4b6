//! A pipeline as C: the structs, the extern objects with their functions, and the instructions as strings.

use super::fields::Meta;
use super::lines::Printed;
use super::lower::lower;
use super::model::Pipeline;
use crate::backend::c::writer::{self, Writer};
use crate::backend::c::{lookup_header, observe, tracking};
use crate::capability::METADATA_BYTES_MAX;
use crate::ir::{Limiter, Program};
use std::collections::BTreeSet;

/// A struct of the program: headers, mailboxes and metadata have some.
pub(super) struct Struct {
    pub(super) name: String,
    pub(super) fields: Vec<(String, u16)>,
    pub(super) varies: bool,
}

/// The name of the struct of the metadata.
pub(super) const METADATA: &str = "metadata_t";

/// All structs, each once.
pub(super) fn structs(pipeline: &Pipeline) -> Vec<Struct> {
    let mut structs: Vec<Struct> = Vec::new();
    let mut add = |name: &str, fields: Vec<(String, u16)>, varies| {
        if structs.iter().all(|known| known.name != name) {
            structs.push(Struct { name: name.to_owned(), fields, varies });
        }
    };
    for header in &pipeline.headers {
        let fields = header.fields.iter().map(|&(name, bits)| (name.to_owned(), bits)).collect();
        add(header.kind, fields, header.varies);
    }
    for object in &pipeline.objects {
        let fields = object.kind.mail().iter().map(|&(name, bits, _)| (name.to_owned(), bits)).collect();
        add(&object.kind.mailbox(), fields, false);
    }
    let own = [Meta::Port, Meta::Value, Meta::ValueLo].map(Meta::place);
    let fields = own.iter().chain(&pipeline.metadata);
    let fields: Vec<_> = fields.filter_map(|place| Some((place.metadata()?.to_owned(), place.bits))).collect();
    let bytes = fields.iter().map(|(_, bits)| usize::from(*bits) / 8).sum::<usize>();
    assert!(bytes <= METADATA_BYTES_MAX, "compiler bug: metadata that was not counted");
    add(METADATA, fields, false);
    structs
}

/// The C of a pipeline.
pub(super) fn print(program: &Program, pipeline: &Pipeline) -> String {
    let mut out = Writer::default();
    let name = writer::comment(&pipeline.name);
    out.line(&format!("/* Policy {name}, compiled by Weir for a P4 pipeline. Do not edit: change the policy. */"));
    out.line("#define WEIR_ONE_BY_ONE");
    if program.rewrites() {
        out.line("#define WEIR_REWRITES");
    }
    includes(program, &mut out);
    out.blank();
    out.line("const uint32_t weir_abi_version = WEIR_ABI_VERSION;");
    for object in &pipeline.objects {
        out.blank();
        out.line(&format!("/* {} */", writer::comment(&object.comment)));
        out.function(&format!("static int {}_run", object.name), &["void *worker", "void *mailbox"].map(str::to_owned));
        out.line(&format!("return {};", object.kind.call()));
        out.close();
    }
    let structs = structs(pipeline);
    for Struct { name, fields, .. } in &structs {
        out.blank();
        let fields = fields.iter().map(|(name, bits)| format!("{{\"{name}\", {bits}}},"));
        array(&format!("struct p4_field {name}"), fields, &mut out);
    }
    out.blank();
    let rows = structs
        .iter()
        .map(|Struct { name, fields, varies }| format!("{{\"{name}\", {name}, {}, {varies}}},", fields.len()));
    array("struct p4_struct structs", rows, &mut out);
    out.blank();
    let rows = pipeline.headers.iter().map(|header| format!("{{\"{}\", \"{}\"}},", header.name, header.kind));
    array("struct p4_header headers", rows, &mut out);
    out.blank();
    let rows = pipeline
        .objects
        .iter()
        .map(|object| format!("{{\"{0}\", \"{1}\", {0}_run}},", object.name, object.kind.mailbox()));
    array("struct p4_extern externs", rows, &mut out);
    out.blank();
    instructions(&lower(pipeline), &mut out);
    out.blank();
    out.open("const struct p4_program weir_p4_program =");
    for (name, count) in
        [("struct", structs.len()), ("header", pipeline.headers.len()), ("extern", pipeline.objects.len())]
    {
        out.line(&format!(".{name}s = {name}s,"));
        out.line(&format!(".{name}_count = {count},"));
    }
    out.line(".instructions = instructions,");
    out.line(".instruction_count = sizeof(instructions) / sizeof(instructions[0]),");
    out.line(".emits = EMITS,");
    out.line(&format!(".metadata = \"{METADATA}\","));
    out.line(&format!(".is_ordered = {},", pipeline.objects.iter().any(|object| object.kind.is_ordered())));
    if program.tracking.is_some() && !tracks_alone(program) {
        out.line(".serve = split_serve,");
    }
    out.close_with(";");
    out.finish()
}

/// Whether only the pipeline can track: seats of connections and answers to SYNs belong to the packet that is decided.
fn tracks_alone(program: &Program) -> bool {
    program.rewrites() || program.limiters.iter().any(Limiter::is_of_connections)
}

/// The instructions as strings. The runner sends the frame that it has received, so it needs no emits: they are
/// compiled only with `WEIR_P4_EMITS`, for tests.
fn instructions(lines: &[Printed], out: &mut Writer) {
    let string = |Printed { text, comment }: &Printed, out: &mut Writer| {
        comment.iter().flat_map(|comment| comment.lines()).for_each(|line| {
            out.line(&format!("/* {} */", writer::comment(line)));
        });
        out.line(&format!("\"{text}\","));
    };
    let emits =
        lines.iter().position(|line| line.text.split(" : ").last().is_some_and(|text| text.starts_with("emit ")));
    let (before, behind) = lines.split_at(emits.expect("the arrival header is emitted"));
    let (send, emits) = behind.split_last().expect("it is emitted before the packet is sent");
    let label = emits[0].text.split_once(" : ").map_or(String::new(), |(label, _)| format!("{label} : "));
    out.line("#ifdef WEIR_P4_EMITS");
    out.line("#define EMITS true");
    out.line("#else");
    out.line("#define EMITS false");
    out.line("#endif");
    out.blank();
    out.open("static const char *const instructions[] =");
    before.iter().for_each(|line| string(line, out));
    out.line("#ifdef WEIR_P4_EMITS");
    emits.iter().for_each(|line| string(line, out));
    string(send, out);
    out.line("#else");
    out.line(&format!("\"{label}{}\",", send.text));
    out.line("#endif");
    out.close_with(";");
}

fn array(head: &str, rows: impl Iterator<Item = String>, out: &mut Writer) {
    out.open(&format!("static const {head}[] ="));
    rows.for_each(|row| out.line(&row));
    out.close_with(";");
}

fn includes(program: &Program, out: &mut Writer) {
    let lookups: BTreeSet<&str> = program.slots.iter().map(|slot| lookup_header(slot.layout)).collect();
    let limits = (!program.limiters.is_empty()).then_some("p4/limits.h");
    let tables = (!program.adders.is_empty() || program.counts_entries()).then_some("p4/tables.h");
    let headers = ["core/env.h", "p4/externs.h"].into_iter().chain(lookups).chain(limits).chain(tables);
    headers.for_each(|header| out.include(header));
    if !program.rule_slots.is_empty() {
        out.include("p4/slots.h");
    }
    if let Some(settings) = &program.tracking {
        tracking::settings(settings, out);
        out.blank();
        out.include(if program.rewrites() { "p4/synproxy.h" } else { "p4/track.h" });
        if program.limiters.iter().any(Limiter::is_of_connections) {
            out.include("p4/connections.h");
        }
    }
    if let Some(observed) = &program.observe {
        observe::settings(observed, out);
        out.blank();
        out.include("p4/observe.h");
    }
}
