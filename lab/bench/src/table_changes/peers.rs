//! What an operator would change instead: a set of nftables, and the kernel's own maps.

use super::lists::Lists;
use super::timing::{Effort, p99, repeated, spread};
use crate::live::{nft, peers, wire};
use crate::need::Need;
use crate::row::Row;
use crate::scenario::Member;
use std::io::Write;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::time::Instant;
use weir_command::failure::Failure;
use weir_engine::clang::Clang;

/// The peers.
pub const PEERS: [Member; 3] = [
    Member::with("nft-hash", &[Need::Program("nft")]),
    Member::with("nft-interval", &[Need::Program("nft")]),
    Member::plain(MAPS),
];
/// The kernel's maps.
const MAPS: &str = "bpf-maps";

/// Number of changes by an nft each. An nft reads an interval set as a whole before it changes one address, which takes
/// seconds.
const PROCESSES: RangeInclusive<usize> = 3..=2000;
/// The fewest batches. They stay in the set: to delete 10,000 addresses of an interval set, nft 1.0.6 compares each
/// with all others, which takes minutes.
const BATCHES_MIN: usize = 2;

/// Measures the peers with the addresses of the lists.
///
/// # Errors
/// nft or clang is missing, or fails.
pub fn rows(wanted: &[&str], lists: &Lists, effort: Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let sets = [("nft-hash", ""), ("nft-interval", "flags interval;")];
    for (peer, flags) in sets.into_iter().filter(|(peer, _)| wanted.contains(peer)) {
        let set = format!("add table netdev weir\nadd set netdev weir bad {{ type ipv4_addr; {flags} }}\n");
        wire::call("nft", "-f -", &set)?;
        for part in lists.addresses.chunks(1 << 16) {
            wire::call("nft", "-f -", &nft::elements("netdev", "weir", part))?;
        }
        rows.extend(nftables(peer, lists, effort)?);
        wire::call("nft", "delete table netdev weir", "")?;
    }
    if wanted.contains(&MAPS) {
        rows.extend(maps(lists, effort)?);
    }
    Ok(rows)
}

/// Measures a set: one nft for each change, one that runs on, and batches.
fn nftables(peer: &str, lists: &Lists, Effort { turn, batch, rounds, .. }: Effort) -> Result<Vec<Row>, Failure> {
    let absent = lists.absent(2 * PROCESSES.end() + batch * rounds.max(BATCHES_MIN));
    let (singles, batches) = absent.split_at(2 * PROCESSES.end());
    let (own, common) = singles.split_at(*PROCESSES.end());
    let row = |what: &str| Row::default().of("change", what).of("peer", peer);
    let times = repeated(turn, PROCESSES, own.iter(), |&address| change(&[address]))?;
    let one = row("one address, a process each").spread("request_us", spread(&times));
    let rate = 1e6 * times.len() as f64 / times.iter().sum::<f64>();
    let one = one.number("request_us_p99", p99(&times)).number("changes_per_s", rate);
    let mut rows = vec![one.number("timed", times.len() as f64)];
    let common = &common[..times.len()];
    let each = interactive(common)?;
    let one = row("one address").number("request_us", each).number("changes_per_s", 1e6 / each);
    rows.push(one.number("timed", common.len() as f64));
    let times = repeated(turn, BATCHES_MIN..=rounds.max(BATCHES_MIN), batches.chunks_exact(batch), change)?;
    rows.push(row("10,000 addresses").spread("request_us", spread(&times)).number("timed", times.len() as f64));
    Ok(rows)
}

/// Microseconds to add addresses by an nft of their own.
fn change(addresses: &[u32]) -> Result<f64, Failure> {
    let text = nft::elements("netdev", "weir", addresses);
    let begun = Instant::now();
    wire::call("nft", "-f -", &text)?;
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}

/// Microseconds of a change in one nft that runs on, of all changes together.
fn interactive(addresses: &[u32]) -> Result<f64, Failure> {
    let failed = |error: std::io::Error| Failure::Runtime(format!("nft -i: {error}"));
    let mut child =
        Command::new("nft").arg("-i").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map_err(failed)?;
    let mut input = child.stdin.take().expect("it is piped");
    let begun = Instant::now();
    for &address in addresses {
        writeln!(input, "add element netdev weir bad {{ {} }}", Ipv4Addr::from(address)).map_err(failed)?;
    }
    drop(input);
    child.wait().map_err(failed)?;
    Ok(begun.elapsed().as_secs_f64() * 1e6 / addresses.len() as f64)
}

/// Measures the kernel's maps, one system call for each change.
fn maps(lists: &Lists, effort: Effort) -> Result<Vec<Row>, Failure> {
    let programs = peers::load(&Clang::find()?, &lists.addresses)?;
    let absent = lists.absent(effort.batch);
    let mut rows = Vec::new();
    for (peer, map) in [("bpf-hash", "peer_hash"), ("bpf-lpm-trie", "peer_trie")] {
        let mut times = Vec::new();
        for &address in &absent {
            let (plain, trie) = (address.to_be_bytes(), peers::lpm_key(address));
            let key: &[u8] = if map == "peer_trie" { &trie } else { &plain };
            let begun = Instant::now();
            programs.fill(map, [(key, [1u8])])?;
            times.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        let rate = 1e6 * times.len() as f64 / times.iter().sum::<f64>();
        let row = Row::default().of("change", "one address").of("peer", peer).spread("request_us", spread(&times));
        let row = row.number("request_us_p99", p99(&times)).number("changes_per_s", rate);
        rows.push(row.number("timed", times.len() as f64));
    }
    Ok(rows)
}
