//! `weir compile`: compiles a policy into one file, for a machine without clang, or writes it as P4.

mod p4;

use crate::cli::{CompileOptions, CpuName, TargetName};
use crate::costs;
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Instant;
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::report;
use weir_engine::Artifact;
use weir_engine::bundle::key::Signer;
use weir_engine::cpu::Cpu;
use weir_loading::{Bundled, LoadError, PART_RULES, Policy, PolicyFile};
use weir_policy::backend::c::{self, Dialect};
use weir_policy::pass::choose_layouts::CostModel;
use weir_recording::captures;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Compiled {
    bundle: String,
    bytes: u64,
    cpu: &'static str,
    signed: bool,
    rules: usize,
    tables: usize,
    seconds: f64,
    clang_seconds: f64,
}

/// Runs the command.
///
/// # Errors
/// The policy is rejected, there is no clang, or a file cannot be written.
pub fn run(options: &CompileOptions) -> Result<(), Failure> {
    let start = Instant::now();
    let model = options.costs.as_deref().map_or_else(|| Ok(CostModel::default()), costs::read)?;
    let policy = PolicyFile::open(&options.policy)?.check(&model)?;
    captures::refuse_input(&options.output, &policy, &[&options.policy])?;
    report::say_warnings(&policy);
    if options.target == TargetName::P4 {
        return as_p4(options, &policy);
    }
    let tables = policy.text().into_iter().flat_map(|text| &text.checked.tables);
    for table in tables.filter(|table| table.updates.watch) {
        eprintln!("note: table {}: `watch` has no effect in a bundle, which has no list files", table.name);
    }
    let signer = options.sign.as_deref().map(Signer::read).transpose()?;
    if let Some(notice) = signer.as_ref().and_then(Signer::notice) {
        eprintln!("warning: {notice}");
    }
    if let Some(directory) = &options.emit {
        emit(directory, &policy.artifact()?, &policy)?;
    }
    let cpu = match options.cpu {
        CpuName::Native => Cpu::Native,
        CpuName::X86_64V3 => Cpu::X86_64V3,
    };
    let Bundled { bundle, took: clang_took, unchecked } = policy.bundle(cpu)?;
    if let Some(error) = unchecked {
        report::say(&unchecked_notice(&error));
    }
    bundle.write(&options.output, signer.as_ref())?;
    let bytes = fs::metadata(&options.output).map_err(|error| Failure::file(&options.output, error))?.len();
    let compiled = Compiled {
        bundle: options.output.display().to_string(),
        bytes,
        cpu: cpu.name(),
        signed: signer.is_some(),
        rules: bundle.artifact.shape.rules,
        tables: bundle.artifact.shape.tables.len(),
        seconds: start.elapsed().as_secs_f64(),
        clang_seconds: clang_took.as_secs_f64(),
    };
    if options.json {
        return report::print_json(&compiled);
    }
    report::print(&format!(
        "{}: {} for {}, {}, {} rules, {} tables; {:.2} s, of which clang {:.2} s\n",
        compiled.bundle,
        figures::bytes(bytes),
        compiled.cpu,
        if compiled.signed { "signed" } else { "not signed" },
        compiled.rules,
        compiled.tables,
        compiled.seconds,
        compiled.clang_seconds
    ))
}

/// The output of `--json` with `--target p4`.
#[derive(Debug, Serialize)]
struct WrittenAsP4 {
    folder: String,
    files: Vec<String>,
    rules: usize,
    tables: usize,
}

fn as_p4(options: &CompileOptions, policy: &Policy) -> Result<(), Failure> {
    let only_bundles = [("--sign", options.sign.is_some()), ("--emit", options.emit.is_some())];
    if let Some((option, _)) = only_bundles.into_iter().find(|(_, given)| *given) {
        return Err(Failure::Rejected(format!("weir: {option} is only for bundles, not for --target p4")));
    }
    let files = p4::write(&options.output, policy)?;
    let written = WrittenAsP4 {
        folder: options.output.display().to_string(),
        files: files.iter().map(|file| file.display().to_string()).collect(),
        rules: policy.program.rules.len(),
        tables: policy.tables().all().len(),
    };
    if options.json {
        return report::print_json(&written);
    }
    let WrittenAsP4 { folder, files, rules, tables } = written;
    report::print(&format!("{folder}: {} files, {rules} rules, {tables} tables\n", files.len()))
}

/// Says why the kernel was not asked whether it accepts the code as one program.
fn unchecked_notice(error: &LoadError) -> String {
    match error.is_not_permitted() {
        true => {
            "note: the code was not loaded to check it, which needs root: the kernel may still refuse it as too large"
                .to_owned()
        }
        false => format!("note: the engine xdp cannot have these tables on this machine: {error}"),
    }
}

/// Writes the IR and the generated C for people to read.
fn emit(directory: &Path, artifact: &Artifact, policy: &Policy) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
    let parts = c::emit(&policy.program, Dialect::BpfParts { rules: PART_RULES[0] });
    let others = [("ir", policy.program.to_string()), ("bpf-parts.c", parts)];
    let sources = artifact.sources.iter().map(|source| (source.target.file_name(), source.text.clone()));
    for (ending, text) in sources.chain(others) {
        let path = directory.join(format!("{}.{ending}", artifact.name));
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    }
    Ok(())
}
