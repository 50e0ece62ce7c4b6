//! The words of log lines about attacks and actions.

use weir_command::figures::grouped;
use weir_mitigate::action::{Ending, Measure};
use weir_mitigate::prefix::Prefix;
use weir_mitigate::victim::Evidence;

/// How bad an attack was when it was detected: `, 3,016 packets/s, 30 times the threshold`.
pub fn severity(evidence: &[Evidence]) -> String {
    let times =
        |one: &Evidence| one.threshold.filter(|threshold| *threshold > 0.0).map(|threshold| one.value / threshold);
    let worst = evidence.iter().filter_map(|one| Some((one, times(one)?))).max_by(|(_, a), (_, b)| a.total_cmp(b));
    let Some((worst, times)) = worst else { return String::new() };
    format!(", {} packets/s, {times:.0} times the threshold", grouped(worst.value.round() as u64))
}

/// What was done: `blocked source 192.0.2.13 for 30 s`.
pub fn done(measure: &Measure) -> String {
    match measure {
        Measure::Block((is_ipv6, address), timeout_ns) => {
            let source = Prefix::of(*is_ipv6, *address, u8::MAX);
            format!("blocked source {source} for {} s", timeout_ns / 1_000_000_000)
        }
        Measure::Drop(signature) => format!("dropping: {signature}"),
        Measure::Limit(signature, pps) => format!("limited to {pps:.0} packets/s: {signature}"),
        Measure::Posture(name) => format!("activated posture {name}"),
        Measure::SynProxy(..) => measure.to_string(),
    }
}

/// What would be done: `block source 192.0.2.13 for 30 s`.
pub fn proposed(measure: &Measure) -> String {
    match measure {
        Measure::Block((is_ipv6, address), timeout_ns) => {
            let source = Prefix::of(*is_ipv6, *address, u8::MAX);
            format!("block source {source} for {} s", timeout_ns / 1_000_000_000)
        }
        Measure::Drop(signature) => format!("drop: {signature}"),
        Measure::Limit(signature, pps) => format!("limit to {pps:.0} packets/s: {signature}"),
        Measure::Posture(name) => format!("activate posture {name}"),
        Measure::SynProxy(..) => measure.to_string(),
    }
}

/// The name of an action: `block of source 192.0.2.13`.
pub fn named(measure: &Measure) -> String {
    match measure {
        Measure::Block((is_ipv6, address), _) => format!("block of source {}", Prefix::of(*is_ipv6, *address, u8::MAX)),
        Measure::Drop(_) | Measure::Limit(..) => format!("rule {measure}"),
        Measure::Posture(_) | Measure::SynProxy(..) => measure.to_string(),
    }
}

/// How an action has ended, and what it has dropped if that is counted.
pub fn ended(ending: Ending, dropped: Option<&u64>) -> String {
    let how = match ending {
        Ending::Quiet => "ended, its packets have stopped",
        Ending::Merged => "ended, another rule has taken its place",
        Ending::Timeout => "ended, its time is over",
        Ending::Collateral => "undone, it hit legitimate packets",
        Ending::Failed => "undone, it failed",
        Ending::Removed => "removed by an operator",
        Ending::Dismissed => "dismissed by an operator",
        Ending::Stopped => "undone, the mode has changed or Weir stops",
    };
    let dropped = dropped.map(|packets| format!("; it dropped {} packets", grouped(*packets))).unwrap_or_default();
    format!("{how}{dropped}")
}

#[cfg(test)]
mod tests {
    use super::{done, ended, named, proposed, severity};
    use weir_mitigate::action::{Ending, Measure};
    use weir_mitigate::victim::Evidence;

    #[test]
    fn a_block_names_its_source_and_its_time() {
        let block = Measure::Block((false, 0xc000_020d), 30_000_000_000);
        assert_eq!(done(&block), "blocked source 192.0.2.13 for 30 s");
        assert_eq!(proposed(&block), "block source 192.0.2.13 for 30 s");
        assert_eq!(named(&block), "block of source 192.0.2.13");
        assert_eq!(done(&Measure::Posture("high".to_owned())), "activated posture high");
        assert_eq!(ended(Ending::Quiet, Some(&1234)), "ended, its packets have stopped; it dropped 1,234 packets");
        assert_eq!(ended(Ending::Dismissed, None), "dismissed by an operator");
    }

    #[test]
    fn the_severity_is_of_the_worst_measurement() {
        let one =
            |value: f64, threshold: Option<f64>| Evidence { measure: String::new(), value, usual: 0.0, threshold };
        let evidence = [one(5000.0, Some(1000.0)), one(3016.0, Some(100.0)), one(1.0, None)];
        assert_eq!(severity(&evidence), ", 3,016 packets/s, 30 times the threshold");
        assert_eq!(severity(&[one(1.0, None)]), "");
    }
}
