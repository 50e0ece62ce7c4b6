//! The attacks of an attacker who has read the source: each file of `tests/adversary/*.attack` is an attack, in the
//! notation of `tests/support/src/attack`, with what must happen. Packets run on every engine, which must agree on each
//! verdict and reason, and through detection. The next attack is a new file and nothing else.
//!
//! `ADVERSARY=NAME cargo test --test adversary` runs the attacks whose name contains the word.

#[path = "adversary/deciding.rs"]
mod deciding;
#[path = "adversary/detecting.rs"]
mod detecting;
mod engines;
#[path = "adversary/judging.rs"]
mod judging;

use deciding::Engines;
use engines::{load, root};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_loading::Policy;
use weir_test_support::attack::{self, Attack, PolicySource};

/// Fewest attacks.
const ATTACKS_MIN: usize = 40;

/// An attack with the name of its file.
struct Named {
    name: String,
    attack: Attack,
}

fn folder() -> PathBuf {
    root().join("tests/adversary")
}

/// The attacks whose name contains a word.
fn attacks(word: &str) -> Vec<Named> {
    let entries = std::fs::read_dir(folder()).expect("tests/adversary exists");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "attack")).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(word)));
    paths.sort();
    in_parallel(&paths, |path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).expect("an attack can be read");
        let attack = attack::attack(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        Named { name, attack }
    })
}

/// Does the same with each of several things, as many at once as there are processors. The results have any order.
fn in_parallel<T: Sync, R: Send>(things: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let (next, workers) = (AtomicUsize::new(0), std::thread::available_parallelism().map_or(2, usize::from));
    let work = || {
        let mine = std::iter::from_fn(|| things.get(next.fetch_add(1, Ordering::Relaxed)));
        mine.map(&work).collect::<Vec<R>>()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

/// The text of the policy of an attack.
fn policy_text(attack: &Attack) -> Result<Option<String>, String> {
    match &attack.policy {
        None => Ok(None),
        Some(PolicySource::Text(text)) => Ok(Some(text.clone())),
        Some(PolicySource::File(name)) => {
            std::fs::read_to_string(folder().join(name)).map(Some).map_err(|error| format!("{name}: {error}"))
        }
    }
}

/// The policy of a text, with rules in its slots.
fn policy(text: &str, slots: &[(String, String)]) -> Result<Policy, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("attack.weir");
    std::fs::write(&path, text).map_err(|error| error.to_string())?;
    let mut policy = load(&path)?;
    slots.iter().try_for_each(|(slot, rule)| policy.add_slot_rule(slot, rule))?;
    Ok(policy)
}

/// Attacks on the same policy, which is compiled once.
type Group<'a> = Vec<&'a Named>;

fn groups(attacks: &[Named]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for attack in attacks {
        let same = |group: &&mut Group<'_>| {
            let first = &group[0].attack;
            first.policy.is_some() && first.policy == attack.attack.policy && first.slots == attack.attack.slots
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(attack),
            None => groups.push(vec![attack]),
        }
    }
    groups
}

/// Runs the attacks of a group. Returns the violated expectations, each with its file and line.
fn run_group(group: &Group<'_>) -> Result<Vec<String>, String> {
    let first = &group[0].attack;
    let policy = policy_text(first)?.map(|text| policy(&text, &first.slots)).transpose()?;
    let mut engines = policy.as_ref().map(Engines::load).transpose()?;
    if let Some(policy) = policy.as_ref().filter(|policy| group.len() > 1 && deciding::remembers(policy)) {
        return Err(format!("{} keep limits or tables, so each attack needs its own", policy.program.name));
    }
    let mut wrong = Vec::new();
    for Named { name, attack } in group {
        let found = run(engines.as_mut(), attack)?;
        wrong.extend(found.iter().map(|wrong| format!("{name}: {wrong}")));
    }
    Ok(wrong)
}

/// Runs an attack. Returns the violated expectations, each with its line.
fn run(engines: Option<&mut Engines<'_>>, attack: &Attack) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    let decided = engines.map(|engines| engines.decide(attack, &mut wrong)).transpose()?;
    if let Some(decided) = &decided {
        judging::packets(attack, decided, &mut wrong)?;
    }
    if attack.is_for_detection() {
        let detected = detecting::detect(attack, decided.as_ref());
        judging::detection(attack, &detected, &mut wrong)?;
    }
    Ok(wrong)
}

#[test]
fn no_attack_succeeds() {
    let only = std::env::var("ADVERSARY").unwrap_or_default();
    let attacks = attacks(&only);
    let mut wrong: Vec<String> = in_parallel(&groups(&attacks), |group| {
        run_group(group).unwrap_or_else(|error| vec![format!("{}: {error}", group[0].name)])
    })
    .concat();
    wrong.sort();
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!only.is_empty() || attacks.len() >= ATTACKS_MIN, "only {} attacks", attacks.len());
}
