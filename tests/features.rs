//! The features of the language. Most are cases of a few lines in tests/cases (features/cases.rs). Each folder of
//! tests/policies is a feature that needs more: counters, tables, several chains, or a look at the generated code.
//!
//! A folder contains policy.weir, packets.txt (one packet per line, in the notation of tests/support) and snapshots.
//! The snapshots are each packet's verdict with the counters, and of some features the lowered IR and the generated C for
//! user space and for BPF (features/whole.rs). The packets go through every chain of the policy in every engine. All
//! results must agree with each other and with the snapshot.
//!
//! `cargo xtask bless` writes the snapshots; review them like code before committing. `WEIR_FEATURE=vlan` runs one
//! folder.

#[path = "features/bundled.rs"]
mod bundled;
#[path = "features/cases.rs"]
mod cases;
#[path = "features/counted.rs"]
mod counted;
mod engines;
#[path = "features/observed.rs"]
mod observed;
#[path = "features/printing.rs"]
mod printing;
#[path = "features/verdicts.rs"]
mod verdicts;
#[path = "features/whole.rs"]
mod whole;

use engines::{AsP4, Engines, load, root};
use insta::assert_snapshot;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use weir_abi::{Reason, Target};
use weir_policy::backend;

/// Number of folders that are tested in parallel. Most of the time is spent in clang, which runs first for native code,
/// then for BPF.
const WORKERS: usize = 2;

/// The folders of tests/policies, sorted.
fn folders() -> Vec<PathBuf> {
    let wanted = std::env::var("WEIR_FEATURE").ok();
    let entries = std::fs::read_dir(root().join("tests/policies")).expect("tests/policies exists");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.is_dir() && wanted.as_deref().is_none_or(|name| path.ends_with(name)))
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "no feature has this name");
    folders
}

/// Runs `test` on every folder, some in parallel, and reports all failures.
fn each_folder(test: impl Fn(&Path) -> Result<(), String> + Sync) {
    let queue = Mutex::new(folders());
    let failed = Mutex::new(Vec::new());
    let work = || {
        loop {
            let next = queue.lock().expect("nobody panics with the lock").pop();
            let Some(folder) = next else { return };
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&folder)));
            let outcome = caught.unwrap_or_else(|_| Err("see above".to_owned()));
            if let Err(problem) = outcome {
                let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                failed.lock().expect("nobody panics with the lock").push(format!("{name}: {problem}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    let mut failed = failed.into_inner().expect("nobody panics with the lock");
    failed.sort();
    assert!(failed.is_empty(), "{} features fail:\n\n{}\n", failed.len(), failed.join("\n\n"));
}

#[test]
fn every_engine_decides_as_the_snapshots_say() {
    let as_p4 = AsP4::default();
    each_folder(|folder| {
        let policy = load(&folder.join("policy.weir"))?;
        let text =
            std::fs::read_to_string(folder.join("packets.txt")).map_err(|error| format!("packets.txt: {error}"))?;
        let lines = verdicts::lines(&text);
        let packets = weir_test_support::packets(&text).map_err(|error| format!("packets.txt: {error}"))?;
        let mut engines = Engines::load(&policy)?;
        as_p4.count(&engines);
        let decided = engines.agree(&packets)?;

        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path(folder);
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| {
            if whole::is_shown(folder) {
                assert_snapshot!("ir", &policy.program);
                for target in Target::ALL {
                    assert_snapshot!(target.file_name(), backend::emit(&policy.program, target));
                }
            }
            assert_snapshot!("verdicts", verdicts::report(&policy, &lines, &decided));
        });
        verdicts::every_rule_is_hit(&policy, &decided)
    });
    if std::env::var_os("WEIR_FEATURE").is_none() {
        as_p4.tell(2);
    }
}

#[test]
fn bundles_decide_as_their_text() {
    each_folder(|folder| {
        let policy = load(&folder.join("policy.weir"))?;
        // The code of a bundle differs where it uses tables and limits. A bundle also contains the settings of
        // tracking.
        let program = &policy.program;
        let is_same = program.limiters.is_empty()
            && program.slots.is_empty()
            && program.tracking.is_none()
            && program.rule_slots.is_empty()
            && program.observe.is_none();
        if is_same || !policy.unsupported().is_empty() {
            return Ok(());
        }
        let text =
            std::fs::read_to_string(folder.join("packets.txt")).map_err(|error| format!("packets.txt: {error}"))?;
        let packets = weir_test_support::packets(&text).map_err(|error| format!("packets.txt: {error}"))?;
        bundled::decides_as_its_text(&policy, &packets)
    });
}

#[test]
fn printed_policies_and_programs_read_as_themselves() {
    each_folder(|folder| {
        let policy = load(&folder.join("policy.weir"))?;
        printing::program_reads_as_itself(&policy.program)?;
        printing::policy_reads_as_itself(folder, &policy)
    });
}

/// Reasons that do not depend on a packet's bytes, or that need a full table or an answer from the other side: each
/// chain sees all packets, and none sees answers. tests/buffers.rs, tests/tracking.rs and tests/card.rs cover them.
const NOT_OF_BYTES: [Reason; 7] = [
    Reason::UNKNOWN_INTERFACE,
    Reason::OUT_OF_WINDOW,
    Reason::BAD_ACK,
    Reason::RST_OUT_OF_WINDOW,
    Reason::STATE_FULL,
    Reason::UNSEALED,
    Reason::CARD_CONTROL,
];

/// Every other built-in reason has a packet.
#[test]
fn every_reason_has_a_packet() {
    if std::env::var_os("WEIR_FEATURE").is_some() {
        return;
    }
    let mut seen = String::new();
    for path in folders().into_iter().map(|folder| folder.join("verdicts.snap")).chain(cases::files()) {
        seen += &std::fs::read_to_string(path).unwrap_or_default();
    }
    let words: std::collections::BTreeSet<&str> = seen.split_whitespace().collect();
    let of_bytes = Reason::BUILTIN.iter().filter(|(reason, _)| !NOT_OF_BYTES.contains(reason));
    let unseen: Vec<&str> = of_bytes.map(|(_, name)| *name).filter(|name| !words.contains(name)).collect();
    assert!(unseen.is_empty(), "no packet in tests/policies and tests/cases has the reason {unseen:?}");
}
