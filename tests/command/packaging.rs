//! The files of the service: they fit the program, each other, and a bound of systemd's own judgement.

use crate::weir::Sandbox;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The highest exposure of the service, by `systemd-analyze security`, in tenths.
const EXPOSURE_MAX: u32 = 30;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"))
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).expect("it is shipped")
}

/// The settings of the shipped configuration, which are comments there.
fn settings() -> BTreeMap<String, String> {
    let text = read("weir.toml");
    let lines = text.lines().filter_map(|line| line.strip_prefix('#'));
    let settings = lines.filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    let split = |line: &str| line.split_once(" = ").map(|(key, _)| (key.to_owned(), line.to_owned()));
    settings.map(|line| split(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn the_shipped_configuration_is_valid_with_each_of_its_settings() {
    let sandbox = Sandbox::new();
    let (all, commented) = (settings(), read("weir.toml"));
    assert!(all.len() > 15, "{all:?}");
    // Between two sides, and on a host.
    for without in [&["host"][..], &["lower", "upper", "divert", "carry-link"]] {
        let kept = all.iter().filter(|(key, _)| !without.contains(&key.as_str()));
        let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
        sandbox.put("weir.toml", text);
        let ran = sandbox.run("config show weir.toml");
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    // As it is shipped, it says what is missing.
    sandbox.put("weir.toml", commented);
    sandbox.run("config check weir.toml").fails(2, &["the key `policy` is missing", "the key `engine` is missing"]);
}

#[test]
fn the_units_fit_the_program() {
    let sandbox = Sandbox::new();
    let mut minimal = String::new();
    for key in ["policy", "engine", "lower", "upper"] {
        minimal += &format!("{}\n", settings()[key]);
    }
    sandbox.put("weir.toml", minimal);
    let unit = read("weir.service");
    let command = |name: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(name)).expect("the unit has it");
        line.strip_prefix("=/usr/bin/weir ").expect("it runs weir").to_owned()
    };
    let start = command("ExecStart").replace("run --config /etc/weir/weir.toml", "");
    let report = sandbox.run(&format!("config show --json weir.toml -- {start}")).json();
    let value = |key: &str| {
        let options = report["options"].as_array().expect("a list");
        options.iter().find(|row| row["key"] == key).expect("it is an option")["value"].clone()
    };
    assert_eq!(value("keep-confirmed"), "true");
    // Both talk through the same socket, which is the default of `weir ctl`.
    assert!(
        value("control") == "/run/weir/weir.sock" && command("ExecReload").ends_with("--control /run/weir/weir.sock")
    );
    assert!(sandbox.run("ctl --help").out.contains("/run/weir/weir.sock"));
    sandbox.run(&command("ExecReload").replace("/run/weir/", "none/")).fails(1, &["no `weir run` has its socket"]);
}

#[test]
fn instances_differ_from_the_service_only_in_names() {
    let settings = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let service = read("weir.service");
    let instance = service
        .replace("scrubber", "scrubber (%i)")
        .replace("/etc/weir/weir.toml", "/etc/weir/%i.toml")
        .replace("/run/weir/weir.sock", "/run/weir/%i.sock")
        .replace("/var/lib/weir/weir", "/var/lib/weir/%i")
        .replace("weir/weir", "weir/%i");
    assert_eq!(settings(&read("weir@.service")), settings(&instance));
}

#[test]
fn the_service_is_hardened() {
    for unit in ["weir.service", "weir@.service"] {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).arg(folder().join(unit));
        let output = analyze.output().expect("systemd is installed: scripts/install-deps.sh --tests");
        let text = String::from_utf8_lossy(&output.stdout);
        let exposure =
            text.lines().find_map(|line| line.split_once("Overall exposure level for ")).map(|(_, rest)| rest);
        let exposure = exposure.and_then(|rest| rest.split_whitespace().nth(1)).unwrap_or_else(|| panic!("{output:?}"));
        let tenths: u32 = exposure.replace('.', "").parse().expect("a number with one decimal");
        assert!(tenths <= EXPOSURE_MAX, "{unit}: {text}");
    }
}

/// Runs `packaging/instances` beside programs that stand for systemd and `weir ctl`. The process of `weir@a.service` has
/// a program whose file was replaced, that of `weir.service` the current one. Returns what was done.
fn instances(action: &str, upgrade_succeeds: bool) -> (String, String) {
    let sandbox = Sandbox::new();
    // Another process writes what is executed, because a file that a test has open for writing is busy (ETXTBSY).
    let install = |from: PathBuf, to: &str| {
        let mut install = Command::new("install");
        let status = install.args(["-D", "-m", "755"]).arg(from).arg(sandbox.path(to)).status();
        assert!(status.expect("it is of coreutils").success());
    };
    let program = |name: &str| {
        install("/bin/sleep".into(), name);
        let child = Command::new(sandbox.path(name)).arg("600").spawn().expect("it runs");
        (child, sandbox.path(name))
    };
    let (mut current, mut replaced) = (program("current").0, program("program"));
    fs::remove_file(&replaced.1).expect("it is ours");
    let stand_in = |name: &str, text: &str| {
        sandbox.put(name, format!("#!/bin/sh\n{text}\n"));
        install(sandbox.path(name), &format!("bin/{name}"));
    };
    let units = "weir.service loaded active running\nweir@a.service loaded active running\nweir@idle.service loaded";
    let pids = format!("*@a.*) echo {} ;; *@idle*) echo 0 ;; *) echo {} ;;", replaced.0.id(), current.id());
    stand_in("systemctl", &format!("case $1,$5 in list*) echo '{units}' ;; {pids} esac"));
    let done = sandbox.path("done");
    let note = |word: &str| format!("echo {word} \"$@\" >>{}", done.display());
    stand_in("weir", &format!("{}; echo said; {}", note("weir"), if upgrade_succeeds { "exit 0" } else { "exit 2" }));
    stand_in("deb-systemd-invoke", &note("invoke"));
    let mut script = Command::new(folder().join("instances"));
    let path = format!("{}:/usr/bin:/bin", sandbox.path("bin").display());
    let output = script.arg(action).arg(&replaced.1).env("PATH", path).output().expect("it is executable");
    for child in [&mut current, &mut replaced.0] {
        child.kill().expect("it runs");
        child.wait().expect("it is our child");
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    (fs::read_to_string(done).unwrap_or_default(), said)
}

#[test]
fn a_package_upgrades_only_instances_of_the_replaced_program() {
    let upgraded = "weir ctl --control /run/weir/a.sock upgrade\n";
    assert_eq!(instances("upgrade", true), (upgraded.to_owned(), "weir@a.service: said\n".to_owned()));
    // It restarts if that fails, and says so.
    let (done, said) = instances("upgrade", false);
    assert_eq!(done, format!("{upgraded}invoke restart weir@a.service\n"));
    assert_eq!(said, "weir@a.service: said\nweir@a.service: restarts, because it could not be upgraded in place\n");
    assert_eq!(instances("stop", true).0, "invoke stop weir@a.service\n");
}
