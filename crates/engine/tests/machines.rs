//! Compares a hand-written chain as native code and in the kernel. Needs clang, and root for the kernel.

#![allow(clippy::unwrap_used)] // helpers of tests are tests
use std::sync::Arc;

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use weir_abi::{ABI_VERSION, Action, Counter, Layout, Link, Reason, Verdict};
use weir_engine::clang::{BpfObject, BpfShape, Clang, Extras, NativeObject};
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::measure;
use weir_engine::{Bound, EngineError, Filter, Image, NativeFilter, ProgramShape, XdpFilter};
use weir_tables::{Entries, Kind};

mod chain;

/// The image of a set of ten addresses.
fn image() -> Arc<Image> {
    let mut entries = Entries::new(weir_abi::Family::Ipv4, Kind::Set);
    for host in 1..=10 {
        entries.insert_text(&format!("192.0.2.{host}"), None).unwrap();
    }
    Arc::new(entries.settle().build(Layout::ExactSet).unwrap())
}

fn native_object() -> NativeObject {
    Clang::find().unwrap().native("hand", &chain::native_c(), Cpu::Native).unwrap().object
}

fn bpf_object(program: &ProgramShape) -> BpfObject {
    let shape = BpfShape::new(program, &Bound::of_images(vec![image()]));
    Clang::find().unwrap().bpf("hand", &chain::bpf_c(), &shape).unwrap().object
}

fn native() -> NativeFilter {
    let program = chain::artifact().shape;
    NativeFilter::load("hand", &native_object(), &program, Bound::of_images(vec![image()])).unwrap()
}

fn xdp() -> XdpFilter {
    let program = chain::artifact().shape;
    XdpFilter::load("hand", &bpf_object(&program), &program, &Bound::of_images(vec![image()]))
        .unwrap_or_else(|error| panic!("this test needs root (BPF_PROG_TEST_RUN): {error}"))
}

/// Frames of all relevant lengths: empty, shorter than the kernel's minimum, and around the window; truncated or not.
fn frames(link: Link) -> FrameSet {
    let long = [0x11u8; 4000];
    let packets = [0usize, 1, 5, 9, 10, 13, 14, 15, 60, 64, 1500, 2047, 2048, 2049, 4000]
        .into_iter()
        .flat_map(|cap| [(cap, 0u32), (cap, 3), (cap, 70_000)])
        .map(|(cap, extra)| (&long[..cap], cap as u32 + extra));
    let listed = std::iter::repeat_n((&[0xffu8; 64][..], 64), 90);
    FrameSet::new(link, packets.chain(listed))
}

fn decide_all(filter: &mut dyn Filter, chain: usize, frames: &FrameSet) -> Vec<Verdict> {
    let mut all = Vec::new();
    for burst in frames.bursts() {
        let mut verdicts = [Verdict(u32::MAX); 64];
        filter.decide(chain, &burst, &mut verdicts).unwrap();
        all.extend_from_slice(&verdicts[..burst.len()]);
        assert!(verdicts[burst.len()..].iter().all(|verdict| verdict.0 == u32::MAX));
    }
    all
}

#[test]
fn native_decides_as_the_chain_says() {
    let mut filter = native();
    assert_eq!(filter.name(), "native");
    let packets: [(&[u8], u32); 4] = [(&[0xff; 20], 20), (&[1; 9], 9), (&[1; 10], 11), (&[1; 10], 10)];
    let verdicts = decide_all(&mut filter, 0, &FrameSet::new(Link::RawIp, packets));
    let actions: Vec<_> = verdicts.iter().map(|verdict| (verdict.action().unwrap(), verdict.reason())).collect();
    let expected = [
        (Action::Drop, Reason::rule(0)),
        (Action::Divert, Reason::rule(1)),
        (Action::Accept, Reason::IP_OPTIONS),
        (Action::Accept, Reason(1 + Link::RawIp as u16)),
    ];
    assert_eq!(actions, expected);
    let counters = filter.counters();
    assert_eq!(counters.len(), 34);
    assert_eq!(counters[32], Counter { packets: 1, bytes: 20 });
    assert_eq!(counters[33], Counter { packets: 1, bytes: 9 });
    assert_eq!(counters[4], Counter { packets: 1, bytes: 11 });
}

#[test]
fn the_kernel_decides_as_native_code_does() {
    let (mut native, mut xdp) = (native(), xdp());
    assert_eq!(xdp.name(), "xdp");
    for link in [Link::Ethernet, Link::RawIp, Link::Cooked, Link::Cooked2] {
        let frames = frames(link);
        assert_eq!(decide_all(&mut xdp, 0, &frames), decide_all(&mut native, 0, &frames), "{link:?}");
    }
    assert_eq!(xdp.counters(), native.counters());
    assert!(native.counters()[32].packets == 360, "four times 90 frames are listed");
}

#[test]
fn the_verifier_says_what_it_spent() {
    let xdp = xdp();
    let costs = xdp.verifier_costs();
    assert_eq!(costs.iter().map(|cost| cost.chain.as_str()).collect::<Vec<_>>(), ["upstream", "downstream"]);
    for cost in costs {
        assert!(cost.insns > 0 && cost.verified_insns >= cost.insns / 2 && cost.jited_bytes > 0, "{cost:?}");
    }
    assert!(xdp.load_took().as_nanos() > 0);
}

#[test]
fn a_frame_can_be_timed_in_the_kernel() {
    let mut xdp = xdp();
    let frames = FrameSet::new(Link::Ethernet, [(&[0xffu8; 64][..], 64)]);
    let burst = frames.bursts().next().unwrap();
    xdp.time_frame(0, &burst, 0, 1000).unwrap();
    assert_eq!(xdp.counters()[32].packets, 1000);
}

#[test]
fn without_rights_the_error_names_them() {
    let program = chain::artifact().shape;
    let object = bpf_object(&program);
    // Capabilities belong to a thread. This one drops its own.
    let load = std::thread::spawn(move || {
        let none = CapabilitySet::empty();
        set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).unwrap();
        XdpFilter::load("hand", &object, &program, &Bound::of_images(vec![image()])).err().unwrap().to_string()
    });
    assert_eq!(
        load.join().unwrap(),
        "xdp: not permitted to load BPF programs: run as root or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
    );
}

#[test]
fn memory_measures_cycles() {
    let mut native = native();
    let frames = FrameSet::new(Link::Ethernet, std::iter::repeat_n((&[1u8; 64][..], 64), 640));
    let cost = measure(&mut native, 0, &frames, 5).unwrap();
    let cycles = cost.cycles_per_packet;
    assert!(cycles.min > 0.0 && cycles.min <= cycles.median && cycles.median <= cycles.max, "{cycles:?}");
    assert!(cost.ns_per_packet.median > 0.0);
    assert_eq!(cost.packets, 640);
    assert_eq!(native.counters()[1].packets, 6 * 640, "one run to warm up, five measured");
}

#[test]
fn compiling_twice_gives_the_same_bytes() {
    let program = chain::artifact().shape;
    assert_eq!(native_object(), native_object());
    assert_eq!(bpf_object(&program), bpf_object(&program));
}

#[test]
fn code_of_another_abi_version_is_refused() {
    let c = chain::native_c().replace("= WEIR_ABI_VERSION", "= 77");
    let object = Clang::find().unwrap().native("old", &c, Cpu::X86_64V3).unwrap().object;
    let error =
        NativeFilter::load("old", &object, &chain::artifact().shape, Bound::of_images(vec![image()])).err().unwrap();
    assert_eq!(
        error.to_string(),
        format!("old: compiled for abi version 77, this weir has {ABI_VERSION}; compile the policy again")
    );
}

#[test]
fn code_without_version_or_chain_is_refused() {
    let clang = Clang::find().unwrap();
    let program = chain::artifact().shape;
    let load = |c: &str| {
        let object = clang.native("odd", c, Cpu::Native).unwrap().object;
        NativeFilter::load("odd", &object, &program, Bound::of_images(vec![image()])).err().unwrap().to_string()
    };
    assert_eq!(load("int x;\n"), "native code of odd: has no symbol weir_abi_version");
    let c = chain::native_c().replace("weir_downstream", "weir_sideways");
    assert_eq!(load(&c), "native code of odd: has no function weir_downstream");
    let c = chain::native_c() + "int absent(void);\nint asks(void);\nint asks(void)\n{\n\treturn absent();\n}\n";
    let refused = clang.native("odd", &c, Cpu::Native).unwrap_err().to_string();
    assert!(refused.contains("undefined reference to `absent'"), "{refused}");
    // Other code, which was linked without this check.
    let extras = Extras { headers: &[], flags: &["-Wl,-z,undefs".to_owned()] };
    let object = clang.native_with("odd", &c, Cpu::Native, extras).unwrap().object;
    let loaded = NativeFilter::load("odd", &object, &program, Bound::of_images(vec![image()]));
    let error = loaded.err().unwrap().to_string();
    assert!(error.contains("undefined symbol: absent"), "{error}");
}

#[test]
fn images_must_be_there_and_laid_out_as_expected() {
    let program = chain::artifact().shape;
    let load = |images| {
        NativeFilter::load("hand", &native_object(), &program, Bound::of_images(images)).err().unwrap().to_string()
    };
    assert_eq!(load(vec![]), "table short: its image is missing");
    let mut entries = Entries::new(weir_abi::Family::Ipv4, Kind::Set);
    entries.insert_text("192.0.2.0/24", None).unwrap();
    let dxr = Arc::new(entries.settle().build(Layout::Dxr16x4).unwrap());
    assert_eq!(load(vec![dxr]), "table short: has the layout d16x4r, the program expects exact-set");
}

#[test]
fn what_clang_refuses_is_kept() {
    let error = Clang::find().unwrap().native("my policy", "int f(void) { return x; }\n", Cpu::Native).unwrap_err();
    let EngineError::Refused { file, stderr } = &error else { panic!("{error}") };
    assert!(stderr.contains("undeclared identifier 'x'"), "{stderr}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "# 1 \"my_policy.native.c\"\nint f(void) { return x; }\n");
    assert!(file.ends_with("my_policy.native.c"), "{}", file.display());
    assert!(error.to_string().starts_with("compiler bug: clang refuses generated code, kept as "), "{error}");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn what_the_verifier_refuses_shows_the_end_of_its_log() {
    let program = chain::artifact().shape;
    let c = chain::bpf_c().replace("\treturn judge(env, frame);", "\treturn judge(env, frame) + frame->data[3000];");
    let object = Clang::find()
        .unwrap()
        .bpf("bad", &c, &BpfShape::new(&program, &Bound::of_images(vec![image()])))
        .unwrap()
        .object;
    let error = XdpFilter::load("bad", &object, &program, &Bound::of_images(vec![image()])).err().unwrap().to_string();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let start = format!("compiler bug: the verifier of Linux {} refuses bad:\n", release.trim());
    assert!(error.starts_with(&start), "{error}");
    assert!(error.contains("invalid access to packet"), "{error}");
    assert!(error.lines().count() <= 22, "{error}");
}

#[test]
fn an_object_of_another_shape_is_refused() {
    let artifact = chain::artifact();
    let program = artifact.shape;
    let object = bpf_object(&program);
    let load = |program: &ProgramShape| {
        XdpFilter::load("hand", &object, program, &Bound::of_images(vec![image()])).err().unwrap().to_string()
    };
    let more_rules = ProgramShape { rules: 5000, ..program.clone() };
    assert_eq!(load(&more_rules), "xdp: .bss.counters: 1024 bytes set aside, 80512 needed");
    let other_chain = ProgramShape { chains: vec!["sideways".to_owned()], ..program.clone() };
    assert_eq!(load(&other_chain), "xdp: weir_sideways: no such program");
    let other = ABI_VERSION + 1;
    let define = format!("#define WEIR_ABI_VERSION {other}\n#include \"kernel/hook.h\"");
    let c = chain::bpf_c().replace("#include \"kernel/hook.h\"", &define);
    let old = Clang::find()
        .unwrap()
        .bpf("old", &c, &BpfShape::new(&program, &Bound::of_images(vec![image()])))
        .unwrap()
        .object;
    let error = XdpFilter::load("old", &old, &program, &Bound::of_images(vec![image()])).err().unwrap().to_string();
    assert_eq!(
        error,
        format!("old: compiled for abi version {other}, this weir has {ABI_VERSION}; compile the policy again")
    );
}
