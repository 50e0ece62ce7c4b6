//! Runs every seed and every former crash through its target.

use std::path::{Path, PathBuf};

fn inputs(folder: &str, target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}

#[test]
fn seeds_and_crashes_pass() {
    for (name, target) in weir_fuzz::TARGETS {
        let seeds = inputs("seeds", name);
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for path in seeds.into_iter().chain(inputs("corpus", name)) {
            // The test runner shows this if the target panics.
            eprintln!("{}", path.display());
            target(&std::fs::read(&path).expect("a file that was just listed"));
        }
    }
}

#[test]
fn every_target_has_its_binary() {
    let binaries = inputs("src", "bin");
    let mut names: Vec<_> = binaries.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
    names.sort();
    assert_eq!(names, weir_fuzz::TARGETS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for (name, path) in names.iter().zip(&binaries) {
        let text = std::fs::read_to_string(path.with_file_name(format!("{name}.rs"))).expect("a binary's source");
        assert!(text.contains(&format!("run(\"{name}\", data)")), "{name} runs another target");
    }
}
