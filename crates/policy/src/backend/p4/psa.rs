//! A pipeline as P4_16 for the Portable Switch Architecture.

use super::expression::{assignment, condition, read, source, write};
use super::externs::Object;
use super::model::{ACCEPT, Control, Extract, Next, Pipeline, Place, Source, State, Step};
use super::sets::Sets;
use super::tables;
use super::text::Text;
use crate::ir::RuleId;
use std::collections::{BTreeMap, BTreeSet};
use weir_abi::{Action, Reason};

/// The P4 of a pipeline.
pub(super) fn print(pipeline: &Pipeline) -> String {
    let mut out = Text::default();
    let name = &pipeline.name;
    out.note(&format!("Policy {name}, compiled by Weir for P4's PSA. Do not edit: change the policy."));
    out.line("#include <core.p4>");
    out.line("#include <psa.p4>");
    constants(pipeline, &mut out);
    declarations(pipeline, &mut out);
    types(pipeline, &mut out);
    objects(pipeline, &mut out);
    parser(pipeline, &mut out);
    pipeline.controls.iter().for_each(|control| chain(pipeline, control, &mut out));
    decision(pipeline, &mut out);
    ingress(pipeline, &mut out);
    deparser(pipeline, &mut out);
    out.text(EGRESS);
    out.finish()
}

/// What follows the ingress: nothing happens there.
const EGRESS: &str = "
parser NoParser(
    packet_in packet,
    out headers_t hdr,
    inout metadata_t meta,
    in psa_egress_parser_input_metadata_t input,
    in empty_t normal,
    in empty_t clone_i2e,
    in empty_t clone_e2e)
{
    state start {
        transition accept;
    }
}

control NoEgress(
    inout headers_t hdr,
    inout metadata_t meta,
    in psa_egress_input_metadata_t input,
    inout psa_egress_output_metadata_t output)
{
    apply {
    }
}

control NoDeparser(
    packet_out packet,
    out empty_t clone_e2e,
    out empty_t recirculated,
    inout headers_t hdr,
    in metadata_t meta,
    in psa_egress_output_metadata_t output,
    in psa_egress_deparser_input_metadata_t input)
{
    apply {
    }
}

IngressPipeline(Parser(), IngressControl(), Deparser()) ingress_pipeline;
EgressPipeline(NoParser(), NoEgress(), NoDeparser()) egress_pipeline;

PSA_Switch(ingress_pipeline, PacketReplicationEngine(), egress_pipeline, BufferingQueueingEngine()) main;
";

/// Declares the constants that the program uses: compilers warn of others.
fn constants(pipeline: &Pipeline, out: &mut Text) {
    out.blank();
    let chains = pipeline.controls.iter().map(|control| &control.steps);
    let mut used = BTreeSet::new();
    chains.chain([&pipeline.ingress, &pipeline.last]).for_each(|steps| decided(steps, &mut used));
    for action in Action::ALL.iter().filter(|action| used.contains(&(**action as u8))) {
        out.line(&format!("const bit<8> {} = {};", verdict(*action), *action as u8));
    }
    out.line(&format!("const bit<32> COUNTERS = {};", pipeline.counters));
}

/// Enters the verdicts of some steps.
fn decided(steps: &[Step], used: &mut BTreeSet<u8>) {
    for step in steps {
        match step {
            Step::If { body, .. } => decided(body, used),
            Step::Match { verdict: Some(action), .. } | Step::Decide { action, .. } => {
                used.insert(*action as u8);
            }
            Step::Match { verdict: None, .. } => {}
            Step::Note(_) | Step::Assign(_) | Step::Count(_) | Step::Call { .. } => {}
        }
    }
}

/// The constant of a verdict.
fn verdict(action: Action) -> String {
    action.name().to_ascii_uppercase()
}

/// Declares the types of extern objects, besides the counter, which the architecture has.
fn declarations(pipeline: &Pipeline, out: &mut Text) {
    let kinds: BTreeMap<&str, &Object> =
        pipeline.objects[1..].iter().map(|object| (object.kind.kind_name(), object)).collect();
    for (name, Object { kind, .. }) in kinds {
        let constants: Vec<String> =
            kind.constants().iter().map(|(name, bits)| format!("bit<{bits}> {name}")).collect();
        let parameters: Vec<String> = kind
            .mail()
            .iter()
            .map(|(name, bits, taken)| format!("{} bit<{bits}> {name}", if *taken { "out" } else { "in" }))
            .collect();
        out.blank();
        out.open(&format!("extern {name}"));
        out.line(&format!("{name}({});", constants.join(", ")));
        out.line(&format!("void {}({});", kind.method(), parameters.join(", ")));
        out.close();
    }
}

fn types(pipeline: &Pipeline, out: &mut Text) {
    let mut known: Vec<&str> = Vec::new();
    for header in &pipeline.headers {
        if known.contains(&header.kind) {
            continue;
        }
        known.push(header.kind);
        out.blank();
        out.open(&format!("header {}", header.kind));
        for (index, (field, bits)) in header.fields.iter().enumerate() {
            let kind = if header.varies && index + 1 == header.fields.len() { "varbit" } else { "bit" };
            out.line(&format!("{kind}<{bits}> {field};"));
        }
        out.close();
    }
    out.blank();
    out.open("struct headers_t");
    pipeline.headers.iter().for_each(|header| out.line(&format!("{} {};", header.kind, header.name)));
    out.close();
    out.blank();
    out.open("struct metadata_t");
    for place in &pipeline.metadata {
        out.line(&format!("bit<{}> {};", place.bits, place.metadata().unwrap_or_default()));
    }
    out.close();
    out.blank();
    out.open("struct empty_t");
    out.close();
}

/// Declares the counters and the extern objects. The counters are those of packets only: the bytes that PSA counts are
/// those in the pipeline, and some targets count no bytes without a length.
fn objects(pipeline: &Pipeline, out: &mut Text) {
    out.blank();
    for (index, object) in pipeline.objects.iter().enumerate() {
        out.note(&object.comment);
        let values: Vec<String> = object.kind.values().iter().map(u64::to_string).collect();
        out.line(&match index {
            0 => format!("Counter<bit<64>, bit<32>>(COUNTERS, PSA_CounterType_t.PACKETS) {};", object.name),
            _ => format!("{}({}) {};", object.kind.kind_name(), values.join(", "), object.name),
        });
    }
}

fn parser(pipeline: &Pipeline, out: &mut Text) {
    out.blank();
    let parameters = [
        "packet_in packet",
        "out headers_t hdr",
        "inout metadata_t meta",
        "in psa_ingress_parser_input_metadata_t input",
        "in empty_t resubmitted",
        "in empty_t recirculated",
    ];
    out.block("parser Parser", &parameters);
    for (index, each) in pipeline.states.iter().enumerate() {
        if index > 0 {
            out.blank();
        }
        state(each, out);
    }
    out.close();
}

fn state(State { name, extract, steps, next }: &State, out: &mut Text) {
    out.open(&format!("state {name}"));
    match extract {
        None => {}
        Some(Extract::Whole(header)) => out.line(&format!("packet.extract(hdr.{header});")),
        // In P4 the size is in bits.
        Some(Extract::Varying(header, size)) => {
            out.line(&format!("packet.extract(hdr.{header}, {} << 3);", write(size)));
        }
        Some(Extract::Ahead(header)) => out.line(&format!("hdr.{header} = packet.lookahead<{header}_t>();")),
    }
    steps.iter().for_each(|step| out.line(&assignment(step)));
    match next {
        Next::Accept => out.line(&format!("transition {ACCEPT};")),
        Next::To(next) => out.line(&format!("transition {next};")),
        Next::Select { key, cases, otherwise } => {
            out.open(&format!("transition select({})", read(key)));
            cases.iter().for_each(|(number, next)| out.line(&format!("{number:#x}: {next};")));
            out.line(&format!("default: {otherwise};"));
            out.close();
        }
        Next::If { term, then, otherwise } => {
            out.open(&format!("transition select({})", condition(std::slice::from_ref(term), &Sets::default())));
            out.line(&format!("true: {then};"));
            out.line(&format!("default: {otherwise};"));
            out.close();
        }
    }
    out.close();
}

fn chain(pipeline: &Pipeline, control: &Control, out: &mut Text) {
    out.blank();
    out.block(&format!("control {}", name(control)), &["inout headers_t hdr", "inout metadata_t meta"]);
    decide_action(out);
    actions(&control.steps, &mut Vec::new(), out);
    let sets = Sets::of(&control.steps);
    tables::print(&sets, out);
    out.open("apply");
    steps(pipeline, &control.steps, &sets, out);
    out.close();
    out.close();
}

/// The name of the control of a chain.
fn name(control: &Control) -> String {
    format!("chain_{}", control.name)
}

/// Declares the action that decides a packet.
fn decide_action(out: &mut Text) {
    out.open("action decide(bit<8> verdict, bit<16> reason)");
    out.line("hdr.arrival.verdict = verdict;");
    out.line("hdr.arrival.reason = reason;");
    out.close();
    out.blank();
}

/// Declares the actions of the rules among some steps, each once.
fn actions(steps: &[Step], known: &mut Vec<RuleId>, out: &mut Text) {
    let mut cited = "";
    for step in steps {
        match step {
            Step::Note(text) => cited = text,
            Step::If { body, .. } => actions(body, known, out),
            Step::Match { rule, .. } if known.contains(rule) => {}
            Step::Match { rule, verdict: action } => {
                known.push(*rule);
                let reason = Reason::rule(rule.0).0;
                out.note(cited);
                out.open(&format!("action rule_{}()", rule.0));
                out.line(&format!("counts.count({reason});"));
                if let Some(action) = action {
                    out.line(&format!("decide({}, {reason});", verdict(*action)));
                }
                out.close();
                out.blank();
            }
            Step::Assign(_) | Step::Count(_) | Step::Call { .. } | Step::Decide { .. } => {}
        }
    }
}

fn steps(pipeline: &Pipeline, steps: &[Step], sets: &Sets<'_>, out: &mut Text) {
    for step in steps {
        match step {
            Step::Note(text) => out.note(text),
            Step::If { terms, body } if terms.is_empty() => self::steps(pipeline, body, sets, out),
            Step::If { terms, body } => {
                out.open(&format!("if ({})", condition(terms, sets)));
                self::steps(pipeline, body, sets, out);
                out.close();
            }
            Step::Assign(assign) => out.line(&assignment(assign)),
            Step::Match { rule, verdict } => {
                out.line(&format!("rule_{}();", rule.0));
                if verdict.is_some() {
                    out.line("return;");
                }
            }
            Step::Count(reason) => out.line(&format!("counts.count({});", source(reason, 32))),
            Step::Call { object, inputs, outputs } => out.line(&call(&pipeline.objects[*object], inputs, outputs)),
            Step::Decide { action, reason } => {
                out.line(&format!("decide({}, {});", verdict(*action), source(reason, 16)));
                out.line("return;");
            }
        }
    }
}

/// The call of an extern object. Its arguments are in the order of its mailbox.
fn call(Object { name, kind, .. }: &Object, inputs: &[Source], outputs: &[Place]) -> String {
    let (mut inputs, mut outputs) = (inputs.iter(), outputs.iter());
    let arguments = kind.mail().iter().map(|(_, bits, taken)| match taken {
        false => inputs.next().map(|input| source(input, *bits)),
        true => outputs.next().map(write),
    });
    let arguments: Vec<String> = arguments.map(|argument| argument.expect("one for each field")).collect();
    format!("{name}.{}({});", kind.method(), arguments.join(", "))
}

/// The control that decides each packet, by itself or by its chain.
fn decision(pipeline: &Pipeline, out: &mut Text) {
    out.blank();
    out.block("control Decision", &["inout headers_t hdr", "inout metadata_t meta"]);
    for control in &pipeline.controls {
        let name = name(control);
        out.line(&format!("{name}() {name}_rules;"));
    }
    out.blank();
    decide_action(out);
    out.open("apply");
    steps(pipeline, &pipeline.ingress, &Sets::default(), out);
    let (first, others) = pipeline.controls.split_first().expect("a policy has two chains");
    for (number, control) in (1..).zip(others) {
        out.open(&format!("if (hdr.arrival.chain == {number})"));
        out.line(&format!("{}_rules.apply(hdr, meta);", name(control)));
        out.line("return;");
        out.close();
    }
    out.line(&format!("{}_rules.apply(hdr, meta);", name(first)));
    out.close();
    out.close();
}

fn ingress(pipeline: &Pipeline, out: &mut Text) {
    out.blank();
    let parameters = [
        "inout headers_t hdr",
        "inout metadata_t meta",
        "in psa_ingress_input_metadata_t input",
        "inout psa_ingress_output_metadata_t output",
    ];
    out.block("control IngressControl", &parameters);
    out.line("Decision() decision;");
    out.blank();
    out.open("apply");
    out.line("decision.apply(hdr, meta);");
    steps(pipeline, &pipeline.last, &Sets::default(), out);
    out.note("The verdict leaves in the arrival header.");
    out.line("send_to_port(output, (PortId_t) 0);");
    out.close();
    out.close();
}

fn deparser(pipeline: &Pipeline, out: &mut Text) {
    out.blank();
    let parameters = [
        "packet_out packet",
        "out empty_t clone_i2e",
        "out empty_t resubmitted",
        "out empty_t normal",
        "inout headers_t hdr",
        "in metadata_t meta",
        "in psa_ingress_output_metadata_t input",
    ];
    out.block("control Deparser", &parameters);
    out.open("apply");
    for header in pipeline.headers.iter().filter(|header| !header.is_ahead) {
        out.line(&format!("packet.emit(hdr.{});", header.name));
    }
    out.close();
    out.close();
}
