//! `weir why`: explains which rule decided a packet, and what each earlier rule saw.

use crate::cli::WhyOptions;
use serde::Serialize;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_abi::packet::{Fragment, L3, L4};
use weir_command::engine::action;
use weir_command::failure::Failure;
use weir_command::report;
use weir_loading::{Policy, PolicyFile, eval};
use weir_policy::capability::Engine;
use weir_policy::check::name_of;
use weir_policy::diag::printable::printable_line;
use weir_policy::field::{Notation, Subject};
use weir_policy::ir::eval::explain::{Explanation, Step, explain};
use weir_policy::ir::eval::packet::{Frame, Packet};
use weir_policy::ir::eval::{Charge, Evaluator, Observed};
use weir_policy::ir::{Chain, FindId, LimiterKind, Program, RuleSlotId, Test, Wanted, print};
use weir_policy::slot_rule;
use weir_recording::captures;
use weir_recording::directions::Directions;
use weir_recording::replay;

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Number of the packet.
    pub packet: u64,
    /// Description of the packet on one line.
    pub summary: String,
    /// `accept`, `drop`, `divert`.
    pub verdict: &'static str,
    /// The built-in reason, or the citation of the rule that decided.
    pub reason: String,
    /// Whether a copy was sampled.
    pub sampled: bool,
    /// Present if only a part of the packet was captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<CutPacket>,
    /// Whether it is a TCP segment without IP length, which has the length of its frame here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completed: bool,
    /// The evaluated rules, in order. The last one decided, if a rule decided.
    pub rules: Vec<RuleReport>,
}

/// A packet that the capture has cut short.
#[derive(Debug, Serialize)]
pub struct CutPacket {
    /// Bytes captured.
    pub captured: usize,
    /// Bytes on the wire.
    pub of: u32,
    /// Whether the packet is malformed only because the capture ends inside a header.
    pub malformed: bool,
}

/// The evaluation of one rule.
#[derive(Debug, Serialize)]
pub struct RuleReport {
    /// `edge.weir:12`
    pub at: String,
    /// The rule.
    pub rule: String,
    /// Whether it matched.
    pub matched: bool,
    /// The evaluated tests. A failed one is the last.
    pub tests: Vec<TestReport>,
    /// The limits that it charged, in order.
    pub limits: Vec<LimitReport>,
    /// The slots that it asked, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotReport>,
}

/// What a slot said.
#[derive(Debug, Serialize)]
pub struct SlotReport {
    /// The slot.
    pub slot: String,
    /// The rule of the slot that drops the packet.
    pub rule: Option<String>,
}

/// A charged limit.
#[derive(Debug, Serialize)]
pub struct LimitReport {
    /// `@customers`, or `rate`.
    pub limit: String,
    /// Whether the packet exceeded it.
    pub exceeded: bool,
}

/// An evaluated test.
#[derive(Debug, Serialize)]
pub struct TestReport {
    /// The test.
    pub test: String,
    /// The value in the packet.
    pub saw: String,
    /// Whether the test held.
    pub held: bool,
}

/// Runs the command.
///
/// # Errors
/// The policy is rejected, or the capture has no such packet.
pub fn run(options: &WhyOptions) -> Result<(), Failure> {
    let mut policy = PolicyFile::open(&options.policy)?.read(&options.trust.read()?)?;
    report::say_warnings(&policy);
    replay::put_into_slots(&mut policy, &options.slots)?;
    policy.refuse_unsupported(&[Engine::Eval])?;
    let directions = Directions::among_all(&policy, &options.chain)?;
    let report = find_packet(options, &policy, &directions)?;
    if options.json { report::print_json(&report) } else { report::print(&describe(&report)) }
}

/// Reads up to the packet. Earlier packets are decided too, because sampling depends on their number, limits on their
/// times, and states on all of them.
fn find_packet(options: &WhyOptions, policy: &Policy, directions: &Directions) -> Result<Report, Failure> {
    let mut evaluator = Evaluator::new(&policy.program, policy.answers());
    for (slot, rules) in (0..).map(RuleSlotId).zip(policy.slot_rules()) {
        evaluator.set_slot(slot, rules.clone());
    }
    let mut reader = captures::open(&options.input)?;
    let mut last = 0;
    while let Some(burst) = reader.next_burst()? {
        for index in 0..burst.frames().len() {
            let number = burst.first_packet() + index as u64;
            let frame = eval::frame(burst.frames(), index);
            let chain = directions.chain(frame);
            if number == options.packet {
                let explanation = explain(&mut evaluator, chain, frame);
                let report = build_report(policy, chain, number, frame, &explanation);
                return Ok(Report { completed: burst.is_completed(index), ..report });
            }
            evaluator.decide(chain, frame, &mut ());
            last = number;
        }
    }
    let (name, packet) = (captures::name(&options.input), options.packet);
    Err(Failure::Runtime(format!("{}: there is no packet {packet}, the last is {last}", name.display())))
}

fn build_report(policy: &Policy, chain: usize, packet: u64, frame: Frame<'_>, explanation: &Explanation) -> Report {
    let program = &policy.program;
    let (captured, of) = (frame.bytes.len(), frame.wire_len);
    let malformed = weir_recording::cut_short::cut_short(frame, explanation.verdict).is_some();
    let cut = (captured < of as usize).then_some(CutPacket { captured, of, malformed });
    Report {
        packet,
        summary: summary(&explanation.packet),
        verdict: action(explanation.verdict).name(),
        reason: report::reason_name(program, explanation.verdict.reason()),
        sampled: explanation.verdict.sampled(),
        cut,
        completed: false,
        rules: explanation.steps.iter().map(|step| rule_report(policy, &program.chains[chain], step)).collect(),
    }
}

fn rule_report(policy: &Policy, chain: &Chain, step: &Step) -> RuleReport {
    let rule = policy.program.rule(step.rule);
    let tests = step.tests.iter().map(|(test, saw, held)| TestReport {
        test: test_text(policy, chain, test),
        saw: saw_text(policy, chain, test, *saw, *held),
        held: *held,
    });
    let limits = step.charged.iter().map(|(limiter, _, outcome)| {
        let limiter = policy.program.limiter(*limiter);
        let limit = match limiter.kind {
            LimiterKind::Rate(_) => limiter.name.clone(),
            LimiterKind::Prefixes { .. } | LimiterKind::Labels => format!("@{}", limiter.name),
            LimiterKind::Each(each) => each.to_string(),
        };
        LimitReport { limit, exceeded: *outcome == Charge::Exceeded }
    });
    RuleReport {
        at: rule.at.clone(),
        rule: rule.text.clone(),
        matched: step.matched,
        tests: tests.collect(),
        limits: limits.collect(),
        slots: step.asked.iter().map(|&(slot, by)| slot_report(policy, slot, by)).collect(),
    }
}

/// What a slot said: `by` is the rule of it that drops the packet, from 0.
fn slot_report(policy: &Policy, slot: RuleSlotId, by: Option<usize>) -> SlotReport {
    let rule = by.map(|by| slot_rule::text(&policy.slot_rules()[usize::from(slot.0)][by].record));
    SlotReport { slot: policy.program.rule_slot(slot).name.clone(), rule }
}

/// `ip saddr in @bad`, `meta fragment in later`.
fn test_text(policy: &Policy, chain: &Chain, test: &Test) -> String {
    let (find, wanted, negated) = match test {
        Test::Found { find, wanted, negated } => (find, wanted, negated),
        Test::Value { subject, mask, set, negated } => {
            let values = set.ranges().iter().map(|&(first, last)| match first == last {
                true => value_text(*subject, first),
                false => format!("{}-{}", value_text(*subject, first), value_text(*subject, last)),
            });
            let mask = mask.map(|mask| format!(" & {}", value_text(*subject, mask))).unwrap_or_default();
            let values = values.collect::<Vec<_>>().join(", ");
            return format!(
                "{}{mask} {}in {values}",
                print::subject_name(*subject),
                if *negated { "not " } else { "" }
            );
        }
        Test::Guard(guard) => return guard.name().to_owned(),
    };
    let (key, table) = lookup(&policy.program, chain, *find, wanted);
    let mut text = format!("{key} {}in @{table}", if *negated { "not " } else { "" });
    if let Wanted::Labels(labels) = wanted {
        let names: Vec<String> = labels.iter().map(|label| policy.label(chain, *find, label.0)).collect();
        text += &format!(" {{ {} }}", names.join(", "));
    }
    text
}

fn lookup<'a>(program: &'a Program, chain: &Chain, find: FindId, wanted: &Wanted) -> (&'static str, &'a str) {
    let find = chain.finds[usize::from(find.0)];
    let index = match wanted {
        Wanted::Table(index) => usize::from(*index),
        Wanted::Any | Wanted::Labels(_) => 0,
    };
    (find.key.name(), &program.slot(find.slot).tables()[index])
}

/// The value that a test saw, as text.
fn saw_text(policy: &Policy, chain: &Chain, test: &Test, saw: Observed, held: bool) -> String {
    match (saw, test) {
        (Observed::Header, _) => if held { "present" } else { "absent" }.to_owned(),
        (Observed::Missing, _) => "outside of the captured bytes".to_owned(),
        (Observed::Found(found), Test::Found { wanted: wanted @ Wanted::Table(_), .. }) => {
            if wanted.is(found) { "found" } else { "no entry" }.to_owned()
        }
        (Observed::Found(0), _) => "no entry".to_owned(),
        (Observed::Found(label), Test::Found { find, .. }) => policy.label(chain, *find, label),
        (Observed::Value(value), Test::Value { subject, .. }) => value_text(*subject, value),
        (Observed::Found(number), _) => number.to_string(),
        (Observed::Value(number), _) => number.to_string(),
    }
}

/// Raw bits in hexadecimal, other values by name or in the notation of the field.
fn value_text(subject: Subject, value: u128) -> String {
    match subject {
        Subject::Raw(_) | Subject::Card(_) => format!("{value:#x}"),
        Subject::Field(field) => name_of(field.notation(), value).unwrap_or_else(|| print::value(subject, value)),
    }
}

/// Describes a packet on one line.
fn summary(packet: &Packet) -> String {
    let mut text = String::new();
    for tag in &packet.vlan {
        text += &format!("vlan {}, ", tag & 0xfff);
    }
    let (source, destination) = match packet.l3 {
        L3::Ipv4 => (Ipv4Addr::from(packet.saddr as u32).to_string(), Ipv4Addr::from(packet.daddr as u32).to_string()),
        L3::Ipv6 => (Ipv6Addr::from(packet.saddr).to_string(), Ipv6Addr::from(packet.daddr).to_string()),
        L3::Arp => return format!("{text}ARP, {} bytes", packet.wire_len),
        L3::None => return format!("{text}EtherType {:#06x}, {} bytes", packet.ether_type, packet.wire_len),
    };
    text += &match packet.l4 {
        L4::Tcp | L4::Udp | L4::Ports => format!("{source}:{} > {destination}:{}", packet.sport, packet.dport),
        _ => format!("{source} > {destination}"),
    };
    text += &match packet.l4 {
        L4::Tcp => format!(", TCP {}", name_of(Notation::TcpFlags, packet.tcp_flags.into()).unwrap_or_default()),
        L4::Udp => ", UDP".to_owned(),
        L4::Icmp => format!(", ICMP type {} code {}", packet.icmp_type, packet.icmp_code),
        L4::Icmp6 => format!(", ICMPv6 type {} code {}", packet.icmp_type, packet.icmp_code),
        _ => format!(", protocol {}", packet.proto),
    };
    text += match packet.fragment {
        Fragment::None => "",
        Fragment::First => ", first fragment",
        Fragment::Later => ", later fragment",
    };
    format!("{text}, {} bytes", packet.wire_len)
}

/// The explanation as text.
fn describe(report: &Report) -> String {
    let mut text = format!("packet {}: {}\n\n", report.packet, report.summary);
    for rule in &report.rules {
        let outcome = if rule.matched { "matched" } else { "no match" };
        text += &printable_line(&format!("  {}  {}", rule.at, rule.rule));
        text += &format!("\n    {outcome}");
        // Shows only the failed test of a rule that did not match. For a rule that matched, it shows all tests except
        // tests of headers.
        let mut details: Vec<String> = rule
            .tests
            .iter()
            .filter(|tested| if rule.matched { tested.saw != "present" } else { !tested.held })
            .map(|tested| format!("{}: {}", tested.test, tested.saw))
            .collect();
        details.extend(rule.slots.iter().map(|asked| match &asked.rule {
            Some(rule) => format!("slot {}: dropped by `{rule}`", asked.slot),
            None => format!("slot {}: not dropped", asked.slot),
        }));
        details.extend(rule.limits.iter().map(|charged| {
            format!("limit {}: {}", charged.limit, if charged.exceeded { "exceeded" } else { "not exceeded" })
        }));
        text +=
            &if details.is_empty() { "\n".to_owned() } else { format!(" ({})\n", printable_line(&details.join("; "))) };
    }
    if !report.rules.is_empty() {
        text.push('\n');
    }
    let sampled = if report.sampled { ", a copy sampled" } else { "" };
    text += &format!("verdict: {}, reason: {}{sampled}\n", report.verdict, report.reason);
    if let Some(CutPacket { captured, of, malformed }) = report.cut {
        let why = if malformed { "; it is malformed only because the capture ends inside a header" } else { "" };
        text += &format!("the capture has {captured} of the packet's {of} bytes (snaplen){why}\n");
    }
    if report.completed {
        text += "the segment has no IP length: it is judged with the length of its frame; on a wire Weir drops it\n";
    }
    text
}
