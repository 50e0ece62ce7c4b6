//! The walk over the rules of a program, which makes the controls of a pipeline.

use super::externs::{Kind, Object};
use super::fields::{self, Meta, NONE};
use super::model::{Assign, Control, Operator, Pipeline, Place, Source, Step, Term, Value};
use super::parser;
use crate::backend::c::{chain_symbols, rules};
use crate::field::{Field, Guard, Raw, RawBase, Subject};
use crate::ir::{
    AdderId, Chain, Effect, Exceed, Fallback, Find, FindId, Invalid, LimiterId, LimiterKind, Node, Program, RuleId,
    RuleSlotId, Slot, TableKind, Test, ValueSet, Wanted, eval,
};
use weir_abi::packet::{L3, L4};
use weir_abi::slot::VERDICT;
use weir_abi::{Action, Family, Reason, Verdict};

/// The pipeline of an optimised program.
pub(super) fn pipeline(program: &Program) -> Pipeline {
    let mut walk = Walk { program, objects: vec![] };
    walk.object("counts".to_owned(), Kind::Counter, "counters of reasons and rules");
    let names = chain_symbols(program);
    let controls = program.chains.iter().zip(names).map(|(chain, name)| walk.control(chain, name)).collect();
    let last = walk.last();
    Pipeline {
        last,
        name: program.name.clone(),
        headers: fields::headers(),
        metadata: vec![],
        ingress: before_rules(program),
        controls,
        objects: walk.objects,
        states: parser::states(),
        counters: program.counters(),
    }
}

/// Decides the packets that bypass the rules.
fn before_rules(program: &Program) -> Vec<Step> {
    let defaults = &program.defaults;
    let decided =
        |term: Term, action, reason: Source| Step::If { terms: vec![term], body: decide(action, reason).into() };
    let malformed = Term::is_not(Meta::Reason.load(), NONE.into());
    let mut steps = vec![decided(malformed, defaults.malformed, Source::Load(Meta::Reason.load()))];
    let cases = [
        (Term::is(Meta::L3.load(), L3::Arp as u64), defaults.arp, Reason::ARP),
        (Term::is(Meta::L3.load(), L3::None as u64), defaults.not_ip, Reason::NOT_IP),
        (Term::is_not(Meta::Fragment.load(), 0), defaults.fragment, Reason::FRAGMENT),
        (Term::is_not(Meta::Options.load(), 0), defaults.ip_options, Reason::IP_OPTIONS),
    ];
    for (term, fallback, reason) in cases {
        if let Fallback::Decide(action) = fallback {
            steps.push(decided(term, action, Source::Constant(reason.0.into())));
        }
    }
    steps
}

struct Walk<'a> {
    program: &'a Program,
    objects: Vec<Object>,
}

/// A result of a find in the metadata.
fn numbered(name: &'static str, bits: u16, find: FindId) -> Place {
    Place::numbered(name, find.0, bits)
}

/// What a find has found: a label, bits of sets, or the number of an entry.
fn found(find: FindId) -> Place {
    numbered("found", 32, find)
}

/// The number of the entry that a find has found, in a slot with counters.
fn entry(slot: &Slot, find: FindId) -> Place {
    if slot.counted == Some(TableKind::Labels) { numbered("entry", 32, find) } else { found(find) }
}

/// Whether the packet was counted at the entry that a find has found.
fn hit(find: FindId) -> Place {
    numbered("hit", 8, find)
}

fn set(to: &Place, value: u64) -> Step {
    Step::Assign(Assign::set(to, Source::Constant(value)))
}

/// The value of a field as arguments: one, or the two halves of an IPv6 address.
fn arguments(field: Field) -> Vec<Source> {
    match fields::value(field) {
        Value::Narrow(load) => vec![Source::Load(load)],
        Value::Wide(hi, lo) => vec![Source::Load(hi), Source::Load(lo)],
    }
}

/// What the arrival header says of a packet.
mod arrival {
    use super::{Place, Source};

    pub(super) fn flags() -> Place {
        Place::header("h.arrival.flags", 16)
    }

    pub(super) fn packet() -> Source {
        Source::Load(Place::header("h.arrival.packet", 32).load())
    }

    /// The side of arrival: chains of both directions take turns, upstream first.
    pub(super) fn from() -> Source {
        Source::Load(Place::header("h.arrival.chain", 16).load().masked(1))
    }

    pub(super) fn time() -> Source {
        Source::Load(Place::header("h.arrival.time", 64).load())
    }

    pub(super) fn length() -> Source {
        Source::Load(Place::header("h.arrival.length", 32).load())
    }
}

/// What one chain adds to the walk.
struct ChainWalk<'w, 'a> {
    walk: &'w mut Walk<'a>,
    chain: &'a Chain,
    /// The finds at whose entries several rules count. A packet is counted once.
    shared: Vec<FindId>,
    /// Whether any rule tests `meta exceeded`.
    marks: bool,
}

impl<'a> Walk<'a> {
    /// The index of an object, which is made if it is not known.
    fn object(&mut self, name: String, kind: Kind, comment: &str) -> usize {
        let known = self.objects.iter().position(|known| known.name == name);
        known.unwrap_or_else(|| {
            self.objects.push(Object { name, kind, comment: comment.to_owned() });
            self.objects.len() - 1
        })
    }

    /// The tracker and `observe` see how each packet was decided.
    fn last(&mut self) -> Vec<Step> {
        let (verdict, reason) = (Place::header("h.arrival.verdict", 8), Place::header("h.arrival.reason", 16));
        let decided = [verdict, reason].map(|place| Source::Load(place.load()));
        let inputs: Vec<Source> = [arrival::packet(), arrival::from()].into_iter().chain(decided).collect();
        let mut steps = Vec::new();
        if self.program.rewrites() {
            let object = self.object("left".to_owned(), Kind::Left, "flows of accepted packets, and what leaves");
            let outputs = vec![Meta::Rewritten.place()];
            steps.push(Step::Call { object, inputs: inputs.clone(), outputs });
            steps.push(flag(Meta::Rewritten, Verdict::REWRITTEN));
        } else if self.program.tracking.is_some() {
            let object = self.object("tracked".to_owned(), Kind::Tracked, "flows of accepted packets");
            steps.push(Step::Call { object, inputs: inputs.clone(), outputs: vec![] });
        }
        if self.program.observe.is_some() {
            let object = self.object("observe".to_owned(), Kind::Observe, "accepted packets by address");
            steps.push(Step::Call { object, inputs, outputs: vec![] });
        }
        steps
    }

    fn control(&mut self, chain: &'a Chain, name: String) -> Control {
        let program = self.program;
        let nodes = &chain.tree.nodes;
        let mut steps = Vec::new();
        let marks = tests_marks(nodes);
        if marks {
            steps.push(set(&Meta::Exceeded.place(), 0));
        }
        let shared = rules::counts(program, nodes).into_iter().filter(|(_, rules)| *rules > 1);
        let shared: Vec<FindId> = shared.map(|(find, _)| find).collect();
        steps.extend(shared.iter().map(|find| set(&hit(*find), 0)));
        ChainWalk { walk: self, chain, shared, marks }.block(nodes, &mut steps);
        if !rules::ends(program, nodes) {
            steps.extend(decide(program.defaults.no_match, Source::Constant(Reason::NO_MATCH.0.into())));
        }
        Control { name, steps }
    }
}

/// Sets a flag of the verdict if an object has answered other than 0.
fn flag(answer: Meta, flag: u32) -> Step {
    let to = arrival::flags();
    let set = Assign { to, operator: Operator::Or, from: Source::Constant(flag.into()) };
    Step::If { terms: vec![Term::is_not(answer.load(), 0)], body: vec![Step::Assign(set)] }
}

/// Whether a test reads `meta exceeded`.
fn tests_marks(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::When { test, body } => test.depends_on_effects() || tests_marks(body),
        Node::Find(_) | Node::Rule(_) | Node::Track => false,
    })
}

/// Counts a packet by a built-in reason, and decides it.
fn decide(action: Action, reason: Source) -> [Step; 2] {
    [Step::Count(reason.clone()), Step::Decide { action, reason }]
}

/// Decides a packet that the tracker refuses, if some more terms hold.
fn refuse(mut terms: Vec<Term>, action: Action) -> Step {
    terms.push(Term::is_not(Meta::Refused.load(), 0));
    Step::If { terms, body: decide(action, Source::Load(Meta::Refused.load())).into() }
}

impl ChainWalk<'_, '_> {
    fn block(&mut self, nodes: &[Node], steps: &mut Vec<Step>) {
        for node in nodes {
            match node {
                Node::Find(id) => self.find(*id, steps),
                Node::Track => self.track(steps),
                Node::Rule(id) => self.rule(*id, steps),
                Node::When { test, body } => self.when(test, body, steps),
            }
        }
    }

    /// Tests, and the tests that are alone in the body, as one condition.
    fn when(&mut self, test: &Test, mut body: &[Node], steps: &mut Vec<Step>) {
        let (mut tests, mut terms) = (vec![test], Vec::new());
        while let [Node::When { test, body: deeper }] = body {
            tests.push(test);
            body = deeper;
        }
        let mut outer = Vec::new();
        for test in tests {
            // Raw bits are read by a step, which ends a condition.
            if let Test::Value { subject: Subject::Raw(raw), .. } = test {
                outer.push((std::mem::take(&mut terms), self.read_raw(*raw)));
                terms.push(Term::is(Meta::Present.load(), 1));
            }
            terms.extend(self.term(test));
        }
        let mut inner = Vec::new();
        self.block(body, &mut inner);
        let mut nested = vec![Step::If { terms, body: inner }];
        for (terms, read) in outer.into_iter().rev() {
            nested.insert(0, read);
            if !terms.is_empty() {
                nested = vec![Step::If { terms, body: nested }];
            }
        }
        steps.extend(nested);
    }

    fn term(&self, test: &Test) -> Option<Term> {
        match test {
            Test::Guard(guard) => guard_term(*guard),
            Test::Value { subject, mask, set, negated } => {
                let value = match subject {
                    Subject::Field(field) => fields::value(*field),
                    Subject::Raw(raw) if raw.bits > 64 => Value::Wide(Meta::RawHi.load(), Meta::RawLo.load()),
                    Subject::Raw(_) => Value::Narrow(Meta::RawLo.load()),
                    Subject::Card(_) => unreachable!("compiler bug: the caller refuses a card's answers"),
                };
                let value = match (value, mask) {
                    (value, None) => value,
                    (Value::Narrow(load), Some(mask)) => Value::Narrow(load.masked(*mask as u64)),
                    (Value::Wide(hi, lo), Some(mask)) => {
                        Value::Wide(hi.masked((mask >> 64) as u64), lo.masked(*mask as u64))
                    }
                };
                Some(Term::In { value, set: set.clone(), negated: *negated })
            }
            Test::Found { find, wanted, negated } => {
                let load = found(*find).load();
                let (load, set, negated) = match wanted {
                    Wanted::Any => (load, ValueSet::new([(0, 0)]), !negated),
                    Wanted::Table(index) => (load.masked(1 << index), ValueSet::new([(0, 0)]), !negated),
                    Wanted::Labels(labels) => {
                        (load, ValueSet::new(labels.iter().map(|label| (label.0.into(), label.0.into()))), *negated)
                    }
                };
                Some(Term::In { value: Value::Narrow(load), set, negated })
            }
        }
    }

    fn read_raw(&mut self, raw: Raw) -> Step {
        let (base, name, offset) = match raw.base {
            RawBase::Link => ("@ll", "ll", Source::Constant(0)),
            RawBase::Network => ("@nh", "nh", Source::Load(Meta::L3Offset.load())),
            RawBase::Transport => ("@th", "th", Source::Load(Meta::L4Offset.load())),
        };
        let (first, bits) = ((raw.offset_bits % 8) as u8, raw.bits);
        // Two bases read alike from another offset.
        let name = format!("raw_{name}_{}_{bits}", raw.offset_bits);
        let comment = format!("{base},{},{bits}", raw.offset_bits);
        let object = self.walk.object(name, Kind::Raw { byte: raw.offset_bits / 8, first, bits }, &comment);
        let outputs = vec![Meta::RawHi.place(), Meta::RawLo.place(), Meta::Present.place()];
        Step::Call { object, inputs: vec![arrival::packet(), offset], outputs }
    }

    fn find(&mut self, id: FindId, steps: &mut Vec<Step>) {
        let Find { slot: slot_id, key } = self.chain.finds[usize::from(id.0)];
        let slot = self.walk.program.slot(slot_id);
        let layout = slot.layout;
        let kind = match slot.family {
            Family::Ipv4 => Kind::Find4 { slot: slot_id.0, layout },
            Family::Ipv6 => Kind::Find6 { slot: slot_id.0, layout },
        };
        let comment = slot_comment(slot);
        let object = self.walk.object(format!("lookup_{}", slot_id.0), kind, &comment);
        let number = entry(slot, id);
        steps.push(Step::Call { object, inputs: arguments(key), outputs: vec![number.clone()] });
        if number != found(id) {
            let object = self.walk.object(format!("label_{}", slot_id.0), Kind::Label { slot: slot_id.0 }, &comment);
            steps.push(Step::Call { object, inputs: vec![Source::Load(number.load())], outputs: vec![found(id)] });
        }
    }

    fn track(&mut self, steps: &mut Vec<Step>) {
        let object = self.walk.object("track".to_owned(), Kind::Track, "states of flows");
        let outputs = vec![Meta::State.place(), Meta::Refused.place()];
        steps.push(Step::Call { object, inputs: vec![arrival::packet(), arrival::from()], outputs });
        if let Some(Invalid::Decide(action)) = self.walk.program.tracking.map(|tracking| tracking.invalid) {
            steps.push(refuse(vec![], action));
        }
    }

    fn rule(&mut self, id: RuleId, steps: &mut Vec<Step>) {
        let rule = self.walk.program.rule(id);
        steps.push(Step::Note(format!("{}  {}", rule.at, rule.text)));
        if rule.tracks() {
            steps.extend(guard_term(Guard::Tcp).map(|tcp| refuse(vec![tcp], Action::Drop)));
        }
        if rule.answers() {
            self.answer(steps);
        }
        // What the tracker refuses, and what is answered, comes before the rule counts.
        let alone = rule.effects.iter().filter(|effect| !effect.tracks()).count() == 1;
        steps.push(Step::Match { rule: id, verdict: rule.verdict().filter(|_| alone) });
        for effect in &rule.effects {
            match effect {
                Effect::Sample { one_in } => self.sample(id, *one_in, steps),
                Effect::Limit { limiter, find, add, exceed } => {
                    let charge = self.charge(*limiter, *find);
                    let mut body = Vec::new();
                    body.extend(add.map(|add| self.add(add)));
                    body.extend(self.exceeded(id, *exceed));
                    steps.push(charge);
                    if !body.is_empty() {
                        steps.push(Step::If { terms: vec![Term::is(Meta::Within.load(), 0)], body });
                    }
                }
                Effect::Add { adder } => {
                    let add = self.add(*adder);
                    steps.push(add);
                }
                Effect::Count { find } => self.count_entry(*find, steps),
                Effect::Verdict(_) if alone => {}
                Effect::Verdict(action) => {
                    let reason = Source::Constant(Reason::rule(id.0).0.into());
                    steps.push(Step::Decide { action: *action, reason });
                }
                Effect::Slot(slot) => self.ask(id, *slot, steps),
                Effect::Track | Effect::Synproxy => {}
            }
        }
    }

    fn answer(&mut self, steps: &mut Vec<Step>) {
        let object = self.walk.object("synproxy".to_owned(), Kind::Synproxy, "answers to SYNs");
        let outputs = vec![Meta::Answered.place()];
        steps.push(Step::Call { object, inputs: vec![arrival::packet()], outputs });
        let body = decide(Action::Reply, Source::Constant(Reason::SYN_COOKIE.0.into())).into();
        steps.push(Step::If { terms: vec![Term::is_not(Meta::Answered.load(), 0)], body });
    }

    fn ask(&mut self, rule: RuleId, slot: RuleSlotId, steps: &mut Vec<Step>) {
        let name = &self.walk.program.rule_slot(slot).name;
        let object = self.walk.object(format!("slot_{}", slot.0), Kind::Slot { slot: slot.0 }, &format!("slot {name}"));
        let inputs = vec![arrival::packet(), arrival::length()];
        steps.push(Step::Call { object, inputs, outputs: vec![Meta::Drops.place()] });
        let body = self.end(rule, VERDICT, Reason::SLOT);
        steps.push(Step::If { terms: vec![Term::is_not(Meta::Drops.load(), 0)], body });
    }

    /// What happens to a packet that exceeds a limit, besides additions.
    fn exceeded(&self, rule: RuleId, exceed: Exceed) -> Vec<Step> {
        match exceed.verdict() {
            Some(action) => self.end(rule, action, Reason::LIMIT),
            None if self.marks => vec![set(&Meta::Exceeded.place(), 1)],
            None => vec![],
        }
    }

    /// Decides a packet by a limit or a slot of a rule.
    fn end(&self, rule: RuleId, action: Action, reason: Reason) -> Vec<Step> {
        let program = self.walk.program;
        let index = program.limited().iter().position(|&known| known == (rule, action, reason));
        let index = index.expect("compiler bug: an effect that decides packets is not in `limited`");
        let beside = usize::from(Reason::RULE_BASE) + program.rules.len() + index;
        let mut steps = vec![Step::Count(Source::Constant(beside as u64))];
        steps.extend(decide(action, Source::Constant(reason.0.into())));
        steps
    }

    fn charge(&mut self, limiter: LimiterId, find: Option<FindId>) -> Step {
        let index = limiter.0;
        let program = self.walk.program;
        let (kind, mut inputs, comment) = match (program.limiter(limiter).kind, find) {
            (LimiterKind::Each(each), _) if each.connections().is_some() => {
                let kind = match each.key.family() {
                    Family::Ipv4 => Kind::Connections4 { limiter: index, mask: each.mask() as u32 },
                    Family::Ipv6 => Kind::Connections6 { limiter: index, mask: each.mask() },
                };
                let object = self.walk.object(format!("limit_{index}"), kind, &format!("limit {each}"));
                let outputs = vec![Meta::Within.place()];
                return Step::Call { object, inputs: arguments(each.key), outputs };
            }
            (LimiterKind::Each(each), _) => {
                let kind = match each.key.family() {
                    Family::Ipv4 => Kind::LimitEach4 { limiter: index, mask: each.mask() as u32 },
                    Family::Ipv6 => Kind::LimitEach6 { limiter: index, mask: each.mask() },
                };
                (kind, arguments(each.key), format!("limit {each}"))
            }
            (LimiterKind::Rate(limit), None) => (Kind::Limit { limiter: index }, vec![], format!("limit rate {limit}")),
            (_, None) => (Kind::Limit { limiter: index }, vec![], format!("limit @{}", program.limiter(limiter).name)),
            (_, Some(find)) => (
                Kind::LimitFound { limiter: index },
                vec![Source::Load(found(find).load())],
                format!("limit @{}", program.limiter(limiter).name),
            ),
        };
        inputs.extend([arrival::time(), arrival::length()]);
        let object = self.walk.object(format!("limit_{index}"), kind, &comment);
        Step::Call { object, inputs, outputs: vec![Meta::Within.place()] }
    }

    fn add(&mut self, id: AdderId) -> Step {
        let program = self.walk.program;
        let adder = *program.adder(id);
        let kind = match adder.key.family() {
            Family::Ipv4 => Kind::Add4 { adder: id.0, mask: adder.mask() as u32 },
            Family::Ipv6 => Kind::Add6 { adder: id.0, mask: adder.mask() },
        };
        let comment = format!("{} @{}", adder.kind.name(), program.slot(adder.slot).name());
        let object = self.walk.object(format!("add_{}", id.0), kind, &comment);
        let mut inputs = vec![arrival::packet()];
        inputs.extend(arguments(adder.key));
        Step::Call { object, inputs, outputs: vec![] }
    }

    fn count_entry(&mut self, find: FindId, steps: &mut Vec<Step>) {
        let slot_id = self.chain.finds[usize::from(find.0)].slot;
        let slot = self.walk.program.slot(slot_id);
        let (kind, comment) = (Kind::Hit { slot: slot_id.0 }, slot_comment(slot));
        let object = self.walk.object(format!("hit_{}", slot_id.0), kind, &comment);
        let inputs = vec![Source::Load(entry(slot, find).load()), arrival::length(), arrival::time()];
        let call = Step::Call { object, inputs, outputs: vec![] };
        if self.shared.contains(&find) {
            let body = vec![set(&hit(find), 1), call];
            steps.push(Step::If { terms: vec![Term::is(hit(find).load(), 0)], body });
        } else {
            steps.push(call);
        }
    }

    fn sample(&mut self, rule: RuleId, one_in: u32, steps: &mut Vec<Step>) {
        let kind = Kind::Sample { rule: rule.0, below: eval::sample_below(one_in) };
        let object = self.walk.object(format!("sample_{}", rule.0), kind, &format!("sample 1/{one_in}"));
        steps.push(Step::Call { object, inputs: vec![], outputs: vec![Meta::Sampled.place()] });
        steps.push(flag(Meta::Sampled, Verdict::SAMPLED));
    }
}

/// The tables or limits of a slot.
fn slot_comment(slot: &Slot) -> String {
    let what = if slot.tables().is_empty() { "limits @" } else { "@" };
    format!("{what}{}, {}", slot.name(), slot.layout.name())
}

/// Whether a packet has a header; `None` if there is nothing to test.
fn guard_term(guard: Guard) -> Option<Term> {
    let l3 = |l3: L3| Term::is(Meta::L3.load(), l3 as u64);
    let l4 = |numbers: &[L4]| {
        Term::one_of(Meta::L4.load(), &numbers.iter().map(|number| *number as u64).collect::<Vec<_>>())
    };
    Some(match guard {
        Guard::Any => return None,
        Guard::Vlan => Term::is_not(Meta::Tags.load(), 0),
        Guard::QinQ => Term::is(Meta::Tags.load(), 2),
        Guard::Ipv4 => l3(L3::Ipv4),
        Guard::Ipv6 => l3(L3::Ipv6),
        Guard::Ip => Term::one_of(Meta::L3.load(), &[L3::Ipv4 as u64, L3::Ipv6 as u64]),
        Guard::Tcp => l4(&[L4::Tcp]),
        Guard::Udp => l4(&[L4::Udp]),
        Guard::Icmp => l4(&[L4::Icmp]),
        Guard::Icmp6 => l4(&[L4::Icmp6]),
        Guard::Ports => l4(&[L4::Tcp, L4::Udp, L4::Ports]),
        Guard::Transport => Term::is_not(Meta::L4.load(), L4::None as u64),
    })
}
