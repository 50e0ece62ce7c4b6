//! The rules of a chain as BPF code, which decides one packet.

use super::chain::ChainEmitter;
use super::column::Column;
use super::dialect::action;
use super::rules::ends;
use super::tracking;
use super::walk::{Addition, Bucket, Charge, Exceeding, Sink, TestPath, walk};
use super::writer::Writer;
use crate::ir::{FindId, Invalid, Node, RuleId, RuleSlotId, SlotContents, eval};
use weir_abi::{Action, Family};

/// Where a function keeps the flag that the packet was sampled.
#[derive(Clone, Copy)]
enum Sampled {
    /// No rule samples.
    Never,
    /// In a local variable.
    Variable,
    /// In a variable of its caller.
    Pointer,
}

impl Sampled {
    fn expression(self) -> &'static str {
        match self {
            Sampled::Never => "0",
            Sampled::Variable => "sampled",
            Sampled::Pointer => "*sampled",
        }
    }
}

/// Writes the parts of the rules and the function that calls them.
pub(super) fn emit(chain: &ChainEmitter<'_>, parts: &[&[Node]], out: &mut Writer) {
    if let [whole] = parts {
        let sampled = if chain.samples { Sampled::Variable } else { Sampled::Never };
        return PacketSink { chain, out, sampled }.whole(whole);
    }
    let sampled = if chain.samples { Sampled::Pointer } else { Sampled::Never };
    for (index, part) in parts.iter().enumerate() {
        PacketSink { chain, out, sampled }.part(index, part);
    }
    calls(chain, parts.len(), out);
}

/// Writes a part of a chain that is a separate program: `<name>()` decides the packet. Unless it is the last part, it
/// may leave the packet to the next part.
pub(super) fn emit_part(chain: &ChainEmitter<'_>, is_last: bool, out: &mut Writer) {
    let mut parameters = parameters(chain);
    parameters.truncate(2);
    parameters.extend(["const struct frame *frame".to_owned(), "uint32_t *sampled".to_owned()]);
    let sampled = if chain.samples { Sampled::Pointer } else { Sampled::Never };
    let decide = if chain.tracks() || chain.observes() { "_decide" } else { "" };
    out.blank();
    out.function_with(&format!("WEIR_INLINE uint32_t {}{decide}", chain.name), &parameters, |out| {
        let mut sink = PacketSink { chain, out, sampled };
        sink.variables(false);
        walk(chain, &chain.chain.tree.nodes, &mut sink);
        match (ends(chain.program, &chain.chain.tree.nodes), is_last) {
            (true, _) => {}
            (false, true) => no_match(chain, sampled, out),
            (false, false) => out.line("return VERDICT_NONE;"),
        }
    });
    if chain.tracks() || chain.observes() {
        out.blank();
        out.function(&format!("WEIR_INLINE uint32_t {}", chain.name), &parameters);
        chain.ended("", &format!("{}{decide}(env, packet, frame, sampled)", chain.name), out);
        out.close();
    }
}

fn parameters(chain: &ChainEmitter<'_>) -> Vec<String> {
    let packet = if chain.marks() { "WEIR_FRESH struct packet *packet" } else { "packet_view *packet" };
    let mut parameters = vec!["const struct env *env".to_owned(), packet.to_owned()];
    if chain.reads_frame() {
        parameters.push("const struct frame *frame".to_owned());
    }
    parameters
}

/// Writes the function that calls the parts.
fn calls(chain: &ChainEmitter<'_>, parts: usize, out: &mut Writer) {
    let mut arguments = vec!["env", "packet"];
    if chain.reads_frame() {
        arguments.push("frame");
    }
    if chain.samples {
        arguments.push("&sampled");
    }
    let arguments = arguments.join(", ");
    out.blank();
    out.function(&format!("WEIR_INLINE uint32_t {}_rules", chain.name), &parameters(chain));
    if chain.samples {
        out.line("uint32_t sampled = 0;");
    }
    out.line("uint32_t verdict;");
    out.blank();
    for index in 0..parts {
        out.line(&format!("verdict = {}_part_{index}({arguments});", chain.name));
        out.line("if (verdict != VERDICT_NONE)");
        out.inner("return verdict;");
    }
    no_match(chain, Sampled::Variable, out);
    out.close();
}

/// Writes the verdict on packets that no rule decided.
fn no_match(chain: &ChainEmitter<'_>, sampled: Sampled, out: &mut Writer) {
    let no_match = action(chain.program.defaults.no_match);
    let sampled = or_sampled(chain, sampled);
    out.line(&format!("return decide(env, {no_match}, REASON_NO_MATCH, packet->len){sampled};"));
}

/// The suffix of a verdict expression that adds the flag that the packet was sampled.
fn or_sampled(chain: &ChainEmitter<'_>, sampled: Sampled) -> String {
    if chain.samples { format!(" | {}", sampled.expression()) } else { String::new() }
}

/// Writes the body of a function.
struct PacketSink<'a, 'b> {
    chain: &'a ChainEmitter<'b>,
    out: &'a mut Writer,
    sampled: Sampled,
}

impl PacketSink<'_, '_> {
    fn whole(self, body: &[Node]) {
        let PacketSink { chain, out, sampled } = self;
        out.blank();
        out.function_with(&format!("WEIR_INLINE uint32_t {}_rules", chain.name), &parameters(chain), |out| {
            let mut sink = PacketSink { chain, out, sampled };
            sink.variables(chain.samples);
            walk(chain, body, &mut sink);
            if !ends(chain.program, body) {
                no_match(chain, sampled, out);
            }
        });
    }

    fn part(self, index: usize, body: &[Node]) {
        let PacketSink { chain, out, sampled } = self;
        let mut parameters = parameters(chain);
        if chain.samples {
            parameters.push("uint32_t *sampled".to_owned());
        }
        out.blank();
        out.function_with(&format!("WEIR_NOINLINE uint32_t {}_part_{index}", chain.name), &parameters, |out| {
            let mut sink = PacketSink { chain, out, sampled };
            sink.variables(false);
            walk(chain, body, &mut sink);
            if !ends(chain.program, body) {
                out.line("return VERDICT_NONE;");
            }
        });
    }

    fn variables(&mut self, sampled: bool) {
        if sampled {
            self.out.line("uint32_t sampled = 0;");
        }
        if self.chain.conditions.uses_raw() {
            self.out.line("struct wide raw __attribute__((unused));");
        }
        if sampled || self.chain.conditions.uses_raw() {
            self.out.blank();
        }
    }

    /// Decides the packet if the test holds, for the tracker's reason.
    fn refuse(&mut self, test: &str, verdict: Action) {
        let (action, sampled) = (action(verdict), or_sampled(self.chain, self.sampled));
        self.out.line(&format!("if ({test})"));
        self.out.inner(&format!("return decide(env, {action}, refusal(packet), packet->len){sampled};"));
    }

    /// The call that charges the packet and returns whether it is within the limit.
    fn has_room(&self, charge: &Charge) -> String {
        let limiter = charge.limiter.0;
        let bucket = match &charge.bucket {
            Bucket::Only => format!("limit_has_room(env, {limiter}, 0"),
            Bucket::Found(find) => {
                format!("limit_has_room(env, {limiter}, {}", self.chain.conditions.find_name(*find))
            }
            Bucket::Each(each) => {
                let (key, mask) = (Column::of(each.key).expression, each.mask());
                let what = if each.connections().is_some() { "connections" } else { "each" };
                let bucket = match each.key.family() {
                    Family::Ipv4 => format!("limit_{what}4_has_room(env, {limiter}, {key} & {mask:#x}u"),
                    Family::Ipv6 => {
                        let [hi, lo] = [mask >> 64, mask & u128::from(u64::MAX)].map(|half| format!("{half:#x}ULL"));
                        format!("limit_{what}6_has_room(env, {limiter}, {key}.hi & {hi}, {key}.lo & {lo}")
                    }
                };
                if each.connections().is_some() {
                    return format!("{bucket})");
                }
                bucket
            }
        };
        format!("{bucket}, env_now(env), packet->len)")
    }
}

/// The call that adds an address of the packet to a table.
fn add_packet(Addition { id, adder, .. }: &Addition) -> String {
    let (key, mask) = (Column::of(adder.key).expression, adder.mask());
    match adder.key.family() {
        Family::Ipv4 => format!("add_address({}, 0, {key} & {mask:#x}u);", id.0),
        Family::Ipv6 => {
            let [hi, lo] = [mask >> 64, mask & u128::from(u64::MAX)].map(|half| format!("{half:#x}ULL"));
            format!("add_address({}, {key}.hi & {hi}, {key}.lo & {lo});", id.0)
        }
    }
}

impl Sink for PacketSink<'_, '_> {
    fn writer(&mut self) -> &mut Writer {
        self.out
    }

    fn find(&mut self, id: FindId) {
        let find = self.chain.chain.finds[usize::from(id.0)];
        let call = self.chain.find_call(id);
        let name = format!("uint32_t {}", self.chain.number_name(id));
        let tables = match &self.chain.program.slot(find.slot).contents {
            SlotContents::Tables(names) => names.join(", @"),
            SlotContents::Limits(name) => name.clone(),
        };
        self.out.assign(&name, &call, &format!(" /* @{tables} */"));
        if self.chain.has_labels(id) {
            let (label, slot) = (self.chain.conditions.find_name(id), find.slot.0);
            self.out.line(&format!("uint32_t {label} = WEIR_ENTRY_LABEL({slot}, {});", self.chain.number_name(id)));
            if self.chain.is_answered {
                // A card may answer the tests behind this lookup, which then only counts.
                self.out.line(&format!("(void){label};"));
            }
        }
    }

    fn open_block(&mut self, path: &TestPath<'_>) {
        let mut terms = Vec::new();
        for test in &path.tests {
            self.chain.conditions.terms(test, &mut terms);
        }
        self.out.open_if(&terms);
    }

    fn open_rule(&mut self, _: RuleId, path: &TestPath<'_>) -> bool {
        let is_conditional = !path.tests.is_empty();
        if is_conditional {
            self.open_block(path);
        }
        is_conditional
    }

    fn track(&mut self) {
        let arrival = tracking::arrival(self.chain.chain.direction);
        self.out.line(&format!("track(frame, {arrival});"));
        if let Some(Invalid::Decide(action)) = self.chain.program.tracking.map(|tracking| tracking.invalid) {
            self.refuse("is_refused(packet)", action);
        }
    }

    fn drop_refused(&mut self) {
        self.refuse("packet->l4 == L4_TCP && is_refused(packet)", Action::Drop);
    }

    fn answer(&mut self) {
        let sampled = or_sampled(self.chain, self.sampled);
        self.out.line("if (is_answered())");
        self.out.inner(&format!("return decide(env, ACTION_REPLY, REASON_SYN_COOKIE, packet->len){sampled};"));
    }

    fn count(&mut self, rule: RuleId) {
        self.out.line(&format!("count(env, REASON_RULE + {}, packet->len);", rule.0));
    }

    fn sample(&mut self, rule: RuleId, one_in: u32) {
        let (sampled, below) = (self.sampled.expression(), eval::sample_below(one_in));
        self.out.line(&format!("{sampled} |= sample(env, {}, {below:#x}ULL); /* 1/{one_in} */", rule.0));
    }

    fn limit(&mut self, charge: &Charge) {
        self.out.line(&format!("/* {} */", charge.comment));
        let has_room = self.has_room(charge);
        let exceeding = match &charge.exceeding {
            Exceeding::Decide(verdict, counter) => {
                let (action, sampled) = (action(*verdict), or_sampled(self.chain, self.sampled));
                format!("return decide_exceeding(env, {action}, {counter}, packet->len){sampled};")
            }
            Exceeding::Mark => "packet->flags |= FLAG_EXCEEDED;".to_owned(),
            Exceeding::Ignore => String::new(),
        };
        match &charge.add {
            Some(add) => {
                self.out.open(&format!("if (!{has_room})"));
                self.add(add);
                if !exceeding.is_empty() {
                    self.out.line(&exceeding);
                }
                self.out.close();
            }
            None if exceeding.is_empty() => self.out.line(&format!("{has_room};")),
            None => {
                self.out.line(&format!("if (!{has_room})"));
                self.out.inner(&exceeding);
            }
        }
    }

    fn count_entries(&mut self, find: FindId) {
        let (slot, number) = (self.chain.chain.finds[usize::from(find.0)].slot.0, self.chain.number_name(find));
        let hit = format!("WEIR_ENTRY_HIT(env, {slot}, {number}, packet->len);");
        match self.chain.counted_bit(find) {
            None => self.out.line(&hit),
            Some(bit) => {
                self.out.line(&format!("if (first_hit(packet, {bit}))"));
                self.out.inner(&hit);
            }
        }
    }

    fn add(&mut self, addition: &Addition) {
        self.out.line(&format!("{} /* {} */", add_packet(addition), addition.comment));
    }

    fn slot(&mut self, slot: RuleSlotId, counter: &str) {
        let name = &self.chain.program.rule_slot(slot).name;
        let sampled = or_sampled(self.chain, self.sampled);
        self.out.line(&format!("if (slot_{}_drops(env, packet, frame)) /* {name} */", slot.0));
        self.out.inner(&format!("return decide_by_slot(env, {counter}, packet->len){sampled};"));
    }

    fn verdict(&mut self, rule: RuleId, verdict: Action) {
        let (action, sampled) = (action(verdict), self.sampled.expression());
        self.out.line(&format!("return rule_verdict({action}, {}, {sampled});", rule.0));
    }
}
