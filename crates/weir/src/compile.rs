//! `weir compile`: a policy as one file for a box without clang.

use crate::captures;
use crate::cli::{CompileOptions, CpuName};
use crate::costs;
use crate::failure::Failure;
use crate::policy::Policy;
use crate::report;
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Instant;
use weir_engine::Artifact;
use weir_engine::bundle::Bundle;
use weir_engine::cpu::Cpu;
use weir_policy::pass::choose_layouts::CostModel;

/// What was written, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Compiled {
    bundle: String,
    bytes: u64,
    cpu: &'static str,
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
    let policy = Policy::load_for(&options.policy, &model)?;
    if policy.is_bundle() {
        return Err(Failure::Rejected(format!("weir: {}: is a bundle already", options.policy.display())));
    }
    captures::refuse_input(&options.output, &policy, &[&options.policy])?;
    policy.print_warnings();
    if !policy.program.limiters.is_empty() {
        return Err(Failure::Rejected("weir: a bundle cannot carry limits yet: load the policy as text".to_owned()));
    }
    let artifact = policy.artifact()?;
    if let Some(directory) = &options.emit {
        emit(directory, &artifact, &policy)?;
    }
    let cpu = match options.cpu {
        CpuName::Native => Cpu::Native,
        CpuName::X86_64V3 => Cpu::X86_64V3,
    };
    let data = policy.data(None)?;
    let native = policy.native_object(cpu)?;
    let bpf = policy.bpf_object(&data)?;
    let clang_took = native.took + bpf.took;
    let bundle = Bundle { artifact, images: data.images, native: native.object, bpf: bpf.object, cpu };
    bundle.write(&options.output)?;
    let bytes = fs::metadata(&options.output).map_err(|error| Failure::file(&options.output, error))?.len();
    let compiled = Compiled {
        bundle: options.output.display().to_string(),
        bytes,
        cpu: cpu.name(),
        rules: bundle.artifact.rules,
        tables: bundle.images.len(),
        seconds: start.elapsed().as_secs_f64(),
        clang_seconds: clang_took.as_secs_f64(),
    };
    if options.json {
        return report::print_json(&compiled);
    }
    report::print(&format!(
        "{}: {} for {}, {} rules, {} tables; {:.2} s, of which clang {:.2} s\n",
        compiled.bundle,
        report::bytes(bytes),
        compiled.cpu,
        compiled.rules,
        compiled.tables,
        compiled.seconds,
        compiled.clang_seconds
    ))
}

/// Writes what the compiler made, to be read.
fn emit(directory: &Path, artifact: &Artifact, policy: &Policy) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| Failure::file(directory, error))?;
    let files = [
        ("ir", policy.program.to_string()),
        ("native.c", artifact.native_c.clone()),
        ("bpf.c", artifact.bpf_c.clone()),
    ];
    for (ending, text) in files {
        let path = directory.join(format!("{}.{ending}", artifact.name));
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    }
    Ok(())
}
