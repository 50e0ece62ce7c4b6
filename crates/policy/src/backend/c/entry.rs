//! What engines call: a burst in user space, a frame in BPF.

use super::chain::ChainEmitter;
use super::writer::Writer;
use weir_abi::Family;

impl ChainEmitter<'_> {
    /// User space: parses the whole burst, asks one table after the other, then decides.
    pub(super) fn burst(&self, out: &mut Writer) {
        let name = &self.name;
        out.blank();
        out.line(&format!("void weir_{name}(const struct weir_burst *burst)"));
        out.open("");
        out.line("const struct env env = {.counters = burst->counters, .tables = burst->tables};");
        out.line("struct packet packets[WEIR_BURST_MAX];");
        out.line("enum reason malformed[WEIR_BURST_MAX];");
        if self.is_staged() {
            out.line(&format!("struct {name}_found found[WEIR_BURST_MAX];"));
        }
        out.line("uint64_t started = stage_start();");
        out.blank();
        out.open("for (uint32_t i = 0; i < burst->count; i++)");
        out.line("const struct frame frame = burst_frame(burst, i);");
        out.blank();
        out.line("malformed[i] = parse_packet(&frame, &packets[i]);");
        out.close();
        out.line("started = stage_end(STAGE_PARSE, started);");
        if self.is_staged() {
            self.lookups(out);
            out.line("started = stage_end(STAGE_LOOKUP, started);");
        }
        self.decisions(out);
        out.line("stage_end(STAGE_RULES, started);");
        out.close();
    }

    fn lookups(&self, out: &mut Writer) {
        for &id in &self.chain.staged {
            let find = self.chain.finds[usize::from(id.0)];
            let call = self.find_call(id, "&env", "packets[i].");
            let answer = match self.program.slot(find.slot).family {
                // Asking for a packet that is not IPv4 costs less than a branch; rules ask for the answer behind a guard.
                Family::Ipv4 => call,
                Family::Ipv6 => format!("packets[i].l3 == L3_IPV6 ? {call} : 0"),
            };
            let found = format!("found[i].{}", self.conditions.find_name(id));
            out.line("for (uint32_t i = 0; i < burst->count; i++)");
            out.indent(|out| out.assign(&found, &answer, ""));
        }
    }

    fn decisions(&self, out: &mut Writer) {
        let mut arguments = "&env, &packets[i]".to_owned();
        out.open("for (uint32_t i = 0; i < burst->count; i++)");
        if self.is_staged() {
            arguments += ", &found[i]";
        }
        if self.conditions.uses_raw() {
            arguments += ", &frame";
            out.line("const struct frame frame = burst_frame(burst, i);");
            out.blank();
        }
        out.line("if (!before_rules(&env, &packets[i], malformed[i], &burst->verdicts[i]))");
        out.inner(&format!("burst->verdicts[i] = {}_rules({arguments});", self.name));
        out.close();
    }

    /// BPF: one frame, parsed into `packet`, and the programs around it.
    pub(super) fn frame(&self, out: &mut Writer) {
        let name = &self.name;
        let parameters = ["const struct env *env", "const struct frame *frame", "struct packet *packet"];
        out.blank();
        out.function(&format!("WEIR_INLINE uint32_t {name}_frame"), &parameters.map(str::to_owned));
        out.line("enum reason malformed = parse_packet(frame, packet);");
        out.line("uint32_t verdict;");
        out.blank();
        out.line("if (before_rules(env, packet, malformed, &verdict))");
        out.inner("return verdict;");
        let frame = if self.conditions.uses_raw() { ", frame" } else { "" };
        out.line(&format!("return {name}_rules(env, packet{frame});"));
        out.close();
        out.blank();
        out.line(&format!("WEIR_XDP_CHAIN({name})"));
    }
}
