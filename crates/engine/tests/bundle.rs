//! Bundles read back as they were written. Damaged bundles are refused with the cause.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use weir_abi::{ABI_VERSION, Family, Layout, Link, Target, Verdict};
use weir_engine::bundle::trust::Trust;
use weir_engine::bundle::{HEAD_BYTES, is_bundle};
use weir_engine::clang::{BpfShape, Clang, Hook};
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::{Bound, Bundle, EngineError, Filter, Image, NativeFilter, XdpFilter};
use weir_tables::{Entries, Kind, Table};

mod chain;

fn bundle() -> Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE.get_or_init(compile).clone()
}

fn compile() -> Bundle {
    let artifact = chain::artifact();
    let clang = Clang::find().unwrap();
    let native = clang.native(&artifact.name, artifact.source(Target::Native), Cpu::X86_64V3).unwrap().object;
    let shape = BpfShape::for_bundle(&artifact.shape, &Bound::default());
    let bpf = |hook| {
        let shape = BpfShape { hook, ..shape.clone() };
        clang.bpf(&artifact.name, artifact.source(Target::Bpf), &shape).unwrap().object
    };
    let (received, sent) = (bpf(Hook::Received), bpf(Hook::Sent));
    let tables = vec![table().to_list().into_bytes().into()];
    Bundle::new(artifact, tables, vec![], native, received, Some(sent), Cpu::X86_64V3).unwrap()
}

fn table() -> Table {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    entries.insert_text("192.0.2.1", None).unwrap();
    entries.settle()
}

/// The images of the tables in the bundle.
fn images(bundle: &Bundle) -> Vec<Arc<Image>> {
    let table = |list: &Arc<[u8]>| Table::from_list("table", list, (Family::Ipv4, Kind::Set), &[]).unwrap();
    bundle.tables.iter().map(|list| Arc::new(table(list).build(Layout::ExactSet).unwrap())).collect()
}

fn written(bundle: &Bundle) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edge.weirb");
    bundle.write(&path, None).unwrap();
    (folder, path)
}

fn read(path: &Path) -> Result<Bundle, EngineError> {
    Bundle::read(path, &Trust::default())
}

/// The error of reading the file, without the file's name.
fn refusal(path: &Path) -> String {
    without_path(path, read(path).err().expect("the bundle is damaged"))
}

fn without_path(path: &Path, error: EngineError) -> String {
    let message = error.to_string();
    message.strip_prefix(&format!("{}: ", path.display())).expect("errors name the file").to_owned()
}

/// The bytes of all objects.
fn code(bundle: &Bundle) -> [&[u8]; 3] {
    let sent = bundle.sent().unwrap().expect("it is for hosts too");
    [bundle.native().unwrap().bytes(), bundle.bpf().unwrap().bytes(), sent.bytes()]
}

#[test]
fn a_bundle_comes_back_whole() {
    let before = bundle();
    let (_folder, path) = written(&before);
    let after = read(&path).unwrap();
    assert_eq!(after.artifact, before.artifact);
    assert_eq!(code(&after), code(&before));
    assert_eq!(after.cpu, before.cpu);
    assert_eq!(after.tables, before.tables);
}

#[test]
fn a_bundle_runs_without_a_compiler() {
    let (_folder, path) = written(&bundle());
    let bundle = read(&path).unwrap();
    let program = bundle.shape();
    let frames = FrameSet::new(Link::Ethernet, [(&[0xff; 60][..], 60), (&[1; 60][..], 60)]);
    let images = images(&bundle);
    let mut native =
        NativeFilter::load("edge", bundle.native().unwrap(), program, Bound::of_images(images.clone())).unwrap();
    let mut xdp = XdpFilter::load("edge", bundle.bpf().unwrap(), program, &Bound::of_images(images))
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
    let code = ["native.c", "bpf.c", "native.so", "bpf.o", "host.o"];
    let expected = [&["manifest.json", "manifest.sha256"][..], &code, &["table0.csv"]].concat();
    assert_eq!(names, expected);
}

#[test]
fn every_altered_byte_is_found() {
    let (_folder, path) = written(&bundle());
    let whole = fs::read(&path).unwrap();
    // This hits each member many times, and also headers and padding.
    for at in (0..4096).step_by(7).chain((4096..whole.len()).step_by(2039)).chain(whole.len() - 1030..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(&path, &bytes).unwrap();
        assert!(read(&path).is_err(), "byte {at} of {} is not looked at", whole.len());
    }
}

#[test]
fn every_truncation_is_found() {
    let (_folder, path) = written(&bundle());
    let whole = fs::read(&path).unwrap();
    for at in (0..whole.len()).step_by(4093).chain([whole.len() - 1024, whole.len() - 1]) {
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
    let other = b"{\"format\":\"other\",\"abi_version\":1}";
    fs::write(&path, archive(&[("manifest.json", other), ("manifest.sha256", hex_digest(other).as_bytes())])).unwrap();
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
    let other = ABI_VERSION + 1;
    old.artifact.abi_version = other;
    let (_folder, path) = written(&old);
    assert_eq!(
        refusal(&path),
        format!("compiled for abi version {other}, this weir has {ABI_VERSION}; compile the policy again")
    );
}

#[test]
fn code_for_another_processor_is_refused() {
    let (_folder, path) = written(&bundle());
    let mut members = unpacked(&path);
    let manifest = String::from_utf8(members[0].1.clone()).unwrap().replace("\"avx2\"", "\"avx9\"");
    members[1].1 = hex_digest(manifest.as_bytes()).into_bytes();
    members[0].1 = manifest.into_bytes();
    fs::write(&path, repacked(&members)).unwrap();
    let expected = "compiled for a processor with avx9, which this one lacks; compile with --cpu x86-64-v3";
    let bundle = read(&path).expect("whoever does not run its native code may read it");
    assert_eq!(without_path(&path, bundle.native().unwrap_err()), expected);
    bundle.bpf().expect("the kernel's code is for any processor");
}

#[test]
fn contents_that_no_engine_could_load() {
    let mut odd = bundle();
    odd.artifact.shape.chains[0] = "up; stream".to_owned();
    assert_eq!(refusal(&written(&odd).1), "chain `up; stream` is not a C identifier");
    let mut odd = bundle();
    odd.artifact.shape.rules = 100_000;
    assert_eq!(refusal(&written(&odd).1), "100000 rules, at most 65503 are possible");
    let mut odd = bundle();
    odd.tables = vec![table().to_list().into_bytes().into(); 1025];
    assert_eq!(refusal(&written(&odd).1), "1025 tables, at most 1024 are possible");
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
    bundle().write(&path, None).unwrap();
    assert!(is_bundle(&reader.join().unwrap()));
    assert!(!fs::metadata(&path).unwrap().is_file());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let error = bundle().write(Path::new("/nonexistent/edge.weirb"), None).unwrap_err().to_string();
    assert!(error.starts_with("/nonexistent/edge.weirb: No such file or directory"), "{error}");
}

#[test]
fn an_archive_that_says_more_than_weir_writes() {
    let (_folder, path) = written(&bundle());
    let members = unpacked(&path);
    let whole = fs::read(&path).unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        refusal(&path)
    };
    let more = |bytes: &mut Vec<u8>| bytes.extend([0; 8192]);
    assert_eq!(with(&more), "has 8192 bytes after its end");
    assert_eq!(with(&|bytes| bytes.truncate(bytes.len() - 512)), "truncated at its end");
    // A tar extension header, which would override the next header.
    let mut header = tar::Header::new_ustar();
    header.set_path("PaxHeaders/native.c").unwrap();
    header.set_entry_type(tar::EntryType::XHeader);
    header.set_size(512);
    header.set_cksum();
    let at = archive(&[("manifest.json", &members[0].1), ("manifest.sha256", &members[1].1)]).len() - 1024;
    let extended = |bytes: &mut Vec<u8>| _ = bytes.splice(at..at, [&header.as_bytes()[..], &[b' '; 512]].concat());
    assert_eq!(with(&extended), "has PaxHeaders/native.c where native.c should be");
    // The right name and size, but of a link, of a sparse file, or with another owner.
    for (place, value) in [(at + 156, b'2'), (at + 156, b'S'), (at + 114, b'7')] {
        assert_eq!(with(&|bytes| bytes[place] = value), "native.c has a header that weir does not write");
    }
    let names = ["../native.c", "/etc/passwd", "native.c\u{1b}[2J", "", "NATIVE.C"];
    let printed = ["../native.c", "/etc/passwd", "native.c\\x1b[2J", "", "NATIVE.C"];
    for (name, printed) in names.iter().zip(printed) {
        let renamed = |bytes: &mut Vec<u8>| {
            bytes[at..at + 100].fill(0);
            bytes[at..at + name.len()].copy_from_slice(name.as_bytes());
        };
        assert_eq!(with(&renamed), format!("has {printed} where native.c should be"));
    }
}

#[test]
fn absurd_sizes_take_no_memory() {
    let (_folder, path) = written(&bundle());
    let whole = fs::read(&path).unwrap();
    let members = unpacked(&path);
    let at = archive(&[("manifest.json", &members[0].1), ("manifest.sha256", &members[1].1)]).len() - 1024;
    for bytes in [1 << 20, 256 << 20, 257 << 20, 7 << 30] {
        let mut header = tar::Header::new_ustar();
        header.set_path("native.c").unwrap();
        header.set_size(bytes);
        header.set_mode(0o644);
        header.set_cksum();
        let mut altered = whole.clone();
        altered[at..at + 512].copy_from_slice(header.as_bytes());
        fs::write(&path, &altered).unwrap();
        let expected = match bytes > 256 << 20 {
            true => format!("native.c of {bytes} bytes is over the limit of 268435456 bytes"),
            false => "truncated inside native.c".to_owned(),
        };
        assert_eq!(refusal(&path), expected);
    }
    // The length of a sparse file includes its holes.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(5 << 30).unwrap();
    assert_eq!(refusal(&path), "5368709120 bytes are over the limit of 4294967296 bytes");
}

#[test]
fn members_twice_or_listed_in_vain() {
    let (_folder, path) = written(&bundle());
    let members = unpacked(&path);
    let mut twice = members.clone();
    twice.insert(3, members[2].clone());
    fs::write(&path, repacked(&twice)).unwrap();
    assert_eq!(refusal(&path), "has native.c where bpf.c should be");
    let with_manifest = |change: &dyn Fn(String) -> String| {
        let mut parts = members.clone();
        parts[0].1 = change(String::from_utf8(parts[0].1.clone()).unwrap()).into_bytes();
        parts[1].1 = hex_digest(&parts[0].1).into_bytes();
        fs::write(&path, repacked(&parts)).unwrap();
        refusal(&path)
    };
    let vain = |text: String| {
        text.replacen("\"members\": [", "\"members\": [{\"name\": \"x\", \"bytes\": 0, \"sha256\": \"\"},", 1)
    };
    assert_eq!(with_manifest(&vain), "manifest.json does not list native.c in its place");
    let last = |text: String| {
        let end = text.rfind(']').unwrap();
        format!("{},{{\"name\": \"x\", \"bytes\": 0, \"sha256\": \"\"}}{}", &text[..end], &text[end..])
    };
    assert_eq!(with_manifest(&last), "manifest.json lists more members than a bundle has");
    let unknown = |text: String| text.replacen('{', "{\"a\u{7f}\": 1,", 1);
    let problem = with_manifest(&unknown);
    assert!(problem.starts_with("manifest.json: unknown field `a\\u{7f}`"), "{problem}");
    let again = |text: String| text.replacen('{', "{\"rules\": 7,", 1);
    assert!(with_manifest(&again).starts_with("manifest.json: duplicate field `rules`"));
    let deep = |text: String| text.replacen("\"report\": ", &format!("\"report\": {}", "[".repeat(200_000)), 1);
    assert_eq!(with_manifest(&deep), "not a weir bundle");
}

fn hex_digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
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
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}
