//! A pipeline in the notation of SWX: structs, headers, extern objects and instructions.

use super::c::{METADATA, Struct, structs};
use super::lines::Printed;
use super::lower::lower;
use super::model::Pipeline;

/// The specification of a pipeline.
pub(super) fn print(pipeline: &Pipeline) -> String {
    let name = &pipeline.name;
    let mut out =
        format!("; Policy {name}, compiled by Weir for DPDK's SWX pipeline. Do not edit: change the policy.\n");
    for Struct { name, fields, varies } in structs(pipeline) {
        out.push_str(&format!("\nstruct {name} {{\n"));
        for (index, (field, bits)) in fields.iter().enumerate() {
            let kind = if varies && index + 1 == fields.len() { "varbit" } else { "bit" };
            out.push_str(&format!("\t{kind}<{bits}> {field}\n"));
        }
        out.push_str("}\n");
    }
    out.push('\n');
    for header in &pipeline.headers {
        out.push_str(&format!("header {} instanceof {}\n", header.name, header.kind));
    }
    out.push_str(&format!("metadata instanceof {METADATA}\n\n"));
    for object in &pipeline.objects {
        out.push_str(&format!("; {}, mailbox {}\n", remark(&object.comment), object.kind.mailbox()));
        out.push_str(&format!("extobj {0} instanceof {0}\n", object.name));
    }
    out.push_str("\napply {\n");
    for Printed { text, comment } in lower(pipeline) {
        for line in comment.iter().flat_map(|comment| comment.lines()) {
            out.push_str(&format!("\t; {}\n", remark(line)));
        }
        out.push_str(&format!("\t{text}\n"));
    }
    out.push_str("}\n");
    out
}

/// Most characters of a comment. SWX reads lines of 2047 bytes.
const REMARK_MAX: usize = 400;

/// A text as a comment: on one line, and cut off if it is long.
fn remark(text: &str) -> String {
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(REMARK_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
