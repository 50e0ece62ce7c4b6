//! Manual pages and completions follow the command line.

use crate::weir::Sandbox;
use std::fs;

/// The commands of a page: its lines such as `weir\-run(1)`.
fn commands_of(page: &str) -> Vec<String> {
    let lines = page.lines().filter(|line| line.starts_with("weir") && line.ends_with("(1)"));
    lines.map(|line| line.trim_end_matches("(1)").replace('\\', "")).collect()
}

#[test]
fn each_command_has_a_manual_page_with_its_options() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run("man pages");
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let read = |name: &str| {
        let path = sandbox.path(format!("pages/{name}.1"));
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let mut pages = vec!["weir".to_owned()];
    let mut options = 0;
    while let Some(name) = pages.pop() {
        let page = read(&name);
        let help = sandbox.run(&(name.replacen("weir", "", 1).replace('-', " ") + " --help")).out;
        // Bench passes all options on.
        let longs = help.split_whitespace().filter(|word| word.starts_with("--") && name != "weir-bench");
        for option in longs.map(|word| word.trim_end_matches([',', '.', ';', ')', '`'])) {
            assert!(page.replace('\\', "").contains(option), "{name}: {option}");
            options += 1;
        }
        pages.extend(commands_of(&page));
    }
    assert!(options > 200, "only {options} options were found");
    assert!(!sandbox.path("pages/weir-guard.1").exists(), "hidden commands have no page");
    assert!(read("weir").contains("Exit status: 0 if done"));
}

#[test]
fn shells_complete_commands_and_options() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let ran = sandbox.run(&format!("completions {shell}"));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        for word in ["detect", "activate", "no-synproxy"] {
            assert!(ran.out.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(sandbox.run("completions csh").code, 2);
}
