//! The settings of tracking as a constant in C.

use super::dialect::{Dialect, action};
use super::writer::Writer;
use crate::ir::{Invalid, TIMEOUTS, Tracking};
use weir_abi::flow::{embryonic_max, timeout_ticks};

/// Writes the settings, and includes the tracker that reads them.
pub(super) fn emit(tracking: &Tracking, dialect: Dialect, out: &mut Writer) {
    out.blank();
    out.line("#include \"tcp_states.h\"");
    out.blank();
    out.open("static const struct tracking tracking =");
    out.open(".timeouts =");
    for (timeout, name, _) in TIMEOUTS {
        let milliseconds = tracking.timeouts_ms[timeout as usize];
        out.line(&format!("{}, /* {name} {milliseconds}ms */", timeout_ticks(milliseconds)));
    }
    out.close_with(",");
    let percent = tracking.embryonic_percent;
    out.line(&format!(".embryonic_max = {}, /* {percent}% of a bucket */", embryonic_max(percent)));
    let invalid = match tracking.invalid {
        Invalid::Rules => "VERDICT_NONE",
        Invalid::Decide(verdict) => action(verdict),
    };
    out.line(&format!(".invalid = {invalid},"));
    out.line(&format!(".pickup = {},", tracking.pickup));
    out.line(&format!(".one_way = {},", tracking.one_way));
    out.close_with(";");
    out.blank();
    out.line(if dialect.is_bpf() { "#include \"cpu_flows.h\"" } else { "#include \"track_burst.h\"" });
}
