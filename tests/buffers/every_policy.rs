//! The programs of every feature load as they run on interfaces. What they decide is the matter of tests/features.rs.
//! Older kernels refuse code that newer ones accept, so `cargo xtask kernels` runs this on both. Here the tests of
//! interfaces load most of them.

use crate::engines::{load, root};
use nix::sched::{CloneFlags, unshare};
use std::process::Command;
use std::sync::Arc;
use weir_engine::live::Interfaces;
use weir_engine::live::samples::ring::SampleRing;
use weir_engine::live::tap::Taps;
use weir_engine::live::xdp::Ports;
use weir_loading::{LoadError, Policy};
use weir_state::{SharedState, UsedBy};

/// Packets in one buffer, and in several.
const MTUS: [u32; 2] = [1500, 9000];

/// The first Linux with tcx, which `--host` needs.
const TCX: (u32, u32) = (6, 6);

/// Whether the kernel has it. A kernel without it must say so ([`places`]).
pub fn has_tcx() -> bool {
    kernel() >= TCX
}

/// Major and minor version of the running kernel.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    numbers.next().zip(numbers.next()).expect("a release begins with two numbers")
}

/// The policies of tests/policies and the examples that run in the kernel, with their names.
fn policies() -> Vec<(String, Policy)> {
    let features = std::fs::read_dir(root().join("tests/policies")).expect("it is there");
    let mut paths: Vec<_> = features.map(|entry| entry.expect("it can be read").path().join("policy.weir")).collect();
    let others =
        ["tests/kernel/payload-and-ipv6", "examples/edge/edge", "examples/edge/strict", "examples/firewall/firewall"];
    paths.extend(others.map(|other| root().join(other).with_extension("weir")));
    paths.sort();
    let loaded = paths.into_iter().map(|path| {
        let policy = load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path.display().to_string(), policy)
    });
    loaded.filter(|(_, policy)| policy.unsupported().is_empty()).collect()
}

/// The places of programs in a network namespace of this thread: between interfaces for each MTU, and on a host.
fn places() -> Vec<(String, Ports)> {
    unshare(CloneFlags::CLONE_NEWNET).expect("this test makes a network namespace and needs root");
    let mut places = Vec::new();
    for mtu in MTUS {
        let [lower, upper] = ["lower", "upper"].map(|side| format!("{side}{mtu}"));
        for name in [&lower, &upper] {
            let line = format!("link add {name} mtu {mtu} type veth peer name {name}-peer mtu {mtu}");
            let made = Command::new("ip").args(line.split_whitespace()).status().expect("see scripts/install-deps.sh");
            assert!(made.success(), "ip {line}");
        }
        let between = Interfaces { lower: vec![lower], upper: vec![upper], divert: None };
        let ports = Ports::of(&between).expect("they are there");
        let sampled = ports.clone().with_samples(Some(ring())).with_taps(taps());
        places.push((format!("between interfaces of MTU {mtu}"), ports));
        places.push((format!("between interfaces of MTU {mtu}; with mitigation and taps"), sampled));
    }
    match Ports::of_host(&[format!("lower{}", MTUS[1])]) {
        Ok(host) => places.push(("on a host".to_owned(), host.with_samples(Some(ring())).with_taps(taps()))),
        Err(error) if !has_tcx() => {
            let error = error.to_string();
            assert!(error.contains("--host needs Linux 6.6 or newer"), "{error}");
        }
        Err(error) => panic!("{error}"),
    }
    places
}

fn taps() -> Arc<Taps> {
    Taps::of_kernel().expect("root may make maps")
}

fn ring() -> Arc<SampleRing> {
    Arc::new(SampleRing::create().expect("root may make maps"))
}

#[test]
#[ignore = "takes a minute: cargo xtask kernels"]
fn every_policy_loads_wherever_programs_run() {
    let (places, policies) = (places(), policies());
    let (mut loaded, mut refused) = (0, Vec::new());
    for (name, policy) in &policies {
        for (place, ports) in &places {
            let shared = SharedState::new(UsedBy::Kernel { limits_room: None });
            let data = policy.bind(Some(&shared)).expect("there is memory");
            match policy.kernel(&data, &Arc::new(ports.clone())) {
                Ok(_) => loaded += 1,
                // What a host cannot do is said by the compiler, not by the kernel.
                Err(LoadError::Mistakes(_)) if ports.is_host() => {}
                Err(error) => refused.push(format!("{name} {place}: {error}")),
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    // Each runs between interfaces, and some on a host too. Most of the features are for the kernel.
    let (between, has_host) = (2 * MTUS.len(), usize::from(places.len() > 2 * MTUS.len()));
    assert!(loaded >= between * policies.len() + has_host, "only {loaded} of {} policies", policies.len());
    let features = std::fs::read_dir(root().join("tests/policies")).expect("it is there").count();
    assert!(2 * policies.len() > features, "only {} of {features} run in the kernel", policies.len());
}
