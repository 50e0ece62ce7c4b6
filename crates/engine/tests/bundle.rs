//! Bundles come back as they were written, and damaged ones are refused by what is wrong with them.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use weir_abi::{ABI_VERSION, Family, Layout, Link, Verdict};
use weir_engine::bundle::{HEAD_BYTES, is_bundle};
use weir_engine::clang::{BpfShape, Clang};
use weir_engine::cpu::Cpu;
use weir_engine::memory::FrameSet;
use weir_engine::{Bundle, Filter, Image, NativeFilter, XdpFilter};
use weir_tables::{Entries, Kind};

mod chain;

fn bundle() -> Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE.get_or_init(compile).clone()
}

fn compile() -> Bundle {
    let artifact = chain::artifact();
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    entries.insert_text("192.0.2.1", None).unwrap();
    let images: Vec<Arc<Image>> = vec![Arc::new(entries.settle().build(Layout::ExactSet).unwrap())];
    let clang = Clang::find().unwrap();
    let native = clang.native(&artifact.name, &artifact.native_c, Cpu::X86_64V3).unwrap().object;
    let shape = BpfShape::new(&artifact.program(), &images, None);
    let bpf = clang.bpf(&artifact.name, &artifact.bpf_c, &shape).unwrap().object;
    Bundle { artifact, images, native, bpf, cpu: Cpu::X86_64V3 }
}

fn written(bundle: &Bundle) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.weirb");
    bundle.write(&path).unwrap();
    (folder, path)
}

/// What reading the file says is wrong, without the file's name.
fn refusal(path: &Path) -> String {
    let message = Bundle::read(path).err().expect("the bundle is damaged").to_string();
    message.strip_prefix(&format!("{}: ", path.display())).expect("errors name the file").to_owned()
}

#[test]
fn a_bundle_comes_back_whole() {
    let before = bundle();
    let (_folder, path) = written(&before);
    let after = Bundle::read(&path).unwrap();
    assert_eq!(serde_json::to_value(&after.artifact).unwrap(), serde_json::to_value(&before.artifact).unwrap());
    assert_eq!((&after.native, &after.bpf, after.cpu), (&before.native, &before.bpf, before.cpu));
    assert_eq!(after.images[0].as_bytes(), before.images[0].as_bytes());
}

#[test]
fn a_bundle_runs_without_a_compiler() {
    let (_folder, path) = written(&bundle());
    let bundle = Bundle::read(&path).unwrap();
    let program = bundle.program();
    let frames = FrameSet::new(Link::Ethernet, [(&[0xff; 60][..], 60), (&[1; 60][..], 60)]);
    let mut native =
        NativeFilter::load(&path.display().to_string(), &bundle.native, &program, bundle.images.clone(), None).unwrap();
    let mut xdp = XdpFilter::load("edge", &bundle.bpf, &program, &bundle.images, None)
        .unwrap_or_else(|error| panic!("this test needs root (BPF_PROG_TEST_RUN): {error}"));
    let burst = frames.bursts().next().unwrap();
    let (mut by_native, mut by_xdp) = ([Verdict(0); 2], [Verdict(0); 2]);
    native.decide(0, &burst, &mut by_native).unwrap();
    xdp.decide(0, &burst, &mut by_xdp).unwrap();
    assert_eq!(by_native, by_xdp);
    assert_eq!(by_native[0].reason().rule_index(), Some(0));
}

#[test]
fn the_same_artifact_gives_the_same_bytes() {
    let ((_a, first), (_b, second)) = (written(&bundle()), written(&bundle()));
    assert!(fs::read(first).unwrap() == fs::read(second).unwrap());
}

#[test]
fn a_bundle_is_known_by_its_start() {
    let (_folder, path) = written(&bundle());
    let whole = fs::read(path).unwrap();
    assert!(is_bundle(&whole) && is_bundle(&whole[..HEAD_BYTES]));
    assert!(
        !is_bundle(b"") && !is_bundle(b"manifest.json") && !is_bundle(&[b"manifest.json\0", &[b'u'; 600][..]].concat())
    );
    assert!(!is_bundle(&archive(&[("manifest.json5", b"{}")])));
}

#[test]
fn a_bundle_is_a_tar_archive_of_its_parts() {
    let (_folder, path) = written(&bundle());
    let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
    let names: Vec<String> =
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    let expected = ["manifest.json", "manifest.sha256", "native.c", "bpf.c", "native.so", "bpf.o", "table0.image"];
    assert_eq!(names, expected);
}

#[test]
fn every_altered_byte_is_found() {
    let (_folder, path) = written(&bundle());
    let whole = fs::read(&path).unwrap();
    // Hits each member many times; what tar itself does not look at (padding, owner) may change.
    let (mut altered, mut ignored) = (0, 0);
    for at in (0..4096).step_by(7).chain((4096..whole.len()).step_by(2039)) {
        altered += 1;
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(&path, &bytes).unwrap();
        if let Ok(read) = Bundle::read(&path) {
            let before = bundle();
            assert_eq!((&read.native, &read.bpf), (&before.native, &before.bpf), "byte {at}");
            assert_eq!(serde_json::to_value(&read.artifact).unwrap(), serde_json::to_value(&before.artifact).unwrap());
            ignored += 1;
        }
    }
    assert!(ignored < altered / 3, "{ignored} of {altered} alterations went unnoticed");
}

#[test]
fn every_truncation_is_found() {
    let (_folder, path) = written(&bundle());
    let whole = fs::read(&path).unwrap();
    // The archive ends with two empty blocks, which carry nothing.
    for at in (0..whole.len() - 1024).step_by(4093) {
        fs::write(&path, &whole[..at]).unwrap();
        let problem = refusal(&path);
        assert!(problem.contains("truncated") || problem == "not a weir bundle", "{at}: {problem}");
    }
}

#[test]
fn what_is_not_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    for content in [&b""[..], b"upstream { accept }", &[0; 4096], &[0xff; 4096]] {
        fs::write(&path, content).unwrap();
        assert_eq!(refusal(&path), "not a weir bundle");
    }
    fs::write(&path, archive(&[("manifest.json", b"{\"format\":\"other\",\"abi_version\":1}")])).unwrap();
    assert_eq!(refusal(&path), "not a weir bundle");
    assert_eq!(refusal(&folder.path().join("absent")), "No such file or directory (os error 2)");
}

#[test]
fn altered_members_are_named() {
    let (_folder, path) = written(&bundle());
    let members = unpacked(&path);
    for (index, (name, content)) in members.iter().enumerate() {
        let mut altered = content.clone();
        *altered.last_mut().unwrap() ^= 1;
        let mut parts = members.clone();
        parts[index].1 = altered;
        fs::write(&path, repacked(&parts)).unwrap();
        let expected = match name.as_str() {
            "manifest.json" => "not a weir bundle".to_owned(),
            "manifest.sha256" => "manifest.json was altered: it does not have the digest in manifest.sha256".to_owned(),
            _ => format!("{name} was altered: it does not have the digest in manifest.json"),
        };
        assert_eq!(refusal(&path), expected);
    }
}

#[test]
fn members_missing_or_too_many() {
    let (_folder, path) = written(&bundle());
    let members = unpacked(&path);
    fs::write(&path, repacked(&members[..4])).unwrap();
    assert_eq!(refusal(&path), "truncated: it ends before native.so");
    let mut swapped = members.clone();
    swapped.swap(2, 3);
    fs::write(&path, repacked(&swapped)).unwrap();
    assert_eq!(refusal(&path), "has bpf.c where native.c should be");
    let mut more = members.clone();
    more.push(("extra".to_owned(), b"x".to_vec()));
    fs::write(&path, repacked(&more)).unwrap();
    assert_eq!(refusal(&path), "has more members than its manifest lists");
}

#[test]
fn another_abi_version_is_refused() {
    let mut old = bundle();
    old.artifact.abi_version = 9;
    let (_folder, path) = written(&old);
    assert_eq!(
        refusal(&path),
        format!("compiled for abi version 9, this weir has {ABI_VERSION}; compile the policy again")
    );
}

#[test]
fn code_for_another_processor_is_refused() {
    let (_folder, path) = written(&bundle());
    let mut members = unpacked(&path);
    let manifest = String::from_utf8(members[0].1.clone()).unwrap().replace("\"avx2\"", "\"avx9\"");
    members[1].1 = Sha256::digest(&manifest).iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
    members[0].1 = manifest.into_bytes();
    fs::write(&path, repacked(&members)).unwrap();
    let expected = "compiled for a processor with avx9, which this one lacks; compile with --cpu x86-64-v3";
    assert_eq!(refusal(&path), expected);
}

#[test]
fn contents_that_no_engine_could_load() {
    let mut odd = bundle();
    odd.artifact.chains[0] = "up; stream".to_owned();
    assert_eq!(refusal(&written(&odd).1), "chain `up; stream` is no C identifier");
    let mut odd = bundle();
    odd.artifact.rules = 100_000;
    assert_eq!(refusal(&written(&odd).1), "100000 rules, at most 65503 are possible");
    let mut odd = bundle();
    odd.artifact.tables[0].layout = Layout::Dxr16x4;
    let (_folder, path) = written(&odd);
    let problem = Bundle::read(&path).err().unwrap().to_string();
    assert_eq!(problem, "table short: laid out as exact-set, the program expects d16x4r");
}

#[test]
fn a_device_is_written_to_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let reader = thread::spawn({
        let path = path.clone();
        move || fs::read(path).unwrap()
    });
    bundle().write(&path).unwrap();
    assert!(is_bundle(&reader.join().unwrap()));
    assert!(!fs::metadata(&path).unwrap().is_file());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = bundle().write(Path::new("/nonexistent/edge.weirb")).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/edge.weirb: No such file or directory"), "{error}");
}

type Parts = Vec<(String, Vec<u8>)>;

fn unpacked(path: &Path) -> Parts {
    let mut archive = tar::Archive::new(fs::File::open(path).unwrap());
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    });
    entries.collect()
}

fn repacked(parts: &[(String, Vec<u8>)]) -> Vec<u8> {
    archive(&parts.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect::<Vec<_>>())
}

fn archive(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in parts {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}
