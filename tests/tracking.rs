//! Tracking: scripts of packets with the state that is expected of each (`tests/tracking/*.pkt`, in the notation of
//! `tests/support/src/script.rs`), on every engine that tracks.

#[path = "tracking/agree.rs"]
mod agree;
#[path = "conntrack/flows.rs"]
mod conntrack_flows;
mod engines;
#[path = "proxied/flows.rs"]
mod proxied_flows;
#[path = "tracking/proxy.rs"]
mod proxy;
#[path = "tracking/restored.rs"]
mod restored;
#[cfg(feature = "dpdk")]
#[path = "tracking/split.rs"]
mod split;
#[path = "tracking/two_cpus.rs"]
mod two_cpus;

use engines::{load, root};
use std::path::{Path, PathBuf};
use weir_abi::flow::ticks;
use weir_abi::{Reason, Verdict};
use weir_engine::Filter;
use weir_engine::frame_set::FrameSet;
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_policy::ir::Direction;
use weir_test_support::script::{Case, Script, Step, script};

/// The states, one rule each, and what shows that a packet has it.
const STATES: [&str; 4] = ["new", "established", "related", "untracked"];
/// Fewest cases of all scripts.
const CASES_MIN: usize = 60;

fn scripts() -> Vec<(PathBuf, Script)> {
    let entries = std::fs::read_dir(root().join("tests/tracking")).expect("tests/tracking exists");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "pkt")).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a script can be read");
        let script = script(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, script)
    };
    paths.into_iter().map(read).collect()
}

/// A policy whose verdicts show the state of a packet: a rule for each state, and the reason of invalid packets.
fn policy(folder: &Path, script: &Script) -> Result<Policy, String> {
    let settings: String = script.settings.iter().map(|setting| format!("  {setting}\n")).collect();
    let rules: String = script.rules.iter().map(|rule| format!("  {rule}\n")).collect();
    let states: String = STATES.iter().map(|state| format!("  ct state {state} accept\n")).collect();
    let chain = format!("{{\n{rules}{states}  drop\n}}\n");
    let text = format!("tracking {{\n  invalid drop\n{settings}}}\nupstream {chain}downstream {chain}");
    let path = folder.join("script.weir");
    std::fs::write(&path, text).map_err(|error| error.to_string())?;
    load(&path)
}

/// What a verdict says of its packet: the state, the reason, or the verdict of another rule.
fn shown(policy: &Policy, verdict: Verdict) -> String {
    let Some(index) = verdict.reason().rule_index() else {
        return verdict.reason().builtin_name().unwrap_or("?").to_owned();
    };
    let rule = &policy.program.rules[usize::from(index)];
    let state = rule.text.strip_prefix("ct state ").and_then(|text| text.strip_suffix(" accept"));
    match (state, verdict.action()) {
        (Some(state), _) => state.to_owned(),
        (None, Some(action)) => action.name().to_owned(),
        (None, None) => "?".to_owned(),
    }
}

fn chain(policy: &Policy, step: &Step) -> usize {
    let direction = if step.is_upstream { Direction::Upstream } else { Direction::Downstream };
    policy.program.chain(None, direction).expect("both directions have rules")
}

/// Decides consecutive packets of one direction, and says what their verdicts show.
fn decide(policy: &Policy, filter: &mut dyn Filter, steps: &[Step]) -> Vec<String> {
    let mut shows = Vec::new();
    for mut set in engines::frame_sets(steps.iter().map(|step| &step.packet)) {
        shows.extend(decide_set(policy, filter, chain(policy, &steps[0]), &mut set));
    }
    shows
}

fn decide_set(policy: &Policy, filter: &mut dyn Filter, chain: usize, set: &mut FrameSet) -> Vec<String> {
    let mut shows = Vec::new();
    for burst in set.bursts() {
        let mut verdicts = [Verdict(u32::MAX); weir_abi::BURST_MAX];
        filter.decide(chain, &burst, &mut verdicts).expect("the engine decides");
        shows.extend(verdicts[..burst.len()].iter().map(|&verdict| shown(policy, verdict)));
    }
    shows
}

/// The states of the flows that have not expired at a time.
fn states(policy: &Policy, filter: &dyn Filter, time_ns: u64) -> Vec<String> {
    let timeouts = policy.program.tracking.expect("the policy tracks").timeouts();
    let mut states = Vec::new();
    filter.flows(&mut |key, flow| {
        if !timeouts.has_passed(flow, key.protocol(), ticks(time_ns)) {
            states.push(flow.state.name().to_owned());
        }
    });
    states.sort();
    states
}

/// Runs the packets of a case one by one. Returns the differences to what is expected.
fn run_one_by_one(policy: &Policy, filter: &mut dyn Filter, case: &Case) -> Vec<String> {
    let mut wrong = Vec::new();
    for step in &case.steps {
        let shows = decide(policy, filter, std::slice::from_ref(step)).join(" ");
        let flows = states(policy, filter, step.packet.time_ns);
        if shows != step.expected {
            wrong.push(format!("line {}: {} is expected, it is {shows}", step.line, step.expected));
        }
        if step.flows.as_ref().is_some_and(|expected| *expected != flows) {
            let expected = step.flows.clone().unwrap_or_default().join(",");
            wrong.push(format!("line {}: flows `{expected}` are expected, there are `{}`", step.line, flows.join(",")));
        }
    }
    wrong
}

/// Runs the packets of a case in bursts: consecutive packets of one direction are one burst.
fn run_in_bursts(policy: &Policy, filter: &mut dyn Filter, case: &Case) -> Vec<String> {
    let runs = case.steps.chunk_by(|one, next| one.is_upstream == next.is_upstream);
    let shows = runs.flat_map(|run| decide(policy, filter, run)).collect::<Vec<_>>();
    let differ = case.steps.iter().zip(&shows).filter(|(step, shows)| step.expected != **shows);
    differ.map(|(step, shows)| format!("line {}: in a burst it is {shows}", step.line)).collect()
}

/// What an engine is to do.
type Task<'a> = dyn FnMut(&mut dyn Filter) + 'a;

/// Runs the packets of a case one by one and in bursts, each time without flows before.
fn run(policy: &Policy, case: &Case, empty: &mut dyn FnMut(&mut Task<'_>)) -> Vec<String> {
    let mut wrong = Vec::new();
    empty(&mut |filter| wrong.extend(run_one_by_one(policy, filter, case)));
    empty(&mut |filter| wrong.extend(run_in_bursts(policy, filter, case)));
    wrong
}

/// Scripts whose packets pass the same policy.
type Group<'a> = Vec<&'a (PathBuf, Script)>;

/// The scripts in groups with the same settings and rules. Compiling and loading a policy takes far longer than running
/// a script.
fn groups(scripts: &[(PathBuf, Script)]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for script in scripts {
        let same = |group: &&mut Group<'_>| {
            let (_, first) = group[0];
            first.settings == script.1.settings && first.rules == script.1.rules
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(script),
            None => groups.push(vec![script]),
        }
    }
    groups
}

/// Runs the cases of all scripts of a group on every engine. Returns the differences to what is expected.
fn run_group(group: &Group<'_>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let first = name(&group[0].0);
    let policy = policy(folder.path(), &group[0].1).unwrap_or_else(|error| panic!("{first}: {error}"));
    let mut native = policy.native().unwrap_or_else(|error| panic!("{first}: {error}"));
    let mut xdp = policy.xdp().unwrap_or_else(|error| panic!("{first}: {error}"));
    let mut as_p4 = engines::as_p4(&policy).unwrap_or_else(|error| panic!("{first}: {error}"));
    let mut wrong = Vec::new();
    for (name, case) in group.iter().flat_map(|(path, script)| script.cases.iter().map(|case| (name(path), case))) {
        assert!(!case.steps.is_empty(), "{name}: {}: no packets", case.name);
        let of_eval = run(&policy, case, &mut |run| run(&mut EvalFilter::new(&policy.program, policy.answers())));
        let of_native = run(&policy, case, &mut |run| {
            native.flow_table().expect("it tracks").clear();
            run(&mut native);
            native.flow_table().expect("it tracks").verify().expect("the invariants of the table hold");
        });
        let of_xdp = run(&policy, case, &mut |run| {
            xdp.flow_table().expect("it tracks").clear();
            run(&mut xdp);
            xdp.flow_table().expect("it tracks").verify().expect("the invariants of the table hold");
        });
        let mut decided = vec![("eval", of_eval), ("native", of_native), ("xdp", of_xdp)];
        for (engine, p4) in &mut as_p4 {
            let differences = run(&policy, case, &mut |run| {
                p4.flow_table().expect("it tracks").clear();
                run(p4);
                p4.flow_table().expect("it tracks").verify().expect("the invariants of the table hold");
            });
            decided.push((engine, differences));
        }
        for (engine, differences) in decided {
            let line = |difference: &String| format!("{name}: {engine}: {}: {difference}", case.name);
            wrong.extend(differences.iter().map(line));
        }
    }
    wrong
}

#[test]
fn packets_have_the_states_that_scripts_say() {
    let scripts = scripts();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            groups(&scripts).into_iter().map(|group| scope.spawn(move || run_group(&group))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the scripts run")).collect()
    });
    let cases: usize = scripts.iter().map(|(_, script)| script.cases.len()).sum();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases >= CASES_MIN, "only {cases} cases");
}

/// Each state and each reason of the tracker occurs in a script.
#[test]
fn scripts_cover_states_and_reasons() {
    let expected: std::collections::HashSet<String> = scripts()
        .into_iter()
        .flat_map(|(_, script)| script.cases)
        .flat_map(|case| case.steps)
        .flat_map(|step| step.flows.unwrap_or_default().into_iter().chain([step.expected]))
        .collect();
    let reasons = (Reason::BAD_FLAGS.0..=Reason::STATE_FULL.0).filter_map(|number| Reason(number).builtin_name());
    // Only a restart makes flows `restored`.
    let states = weir_abi::FlowState::ALL.iter().map(|&(_, name)| name).filter(|name| *name != "restored");
    let missing: Vec<&str> = reasons.chain(states).chain(STATES).filter(|name| !expected.contains(*name)).collect();
    assert!(missing.is_empty(), "no script has {missing:?}");
}
