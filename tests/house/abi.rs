//! Rust and C agree on every shared number.
//!
//! The C compilers check them, for user space and for BPF. C that is not pure (`datapath.rs`) is checked for its own
//! target: kernel programs for BPF, the C for DPDK in user space.

#[path = "abi/constants.rs"]
mod constants;

use crate::assert_none;
use crate::datapath::{included_as, is_pure};
use crate::tree::{File, files, root, words};
use constants::constants;
use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};
use weir_abi::dpdk::{self, Facts, FlowHits, Lost, opening};
use weir_abi::kernel::{
    self, AdditionRing, CardPorts, CardSeal, CardSeals, CpuChecksum, CpuPacket, Mode, Port, PortCounters, Ports,
    RecentAddition, ReplayHeader, SampleRecord, Words, XdpContext,
};
use weir_abi::packet::PacketView;
use weir_abi::wire_card::{self, CardCount, CardKey};
use weir_abi::{
    Addition, Burst, Counter, EntryCounter, FeatureCell, FeatureRecord, Frame, ImageHeader, LimitEntry, LimitProfile,
    Rewrite, burst, entry, features, flow, slot, tap, tap_where,
};

const WARNINGS: &[&str] = &["-std=c11", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
/// The compilers that must accept the headers. The engine sets the number of counters for BPF.
const COMPILERS: &[(&str, &[&str])] =
    &[("clang-19", &[]), ("cc", &[]), ("clang-19", &["--target=bpf", "-mcpu=v3", "-DWEIR_COUNTERS=64"])];

/// C enumerations. Rust must know every member of each.
const SHARED: &[&str] = &[
    "action",
    "reason",
    "link",
    "l3",
    "l4",
    "fragment",
    "ext",
    "layout",
    "flow_state",
    "flow_class",
    "from_side",
    "slot_field",
    "slot_header",
    "slot_address",
    "slot_act",
    "packet_class",
];

/// Enumerators that only C uses: a result of the parser for its caller.
const C_ONLY: &[&str] = &["REASON_NONE", "FLOW_STATES"];

/// The enumerators of `enum name` in a header.
fn enumerators<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let Some((_, rest)) = text.split_once(&format!("enum {name} {{")) else { return Vec::new() };
    let body = rest.split('}').next().unwrap_or("");
    body.lines()
        .filter(|line| line.contains('='))
        .filter_map(|line| words(line).next())
        .filter(|name| !C_ONLY.contains(name))
        .collect()
}

/// The headers of the datapath whose paths below it are wanted.
fn headers_where(is_wanted: impl Fn(&str) -> bool) -> Vec<File> {
    let mut headers = files(&["h"]);
    headers.retain(|file| included_as(&file.path).is_some_and(&is_wanted));
    headers
}

/// All pure headers except for the two parts of core/env.h, which includes one of them.
fn headers() -> Vec<File> {
    headers_where(|path| is_pure(path) && !path.contains("/env_"))
}

/// Generated code of a policy that changes packets begins with this.
const REWRITES: &str = "#define WEIR_REWRITES\n";
/// Headers that only such code includes, and those that it does not.
const REWRITING: [&str; 3] = ["proxy/rewrite.h", "proxy/syn_answer.h", "proxy/synproxy.h"];
const KEEPING: [&str; 1] = ["proxy/no_synproxy.h"];

/// A program that includes all headers.
fn all_headers() -> String {
    let headers = headers();
    let names = headers.iter().filter_map(|file| included_as(&file.path));
    let rewriting = names.filter(|name| !KEEPING.contains(name));
    let includes = rewriting.map(|name| format!("#include \"{name}\"\n"));
    std::iter::once(REWRITES.to_owned()).chain(includes).collect()
}

/// Compiles a program. `Err` contains the compiler's messages.
fn compile((compiler, flags): (&str, &[&str]), program: &str) -> Result<(), String> {
    let mut command = Command::new(compiler);
    command.args(WARNINGS).args(flags).args(["-Idatapath", "-x", "c", "-"]).current_dir(root());
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = pipes.unwrap_or_else(|error| panic!("{compiler}: {error}; run `make install-deps`"));
    let mut input = child.stdin.take().expect("standard input is piped");
    input.write_all(program.as_bytes()).expect("the compiler reads its input");
    drop(input);
    let output = child.wait_with_output().expect("the compiler ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{compiler} {}: {stderr}", flags.join(" "))) }
}

#[test]
fn numbers_are_the_same() {
    let mut program = all_headers();
    for (name, value) in constants() {
        writeln!(program, "_Static_assert({name} == {value}, \"abi\");").expect("a string grows");
    }
    assert_none(COMPILERS.iter().filter_map(|compiler| compile(*compiler, &program).err()).collect(), "numbers differ");
}

/// Elements of an array are no constants, so no assertion in C can compare them.
#[test]
fn gaps_between_samples_are_the_same() {
    let header = std::fs::read_to_string(root().join("datapath/observe/feature.h")).expect("the header is there");
    let (_, rest) = header.split_once("sample_gaps[64] = {").expect("the array is there");
    let (numbers, _) = rest.split_once('}').expect("the array ends");
    let numbers: Vec<u16> = numbers.split(',').map(|number| number.trim().parse().expect("a number")).collect();
    assert_eq!(numbers, features::SAMPLE_GAPS);
}

#[test]
fn rust_knows_every_enumerator() {
    let known = constants();
    let mut missing = Vec::new();
    for header in headers() {
        for name in SHARED {
            let unknown =
                enumerators(&header.text, name).into_iter().filter(|name| known.iter().all(|(k, _)| k != name));
            missing.extend(unknown.map(|enumerator| format!("{}: {enumerator}", header.path)));
        }
    }
    assert_none(missing, "enumerators that crates/abi does not know");
}

/// Adds assertions that a C structure has the size of a Rust type and the same field offsets.
macro_rules! layout {
    ($program:ident, $c:literal, $rust:ty, $($field:ident),*) => {
        same(&mut $program, concat!("sizeof(struct ", $c, ")"), size_of::<$rust>());
        $(same(&mut $program, concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"), offset_of!($rust, $field));)*
    };
}

/// Adds an assertion that a C expression has this value.
fn same(program: &mut String, what: &str, value: usize) {
    writeln!(program, "_Static_assert({what} == {value}, \"abi\");").expect("a string grows");
}

#[test]
fn structures_have_the_same_layout() {
    let mut program = all_headers();
    layout!(program, "weir_frame", Frame, data, cap, len);
    layout!(program, "weir_counter", Counter, packets, bytes);
    layout!(program, "limit_profile", LimitProfile, per_packet, per_byte, room);
    layout!(program, "limit_entry", LimitEntry, profile, parent);
    layout!(
        program,
        "weir_burst",
        Burst,
        frames,
        verdicts,
        count,
        link,
        times,
        tables,
        counters,
        limits,
        additions,
        entries,
        flows,
        rewrites,
        slots,
        features
    );
    layout!(program, "burst_times", burst::Times, now_ns, each_ns);
    layout!(program, "burst_tables", burst::Tables, images);
    layout!(program, "burst_counters", burst::Counters, reasons);
    layout!(program, "burst_limits", burst::Limits, image, buckets, shared, exceeded, passed);
    layout!(program, "weir_addition", Addition, high, low, adder, packet);
    layout!(program, "burst_additions", burst::Additions, records, count);
    layout!(program, "entry_counter", EntryCounter, head, size);
    layout!(program, "table_entries", burst::TableEntries, counters, labels);
    layout!(program, "burst_entries", burst::Entries, tables);
    layout!(program, "burst_flows", burst::Flows, head, buckets, shared);
    layout!(program, "burst_rewrites", burst::Rewrites, packets);
    layout!(program, "burst_slots", burst::Slots, slots, stripe);
    layout!(program, "slot_range", slot::AddressRange, first, last);
    layout!(program, "slot_rate", slot::SlotRate, count, burst, unit);
    layout!(program, "slot_rule", slot::SlotRule, saddr, daddr, first, span, headers, tested, flags_mask, cell, act);
    layout!(program, "slot_rule", slot::SlotRule, number, limit, rate);
    layout!(program, "slot_counter", slot::SlotCounter, packets, bytes, dropped, dropped_bytes);
    layout!(program, "rule_slot", slot::SlotImage, active, records, buckets, counters);
    layout!(program, "burst_features", burst::Features, sheet, seed);
    layout!(program, "feature_cell", FeatureCell, packets, bytes, peers);
    layout!(program, "feature_sampler", features::FeatureSampler, seen, next, taken);
    layout!(program, "feature_group", features::FeatureGroup, low, high);
    layout!(program, "feature_record", FeatureRecord, source, destination, len, sport, dport, proto, ttl, tcp_flags);
    layout!(program, "feature_record", FeatureRecord, class, zero);
    layout!(program, "weir_rewrite", Rewrite, len, head, checksum_at, checksum, bytes);
    layout!(program, "flow_head", flow::FlowHead, clock, buckets);
    layout!(program, "flow_proxied", flow::Proxied, delta, stamp, isn, mss);
    same(&mut program, "offsetof(struct flow_head, hash_words)", offset_of!(flow::FlowHead, keys));
    same(&mut program, "sizeof(struct flow_bucket)", flow::BUCKET_BYTES);
    layout!(program, "image_header", ImageHeader, magic, layout, entries, labels, bytes, section);
    layout!(program, "packet", PacketView, data, cap, len, saddr, daddr, l3_offset, l4_offset, ether_type, vlan_id);
    layout!(program, "packet", PacketView, inner_vlan_id, ip_length, ip_id, sport, dport, window, seq, ack, l3, l4);
    layout!(program, "packet", PacketView, proto, fragment, ttl, tos, tcp_flags, ext, vlan_tags, vlan_pcp, icmp_type);
    layout!(program, "packet", PacketView, icmp_code, flags, next_header, frag_off, l4_length, doff, hdrlength);
    assert_none(COMPILERS.iter().filter_map(|compiler| compile(*compiler, &program).err()).collect(), "layouts differ");
}

/// Structures that kernel programs share with the engine.
/// What programs behind a card share with the engine.
fn of_card() -> String {
    let mut program = String::new();
    layout!(program, "card_seal", CardSeal, word, kind, trailer);
    layout!(program, "card_seals", CardSeals, count, without, seals);
    layout!(program, "card_ports", CardPorts, half, port);
    let numbers = [
        ("CARD_SEALS_MAX", kernel::CARD_SEALS_MAX),
        ("sizeof(struct cpu_answers)", kernel::CPU_ANSWERS_BYTES),
        ("CARD_ANSWERED", kernel::CARD_ANSWERED as usize),
        ("CARD_ALONE", kernel::CARD_ALONE as usize),
        ("CARD_CONTROL", kernel::CARD_CONTROL as usize),
        ("CARD_UNSEALED", kernel::CARD_UNSEALED as usize),
    ];
    numbers.iter().for_each(|(what, value)| same(&mut program, what, *value));
    program
}

/// What programs share with the reader of taps. Behind the words there is a byte for each reason.
fn of_taps() -> String {
    let mut program = String::new();
    same(&mut program, "offsetof(struct words, zero)", offset_of!(Words, zero));
    same(&mut program, "offsetof(struct words, policy)", offset_of!(Words, policy));
    same(&mut program, "offsetof(struct words, more)", offset_of!(Words, more));
    same(&mut program, "offsetof(struct words, taps)", kernel::WORDS_TAPS);
    layout!(program, "tap", tap::Tap, left, skips, lets_by, snap);
    layout!(program, "tap_count", tap::TapCount, matched, over, lost, excluded, next);
    layout!(program, "tap_record", tap::TapRecord, at_ns, verdict, len, cap, policy, epoch, taps, side, port, bytes);
    layout!(program, "tap_cpu", tap::TapCpu, count, head, record);
    layout!(program, "taps", tap::Taps, open, wheres, tap, headers, cpu);
    layout!(program, "tap_head", tap::TapHead, saddr, daddr, family, proto, sport, dport);
    layout!(program, "tap_where", tap_where::TapWhere, saddr, daddr, sport, dport, proto, family);
    same(&mut program, "TAP_HEAD_BYTES", tap_where::TAP_HEAD_BYTES);
    same(&mut program, "TAP_UNKNOWN", tap::TapHead::UNKNOWN as usize);
    same(&mut program, "TAPS", tap::TAPS);
    same(&mut program, "TAP_BYTES_MAX", tap::TAP_BYTES_MAX);
    same(&mut program, "TAP_RECORD_HEAD", tap::TAP_RECORD_HEAD);
    program
}

/// What programs in the kernel and the reader of features share.
fn waiting_layouts() -> String {
    let (mut program, word) = (String::new(), size_of::<u64>());
    layout!(program, "feature_head", features::FeatureHead, selected, seed);
    layout!(program, "feature_waiting", features::WaitingPacket, key, element, bytes, packets, bit, packets_at, bit_at);
    same(&mut program, "FEATURE_QUEUE", features::QUEUE);
    same(&mut program, "FEATURE_KEYED4", features::KEYED4 as usize);
    same(&mut program, "FEATURE_KEYED6", features::KEYED6 as usize);
    same(&mut program, "sizeof(struct feature_queue)", features::QUEUE_WORDS * word);
    same(&mut program, "offsetof(struct feature_queue, packets)", features::ELEMENT_BYTES);
    for (at, name) in ["waiting", "seen", "next", "taken"].iter().enumerate() {
        same(&mut program, &format!("offsetof(struct feature_queue, {name})"), at * word);
    }
    program
}

/// Headers whose structures programs in the kernel share with the engine, in the order in which generated code has them.
const KERNEL_HEADERS: &[&str] = &[
    "core/env.h",
    "kernel/hook.h",
    "tables/kernel_addition.h",
    "track/kernel.h",
    "slots/kernel.h",
    "tables/kernel_entry_counter.h",
    "observe/kernel.h",
];

#[test]
fn programs_in_the_kernel_have_the_same_layout() {
    // Without a chain, functions of kernel/hook.h are unused.
    let mut program = "#pragma clang diagnostic ignored \"-Wunused-function\"\n".to_owned() + REWRITES;
    program += "#define WEIR_ANSWERS 56\n#define WEIR_CHAINS 3\n";
    program.extend(KERNEL_HEADERS.iter().map(|name| format!("#include \"{name}\"\n")));
    program += &waiting_layouts();
    layout!(program, "mode", Mode, live, cpu_mask, jumbo, finish, samples, taps);
    layout!(program, "port", Port, side, unfinished, receives, out);
    layout!(program, "ports", Ports, number, index, port, divert, namespace);
    layout!(program, "port_counters", PortCounters, rx_packets, rx_bytes, tx_packets, tx_bytes, tx_full);
    layout!(
        program,
        "port_counters",
        PortCounters,
        tx_link_down,
        tx_too_long,
        no_divert,
        sampled,
        tx_unsupported,
        zero
    );
    layout!(program, "cpu_packet", CpuPacket, packet, sampled, halves, counted, packets, added, copy);
    program += &of_taps();
    program += &of_card();
    layout!(program, "cpu_checksum", CpuChecksum, packet, words);
    layout!(program, "sample_record", SampleRecord, len, cap, side, bytes);
    same(&mut program, "sizeof(struct cpu_track)", kernel::CPU_TRACK_BYTES);
    layout!(program, "replay_header", ReplayHeader, cap, len, link, padding, now_ns);
    layout!(program, "addition_ring", AdditionRing, head, lost, tail, epoch, recent, records);
    layout!(program, "recent_addition", RecentAddition, high, low, adder, epoch);
    layout!(program, "xdp_md", XdpContext, data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex);
    let numbers = [
        ("LIVE_BETWEEN", kernel::LIVE_BETWEEN as usize),
        ("LIVE_HOST", kernel::LIVE_HOST as usize),
        ("PORTS_MAX", kernel::PORTS_MAX),
        ("PORT_INDICES", kernel::PORT_INDICES),
        ("PORT_QUEUES", kernel::PORT_QUEUES),
        ("REPLAY_BYTES_MIN", kernel::REPLAY_BYTES_MIN),
        ("FRAME_COPY_BYTES", kernel::FRAME_COPY_BYTES),
        ("SUM_BYTES", kernel::SUM_BYTES),
        ("ADDITIONS_MAX", kernel::ADDITIONS_MAX),
        ("WAITING_TIME_BITS", entry::WAITING_TIME_BITS as usize),
        ("WAITING_PACKETS_SHIFT", entry::WAITING_NUMBER_BITS as usize),
        ("ADDITIONS_ALL", kernel::ADDITIONS_ALL),
        ("ADDITIONS_CPUS_MAX", kernel::ADDITIONS_CPUS_MAX),
        ("RECENT_ADDITIONS", kernel::RECENT_ADDITIONS),
        // The size for one CPU. The engine multiplies the sections by the number of CPUs.
        ("sizeof(weir_ports)", size_of::<Ports>().next_multiple_of(align_of::<Ports>())),
        ("sizeof(weir_port_counters)", kernel::PORTS_MAX * size_of::<PortCounters>()),
        ("sizeof(weir_additions)", size_of::<AdditionRing>()),
        ("sizeof(weir_packets)", size_of::<CpuPacket>()),
        ("sizeof(weir_checksums)", size_of::<CpuChecksum>()),
        ("sizeof(weir_rewrites)", size_of::<Rewrite>()),
        ("sizeof(weir_tracks)", kernel::CPU_TRACK_BYTES),
        ("sizeof(weir_counters[0])", size_of::<Counter>()),
        ("sizeof(weir_mode)", size_of::<Mode>()),
        ("sizeof(weir_abi_version)", size_of_val(&weir_abi::ABI_VERSION)),
    ];
    numbers.iter().for_each(|(what, value)| same(&mut program, what, *value));
    let bpf = COMPILERS.iter().filter(|(_, flags)| flags.contains(&"--target=bpf"));
    assert_none(bpf.filter_map(|compiler| compile(*compiler, &program).err()).collect(), "layouts differ");
}

/// Structures that the wire-side card shares with the engine.
#[test]
fn the_card_has_the_same_layout() {
    let mut program =
        "#pragma clang diagnostic ignored \"-Wunused-function\"\n#include \"card/kernel_wire_card.h\"\n".to_owned();
    layout!(program, "card_key", CardKey, family, address);
    layout!(program, "card_count", CardCount, packets, bytes, last_ns, zero);
    let numbers = [
        ("CARD_IPV4", wire_card::IPV4),
        ("CARD_IPV6", wire_card::IPV6),
        ("CARD_TO_INNER", wire_card::TO_INNER),
        ("CARD_TO_OUTER", wire_card::TO_OUTER),
        ("CARD_SPINS_MAX", wire_card::SPINS_MAX),
    ];
    numbers.iter().for_each(|(what, value)| same(&mut program, what, *value as usize));
    let bpf = COMPILERS.iter().filter(|(_, flags)| flags.contains(&"--target=bpf"));
    assert_none(bpf.filter_map(|compiler| compile(*compiler, &program).err()).collect(), "layouts differ");
}

/// Structures that the C for DPDK shares with Rust. Its header does not include DPDK.
#[test]
fn dpdk_has_the_same_layout() {
    let mut program = "#include \"dpdk/shim.h\"\n".to_owned();
    layout!(program, "dpdk_facts", Facts, driver, rx_queues, tx_queues, rx_packets, tx_packets, node, interface, mtu);
    layout!(program, "dpdk_lost", Lost, missed, unsent);
    layout!(program, "dpdk_flow_hits", FlowHits, packets, bytes);
    same(&mut program, "DPDK_DRIVER_BYTES", dpdk::DRIVER_BYTES);
    let steps = [
        ("DPDK_DONE", opening::DONE),
        ("DPDK_NOT_CONFIGURED", opening::NOT_CONFIGURED),
        ("DPDK_NO_RX_QUEUE", opening::NO_RX_QUEUE),
        ("DPDK_NO_TX_QUEUE", opening::NO_TX_QUEUE),
        ("DPDK_NOT_STARTED", opening::NOT_STARTED),
        ("DPDK_NOT_PROMISCUOUS", opening::NOT_PROMISCUOUS),
    ];
    steps
        .iter()
        .for_each(|(name, step)| same(&mut program, name, usize::try_from(*step).expect("no step is negative")));
    let host = COMPILERS.iter().filter(|(_, flags)| flags.is_empty());
    assert_none(host.filter_map(|compiler| compile(*compiler, &program).err()).collect(), "layouts differ");
}

/// Every structure in a header that is not pure is in the tests above, or in the list of those that only C uses. Rust
/// knows nothing of a P4 program: generated C and the pipeline are compiled from the same headers.
#[test]
fn rust_knows_every_structure_around_the_program() {
    /// Structures local to C, maps that the loader identifies by name, and structures of the kernel.
    const C_ONLY: [&str; 14] = [
        "__sk_buff",
        "ack_key",
        "cpu_answers",
        "arrival",
        "device_pair",
        "feature_queue",
        "lock_wait",
        "slot_walk",
        "cpu_track",
        "net",
        "net_device",
        "ns_common",
        "sum",
        "summed",
    ];
    let own = include_str!("abi.rs");
    let mut unknown = Vec::new();
    for header in headers_where(|path| !is_pure(path) && !path.starts_with("p4/")) {
        let defined = header.text.lines().filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"));
        let new = defined.filter(|name| !own.contains(&format!("program, \"{name}\"")) && !C_ONLY.contains(name));
        unknown.extend(new.map(|name| format!("{}: struct {name}", header.path)));
    }
    assert_none(unknown, "structures around the program that neither Rust nor this list knows");
}

#[test]
fn every_header_stands_alone() {
    let mut broken = Vec::new();
    for header in headers() {
        // The second inclusion tests the guard. The declaration is needed because an empty translation unit is not
        // valid C11.
        let name = included_as(&header.path).expect("headers of the datapath");
        let program = format!("#include \"{name}\"\n#include \"{name}\"\nint weir;\n");
        let rewriting = format!("{REWRITES}{program}");
        let programs =
            [(!KEEPING.contains(&name)).then_some(rewriting), (!REWRITING.contains(&name)).then_some(program)];
        let compilations =
            programs.iter().flatten().flat_map(|program| COMPILERS.iter().map(move |one| (one, program)));
        broken.extend(compilations.filter_map(|(compiler, program)| compile(*compiler, program).err()));
    }
    assert_none(broken, "headers include what they need and compile without a warning");
}
