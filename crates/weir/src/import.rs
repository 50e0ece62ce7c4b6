//! `weir import`: a policy from the rules of another packet filter, and a report of what is not in it.

use crate::cli::{ImportFormat, ImportOptions, ImportedFiles, RulesetOptions};
use serde::Serialize;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use weir_command::failure::Failure;
use weir_command::report;
use weir_import::finding::{Finding, Kind};
use weir_import::{Import, Options, Source};

/// The file name that stands for standard input.
const STREAM: &str = "-";
/// Most bytes of a file.
const BYTES_MAX: u64 = 256 << 20;
/// Names in the output directory.
const POLICY: &str = "imported.weir";
const REPORT: &str = "report.txt";

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Imported<'a> {
    /// The text of the policy, or its path.
    policy: String,
    /// Files that were written.
    files: Vec<String>,
    left_out: usize,
    approximate: usize,
    notes: usize,
    findings: Vec<Entry<'a>>,
}

/// A finding in JSON.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    kind: &'static str,
    at: &'a str,
    text: &'a str,
    reason: &'a str,
    effect: &'static str,
}

/// Runs the command.
///
/// # Errors
/// The source is not what it should be, or a file cannot be read or written. With `--strict`: something was left out.
pub fn run(options: &ImportOptions) -> Result<(), Failure> {
    let files = options.format.files();
    let sources: Vec<Source> = files.files.iter().map(|file| read(file)).collect::<Result<_, _>>()?;
    let import = match &options.format {
        ImportFormat::Nft(ruleset) => match sources.as_slice() {
            [source] => weir_import::nft(source, &of_ruleset(ruleset)),
            _ => return Err(Failure::Rejected("one file has the whole ruleset of nftables".to_owned())),
        },
        ImportFormat::Iptables(ruleset) => weir_import::iptables(&sources, &of_ruleset(ruleset)),
        ImportFormat::Ipset(files) => weir_import::ipset(&sources, &of_files(files)),
        ImportFormat::Fastnetmon(files) => weir_import::fastnetmon(&sources, &of_files(files)),
        ImportFormat::Crowdsec(files) => weir_import::crowdsec(&sources, &of_files(files)),
    };
    let import = import.map_err(|refused| Failure::Rejected(refused.0))?;
    let written = files.output.as_deref().map_or(Ok(Vec::new()), |folder| write(folder, &import, files.force))?;
    if files.json {
        report::print_json(&summary(&import, written))?;
    } else if files.output.is_some() {
        report::print(&format!("{}{}", import.findings.report(), listed(&written)))?;
    } else {
        report::print(&import.policy)?;
        report::say(import.findings.report().trim_end());
    }
    if files.strict && !import.findings.is_complete() {
        let (left, approximate) = (import.findings.count(Kind::LeftOut), import.findings.count(Kind::Approximate));
        let message = format!("--strict: {left} parts were left out, and {approximate} are not quite the same");
        let failure = Failure::Rejected(message);
        return Err(if files.json { failure.reported() } else { failure });
    }
    Ok(())
}

fn of_files(files: &ImportedFiles) -> Options {
    Options { inside: files.inside.clone(), list_files: files.output.is_some(), ..Options::default() }
}

fn of_ruleset(options: &RulesetOptions) -> Options {
    Options { host: options.host, outside: options.outside.clone(), ..of_files(&options.files) }
}

fn read(path: &Path) -> Result<Source, Failure> {
    let name = if path.as_os_str() == STREAM { "standard input".to_owned() } else { path.display().to_string() };
    let failed = |error: io::Error| Failure::Runtime(format!("{name}: {error}"));
    let mut bytes = Vec::new();
    let taken = if path.as_os_str() == STREAM {
        io::stdin().take(BYTES_MAX + 1).read_to_end(&mut bytes)
    } else {
        fs::File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    if taken.map_err(failed)? as u64 > BYTES_MAX {
        return Err(Failure::Rejected(format!("{name}: it is longer than {} MiB", BYTES_MAX >> 20)));
    }
    // A byte that is no UTF-8 is in a comment, or else refused with its line.
    Ok(Source { text: String::from_utf8_lossy(&bytes).into_owned(), name })
}

/// Writes all files. A file appears when it is complete.
fn write(folder: &Path, import: &Import, force: bool) -> Result<Vec<PathBuf>, Failure> {
    let mut files: Vec<(PathBuf, &str)> = Vec::new();
    files.extend(import.lists.iter().map(|(path, text)| (folder.join(path), text.as_str())));
    let report = import.findings.report();
    files.push((folder.join(REPORT), &report));
    files.push((folder.join(POLICY), &import.policy));
    if let Some((path, _)) = files.iter().find(|(path, _)| !force && path.exists()) {
        return Err(Failure::Rejected(format!("{} exists: --force replaces it", path.display())));
    }
    for (path, text) in &files {
        let parent = path.parent().unwrap_or(folder);
        let failed = |error: io::Error| Failure::Runtime(format!("{}: {error}", path.display()));
        fs::create_dir_all(parent).map_err(failed)?;
        let unfinished = path.with_extension("unfinished");
        let written = fs::File::create(&unfinished).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&unfinished, path)).map_err(failed)?;
    }
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

fn listed(files: &[PathBuf]) -> String {
    files.iter().map(|path| format!("wrote {}\n", path.display())).collect()
}

fn summary(import: &Import, written: Vec<PathBuf>) -> Imported<'_> {
    let policy = written.last().map_or_else(|| import.policy.clone(), |path| path.display().to_string());
    let findings = &import.findings;
    Imported {
        policy,
        files: written.iter().map(|path| path.display().to_string()).collect(),
        left_out: findings.count(Kind::LeftOut),
        approximate: findings.count(Kind::Approximate),
        notes: findings.count(Kind::Note),
        findings: findings.all().iter().map(entry).collect(),
    }
}

fn entry(finding: &Finding) -> Entry<'_> {
    let Finding { at, text, reason, kind, effect } = finding;
    let kind = match kind {
        Kind::LeftOut => "left-out",
        Kind::Approximate => "approximate",
        Kind::Note => "note",
    };
    Entry { kind, at, text, reason, effect: effect.words() }
}
