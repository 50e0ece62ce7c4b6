//! Fuzz targets for bundles and the objects in them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::path::Path;
use weir_abi::{ABI_VERSION, Link};
use weir_engine::bundle::Bundle;
use weir_engine::bundle::trust::Trust;
use weir_engine::elf;
use weir_loading::Policy;
use weir_loading::shape::shape;
use weir_policy::capability::Engine;
use weir_policy::ir;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;

/// The first byte of an input, which selects the target.
const WHOLE: u8 = b'b';
const NATIVE: u8 = b'n';
const KERNEL: u8 = b'k';
const MANIFEST: u8 = b'm';
const LISTS: u8 = b'l';

/// The first byte selects the target of the rest: a whole file, an object for user space, one for the kernel, a
/// manifest, or a report with lists of tables and limits. Archives and digests are computed, since a fuzzer cannot
/// guess a SHA-256.
pub(crate) fn bundle(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let chains = ["upstream".to_owned(), "downstream".to_owned()];
    match kind {
        NATIVE => _ = elf::check_native(bytes, &chains),
        KERNEL => _ = elf::check_bpf(bytes),
        MANIFEST => read(&with_manifest(bytes, Vec::new())),
        LISTS => _ = lists(bytes),
        WHOLE => read(bytes),
        _ => {}
    }
}

/// If an archive is refused, the message names the file and is printable. If it is accepted, its code needs a signature
/// to run.
fn read(bytes: &[u8]) {
    match Bundle::read_bytes(Path::new("fuzzed.weirb"), bytes, &Trust::default()) {
        Ok(bundle) => {
            assert!(bundle.native().is_err() && bundle.bpf().is_err(), "code without a signature is not trusted");
            assert_eq!(bundle.artifact.abi_version, ABI_VERSION);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{message:?}");
        }
    }
}

/// Reads a report, and lists of tables and then of limits after zero bytes, in an archive whose manifest fits the
/// report's program. If it is accepted, its images are built, and the interpreter decides packets with it. `None` if it
/// is refused.
fn lists(bytes: &[u8]) -> Option<()> {
    let mut parts = bytes.split(|&byte| byte == 0);
    let report: Value = serde_json::from_slice(parts.next()?).ok()?;
    let lists: Vec<&[u8]> = parts.collect();
    let program = ir::parse::parse(report["ir"].as_str()?).ok()?;
    let shape = shape(&program);
    let (tables, limits) = lists.split_at_checked(report["tables"].as_array()?.len())?;
    let named = |(name, lists): (&'static str, &[&[u8]])| {
        let lists = lists.iter().enumerate();
        lists.map(|(index, list)| (format!("{name}{index}.csv"), list.to_vec())).collect::<Vec<_>>()
    };
    let more: Vec<(String, Vec<u8>)> = [("table", tables), ("limits", limits)].into_iter().flat_map(named).collect();
    let member = |name: &str, content: &[u8]| json!({"name": name, "bytes": content.len(), "sha256": digest(content)});
    let listed = EMPTY.iter().map(|name| member(name, &[]));
    let listed: Vec<Value> = listed.chain(more.iter().map(|(name, content)| member(name, content))).collect();
    let manifest = json!({
        "format": "weir-bundle", "abi_version": ABI_VERSION, "name": "l", "chains": shape.chains, "rules": shape.rules,
        "tables": shape.tables, "limiters": shape.state.limiters, "adders": shape.state.adders, "additions": shape.additions,
        "limited": shape.limited, "entries": tables.len(), "lists": limits.len(), "cpu": "x86-64-v3",
        "cpu_features": [], "report": report, "members": listed,
    });
    let archive = with_manifest(manifest.to_string().as_bytes(), more);
    let policy = Policy::read_bundle(Path::new("fuzzed.weirb"), &archive, &Trust::default()).ok()?;
    if policy.refuse_unsupported(&[Engine::Eval]).is_err() || policy.limit_needs().buckets > BUCKETS_MAX {
        return None;
    }
    let _data = policy.bind(None).ok()?;
    let mut evaluator = Evaluator::new(&policy.program, policy.answers());
    for (packet, time_ns) in PACKETS.iter().cycle().zip(0..16) {
        for chain in 0..policy.program.chains.len() {
            let (wire_len, link) = (packet.len() as u32, Link::Ethernet);
            evaluator.decide(chain, Frame { bytes: packet, wire_len, link, time_ns }, &mut ());
        }
    }
    Some(())
}

/// More buckets take the interpreter too much memory.
const BUCKETS_MAX: usize = 1 << 16;

/// An IPv4 and an IPv6 packet, without transport headers.
const PACKETS: [&[u8]; 2] = [
    b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0\x45\0\0\x14\0\0\0\0\x40\xfd\0\0\x0a\0\0\x01\x0b\0\0\x01",
    b"\0\0\0\0\0\0\0\0\0\0\0\0\x86\xdd\x60\0\0\0\0\0\xfd\x40\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02",
];

fn digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The members between the manifest and the lists.
const EMPTY: [&str; 5] = ["native.c", "bpf.c", "native.so", "bpf.o", "host.o"];

/// An archive with this manifest, its digest, empty members, and more of them.
fn with_manifest(manifest: &[u8], more: Vec<(String, Vec<u8>)>) -> Vec<u8> {
    let digest = digest(manifest);
    let members = [("manifest.json", manifest), ("manifest.sha256", digest.as_bytes())];
    let empty = EMPTY.map(|name| (name, &[][..]));
    let more = more.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in members.into_iter().chain(empty).chain(more) {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content).expect("memory can be written to");
    }
    archive.into_inner().expect("memory can be written to")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seeds reach the interpreter, so a fuzzer begins behind all checks.
    #[test]
    fn the_seeds_with_lists_are_accepted() {
        assert_eq!(lists(&include_bytes!("../seeds/bundle/limits")[1..]), Some(()));
        assert_eq!(lists(&include_bytes!("../seeds/bundle/tables")[1..]), Some(()));
    }

    #[test]
    fn the_seeds_of_manifests_are_of_this_version() {
        for seed in [&include_bytes!("../seeds/bundle/manifest")[1..], &include_bytes!("../seeds/bundle/table")[1..]] {
            let manifest: Value = serde_json::from_slice(seed).expect("JSON");
            assert_eq!(manifest["abi_version"], ABI_VERSION);
        }
    }
}
