//! What is decided of packets that the rules do not get to see.

use super::column::fields;
use super::dialect::action;
use super::writer::Writer;
use crate::ir::{Fallback, Program};
use weir_abi::Action;

/// The policy's defaults for packets that are well-formed, in the order in which they are asked, and for those that are not.
pub(super) struct Defaulted {
    /// Test of a packet, reason, verdict.
    cases: Vec<(&'static str, &'static str, Action)>,
    malformed: Action,
}

impl Defaulted {
    pub(super) fn of(program: &Program) -> Self {
        let defaults = &program.defaults;
        let cases = [
            ("packet->l3 == L3_ARP", "REASON_ARP", defaults.arp),
            ("packet->l3 == L3_NONE", "REASON_NOT_IP", defaults.not_ip),
            ("packet->fragment != FRAGMENT_NONE", "REASON_FRAGMENT", defaults.fragment),
            ("packet->flags & FLAG_IP_OPTIONS", "REASON_IP_OPTIONS", defaults.ip_options),
        ];
        let decided = cases.into_iter().filter_map(|(test, reason, fallback)| match fallback {
            Fallback::Decide(action) => Some((test, reason, action)),
            Fallback::Rules => None,
        });
        Defaulted { cases: decided.collect(), malformed: defaults.malformed }
    }

    /// Whether anything but what is malformed is kept from the rules.
    pub(super) fn look_at_packets(&self) -> bool {
        !self.cases.is_empty()
    }

    /// The fields of a packet that are looked at.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.cases.iter().flat_map(|(test, _, _)| fields(test))
    }

    /// Why the rules do not get to see the packet that `parsed` parses; `REASON_NONE` if they do.
    pub(super) fn reason(&self, parsed: &str) -> String {
        if self.look_at_packets() { format!("before_rules(packet, {parsed})") } else { parsed.to_owned() }
    }

    /// The verdict on packets that are kept from the rules for `reason`.
    pub(super) fn action(&self) -> &'static str {
        if self.look_at_packets() { "default_action(reason)" } else { action(self.malformed) }
    }

    /// The functions that the two call.
    pub(super) fn emit(&self, out: &mut Writer) {
        if !self.look_at_packets() {
            return;
        }
        out.blank();
        out.line("/* Why the rules do not get to see a packet; REASON_NONE if they do. */");
        let parameters = ["packet_view *packet", "enum reason malformed"];
        out.function("WEIR_INLINE enum reason before_rules", &parameters.map(str::to_owned));
        out.line("if (WEIR_UNLIKELY(malformed != REASON_NONE))");
        out.inner("return malformed;");
        for (test, reason, _) in &self.cases {
            out.line(&format!("if ({test})"));
            out.inner(&format!("return {reason};"));
        }
        out.line("return REASON_NONE;");
        out.close();
        out.blank();
        out.function("WEIR_INLINE enum action default_action", &["enum reason reason".to_owned()]);
        out.line("switch (reason) {");
        for (_, reason, decided) in &self.cases {
            out.line(&format!("case {reason}:"));
            out.inner(&format!("return {};", action(*decided)));
        }
        out.line("default: /* malformed */");
        out.inner(&format!("return {};", action(self.malformed)));
        out.line("}");
        out.close();
    }
}
