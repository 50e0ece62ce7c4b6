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

/// Number of mutants of each target's seeds. libFuzzer tries millions: `cargo xtask fuzz`.
const MUTANTS: u32 = 10_000;

/// Numbers for mutants, the same in every run (Marsaglia, xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

/// Changes an input in one place; `other` is another input of the target.
fn mutate(input: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let at = numbers.below(input.len() + 1);
    let end = (at + 1 + numbers.below(16)).min(input.len());
    match numbers.below(6) {
        0 if at < input.len() => input[at] ^= 1 << numbers.below(8),
        1 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff, b' ', b'{', b'\n'][numbers.below(8)],
        2 => input.truncate(at),
        3 => drop(input.drain(at.min(end)..end)),
        4 => {
            let again = input[at.min(end)..end].to_vec();
            input.splice(at..at, again);
        }
        _ => {
            let from = numbers.below(other.len() + 1);
            let until = (from + 1 + numbers.below(32)).min(other.len());
            input.splice(at..at, other[from.min(until)..until].iter().copied());
        }
    }
}

#[test]
fn mutants_of_seeds_pass() {
    for (name, target) in weir_fuzz::TARGETS {
        let mut paths = inputs("seeds", name);
        paths.sort();
        let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect();
        let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
        for number in 0..MUTANTS {
            let [one, other] = [(); 2].map(|()| &seeds[numbers.below(seeds.len())]);
            let mut input = one.clone();
            for _ in 0..=numbers.below(4) {
                mutate(&mut input, other, &mut numbers);
            }
            let outcome = std::panic::catch_unwind(|| target(&input));
            assert!(outcome.is_ok(), "{name}: mutant {number}: {}", input.escape_ascii());
        }
    }
}
