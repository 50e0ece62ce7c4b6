//! The certificate of a policy, as JSON and as text.

use serde::Serialize;
use std::fmt::Write;
use weir_command::failure::{Failed, Message};
use weir_command::figures;
use weir_loading::Timing;
use weir_planning::card::{self, CardReport};
use weir_policy::ir::Observe;
use weir_state::features::Features;

/// Most characters of the list of compiled chains in the report.
const COMPILED_CHARACTERS: usize = 200;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub policy: String,
    pub valid: bool,
    pub errors: Vec<Message>,
    pub warnings: Vec<Message>,
    pub notices: Vec<String>,
    #[serde(flatten)]
    pub certificate: Option<Certificate>,
}

/// The output of `--json` for a policy that is invalid or cannot be read.
#[derive(Debug, Serialize)]
pub(super) struct Invalid {
    pub policy: String,
    pub valid: bool,
    #[serde(flatten)]
    pub failed: Failed,
    pub warnings: Vec<Message>,
    pub notices: Vec<String>,
}

/// The cost of a policy.
#[derive(Debug, Serialize)]
pub(super) struct Certificate {
    pub rules: usize,
    /// What happens to packets after Weir ends: `forward` or `block`.
    pub on_exit: &'static str,
    /// The file of `--costs`. `None` if the layouts were chosen by the compiler's defaults.
    pub costs: Option<String>,
    pub table_bytes: u64,
    pub tables: Vec<TableCost>,
    pub limits: Vec<LimitsCost>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotCost>,
    /// What is observed, if anything is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observe: Option<ObserveCost>,
    pub chains: Vec<ChainCost>,
    /// Names of the compiled chains: the chains of the base policy, unless options select postures.
    pub compiled: Vec<String>,
    /// Which lookups this machine runs, if native code was measured ([`weir_engine::kernels`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// Why code was not compiled or measured.
    pub not_measured: Vec<String>,
    pub seconds: Seconds,
    /// What a card can take, with `--card`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<CardReport>,
}

/// A slot of rules.
#[derive(Debug, Serialize)]
pub(super) struct SlotCost {
    pub name: String,
    /// Number of rules that it has room for.
    pub size: u16,
    /// Memory that it takes, whatever its size.
    pub bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct TableCost {
    pub name: String,
    pub family: &'static str,
    pub kind: &'static str,
    pub entries: usize,
    pub labels: usize,
    pub layout: &'static str,
    /// The expected cost of each layout that can hold the table.
    pub layout_reason: String,
    /// Other tables in the same image.
    pub fused_with: Vec<String>,
    /// Size of the whole image, bytes, even if several tables share it.
    pub bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct LimitsCost {
    pub name: String,
    /// The kind of keys: `prefixes`, `nested` prefixes, `labels`, or `addresses` for `limit each`.
    pub of: &'static str,
    /// The table whose labels are the keys.
    pub table: Option<String>,
    pub ipv4: usize,
    pub ipv6: usize,
    pub labels: usize,
    /// Distinct limits.
    pub rates: usize,
    /// The default limit.
    pub default: Option<String>,
    /// What is counted for each limit: `off`, `exceeded` or `all`.
    pub log: &'static str,
    /// Limiters of the list, for all directions.
    pub limiters: usize,
    /// Size of the images of prefixes, bytes.
    pub bytes: u64,
    /// Size of all buckets, bytes.
    pub bucket_bytes: u64,
    /// Size of all counts, bytes.
    pub count_bytes: u64,
}

/// One direction of one posture. Costs are for random 64-byte packets.
#[derive(Debug, Serialize)]
pub(super) struct ChainCost {
    pub name: String,
    pub rules: usize,
    pub cycles_per_packet: Option<f64>,
    pub cycles_per_packet_min: Option<f64>,
    pub cycles_per_packet_max: Option<f64>,
    pub bpf_ns_per_packet: Option<f64>,
    /// With `--engine p4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p4_cycles_per_packet: Option<f64>,
    /// Number of programs, if the verifier refuses the chain as one program; otherwise 0.
    pub bpf_parts: Option<usize>,
    pub verifier_instructions: Option<u32>,
    pub bpf_instructions: Option<u32>,
}

/// The time of each step, seconds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Seconds {
    pub parse: f64,
    pub lists: f64,
    pub check: f64,
    pub build: f64,
    pub emit: f64,
    pub clang_native: f64,
    pub load_native: f64,
    pub clang_bpf: f64,
    pub load_bpf: f64,
    /// From text to a loaded native filter, without the time of clang.
    pub native_without_clang: f64,
}

impl From<Timing> for Seconds {
    fn from(timing: Timing) -> Self {
        Seconds {
            parse: timing.parse.as_secs_f64(),
            lists: timing.lists.as_secs_f64(),
            check: timing.check.as_secs_f64(),
            ..Seconds::default()
        }
    }
}

/// What is observed.
#[derive(Debug, Serialize)]
pub(super) struct ObserveCost {
    /// Number of addresses or prefixes, of each direction.
    pub size: u32,
    /// Lengths of prefixes of IPv4 and IPv6.
    pub lengths: [u8; 2],
    /// Whether each address has room, so that none is counted with others.
    pub is_exact: bool,
    /// Memory of each worker, or of each CPU in the kernel.
    pub worker_bytes: u64,
}

impl ObserveCost {
    pub fn of(observe: &Observe) -> Self {
        let shape = observe.shape();
        let worker_bytes = Features::bytes(&shape, 1) as u64;
        ObserveCost { size: shape.size, lengths: shape.lengths, is_exact: shape.is_direct(), worker_bytes }
    }
}

/// The certificate as text.
pub(super) fn describe(report: &Report) -> String {
    let mut text = String::new();
    let certificate = report.certificate.as_ref().expect("a valid policy has one");
    let warnings = match report.warnings.len() {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        many => format!(", {many} warnings"),
    };
    let _ = writeln!(
        text,
        "{}: valid{warnings}; {} rules, {} tables, {} in memory; on exit {}",
        report.policy,
        certificate.rules,
        certificate.tables.len(),
        figures::bytes(certificate.table_bytes),
        certificate.on_exit
    );
    if !certificate.tables.is_empty() {
        let _ = writeln!(text, "\n  {:<20} {:>10} {:>7}  {:<10} {:>9}", "table", "entries", "labels", "layout", "size");
    }
    for (index, table) in certificate.tables.iter().enumerate() {
        // The size of a shared image is shown once.
        let sharing = certificate.tables[..index].iter().find(|other| table.fused_with.contains(&other.name));
        let _ = writeln!(
            text,
            "  {:<20} {:>10} {:>7}  {:<10} {:>9}",
            table.name,
            figures::grouped(table.entries as u64),
            table.labels,
            table.layout,
            sharing.map_or_else(|| figures::bytes(table.bytes), |other| format!("in {}'s", other.name))
        );
    }
    describe_state(&mut text, certificate);
    let _ = writeln!(
        text,
        "\n  {:<24} {:>5} {:>14} {:>12} {:>10} {:>15}",
        "direction", "rules", "cycles/packet", "BPF ns", "BPF insns", "verifier insns"
    );
    let figure = |number: Option<f64>| number.map_or_else(|| "-".to_owned(), |number| format!("{number:.1}"));
    let whole = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| figures::grouped(number.into()));
    for chain in &certificate.chains {
        let _ = writeln!(
            text,
            "  {:<24} {:>5} {:>14} {:>12} {:>10} {:>15}",
            chain.name,
            chain.rules,
            figure(chain.cycles_per_packet),
            figure(chain.bpf_ns_per_packet),
            whole(chain.bpf_instructions),
            whole(chain.verifier_instructions)
        );
    }
    describe_p4(&mut text, certificate);
    describe_compiled(&mut text, certificate);
    certificate.card.iter().for_each(|report| card::describe(&mut text, report));
    for reason in &certificate.not_measured {
        let _ = writeln!(text, "\n  not measured: {reason}");
    }
    describe_native(&mut text, certificate);
    text
}

/// Describes native code, if it was measured.
fn describe_native(text: &mut String, certificate: &Certificate) {
    if let Some(kernels) = &certificate.kernels {
        let _ = writeln!(text, "\n  lookups of bursts: {kernels}");
    }
    let seconds = &certificate.seconds;
    if seconds.clang_native > 0.0 {
        let _ = writeln!(
            text,
            "\n  native filter ready in {:.3} s (lists {:.3}, tables {:.3}) and clang's {:.3} s",
            seconds.native_without_clang, seconds.lists, seconds.build, seconds.clang_native
        );
    }
}

fn describe_p4(text: &mut String, certificate: &Certificate) {
    for chain in &certificate.chains {
        if let Some(cycles) = chain.p4_cycles_per_packet {
            let _ = writeln!(text, "  {:<24} {cycles:>20.1} cycles/packet as P4", chain.name);
        }
    }
}

/// Describes what was compiled, if it was only a part.
fn describe_compiled(text: &mut String, certificate: &Certificate) {
    let left_out = certificate.chains.len() - certificate.compiled.len();
    if !certificate.compiled.is_empty() && left_out > 0 {
        let _ = writeln!(
            text,
            "\n  compiled: {}; the other {left_out} chains were checked but not compiled (--posture NAME, --all-postures)",
            figures::cut(&certificate.compiled.join(", "), COMPILED_CHARACTERS)
        );
    }
}

fn describe_slots(text: &mut String, slots: &[SlotCost]) {
    if !slots.is_empty() {
        let _ = writeln!(text, "\n  {:<20} {:>10} {:>9}", "slots", "rules", "size");
    }
    for SlotCost { name, size, bytes } in slots {
        let _ = writeln!(text, "  {name:<20} {size:>10} {:>9}", figures::bytes(*bytes));
    }
}

/// Describes what outlives generations.
fn describe_state(text: &mut String, certificate: &Certificate) {
    describe_limits(text, &certificate.limits);
    describe_slots(text, &certificate.slots);
    if let Some(ObserveCost { size, worker_bytes, .. }) = &certificate.observe {
        let (size, bytes) = (figures::grouped((*size).into()), figures::bytes(*worker_bytes));
        let _ = writeln!(text, "\n  observe: {size} addresses in each direction, {bytes} for each worker or CPU");
    }
}

fn describe_limits(text: &mut String, limits: &[LimitsCost]) {
    if limits.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n  {:<20} {:>10} {:>10} {:>7}  {:>9} {:>9}",
        "limits", "entries", "of", "rates", "size", "buckets"
    );
    for list in limits {
        let _ = writeln!(
            text,
            "  {:<20} {:>10} {:>10} {:>7}  {:>9} {:>9}",
            list.name,
            figures::grouped((list.ipv4 + list.ipv6 + list.labels) as u64),
            list.of,
            list.rates,
            figures::bytes(list.bytes),
            figures::bytes(list.bucket_bytes)
        );
    }
}
