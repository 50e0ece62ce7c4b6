//! `weir ctl shadow`: lets a second policy judge packets, and shows what it would decide otherwise.

use crate::cli::{CtlOptions, ShadowAction};
use std::fmt::Write;
use weir_command::comparison;
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::report;
use weir_control::{Request, ShadowOperation, ShadowReport, ShadowShown};
use weir_policy::diag::printable::printable;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, or it refuses the policy.
pub fn run(options: &CtlOptions, action: Option<&ShadowAction>) -> Result<(), Failure> {
    let operation = match action {
        None => ShadowOperation::Show,
        Some(ShadowAction::End) => ShadowOperation::End,
        Some(ShadowAction::Load { policy, every, posture }) => {
            let policy = std::path::absolute(policy).map_err(|error| Failure::file(policy, error))?;
            ShadowOperation::Load { policy, every: *every, posture: posture.clone() }
        }
    };
    let value = weir_control::ask(&options.control, &Request::Shadow { operation })?;
    if options.json {
        return report::print_json(&value);
    }
    let ShadowShown { shadow } = weir_control::read(value)?;
    let text = shadow.as_ref().map_or_else(|| "no policy is a shadow\n".to_owned(), shown);
    report::print(&text)
}

/// The report as text. The tables are those of `weir diff`.
fn shown(shadow: &ShadowReport) -> String {
    let ShadowReport { policy, posture, every, seconds, idle_s, decided, lost, failed, comparison, .. } = shadow;
    let posture = posture.as_ref().map(|name| format!(", posture {}", printable(name))).unwrap_or_default();
    let mut text = format!("shadow {}{posture}, since {seconds:.0} s", printable(policy));
    let every = if *every == 1 { String::new() } else { format!(", one in {}", figures::grouped((*every).into())) };
    let last = idle_s.map(|idle| format!(", the last {idle:.0} s ago")).unwrap_or_default();
    let [judged, decided] = [comparison.packets, *decided].map(figures::grouped);
    let _ = writeln!(text, "\njudged {judged} of {decided} packets{every}{last}");
    if *lost > 0 {
        let _ = writeln!(text, "{} packets were not judged, because the shadow is too slow", figures::grouped(*lost));
    }
    if let Some(why) = failed {
        let _ = writeln!(text, "it judges no more packets: {}", printable(why));
    }
    text += &beginning(shadow);
    text += &comparison::summary(comparison);
    text.push('\n');
    text + &comparison::tables(comparison)
}

/// With which state it began, and what may change only for that.
fn beginning(shadow: &ShadowReport) -> String {
    let ShadowReport { tables, table_changes_missed, tracks, every, .. } = shadow;
    let mut text = String::new();
    if !tables.is_empty() {
        let names = tables.iter().map(|name| printable(name).to_string()).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "its tables {names} began with the entries of the active policy");
    }
    if *table_changes_missed > 0 {
        let missed = figures::grouped(*table_changes_missed);
        let _ = writeln!(text, "{missed} later changes of these are missing, so packets may change only for that");
    }
    match (tracks, every) {
        (false, _) => {}
        (true, 1) => {
            text += "it tracks connections that began since; packets of earlier ones may change only for that\n"
        }
        (true, _) => text += "it tracks connections by the packets that it judges; others may change only for that\n",
    }
    text
}

#[cfg(test)]
mod tests {
    use super::shown;
    use weir_control::{Comparison, ShadowReport};

    #[test]
    fn a_shadow_that_judges_nothing_says_so() {
        let mut shadow = ShadowReport {
            policy: "/etc/weir/new.weir".to_owned(),
            posture: Some("high".to_owned()),
            every: 1000,
            seconds: 12.3,
            idle_s: None,
            decided: 4321,
            lost: 7,
            failed: None,
            tables: Vec::new(),
            table_changes_missed: 0,
            tracks: false,
            comparison: Comparison::default(),
        };
        assert_eq!(
            shown(&shadow),
            "shadow /etc/weir/new.weir, posture high, since 12 s\n\
             judged 0 of 4,321 packets, one in 1,000\n\
             7 packets were not judged, because the shadow is too slow\n\
             0 of 0 packets change (0 newly pass, 0 are newly dropped)\n"
        );
        shadow.failed = Some("no memory".to_owned());
        shadow.comparison.packets = 5;
        shadow.idle_s = Some(3.4);
        let text = shown(&shadow);
        assert!(text.contains("judged 5 of 4,321 packets, one in 1,000, the last 3 s ago\n"), "{text}");
        assert!(text.contains("it judges no more packets: no memory\n"), "{text}");
        (shadow.tables, shadow.table_changes_missed) = (vec!["bad".to_owned(), "bots".to_owned()], 1234);
        (shadow.tracks, shadow.every) = (true, 1);
        let text = shown(&shadow);
        let beginning = "its tables bad, bots began with the entries of the active policy\n\
                         1,234 later changes of these are missing, so packets may change only for that\n\
                         it tracks connections that began since; packets of earlier ones may change only for that\n";
        assert!(text.contains(beginning), "{text}");
    }
}
