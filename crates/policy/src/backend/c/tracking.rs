//! The settings of tracking as a constant in C.

use super::dialect::{Dialect, action};
use super::writer::Writer;
use crate::ir::{Direction, Invalid, Synproxy, Timeout, Tracking};
use weir_abi::FlowState;
use weir_abi::flow::{Side, share_of_bucket, timeout_ticks};

/// The classes of protocols in C, each with one of its protocols.
const CLASSES: [(&str, u8); 4] = [("CLASS_OTHER", 255), ("CLASS_TCP", TCP), ("CLASS_UDP", 17), ("CLASS_ICMP", 1)];
const TCP: u8 = 6;

/// Writes the timeouts in ticks, by protocol and state.
fn timeouts(tracking: &Tracking, out: &mut Writer) {
    let milliseconds = |timeout: Timeout| tracking.timeouts_ms[timeout as usize];
    out.open(".timeouts =");
    for (class, protocol) in CLASSES {
        let states = FlowState::ALL.into_iter().filter(|(state, _)| state.is_of_tcp() == (protocol == TCP));
        for (state, name) in states {
            let timeout = milliseconds(Timeout::of(state, protocol));
            let (of, ticks) = (format!(".of[{class} * FLOW_STATES + {}]", state as u8), timeout_ticks(timeout));
            out.line(&format!("{of} = {ticks}, /* {name} {timeout}ms */"));
        }
    }
    let timeout = milliseconds(Timeout::Unacknowledged);
    out.line(&format!(".unacknowledged = {}, /* {timeout}ms */", timeout_ticks(timeout)));
    out.close_with(",");
}

/// Writes the settings of the SYN proxy.
fn synproxy(proxy: &Synproxy, out: &mut Writer) {
    out.open(".synproxy =");
    if let Some(threshold) = &proxy.threshold {
        let (on, off, calm_s) = (threshold.on, threshold.off, threshold.calm_s);
        out.line(&format!(".threshold = {{.is_set = true, .on = {on}, .off = {off}, .calm_s = {calm_s}}},"));
    }
    out.line(&format!(".mss = {},", proxy.mss));
    out.line(&format!(".scale = {},", proxy.wscale.unwrap_or(Side::NO_SCALE)));
    out.line(&format!(".sack = {},", proxy.sack));
    out.line(&format!(".timestamp = {},", proxy.timestamp));
    out.close_with(",");
}

/// The side of arrival, in C, of packets that go in a direction.
pub(super) fn arrival(direction: Direction) -> &'static str {
    match direction {
        Direction::Upstream => "FROM_OUTSIDE",
        Direction::Downstream => "FROM_INSIDE",
    }
}

/// Writes the settings, and includes the tracker that reads them.
pub(super) fn emit(tracking: &Tracking, dialect: Dialect, out: &mut Writer) {
    settings(tracking, out);
    out.blank();
    out.include(dialect.header("track/kernel.h", "track/burst.h"));
}

/// Writes the settings.
pub(in crate::backend) fn settings(tracking: &Tracking, out: &mut Writer) {
    out.blank();
    out.include("track/tcp_states.h");
    out.blank();
    out.open("static const struct tracking tracking =");
    timeouts(tracking, out);
    for (name, percent) in [("embryonic", tracking.embryonic_percent), ("unproven", tracking.unproven_percent)] {
        out.line(&format!(".{name}_max = {}, /* {percent}% of a bucket */", share_of_bucket(percent)));
    }
    let invalid = match tracking.invalid {
        Invalid::Rules => "VERDICT_NONE",
        Invalid::Decide(verdict) => action(verdict),
    };
    out.line(&format!(".invalid = {invalid},"));
    out.line(&format!(".pickup = {},", tracking.pickup));
    out.line(&format!(".one_way = {},", tracking.one_way));
    out.line(&format!(".vlan_ignore = {},", tracking.vlan_ignore));
    if let Some(proxy) = &tracking.synproxy {
        synproxy(proxy, out);
    }
    out.close_with(";");
}
