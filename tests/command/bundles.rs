//! Bundles of an attacker: what opening one may run, whose code is run, and whose signatures are accepted.

use crate::weir::{Ran, Sandbox, capture};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use weir_abi::ABI_VERSION;
use weir_engine::clang::{Clang, Extras};
use weir_engine::cpu::Cpu;

const POLICY: &str = "table bad { type ipv4; elements = { 198.51.100.7 } }
upstream { ip saddr @bad drop; tcp dport 80 accept; drop }
downstream { accept }
";
const TRAFFIC: &str = "eth / ip saddr=198.51.100.7 / tcp dport=80\neth / ip / tcp dport=80\neth / ip / udp";

/// Test keys from `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout`.
const KEYS: [[&str; 2]; 2] = [
    [
        "MC4CAQAwBQYDK2VwBCIEIAvXjbCCml6XIxcjWFG8xW9xL4jwXft+6MSSXTWOjLst",
        "MCowBQYDK2VwAyEA3B3suLY3rC/fMiyuuS9bUSQR5QniSXxieq/L31A4BVg=",
    ],
    [
        "MC4CAQAwBQYDK2VwBCIEIMHVCvApMvViGn+lOFwKcTMl98td7NdafrH8iZ5oh5LZ",
        "MCowBQYDK2VwAyEA8aAIfhzr1OStARB8MkQQGhyBGgr7CxHc3whhxZFqJVk=",
    ],
];

fn pem(label: &str, base64: &str) -> String {
    format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
}

/// A policy, a capture, and the keys `a` and `b`.
pub fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put("t.pcap", capture(TRAFFIC));
    for (name, [private, public]) in ["a", "b"].iter().zip(KEYS) {
        sandbox.put(format!("{name}.key"), pem("PRIVATE KEY", private));
        sandbox.put(format!("{name}.pub"), pem("PUBLIC KEY", public));
        set_mode(&sandbox, &format!("{name}.key"), 0o600);
    }
    sandbox
}

fn set_mode(sandbox: &Sandbox, name: &str, mode: u32) {
    fs::set_permissions(sandbox.path(name), fs::Permissions::from_mode(mode)).expect("it is ours");
}

pub fn replay(sandbox: &Sandbox, bundle: &str, engine: &str) -> Ran {
    sandbox.run(&format!("replay {bundle} --in t.pcap --engine {engine} --json"))
}

pub type Parts = Vec<(String, Vec<u8>)>;

pub fn unpacked(bytes: &[u8]) -> Parts {
    let mut archive = tar::Archive::new(bytes);
    let parts = archive.entries().expect("a tar archive").map(|entry| {
        let mut entry = entry.expect("a whole archive");
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).expect("a whole archive");
        (entry.path().expect("a name").display().to_string(), content)
    });
    parts.collect()
}

fn packed(parts: &Parts) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in parts {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content.as_slice()).expect("memory can be written to");
    }
    archive.into_inner().expect("memory can be written to")
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bundle with a replaced member and matching digests.
pub fn forged(bundle: &[u8], member: &str, content: &[u8]) -> Vec<u8> {
    let mut parts = unpacked(bundle);
    parts.iter_mut().find(|(name, _)| name == member).expect("there is such a member").1 = content.to_owned();
    let replaced = |manifest: &mut Value| {
        let listed = manifest["members"].as_array_mut().expect("a list of members");
        let entry = listed.iter_mut().find(|entry| entry["name"] == member).expect("there is such a member");
        *entry = json!({ "name": member, "bytes": content.len(), "sha256": digest(content) });
    };
    with_manifest(parts, replaced)
}

/// The members with a changed manifest and its digest.
pub fn with_manifest(mut parts: Parts, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut manifest: Value = serde_json::from_slice(&parts[0].1).expect("a manifest");
    change(&mut manifest);
    parts[0].1 = serde_json::to_vec_pretty(&manifest).expect("a value is JSON");
    parts[1].1 = digest(&parts[0].1).into_bytes();
    packed(&parts)
}

/// All symbols that the loader requires, and a function that creates the file WRITTEN without a C library.
fn chains_and(trick: &str) -> String {
    format!(
        "const unsigned weir_abi_version = {ABI_VERSION};
void weir_upstream(const void *burst) {{ (void)burst; }}
void weir_downstream(const void *burst) {{ (void)burst; }}
static __attribute__((used)) void write_file(void)
{{
	long result;

	__asm__ volatile(\"syscall\" : \"=a\"(result) : \"a\"(2L), \"D\"(\"WRITTEN\"), \"S\"(0101L), \"d\"(0644L) : \"rcx\", \"r11\", \"memory\");
}}
{trick}
"
    )
}

/// Native code that does more than decide: what is added, and the expected messages.
const TRICKS: &[(&str, &str, &[&str])] = &[
    ("__attribute__((constructor)) static void early(void) { write_file(); }", "DT_INIT_ARRAY", &[]),
    ("__attribute__((destructor)) static void late(void) { write_file(); }", "DT_FINI_ARRAY", &[]),
    ("void odd_init(void) { write_file(); }", "DT_INIT", &["-Wl,-init,odd_init"]),
    ("void odd_fini(void) { write_file(); }", "DT_FINI", &["-Wl,-fini,odd_fini"]),
    ("", "DT_NEEDED", &["-Wl,--no-as-needed", "-l:libc.so.6"]),
    (
        "static void *choose(void) { write_file(); return (void *)write_file; }\nvoid chosen(void) __attribute__((ifunc(\"choose\")));",
        "STT_GNU_IFUNC",
        &[],
    ),
    (
        "static void *choose(void) { write_file(); return (void *)write_file; }\nstatic void chosen(void) __attribute__((ifunc(\"choose\")));\n\
         void weir_extra(void) { chosen(); }",
        "in its dynamic section",
        &[],
    ),
    ("extern void system(void);\nvoid weir_extra(void) { system(); }", "", &[]),
    ("void (*weir_extra)(void) = write_file;", "in its dynamic section", &[]),
    ("void weir_extra(void) { write_file(); }", "exports weir_extra, which is not a chain", &[]),
    ("__thread int weir_extra;", "PT_TLS", &[]),
    ("", "executable stack", &["-Wl,-z,execstack"]),
    ("", "written and executed", &["-Wl,-N"]),
];

/// The code of a bundle is run only by engines that need it, and only its chains.
#[test]
fn opening_a_bundle_runs_nothing() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile p.weir -o p.weirb").code, 0);
    let whole = fs::read(sandbox.path("p.weirb")).expect("it was written");
    let clang = Clang::find().expect("clang is installed");
    let written = sandbox.path("WRITTEN");
    let plain = clang.native("plain", &chains_and(""), Cpu::Native).expect("it is C").object;
    sandbox.put("plain.weirb", forged(&whole, "native.so", plain.bytes()));
    replay(&sandbox, "plain.weirb", "native").fails(1, &["counters"]);
    for (trick, problem, flags) in TRICKS {
        // Our own code may not call what it does not contain.
        let flags: Vec<String> = flags.iter().chain(&["-Wl,-z,undefs"]).map(|&flag| flag.to_owned()).collect();
        let extras = Extras { headers: &[], flags: &flags };
        let object = clang.native_with("evil", &chains_and(trick), Cpu::Native, extras);
        let object = object.unwrap_or_else(|error| panic!("{trick} {flags:?}: {error}")).object;
        sandbox.put("evil.weirb", forged(&whole, "native.so", object.bytes()));
        for line in [
            "replay evil.weirb --in t.pcap --engine eval",
            "replay evil.weirb --in t.pcap --engine xdp",
            "why evil.weirb --in t.pcap --packet 1",
        ] {
            sandbox.run(line).fails(0, &[]);
        }
        for line in ["replay evil.weirb --in t.pcap", "diff evil.weirb p.weirb --in t.pcap"] {
            let ran = sandbox.run(line);
            assert!(!written.exists(), "{line} ran {trick} {flags:?}: {ran:?}");
            ran.fails(1, &["evil.weirb: native.so ", problem]);
        }
    }
}

#[test]
fn objects_that_are_none() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile p.weir -o p.weirb").code, 0);
    let whole = fs::read(sandbox.path("p.weirb")).expect("it was written");
    let part = |name: &str| unpacked(&whole).into_iter().find(|(known, _)| known == name).expect("it is there").1;
    for (member, engine) in [("native.so", "native"), ("bpf.o", "xdp")] {
        let object = part(member);
        let garbage = [vec![], b"\x7fELF".to_vec(), vec![0xff; 5000], object[..64].to_vec(), object[..300].to_vec()];
        for bytes in garbage {
            sandbox.put("g.weirb", forged(&whole, member, &bytes));
            replay(&sandbox, "g.weirb", engine).fails(1, &[&format!("g.weirb: {member} ")]);
            assert_eq!(replay(&sandbox, "g.weirb", "eval").json()["packets"], 3);
        }
    }
    // Each object in place of the other.
    sandbox.put("g.weirb", forged(&whole, "native.so", &part("bpf.o")));
    replay(&sandbox, "g.weirb", "native").fails(1, &["g.weirb: native.so is not a shared object for x86-64"]);
    sandbox.put("g.weirb", forged(&whole, "bpf.o", &part("native.so")));
    replay(&sandbox, "g.weirb", "xdp").fails(1, &["g.weirb: bpf.o is not a BPF object"]);
}

/// Code that users other than root and the caller can have written is not run, but the interpreter may read the bundle.
#[test]
fn whose_code_is_run() {
    let sandbox = sandbox();
    fs::create_dir(sandbox.path("box")).expect("the folder is ours");
    assert_eq!(sandbox.run("compile p.weir -o box/p.weirb").code, 0);
    let check = |bundle: &str, problem: Option<&str>| {
        for engine in ["native", "xdp"] {
            let ran = replay(&sandbox, bundle, engine);
            match problem {
                None => assert_eq!(ran.json()["packets"], 3),
                Some(problem) => ran.fails(1, &[bundle, "its code is not run", problem, "--trust"]),
            }
        }
        assert_eq!(replay(&sandbox, bundle, "eval").json()["packets"], 3);
        sandbox.run(&format!("why {bundle} --in t.pcap --packet 1")).fails(0, &[]);
    };
    check("box/p.weirb", None);
    for mode in [0o664, 0o646, 0o666] {
        set_mode(&sandbox, "box/p.weirb", mode);
        check("box/p.weirb", Some(&format!("box/p.weirb can be written by others than its owner (mode {mode:04o}")));
    }
    set_mode(&sandbox, "box/p.weirb", 0o644);
    for mode in [0o775, 0o757] {
        set_mode(&sandbox, "box", mode);
        check("box/p.weirb", Some(&format!("box can be written by others than its owner (mode {mode:04o}")));
    }
    // As in /tmp: other users can create files there, but not change ours.
    set_mode(&sandbox, "box", 0o1777);
    check("box/p.weirb", None);
    symlink("box/p.weirb", sandbox.path("link.weirb")).expect("the folder is ours");
    check("link.weirb", None);
    let give = |name: &str, owner: u32| std::os::unix::fs::lchown(sandbox.path(name), Some(owner), None);
    symlink("p.weirb", sandbox.path("box/link.weirb")).expect("the folder is ours");
    give("box/link.weirb", 12_345).expect("this test needs root");
    check("box/link.weirb", Some("box/link.weirb belongs to user 12345, not to root"));
    symlink("box/link.weirb", sandbox.path("second.weirb")).expect("the folder is ours");
    check("second.weirb", Some("box/link.weirb belongs to user 12345, not to root"));
    chown(sandbox.path("box/p.weirb"), Some(12_345), None).expect("this test needs root");
    check("box/p.weirb", Some("box/p.weirb belongs to user 12345, not to root"));
    chown(sandbox.path("box/p.weirb"), Some(0), None).expect("this test needs root");
    chown(sandbox.path("box"), Some(12_345), None).expect("this test needs root");
    check("box/p.weirb", Some("box belongs to user 12345, not to root"));
}

#[test]
fn who_signs() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile p.weir -o plain.weirb --json").json()["signed"], false);
    let signed = sandbox.run("compile p.weir -o signed.weirb --sign a.key --json");
    assert_eq!((signed.json()["signed"].as_bool(), signed.err.as_str()), (Some(true), ""));
    let lines = |bundle: &str, keys: &str| {
        [
            format!("replay {bundle} --in t.pcap --engine eval {keys}"),
            format!("replay {bundle} --in t.pcap --engine native {keys}"),
            format!("replay {bundle} --in t.pcap --engine xdp {keys}"),
            format!("why {bundle} --in t.pcap --packet 1 {keys}"),
            format!("diff {bundle} {bundle} --in t.pcap {keys}"),
            format!("run {bundle} --engine afpacket --lower lower --upper upper --control c.sock {keys}"),
        ]
    };
    let check = |bundle: &str, keys: &str, problem: &str| {
        for line in lines(bundle, keys) {
            match problem {
                // It would run. tests/live covers that.
                "" if line.starts_with("run ") => {}
                "" => sandbox.run(&line).fails(0, &[]),
                _ if line.starts_with("run ") => sandbox.run_between(&line).fails(1, &[bundle, problem]),
                _ => sandbox.run(&line).fails(1, &[bundle, problem]),
            }
        }
    };
    for keys in ["--trust a.pub", "--trust b.pub --trust a.pub", ""] {
        check("signed.weirb", keys, "");
    }
    assert!(replay(&sandbox, "signed.weirb", "eval").err.contains("the signature is not verified"));
    assert!(!replay(&sandbox, "signed.weirb --trust a.pub", "eval").err.contains("signature"));
    assert!(replay(&sandbox, "p.weir --trust a.pub", "eval").err.contains("p.weir: is text and has no signature"));
    check("signed.weirb", "--trust b.pub", "is not signed by a trusted key (b.pub), or was altered afterwards");
    check("plain.weirb", "--trust a.pub", "is not signed, and only signed bundles are trusted");
    // The signature decides, not the owner of the file.
    chown(sandbox.path("signed.weirb"), Some(12_345), None).expect("this test needs root");
    check("signed.weirb", "--trust a.pub", "");
    let whole = fs::read(sandbox.path("signed.weirb")).expect("it was written");
    let mut parts = unpacked(&whole);
    let names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..4], ["manifest.json", "manifest.sha256", "manifest.sig", "native.c"]);
    sandbox.put("other.weirb", forged(&whole, "native.c", b"int x;"));
    check("other.weirb", "--trust a.pub", "is not signed by a trusted key (a.pub), or was altered afterwards");
    for place in 0..64 {
        let mut parts = parts.clone();
        parts[2].1[place] ^= 1;
        sandbox.put("other.weirb", packed(&parts));
        replay(&sandbox, "other.weirb --trust a.pub", "eval").fails(1, &["is not signed by a trusted key (a.pub)"]);
    }
    parts.remove(2);
    sandbox.put("other.weirb", packed(&parts));
    check("other.weirb", "--trust a.pub", "is not signed, and only signed bundles are trusted");
}

/// No byte of a signed bundle can be altered.
#[test]
fn a_signature_covers_every_byte() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile p.weir -o signed.weirb --sign a.key").code, 0);
    let whole = fs::read(sandbox.path("signed.weirb")).expect("it was written");
    for at in (600..whole.len()).step_by(whole.len() / 60).chain([0, 100, 300, 511, whole.len() - 1]) {
        let mut altered = whole.clone();
        altered[at] ^= 1;
        sandbox.put("altered.weirb", &altered);
        let ran = replay(&sandbox, "altered.weirb --trust a.pub", "eval");
        assert!(ran.code > 0 && ran.err.contains("altered.weirb"), "byte {at}: {ran:?}");
    }
}

#[test]
fn files_that_are_no_keys() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile p.weir -o signed.weirb --sign a.key").code, 0);
    let private = fs::read_to_string(sandbox.path("a.key")).expect("it was written");
    let public = fs::read_to_string(sandbox.path("a.pub")).expect("it was written");
    sandbox.put("empty", "").put("noise", [0xff; 300]).put("long", vec![b'x'; 100_000]).put("folder/file", "");
    sandbox.put("two.pub", public.repeat(2)).put("cut.pub", &public[..60]).put("cut.key", &private[..70]);
    sandbox.put("ssh.key", pem("OPENSSH PRIVATE KEY", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE"));
    sandbox
        .put("ssh.pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINwd7Li2N6wv3zIsrrkvW1EkEeUJ4kl8Ynqvy99QOAVY me@here\n");
    sandbox.put("secret.key", pem("ENCRYPTED PRIVATE KEY", "MIGbMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAc"));
    sandbox.put("x25519.key", pem("PRIVATE KEY", "MC4CAQAwBQYDK2VuBCIEIPDBr5z1mCFaxOa5t8zJeVJhJNxCMXFRgmlZJV918ABD"));
    // The neutral element, for which every signature is valid.
    sandbox.put("weak.pub", pem("PUBLIC KEY", "MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="));
    let not_pem = "is not a key in PEM";
    let public_keys = [
        ("absent", "No such file"),
        ("folder", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("empty", not_pem),
        ("noise", not_pem),
        ("long", not_pem),
        ("ssh.pub", not_pem),
        ("a.key", "is a PRIVATE KEY, an Ed25519 PUBLIC KEY in PEM is expected"),
        ("two.pub", "has 2 keys, one is expected"),
        ("cut.pub", "is not a public Ed25519 key"),
        ("weak.pub", "is not a public Ed25519 key"),
    ];
    for (key, problem) in public_keys {
        replay(&sandbox, &format!("signed.weirb --trust a.pub --trust {key}"), "eval").fails(1, &[key, problem]);
    }
    let private_keys = [
        ("absent", "No such file"),
        ("folder", "not a regular file"),
        ("a.pub", "is a PUBLIC KEY, an Ed25519 PRIVATE KEY in PEM is expected"),
        ("ssh.key", "is a OPENSSH PRIVATE KEY, an Ed25519 PRIVATE KEY in PEM is expected"),
        ("secret.key", "is a ENCRYPTED PRIVATE KEY, an Ed25519 PRIVATE KEY in PEM is expected"),
        ("x25519.key", "is not a private Ed25519 key"),
        ("cut.key", "is not a private Ed25519 key"),
        ("noise", not_pem),
    ];
    for (key, problem) in private_keys {
        sandbox.run(&format!("compile p.weir -o x.weirb --sign {key}")).fails(1, &[key, problem]);
        assert!(!sandbox.path("x.weirb").exists());
    }
    set_mode(&sandbox, "a.key", 0o640);
    let warned = sandbox.run("compile p.weir -o x.weirb --sign a.key");
    warned.fails(0, &["warning: a.key: this private key can be read", "mode 0640"]);
    set_mode(&sandbox, "a.pub", 0o664);
    replay(&sandbox, "signed.weirb --trust a.pub", "eval")
        .fails(1, &["a.pub: cannot be trusted", "can be written by others"]);
}

const LIMITED: &str = "table geo { type ipv4 : label; elements = { 10.0.0.0/8 : SI, 11.0.0.0/8 : AT } }
limits customers { elements = { 10.0.0.0/8 : 1kpps, 2001:db8::/32 : 10mbit burst 64kbytes }; default 7; nested; log all }
limits countries { table geo; default 10; elements = { AT : 3 } }
upstream {
  ip saddr limit @customers
  ip6 saddr limit @customers
  ip saddr limit @countries
  limit each ip saddr 50pps size 1024
  accept
}
downstream { accept }
";

/// The bundle of a policy, which runs, and its members.
pub fn bundle_of(sandbox: &Sandbox, name: &str, text: &str) -> (Vec<u8>, Parts) {
    sandbox.put(format!("{name}.weir"), text);
    assert_eq!(sandbox.run(&format!("compile {name}.weir -o {name}.weirb")).code, 0);
    assert_eq!(replay(sandbox, &format!("{name}.weirb"), "eval").code, 0);
    let whole = fs::read(sandbox.path(format!("{name}.weirb"))).expect("it was written");
    let parts = unpacked(&whole);
    (whole, parts)
}

/// A bundle with limits, and its members.
fn limited(sandbox: &Sandbox) -> (Vec<u8>, Parts) {
    bundle_of(sandbox, "l", LIMITED)
}

/// No engine accepts the bundle.
#[track_caller]
pub fn refused(sandbox: &Sandbox, bundle: Vec<u8>, message: &str) {
    sandbox.put("h.weirb", bundle);
    for engine in ["eval", "native", "xdp"] {
        replay(sandbox, "h.weirb", engine).fails(1, &[message]);
    }
}

#[test]
fn lists_of_a_hostile_bundle_are_refused() {
    let sandbox = sandbox();
    let (whole, parts) = limited(&sandbox);
    let (_, list) = parts.iter().find(|(name, _)| name == "limits0.csv").expect("there is a list");
    let expected = "# prefix,rate,burst\n10.0.0.0/8,1kpps,10packets\n2001:db8::/32,10mbit,64kbytes\n";
    assert_eq!(String::from_utf8_lossy(list), expected);

    let listed = |list: &str, message: &str| refused(&sandbox, forged(&whole, "limits0.csv", list.as_bytes()), message);
    listed("10.0.0.0/33,5\n", "limits customers:1: `10.0.0.0/33,5`: prefix length above 32");
    let deep: String = (8..17).map(|length| format!("10.0.0.0/{length},5\n")).collect();
    listed(&deep, "limits customers: its list does not match its rules");
    let edited = |field: &str, value: Value, message: &str| {
        refused(&sandbox, with_manifest(parts.clone(), |manifest| manifest[field] = value), message);
    };
    edited("lists", json!(0), "lists more members than a bundle has");
    edited("lists", json!(2), "does not list limits1.csv in its place");
    edited("lists", json!(4000), "4000 lists of limits, at most 1024 are possible");
    edited("limiters", json!(5), "belong to different policies");
    edited("limited", json!(5), "belong to different policies");
    edited("limiters", json!(1u64 << 40), "limiters with 4 counters are not possible");
    let table = |field: &str, value: &str, message: &str| {
        let change = |manifest: &mut Value| manifest["tables"][1][field] = json!(value);
        refused(&sandbox, with_manifest(parts.clone(), change), message);
    };
    table("built", "compiling", "unknown field `built`");
    table("layout", "exact-set", "belong to different policies");
}

#[test]
fn limits_in_the_report_of_a_hostile_bundle_are_refused() {
    let sandbox = sandbox();
    let (_, parts) = limited(&sandbox);
    let report = |at: &str, value: Value, message: &str| {
        let change = |manifest: &mut Value| *manifest["report"].pointer_mut(at).expect("a field") = value;
        refused(&sandbox, with_manifest(parts.clone(), change), message);
    };
    report("/limits/0/default", json!("fast"), "limits customers: not a rate");
    report("/limits/0/name", json!("others"), "limits others: no rule uses it");
    report("/limits/1/name", json!("customers"), "limits customers: it is there twice");
    report("/limits/1", json!(null), "invalid type: null");
    report("/limits/1/labels", json!(null), "limits countries: its prefixes are missing");
    report("/limits/1/labels/slot", json!(9), "limits countries: its table is missing");
    report("/limits/1/labels/slot", json!(1), "limits countries: its table is missing");
    report("/limits/1/labels/limits/AT", json!("1bit"), "limits countries: bit rates go from");
    report("/limits", json!([]), "it has more lists of prefixes than its report");
    let manifest: Value = serde_json::from_slice(&parts[0].1).expect("a manifest");
    let ir = |from: &str, to: &str, message: &str| {
        let text = manifest["report"]["ir"].as_str().expect("a text");
        assert!(text.contains(from), "{text}");
        report("/ir", json!(text.replacen(from, to, 1)), message);
    };
    ir("limiter 1 customers", "limiter 1 others", "wrong find");
    ir("size 1024", "size 1023", "an address, size or burst that is out of bounds");
    ir("size 1024", "size 4294967295", "an address, size or burst that is out of bounds");
}
