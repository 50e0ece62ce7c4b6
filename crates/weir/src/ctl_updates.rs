//! Updates of tables and limits from list files, as text.

use std::fmt::Write as _;
use weir_command::figures;
use weir_control::{Active, AppliedUpdate, ListChanged, Reconfigured, RefusedUpdate, Reloaded, UpdatesStatus};
use weir_policy::diag::printable::printable;

/// The answer to `weir ctl reload`.
pub fn reloaded(Reloaded { generation, lists, notices }: &Reloaded) -> String {
    let mut text = String::new();
    notices.iter().for_each(|notice| _ = writeln!(text, "note: {}", printable(notice)));
    lists.iter().for_each(|list| _ = writeln!(text, "{}", changed(list)));
    match (lists.is_empty(), generation) {
        (true, _) => text += "nothing has changed\n",
        (false, Some(generation)) => _ = writeln!(text, "generation {generation} is active"),
        (false, None) => {}
    }
    text
}

/// The answer to `weir ctl reconfigure`.
pub fn reconfigured(Reconfigured { generation, policy, posture, posture_lost, restart }: &Reconfigured) -> String {
    let active = Active { generation: *generation, posture: posture.clone() };
    let mut text = format!("{active} is active: {}\n", printable(policy));
    if let Some(lost) = posture_lost {
        let _ = writeln!(text, "the policy has no posture {} any more, so its base policy decides", printable(lost));
    }
    if !restart.is_empty() {
        let _ = writeln!(text, "changed, but only a restart applies it: {}", printable(&restart.join(", ")));
    }
    text
}

/// The part of `weir ctl status`. It is empty if nothing was updated and nothing is watched.
pub fn status(status: &UpdatesStatus) -> String {
    let UpdatesStatus { watched, applied, refused, last, refusals } = status;
    let mut text = String::new();
    if watched.is_empty() && *applied + *refused == 0 {
        return text;
    }
    let (applied, refused) = (figures::grouped(*applied), figures::grouped(*refused));
    let _ = write!(text, "updates: {applied} applied, {refused} refused");
    if !watched.is_empty() {
        let _ = write!(text, "; watching the files of {}", printable(&watched.join(", ")));
    }
    text += "\n";
    for AppliedUpdate { changed: list, by, ago_s } in last {
        let _ = writeln!(text, "  {} ({}, {ago_s:.0} s ago)", changed(list), printable(by));
    }
    for RefusedUpdate { list, file, reason, since_s, times } in refusals {
        let (list, file, reason) = (list.to_string(), printable(file), printable(reason));
        let times = if *times > 1 { format!(", {} times", figures::grouped(*times)) } else { String::new() };
        let _ = writeln!(text, "  refused: {} from {file}, for {since_s:.0} s{times}: {reason}", printable(&list));
    }
    text
}

fn changed(ListChanged { list, entries_before, entries }: &ListChanged) -> String {
    let (before, now) = (figures::grouped(*entries_before as u64), figures::grouped(*entries as u64));
    format!("{}: {before} entries before, {now} now", printable(&list.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn updates_in_the_status() {
        let text = |value: serde_json::Value| status(&serde_json::from_value(value).expect("a status"));
        let mut value = json!({ "watched": [], "applied": 0, "refused": 0, "last": [], "refusals": [] });
        assert_eq!(text(value.clone()), "");
        value["watched"] = json!(["bad", "geo"]);
        assert_eq!(text(value.clone()), "updates: 0 applied, 0 refused; watching the files of bad, geo\n");
        value["applied"] = json!(1234);
        value["refused"] = json!(3);
        value["last"] = json!([
            { "table": "bad", "entries_before": 3, "entries": 100_001, "by": "watch", "ago_s": 7.4 },
            { "limits": "customers", "entries_before": 1, "entries": 2, "by": "reload", "ago_s": 60.0 },
        ]);
        value["refusals"] = json!([
            { "table": "bad", "file": "bad.txt", "reason": "bad.txt:7: \u{1b}", "since_s": 3.0, "times": 2 },
        ]);
        assert_eq!(
            text(value),
            "updates: 1,234 applied, 3 refused; watching the files of bad, geo\n  \
             table bad: 3 entries before, 100,001 now (watch, 7 s ago)\n  \
             limits customers: 1 entries before, 2 now (reload, 60 s ago)\n  \
             refused: table bad from bad.txt, for 3 s, 2 times: bad.txt:7: \\x1b\n"
        );
    }

    #[test]
    fn answers_to_reload() {
        let text = |value: serde_json::Value| reloaded(&serde_json::from_value(value).expect("an answer"));
        assert_eq!(text(json!({ "generation": null, "lists": [] })), "nothing has changed\n");
        let lists = json!([{ "table": "bad", "entries_before": 3, "entries": 2 }]);
        assert_eq!(
            text(json!({ "generation": 7, "lists": lists, "notices": ["careful"] })),
            "note: careful\ntable bad: 3 entries before, 2 now\ngeneration 7 is active\n"
        );
    }
}
