//! The functions that engines call: for a burst in user space, for a frame in BPF.

use super::answer::AnswerColumn;
use super::burst_rules::Stage;
use super::chain::ChainEmitter;
use super::column::{CT_STATE, Column};
use super::defaults::DefaultVerdicts;
use super::dialect::Dialect;
use super::functions;
use super::observe;
use super::raw::fill_raw;
use super::tracking;
use super::writer::Writer;
use crate::ir::FindId;
use weir_abi::Family;

impl ChainEmitter<'_> {
    /// Writes the chain: its columns, its rules, and its entry function.
    pub(super) fn emit(&self, out: &mut Writer) {
        self.sets(out);
        match self.dialect {
            Dialect::Native => {
                self.packets_struct(out);
                if !self.skips_parser() {
                    self.parse(out);
                }
                self.read_answers(out);
                self.lookups(out);
                functions::emit(self, out);
                self.burst(out);
            }
            Dialect::Bpf | Dialect::BpfParts { .. } => {
                functions::emit(self, out);
                self.xdp(out);
            }
        }
    }

    /// User space: writes the entry function, which runs the stages of a burst.
    fn burst(&self, out: &mut Writer) {
        let name = &self.name;
        let packets = if self.parses_packets() { "&packets, " } else { "" };
        out.blank();
        out.line(&format!("void weir_{name}(const struct weir_burst *burst)"));
        out.open("");
        let limits = if self.program.limiters.is_empty() { "" } else { ", .limits = burst->limits" };
        let flows = match self.tracks() {
            true => format!(", .flows = burst->flows, .from = {}", tracking::arrival(self.chain.direction)),
            false => String::new(),
        };
        let members = format!(".counters = burst->counters, .tables = burst->tables{limits}{flows}");
        out.line(&format!("const struct env env = {{{members}}};"));
        if self.keeps_packets() {
            out.line(&format!("struct {name}_packets packets;"));
        }
        if self.observes() {
            observe::columns(self.chain.direction, out);
        }
        out.line("struct verdicts verdicts;");
        out.line("uint64_t started = stage_start();");
        out.blank();
        if self.tracks_first() {
            out.line("track_ahead(&env, burst, &packets.tracked);");
        }
        if self.skips_parser() {
            out.line("open_all(burst, &verdicts);");
        } else {
            out.line(&format!("{name}_parse(&env, burst, {packets}&verdicts);"));
        }
        if !self.card_columns.is_empty() {
            out.line(&format!("{name}_answers(&env, burst, &packets);"));
        }
        out.line("started = stage_end(STAGE_PARSE, started);");
        if self.is_staged() {
            let burst = if self.looks_entries_up() { "burst" } else { "burst->count" };
            out.line(&format!("{name}_lookups(&env, {burst}, &packets);"));
            out.line("started = stage_end(STAGE_LOOKUP, started);");
        }
        if self.observes() {
            out.line(&observe::call("observe_elements", self.chain.direction));
        }
        self.rules_of_burst(out);
        for (id, _) in &self.counts {
            let slot = self.chain.finds[usize::from(id.0)].slot.0;
            let (number, hits) = (self.number_name(*id), self.conditions.find_name(*id));
            out.line(&format!("count_entries(burst, {slot}, packets.{number}, packets.{hits}_hits);"));
        }
        if self.program.rewrites() {
            out.line("rewrite_burst(burst, &verdicts, &packets.tracked);");
        }
        if self.observes() {
            out.line(&observe::call("observe_burst", self.chain.direction));
        }
        out.line("give_verdicts(burst, &verdicts);");
        out.line("stage_end(STAGE_RULES, started);");
        out.close();
    }

    /// Calls the rules. Packets are tracked before the rules that need their state, or else when they are accepted.
    fn rules_of_burst(&self, out: &mut Writer) {
        let name = &self.name;
        let burst = if self.needs_burst() { "burst, " } else { "" };
        let packets = if self.has_columns() { "&packets, " } else { "" };
        let call = |stage: Stage| format!("{name}_{}(&env, {burst}{packets}&verdicts);", stage.suffix());
        match self.tracking_point() {
            None => {
                out.line(&call(Stage::Rules));
                if self.tracks() {
                    out.line("track_accepted(&env, burst, &verdicts, &packets.tracked);");
                }
            }
            Some(point) => {
                if point > 0 {
                    out.line(&call(Stage::BeforeTracking));
                }
                let late = if point > 0 { "_late" } else { "" };
                out.line(&format!("track_begin{late}(&env, burst, &verdicts, &packets.tracked);"));
                out.line("while (track_next(&env, burst, &verdicts, &packets.tracked, packets.ct_state))");
                out.inner(&call(Stage::Rules));
            }
        }
    }

    /// The first stage: parses each frame and fills the columns.
    fn parse(&self, out: &mut Writer) {
        let name = &self.name;
        let defaults = DefaultVerdicts::of(self.program);
        let mut parameters = vec!["const struct env *env".to_owned(), "const struct weir_burst *burst".to_owned()];
        if self.parses_packets() {
            parameters.push(format!("struct {name}_packets *packets"));
        }
        parameters.push("struct verdicts *verdicts".to_owned());
        out.blank();
        out.function(&format!("static void {name}_parse"), &parameters);
        // Then track_ahead() has fetched the frames.
        let skips_parser = self.tracks_first() && !self.parses_columns();
        if skips_parser {
            out.line("uint64_t open = track_has_read(&packets->tracked);");
            out.blank();
            out.line("read_lens(burst, verdicts);");
            out.open("for (uint64_t rest = first_bits(burst->count) & ~open; rest; rest &= rest - 1)");
            out.line("const uint32_t i = first_of(rest);");
        } else {
            out.line("uint64_t open = 0;");
            out.blank();
            out.line("for (uint32_t i = 0; i < FRAMES_AHEAD; i++)");
            out.inner("prefetch_frame(burst, i);");
            out.open("for (uint32_t i = 0; i < burst->count; i++)");
        }
        out.line("const struct frame frame = burst_frame(burst, i);");
        // Compilers drop the fields that nothing reads. The tracker parses a packet again if it needs fields that the
        // parser skipped.
        out.line("struct packet parsed;");
        let raws = self.conditions.raw_columns();
        if defaults.apply_to_well_formed()
            || self.columns.iter().any(|&column| column != CT_STATE)
            || raws.iter().any(|raw| Column::of_raw(*raw).is_some())
        {
            out.line("packet_view *packet = &parsed;");
        }
        if !raws.is_empty() {
            out.line("struct wide raw = {0, 0};");
        }
        if self.observes() {
            observe::parse(self.chain.direction, out);
            out.line(&format!("const enum reason reason = {};", defaults.reason("malformed")));
        } else {
            let reason = defaults.reason("parse_packet(&frame, &parsed)");
            out.line(&format!("const enum reason reason = {reason};"));
        }
        out.blank();
        if !skips_parser {
            out.line("prefetch_frame(burst, i + FRAMES_AHEAD);");
        }
        // The state of a packet is not known before it is tracked.
        let columns = self.columns.iter().filter(|&&column| column != CT_STATE);
        for statement in columns.flat_map(|column| column.fill()) {
            out.line(&statement);
        }
        for statement in raws.iter().flat_map(|raw| fill_raw(*raw)) {
            out.line(&statement);
        }
        if !skips_parser {
            out.line("verdicts->lens[i] = frame.len;");
        }
        out.line("if (WEIR_LIKELY(reason == REASON_NONE))");
        out.inner("open |= 1ULL << i;");
        out.line("else");
        out.inner(&format!("verdicts->words[i] = decide(env, {}, reason, frame.len);", defaults.action()));
        out.close();
        out.line("verdicts->open = open;");
        out.line("verdicts->sampled = 0;");
        out.close();
    }

    /// Whether no rule of an answered chain reads a header.
    fn skips_parser(&self) -> bool {
        self.is_answered && !self.parses_packets() && !self.tracks() && !self.observes()
    }

    /// Writes the function that fills the columns of answers, if there are any.
    fn read_answers(&self, out: &mut Writer) {
        let (false, Some(card)) = (self.card_columns.is_empty(), &self.program.card) else { return };
        let packets = format!("struct {}_packets *packets", self.name);
        let parameters = ["const struct env *env", "const struct weir_burst *burst", &packets];
        out.blank();
        out.function(&format!("static void {}_answers", self.name), &parameters.map(str::to_owned));
        let fills: Vec<String> = self.card_columns.iter().filter_map(|answer| answer.fill(card)).collect();
        if !fills.is_empty() {
            out.open("for (uint32_t i = 0; i < burst->count; i++)");
            out.line("const uint8_t *answers = burst_answers(burst, i);");
            out.blank();
            fills.iter().for_each(|fill| out.line(fill));
            out.close();
        }
        for answer in &self.card_columns {
            let AnswerColumn::Label(lookup) = answer else { continue };
            let (slot, name) = (card.lookups[usize::from(*lookup)].0, answer.name());
            let arguments = format!("burst, {}, packets->{name}, packets->{name}_there", answer.offset(card));
            out.line(&format!("finish_labels(WEIR_TABLE(env, {slot}), {arguments});"));
        }
        if !self.card_columns.iter().any(|answer| matches!(answer, AnswerColumn::Label(_))) {
            out.line("(void)env;");
        }
        out.close();
    }

    /// The second stage: looks up all packets in one table after the other, so that cache misses overlap.
    fn lookups(&self, out: &mut Writer) {
        if !self.is_staged() {
            return;
        }
        let name = &self.name;
        let count = if self.looks_entries_up() { "const struct weir_burst *burst" } else { "uint32_t count" };
        let parameters = ["const struct env *env", count, &format!("struct {name}_packets *packets")];
        out.blank();
        out.function(&format!("static void {name}_lookups"), &parameters.map(str::to_owned));
        if self.looks_entries_up() {
            out.line("const uint32_t count = burst->count;");
            out.blank();
        }
        for &id in &self.chain.tree.staged {
            let find = self.chain.finds[usize::from(id.0)];
            if let Some(call) = self.find_burst_call(id) {
                out.line(&call);
                self.entries(id, out);
                continue;
            }
            let call = self.find_call(id);
            let answer = match self.program.slot(find.slot).family {
                // A lookup for a packet that is not IPv4 costs less than a branch. Rules test the result only after a
                // guard.
                Family::Ipv4 => call,
                Family::Ipv6 => format!("packets->l3[i] == L3_IPV6 ? {call} : 0"),
            };
            let found = format!("packets->{}[i]", self.conditions.find_name(id));
            out.line("for (uint32_t i = 0; i < count; i++)");
            out.indent(|out| out.assign(&found, &answer, ""));
        }
        out.close();
    }

    /// What follows a lookup in a slot with counters. Counters are fetched while the next stages run.
    fn entries(&self, id: FindId, out: &mut Writer) {
        let slot = self.chain.finds[usize::from(id.0)].slot.0;
        let (name, number) = (self.conditions.find_name(id), self.number_name(id));
        if self.has_labels(id) {
            out.line(&format!("entry_labels(burst, {slot}, packets->{number}, packets->{name});"));
        }
        if self.counts.iter().any(|(find, _)| *find == id) {
            out.line(&format!("prefetch_entries(burst, {slot}, packets->{number});"));
            out.line(&format!("packets->{name}_hits = 0;"));
        }
    }

    /// BPF: writes the function that decides one frame. `rules` is the expression for its verdict if the rules decide.
    /// There is none if other programs have the rules.
    /// A plain frame is parsed on the stack, so that the compiler can drop fields that nothing reads; the other fields
    /// are copied to `packet`. All other frames are parsed to `packet` directly. `packet` is in a map value, whose
    /// contents the verifier does not track. All paths through the parser are thus the same state for the rules.
    pub(super) fn frame(&self, rules: Option<&str>, out: &mut Writer) {
        let (name, verdict) = (&self.name, rules.unwrap_or("VERDICT_NONE"));
        let defaults = DefaultVerdicts::of(self.program);
        let parameters = ["const struct env *env", "const struct frame *frame", "struct packet *packet"];
        let parameters = parameters.map(str::to_owned);
        out.blank();
        let decide = if self.tracks() || self.observes() { "decide_frame" } else { "frame" };
        out.function(&format!("WEIR_INLINE uint32_t {name}_{decide}"), &parameters);
        if self.is_answered && !self.reads_packet() {
            if rules.is_none() {
                out.line("(void)env;");
            }
            out.line("packet->len = frame->len;");
            out.line(&format!("return {verdict};"));
            return out.close();
        }
        out.line("const uint8_t *plain = plain_frame(frame);");
        out.line("enum reason reason;");
        out.blank();
        for slot in self.counted_slots() {
            out.line(&format!("WEIR_ENTRY_SETTLE({slot});"));
        }
        out.open("if (WEIR_LIKELY(plain))");
        out.line("struct packet parsed;");
        out.blank();
        out.line("reason = parse_plain(frame, &parsed, plain);");
        for field in self.kept_fields(&defaults) {
            out.line(&format!("packet->{field} = parsed.{field};"));
        }
        out.close_with(" else {");
        out.inner("reason = parse_any(frame, packet);");
        out.line("}");
        if defaults.apply_to_well_formed() {
            out.line(&format!("reason = {};", defaults.reason("reason")));
        }
        out.line("if (WEIR_UNLIKELY(reason != REASON_NONE))");
        out.inner(&format!("return decide(env, {}, reason, packet->len);", defaults.action()));
        if self.counts.iter().any(|(_, rules)| *rules > 1) {
            out.line("forget_hits(packet);");
        }
        out.line(&format!("return {verdict};"));
        out.close();
        if self.tracks() || self.observes() {
            out.blank();
            out.function(&format!("WEIR_INLINE uint32_t {name}_frame"), &parameters);
            let first = if self.tracks() { "track_forget();" } else { "" };
            self.ended(first, &format!("{name}_{decide}(env, frame, packet)"), out);
            out.close();
        }
    }

    /// BPF: writes the body of a function that returns the verdict of `decide`, after the packet was tracked and
    /// observed. `first` comes before.
    pub(super) fn ended(&self, first: &str, decide: &str, out: &mut Writer) {
        let decided = match self.tracks() {
            true => format!("track_verdict(frame, {}, {decide})", tracking::arrival(self.chain.direction)),
            false => decide.to_owned(),
        };
        if !self.observes() {
            if !first.is_empty() {
                out.line(first);
            }
            return out.line(&format!("return {decided};"));
        }
        let direction = observe::direction(self.chain.direction);
        if first.is_empty() {
            out.line(&format!("const uint32_t verdict = {decided};"));
            out.blank();
        } else {
            out.line("uint32_t verdict;");
            out.blank();
            out.line(first);
            out.line(&format!("verdict = {decided};"));
        }
        out.line(&format!("return observe(packet, &observing, {direction}, verdict);"));
    }

    /// BPF: writes the chain as one program.
    fn xdp(&self, out: &mut Writer) {
        let name = &self.name;
        let frame = if self.reads_frame() { ", frame" } else { "" };
        self.frame(Some(&format!("{name}_rules(env, packet{frame})")), out);
        out.blank();
        out.line(&format!("WEIR_CHAIN({name})"));
    }
}
