//! Verdicts on packets that bypass the rules.

use super::column::fields;
use super::dialect::action;
use super::writer::Writer;
use crate::ir::{Fallback, Program};
use weir_abi::Action;

/// The defaults of a policy: for well-formed packets in order of evaluation, and for malformed ones.
pub(super) struct DefaultVerdicts {
    /// Test of a packet, reason, verdict.
    cases: Vec<(&'static str, &'static str, Action)>,
    malformed: Action,
}

impl DefaultVerdicts {
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
        DefaultVerdicts { cases: decided.collect(), malformed: defaults.malformed }
    }

    /// Whether any well-formed packets bypass the rules.
    pub(super) fn apply_to_well_formed(&self) -> bool {
        !self.cases.is_empty()
    }

    /// The fields of `packet` that the tests read.
    pub(super) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.cases.iter().flat_map(|(test, _, _)| fields(test))
    }

    /// The expression for the reason why a packet bypasses the rules, or `REASON_NONE`. `parsed` is the result of the
    /// parser.
    pub(super) fn reason(&self, parsed: &str) -> String {
        if self.apply_to_well_formed() { format!("before_rules(packet, {parsed})") } else { parsed.to_owned() }
    }

    /// The expression for the verdict on packets that bypass the rules for `reason`.
    pub(super) fn action(&self) -> &'static str {
        if self.apply_to_well_formed() { "default_action(reason)" } else { action(self.malformed) }
    }

    /// Writes the functions that these expressions call.
    pub(super) fn emit(&self, out: &mut Writer) {
        if !self.apply_to_well_formed() {
            return;
        }
        out.blank();
        out.line("/* Why a packet bypasses the rules; REASON_NONE if it does not. */");
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
