//! `weir ctl attacks`: lists and explains attacks, and decides on proposed actions.

use crate::cli::{AttacksAction, CtlOptions};
use crate::ctl_baseline;
use crate::ctl_question;
use std::fmt::Write;
use weir_command::failure::Failure;
use weir_command::figures::grouped;
use weir_command::report;
use weir_control::{
    AttackAction, AttackEntry, AttackEvidence, AttackIdle, AttackOperation, AttackProfile, AttackVector,
    AttacksChanged, AttacksListed, AttacksMode, EventsStatus, Request, SamplesStatus, Share,
};
use weir_mitigate::action::Mode;
use weir_policy::diag::printable::printable;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the request.
pub fn run(options: &CtlOptions, action: Option<&AttacksAction>) -> Result<(), Failure> {
    let operation = match action {
        None => AttackOperation::List,
        Some(AttacksAction::Show { attack }) => AttackOperation::Show { attack: *attack },
        Some(AttacksAction::Accept { attack }) => AttackOperation::Accept { attack: *attack },
        Some(AttacksAction::Dismiss { attack }) => AttackOperation::Dismiss { attack: *attack },
        Some(AttacksAction::Mode { mode }) => AttackOperation::Mode { mode: Mode::from(*mode).name().to_owned() },
        Some(AttacksAction::Baseline(options)) => ctl_baseline::operation(options)?,
    };
    let Some(value) = ctl_question::ask(options, &Request::Attacks { operation })? else { return Ok(()) };
    let failure = match action {
        Some(AttacksAction::Accept { .. }) => not_carried_out(&weir_control::read(value.clone())?),
        _ => None,
    };
    if options.json {
        report::print_json(&value)?;
        return failure.map_or(Ok(()), |failure| Err(failure.reported()));
    }
    report::print(&match action {
        None => listed(&weir_control::read(value)?),
        Some(AttacksAction::Show { .. }) => shown(&weir_control::read(value)?),
        Some(AttacksAction::Accept { .. }) => changed("accepted", &weir_control::read(value)?),
        Some(AttacksAction::Dismiss { .. }) => changed("dismissed", &weir_control::read(value)?),
        Some(AttacksAction::Mode { .. }) => {
            let AttacksMode { mode, undone } = weir_control::read(value)?;
            format!("mode {mode}; {undone} actions undone\n")
        }
        Some(AttacksAction::Baseline(options)) => match options.action {
            None => ctl_baseline::listed(&weir_control::read(value)?),
            Some(_) => ctl_baseline::changed(options, &weir_control::read(value)?),
        },
    })?;
    failure.map_or(Ok(()), Err)
}

/// The failure of actions that were accepted, but not carried out.
fn not_carried_out(AttacksChanged { problems, .. }: &AttacksChanged) -> Option<Failure> {
    let count = problems.len();
    (count > 0).then(|| Failure::Runtime(format!("{count} of the accepted actions are not carried out")))
}

fn listed(AttacksListed { mode, samples, not_carried_out, events, attacks }: &AttacksListed) -> String {
    let SamplesStatus { one_in, seen, lost, forged, directions, unjudged, windows, blind_windows, problem } = samples;
    let mut text =
        format!("mode {mode}; samples 1/{one_in}: {} read, {} lost, {windows} windows", grouped(*seen), grouped(*lost));
    if *blind_windows > 0 {
        let _ = write!(text, ", {blind_windows} of them without enough samples");
    }
    text.push('\n');
    if *forged > 0 {
        let _ = writeln!(text, "forged: {} samples with a source inside came from outside", grouped(*forged));
    }
    if directions == "one" {
        text += "directions: only one is seen, so a missing answer is no evidence\n";
    }
    if *unjudged > 0 {
        let packets = grouped(*unjudged);
        let _ = writeln!(text, "not judged: {packets} packets of UDP that may be answered where it is not seen");
    }
    if let Some(problem) = problem {
        let _ = writeln!(text, "nothing is measured: {problem}");
    }
    for (reason, count) in not_carried_out {
        let _ = writeln!(text, "not carried out: {} times: {reason}", grouped(*count));
    }
    text += &told(events);
    if attacks.is_empty() {
        text += "no attack\n";
    }
    attacks.iter().for_each(|attack| text += &line(attack));
    text
}

/// What could not be told to others.
fn told(events: &EventsStatus) -> String {
    let EventsStatus { write_failed, write_lost, call_failed, call_lost, export_failed, export_lost, problems, .. } =
        events;
    let mut text = String::new();
    for (what, failed, lost) in [
        ("events", write_failed, write_lost),
        ("calls of the program", call_failed, call_lost),
        ("exports", export_failed, export_lost),
    ] {
        if failed + lost > 0 {
            let _ = writeln!(text, "{what}: {} failed, {} lost", grouped(*failed), grouped(*lost));
        }
    }
    problems.iter().for_each(|problem| _ = writeln!(text, "  {}", printable(problem)));
    text
}

/// An attack in a line, and in another one why nothing is done.
fn line(entry: &AttackEntry) -> String {
    let count = |state: &str| entry.actions.iter().filter(|action| action.state == state).count();
    let states = ["active", "proposed", "watched"].map(|state| (count(state), state));
    let states: Vec<String> =
        states.iter().filter(|(count, _)| *count > 0).map(|(count, state)| format!("{count} {state}")).collect();
    let states = if states.is_empty() { "no action".to_owned() } else { states.join(", ") };
    format!("{:>4}  {}: {states}\n{}", entry.attack, summary(entry), idle(entry, "      "))
}

/// Why nothing is done, and what would help.
fn idle(entry: &AttackEntry, indent: &str) -> String {
    let Some(AttackIdle { why, help }) = &entry.idle else { return String::new() };
    let help = help.as_ref().map(|help| format!("; what helps: {}", printable(help))).unwrap_or_default();
    format!("{indent}nothing is done: {}{help}\n", printable(why))
}

/// `udp-flood on 192.0.2.1, 1,600 packets/s (7.7 Mbit/s) now, peak 2,000, since 20 s, last seen 0 s ago`
fn summary(entry: &AttackEntry) -> String {
    let AttackEntry { victim, age_s, seen_s, is_over, peak_pps, pps, bps, .. } = entry;
    let mbit = bps.map(|bps| format!(" ({:.1} Mbit/s)", bps / 1e6)).unwrap_or_default();
    let now = match pps {
        _ if *is_over => "over".to_owned(),
        Some(pps) => format!("{} packets/s{mbit} now", whole(*pps)),
        None => "- packets/s now".to_owned(),
    };
    let (kinds, peak) = (kinds(entry), whole(peak_pps.max(pps.unwrap_or(0.0))));
    format!("{kinds} on {victim}, {now}, peak {peak}, since {age_s:.0} s, last seen {seen_s:.0} s ago")
}

fn whole(rate: f64) -> String {
    grouped(rate.round() as u64)
}

/// The kind of an attack, and those of its further vectors: the current ones, or all if it is over.
fn kinds(AttackEntry { kind, vectors, is_over, .. }: &AttackEntry) -> String {
    let mut kinds = vec![kind.as_str()];
    let further = vectors.iter().filter(|vector| *is_over || !vector.is_over);
    for vector in further {
        if !kinds.contains(&vector.kind.as_str()) {
            kinds.push(&vector.kind);
        }
    }
    kinds.join(", ")
}

/// Everything about an attack.
pub fn shown(entry: &AttackEntry) -> String {
    let mut text = format!("attack {}: {}\n{}", entry.attack, summary(entry), idle(entry, "  "));
    write_evidence(&mut text, entry, &entry.evidence, "  ");
    text += &profile(entry);
    if entry.vectors.len() > 1 {
        entry.vectors.iter().for_each(|vector| text += &describe_vector(entry, vector));
    }
    let is_one = entry.vectors.len() < 2;
    entry.actions.iter().for_each(|action| text += &describe(action, is_one));
    text
}

/// What its packets are.
fn profile(entry: &AttackEntry) -> String {
    let Some(AttackProfile { samples, sources_seen, mean_bytes, sources, source_ports, destination_ports, lengths }) =
        &entry.profile
    else {
        return String::new();
    };
    let mut text = format!("  {sources_seen} sources in {samples} samples, {mean_bytes:.0} bytes a packet\n");
    for (name, shares) in [
        ("sources", sources),
        ("source ports", source_ports),
        ("destination ports", destination_ports),
        ("lengths", lengths),
    ] {
        if shares.is_empty() {
            continue;
        }
        // Made-up sources and ports differ in every packet.
        if *samples > 1 && shares.iter().all(|of| of.samples == 1) {
            let _ = writeln!(text, "  {name}: another one in every sample");
            continue;
        }
        let one = |of: &Share| format!("{} {:.0}%", printable(&of.value), of.share * 100.0);
        let _ = writeln!(text, "  {name}: {}", shares.iter().map(one).collect::<Vec<_>>().join(", "));
    }
    text
}

/// Measurements with their thresholds. Those that only explain are left out if the packets are described.
fn write_evidence(text: &mut String, entry: &AttackEntry, evidence: &[AttackEvidence], indent: &str) {
    let is_told = |of: &&AttackEvidence| of.threshold.is_some() || entry.profile.is_none();
    for AttackEvidence { measure, value, usual, threshold } in evidence.iter().filter(is_told) {
        let threshold = threshold.map(|threshold| format!(", threshold {threshold}")).unwrap_or_default();
        let _ = writeln!(text, "{indent}{measure}: {value}, usual {usual}{threshold}");
    }
}

/// What a rule wants of payloads, in words: `the payload begins with 17 00 03 2a`. The offset of `@th` is in bits from
/// the transport header, and a UDP header has 64.
fn payload(rule: &str) -> Option<String> {
    let words: Vec<&str> = rule.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("@th,"))?;
    let is_udp = words.windows(2).any(|pair| pair == ["l4proto", "udp"]) || words.contains(&"udp");
    let mut numbers = words[at].trim_start_matches("@th,").split(',').map(str::parse::<usize>);
    let (offset, bits) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    let value = u128::from_str_radix(words.get(at + 1)?.strip_prefix("0x")?, 16).ok()?;
    let offset = offset.checked_sub(64).filter(|_| is_udp)?;
    if offset % 8 != 0 || bits % 8 != 0 || bits == 0 || bits > 128 {
        return None;
    }
    let bytes: Vec<String> = (0..bits / 8).rev().map(|byte| format!("{:02x}", (value >> (8 * byte)) & 0xff)).collect();
    let bytes = bytes.join(" ");
    Some(match offset {
        0 => format!("the payload begins with {bytes}"),
        offset => format!("the payload has {bytes} at byte {}", offset / 8),
    })
}

fn describe_vector(entry: &AttackEntry, vector: &AttackVector) -> String {
    let AttackVector { kind, age_s, seen_s, is_over, pps, peak_pps, evidence, actions } = vector;
    let when =
        if *is_over { format!("over, last seen {seen_s:.0} s ago") } else { format!("{} packets/s now", whole(*pps)) };
    let mut text = format!("  {kind}: since {age_s:.0} s, {when}, peak {}", whole(*peak_pps));
    if !actions.is_empty() {
        let numbers: Vec<String> = actions.iter().map(u32::to_string).collect();
        let _ = write!(text, ", actions {}", numbers.join(", "));
    }
    text.push('\n');
    write_evidence(&mut text, entry, evidence, "    ");
    text
}

/// An action. Only beside others it is said for which vector it is.
fn describe(action: &AttackAction, is_one_vector: bool) -> String {
    let place = action.place.as_ref().map(|place| format!(" in {place}")).unwrap_or_default();
    let of = if is_one_vector { String::new() } else { format!("action {}, {}: ", action.number, action.kind) };
    let mut text = format!("  {of}{}\n    {}{place}, {:.0} s ago", action.rule, action.state, action.age_s);
    if let Some(payload) = payload(&action.rule) {
        let _ = write!(text, "; {payload}");
    }
    if let Some(dropped) = action.dropped {
        let _ = write!(text, "; its rule has dropped {} packets", grouped(dropped));
    }
    if action.packets > 0 {
        let (packets, proven) = (grouped(action.packets), grouped(action.proven));
        let _ = write!(text, "; has hit about {packets} packets, {proven} of proven sources");
    }
    if action.sample_attack_of > 0 {
        let AttackAction { sample_attack, sample_attack_of, sample_legitimate, sample_legitimate_of, .. } = action;
        let _ = write!(
            text,
            "\n    would have hit {sample_attack} of {sample_attack_of} in the victim's sample, {sample_legitimate} of \
             {sample_legitimate_of} legitimate ones"
        );
    }
    if let Some(problem) = &action.problem {
        let _ = write!(text, "\n    tried {} times: {problem}", action.tries);
    }
    text + "\n"
}

fn changed(what: &str, AttacksChanged { attack, changed, undone, problems }: &AttacksChanged) -> String {
    let undone = if *undone > 0 { format!(", {undone} of them undone") } else { String::new() };
    let mut text = format!("attack {attack}: {changed} actions {what}{undone}\n");
    for problem in problems {
        let _ = writeln!(text, "not carried out: {problem}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::shown;
    use weir_control::AttackEntry;

    /// An attack with two vectors, as the protocol has it.
    fn entry() -> AttackEntry {
        let evidence = |measure: &str| serde_json::json!([{ "measure": measure, "value": 900.0, "usual": 1.0, "threshold": 100.0 }]);
        let action = |number: u32, kind: &str, rule: &str| {
            serde_json::json!({
                "number": number, "kind": kind, "action": "drop", "rule": rule, "state": "active", "age_s": 3.0,
                "packets": 0, "proven": 0, "sample_attack": 0, "sample_attack_of": 0, "sample_legitimate": 0,
                "sample_legitimate_of": 0
            })
        };
        let vector = |kind: &str, is_over: bool, actions: &[u32]| {
            serde_json::json!({
                "kind": kind, "age_s": 9.0, "seen_s": 5.0, "is_over": is_over, "pps": 800.0, "peak_pps": 950.0,
                "evidence": evidence(kind), "actions": actions
            })
        };
        let entry = serde_json::json!({
            "attack": 7, "victim": "192.0.2.1", "kind": "udp-flood", "age_s": 20.0, "seen_s": 0.0, "is_over": false,
            "peak_pps": 1600.0, "evidence": evidence("UDP"),
            "actions": [action(3, "udp-flood", "udp drop"), action(4, "syn-flood", "tcp drop")],
            "vectors": [vector("udp-flood", false, &[3]), vector("syn-flood", false, &[4]), vector("rst-flood", true, &[])]
        });
        serde_json::from_value(entry).expect("an entry")
    }

    #[test]
    fn vectors_are_listed_with_their_rates_and_actions() {
        let entry = entry();
        let line = "   7  udp-flood, syn-flood on 192.0.2.1, - packets/s now, peak 1,600, since 20 s, last seen 0 s ago: 2 active\n";
        assert_eq!(super::line(&entry), line);
        let text =
            "attack 7: udp-flood, syn-flood on 192.0.2.1, - packets/s now, peak 1,600, since 20 s, last seen 0 s ago
  UDP: 900, usual 1, threshold 100
  udp-flood: since 9 s, 800 packets/s now, peak 950, actions 3
    udp-flood: 900, usual 1, threshold 100
  syn-flood: since 9 s, 800 packets/s now, peak 950, actions 4
    syn-flood: 900, usual 1, threshold 100
  rst-flood: since 9 s, over, last seen 5 s ago, peak 950
    rst-flood: 900, usual 1, threshold 100
  action 3, udp-flood: udp drop
    active, 3 s ago
  action 4, syn-flood: tcp drop
    active, 3 s ago
";
        assert_eq!(shown(&entry), text);
    }

    #[test]
    fn an_attack_of_one_kind_is_shown_as_before() {
        let mut entry = entry();
        entry.vectors.truncate(1);
        entry.actions.truncate(1);
        let text = "attack 7: udp-flood on 192.0.2.1, - packets/s now, peak 1,600, since 20 s, last seen 0 s ago
  UDP: 900, usual 1, threshold 100
  udp drop
    active, 3 s ago
";
        assert_eq!(shown(&entry), text);
    }

    #[test]
    fn an_attack_says_its_rate_its_packets_and_why_nothing_is_done() {
        let mut entry = entry();
        entry.vectors.truncate(1);
        entry.actions.truncate(1);
        (entry.pps, entry.bps) = (Some(1599.6), Some(7_700_000.0));
        entry.evidence.push(
            serde_json::from_value(serde_json::json!({
                "measure": "entropy of sources", "value": 1.0, "usual": 0.1
            }))
            .expect("a measurement"),
        );
        entry.idle = Some(weir_control::AttackIdle { why: "the mode is `watch`".into(), help: Some("`act`".into()) });
        let share = serde_json::json!([{ "value": "udp 53", "share": 0.75, "samples": 3 }]);
        entry.profile = Some(
            serde_json::from_value(serde_json::json!({
                "samples": 4, "sources_seen": 3, "mean_bytes": 600.0, "sources": [{ "value": "198.51.100.1", "share": 0.25, "samples": 1 }], "source_ports": share,
                "destination_ports": [], "lengths": []
            }))
            .expect("a profile"),
        );
        entry.actions[0].rule = "meta l4proto udp @th,64,32 0x1700032a drop".into();
        let text = "attack 7: udp-flood on 192.0.2.1, 1,600 packets/s (7.7 Mbit/s) now, peak 1,600, since 20 s, last seen 0 s ago
  nothing is done: the mode is `watch`; what helps: `act`
  UDP: 900, usual 1, threshold 100
  3 sources in 4 samples, 600 bytes a packet
  sources: another one in every sample
  source ports: udp 53 75%
  meta l4proto udp @th,64,32 0x1700032a drop
    active, 3 s ago; the payload begins with 17 00 03 2a
";
        assert_eq!(shown(&entry), text);
    }

    #[test]
    fn payloads_are_said_in_words() {
        let said = |rule: &str| super::payload(rule);
        assert_eq!(said("meta l4proto udp @th,72,8 0x0a drop").as_deref(), Some("the payload has 0a at byte 1"));
        for other in [
            "udp drop",
            "tcp @th,64,32 0x1 drop",
            "udp @th,8,8 0x1",
            "udp @th,64,32",
            "udp @th,68,8 0x1",
            "udp @th,64,0 0x1",
        ] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
