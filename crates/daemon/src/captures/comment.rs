//! What is said of a packet: its verdict and why.

use weir_engine::live::tap::Copied;

/// For example `drop · edge.weir:26 udp sport 53 drop` and `drop · limit`.
pub fn comment(copy: &Copied) -> String {
    let action = copy.verdict.action().map_or("?", |action| action.name());
    let reason = copy.verdict.reason();
    let why = match (reason.builtin_name(), copy.names.rule(reason)) {
        (Some(name), _) => name.to_owned(),
        (None, Some(rule)) => format!("{} {}", rule.at, rule.text),
        (None, None) => format!("rule {} of a policy that is gone", reason.0),
    };
    let changed = if copy.verdict.rewritten() { ", and what leaves is changed" } else { "" };
    format!("{action} · {why}{changed}")
}
