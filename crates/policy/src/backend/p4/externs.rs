//! The extern objects of a program: their mailboxes, their declarations in P4, and the C that they run.

use weir_abi::Layout;

/// What an object is for. The fields are the constants of its C function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Counts packets.
    Counter,
    /// Looks up an IPv4 address in a slot.
    Find4 {
        slot: u16,
        layout: Layout,
    },
    Find6 {
        slot: u16,
        layout: Layout,
    },
    /// The label of an entry of a slot with counters.
    Label {
        slot: u16,
    },
    /// Counts a packet at an entry of a slot.
    Hit {
        slot: u16,
    },
    /// Charges the only bucket of a limiter.
    Limit {
        limiter: u16,
    },
    /// Charges the bucket that a lookup has found.
    LimitFound {
        limiter: u16,
    },
    /// Charges the bucket of an address.
    LimitEach4 {
        limiter: u16,
        mask: u32,
    },
    LimitEach6 {
        limiter: u16,
        mask: u128,
    },
    /// Grants the connection of a packet a seat of its address.
    Connections4 {
        limiter: u16,
        mask: u32,
    },
    Connections6 {
        limiter: u16,
        mask: u128,
    },
    /// Adds an address to a table.
    Add4 {
        adder: u16,
        mask: u32,
    },
    Add6 {
        adder: u16,
        mask: u128,
    },
    /// Decides whether a packet that a rule has just counted is sampled.
    Sample {
        rule: u16,
        below: u64,
    },
    /// Tracks a packet where rules need its state.
    Track,
    /// Tracks an accepted packet, if that has not happened yet, and enters the flow that it opens.
    Tracked,
    /// As `Tracked`, in a policy with a SYN proxy: also makes what leaves in place of the packet.
    Left,
    /// Answers a SYN with a cookie.
    Synproxy,
    /// Counts an accepted packet by its address.
    Observe,
    /// Asks the rules of a slot.
    Slot {
        slot: u16,
    },
    /// Reads bits of the frame.
    Raw {
        byte: u16,
        first: u8,
        bits: u8,
    },
}

/// An extern object.
pub(super) struct Object {
    /// Its name. Its type in SWX has the same name.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// What it is in the policy.
    pub(super) comment: String,
}

/// A field of a mailbox: name, bits, and whether the object writes it.
pub(super) type Mail = (&'static str, u16, bool);

/// A parameter in P4 has the direction of the field.
const fn give(name: &'static str, bits: u16) -> Mail {
    (name, bits, false)
}

const fn take(name: &'static str, bits: u16) -> Mail {
    (name, bits, true)
}

impl Kind {
    /// The name of its type in P4.
    pub(super) fn kind_name(&self) -> &'static str {
        self.declaration().0
    }

    /// The name of its mailbox.
    pub(super) fn mailbox(&self) -> String {
        format!("{}_mail_t", self.kind_name().trim_start_matches("weir_"))
    }

    /// The name of its method in P4.
    pub(super) fn method(&self) -> &'static str {
        self.declaration().1
    }

    /// Parameters of its constructor in P4, with their bits.
    pub(super) fn constants(&self) -> &'static [(&'static str, u16)] {
        self.declaration().2
    }

    /// The fields of its mailbox, in order.
    pub(super) fn mail(&self) -> &'static [Mail] {
        self.declaration().3
    }

    fn declaration(&self) -> (&'static str, &'static str, &'static [(&'static str, u16)], &'static [Mail]) {
        const LENGTH: Mail = give("length", 32);
        const TIME: Mail = give("time", 64);
        const PACKET: Mail = give("packet", 32);
        const WITHIN: Mail = take("within", 8);
        const KEY: Mail = give("address", 32);
        const HI: Mail = give("hi", 64);
        const LO: Mail = give("lo", 64);
        const REASON: Mail = give("reason", 32);
        const NUMBER: Mail = give("number", 32);
        const GIVEN: Mail = give("found", 32);
        const FOUND: Mail = take("found", 32);
        const LABEL: Mail = take("label", 32);
        const SAMPLED: Mail = take("sampled", 8);
        const FROM: Mail = give("from", 8);
        const STATE: Mail = take("flow_state", 8);
        const REFUSED: Mail = take("refused", 16);
        const VERDICT: Mail = give("verdict", 8);
        const DECIDED: Mail = give("reason", 16);
        const DROPS: Mail = take("drops", 8);
        const ANSWERED: Mail = take("answered", 8);
        const REWRITTEN: Mail = take("rewritten", 8);
        const RAW: &[Mail] = &[PACKET, give("offset", 16), take("hi", 64), take("lo", 64), take("present", 8)];
        const MASK6: &[(&str, u16)] = &[("index", 32), ("mask_hi", 64), ("mask_lo", 64)];
        match self {
            Kind::Counter => ("weir_counter", "count", &[], &[REASON, LENGTH]),
            Kind::Find4 { .. } => ("weir_lookup4", "find", &[("slot", 32)], &[KEY, FOUND]),
            Kind::Find6 { .. } => ("weir_lookup6", "find", &[("slot", 32)], &[HI, LO, FOUND]),
            Kind::Label { .. } => ("weir_label", "read", &[("slot", 32)], &[NUMBER, LABEL]),
            Kind::Hit { .. } => ("weir_hit", "count", &[("slot", 32)], &[NUMBER, LENGTH, TIME]),
            Kind::Limit { .. } => ("weir_limit", "charge", &[("index", 32)], &[TIME, LENGTH, WITHIN]),
            Kind::LimitFound { .. } => ("weir_limit_found", "charge", &[("index", 32)], &[GIVEN, TIME, LENGTH, WITHIN]),
            Kind::LimitEach4 { .. } => {
                ("weir_limit_each4", "charge", &[("index", 32), ("mask", 32)], &[KEY, TIME, LENGTH, WITHIN])
            }
            Kind::LimitEach6 { .. } => ("weir_limit_each6", "charge", MASK6, &[HI, LO, TIME, LENGTH, WITHIN]),
            Kind::Connections4 { .. } => ("weir_connections4", "claim", &[("index", 32), ("mask", 32)], &[KEY, WITHIN]),
            Kind::Connections6 { .. } => ("weir_connections6", "claim", MASK6, &[HI, LO, WITHIN]),
            Kind::Add4 { .. } => ("weir_add4", "add", &[("index", 32), ("mask", 32)], &[PACKET, KEY]),
            Kind::Add6 { .. } => ("weir_add6", "add", MASK6, &[PACKET, HI, LO]),
            Kind::Sample { .. } => ("weir_sample", "sample", &[("rule", 32), ("below", 64)], &[SAMPLED]),
            Kind::Track => ("weir_track", "track", &[], &[PACKET, FROM, STATE, REFUSED]),
            Kind::Tracked => ("weir_tracked", "end", &[], &[PACKET, FROM, VERDICT, DECIDED]),
            Kind::Left => ("weir_left", "end", &[], &[PACKET, FROM, VERDICT, DECIDED, REWRITTEN]),
            Kind::Synproxy => ("weir_synproxy", "answer", &[], &[PACKET, ANSWERED]),
            Kind::Observe => ("weir_observe", "count", &[], &[PACKET, FROM, VERDICT, DECIDED]),
            Kind::Slot { .. } => ("weir_slot", "ask", &[("slot", 32)], &[PACKET, LENGTH, DROPS]),
            Kind::Raw { .. } => ("weir_raw", "read", &[("byte", 32), ("first", 32), ("bits", 32)], RAW),
        }
    }

    /// Whether what it does depends on the packets of other flows before it.
    pub(super) fn is_ordered(&self) -> bool {
        match self {
            Kind::Counter
            | Kind::Find4 { .. }
            | Kind::Find6 { .. }
            | Kind::Label { .. }
            | Kind::Raw { .. }
            | Kind::Track
            | Kind::Tracked => false,
            Kind::Hit { .. }
            | Kind::Limit { .. }
            | Kind::LimitFound { .. }
            | Kind::LimitEach4 { .. }
            | Kind::LimitEach6 { .. }
            | Kind::Add4 { .. }
            | Kind::Add6 { .. }
            | Kind::Connections4 { .. }
            | Kind::Connections6 { .. }
            | Kind::Left
            | Kind::Observe
            | Kind::Sample { .. }
            | Kind::Slot { .. }
            | Kind::Synproxy => true,
        }
    }

    /// The values of the constructor's parameters in P4.
    pub(super) fn values(&self) -> Vec<u64> {
        let halves = |mask: u128| [(mask >> 64) as u64, mask as u64];
        match *self {
            Kind::Counter | Kind::Track | Kind::Tracked | Kind::Left | Kind::Synproxy | Kind::Observe => vec![],
            Kind::Slot { slot } => vec![slot.into()],
            Kind::Find4 { slot, .. } | Kind::Find6 { slot, .. } | Kind::Label { slot } | Kind::Hit { slot } => {
                vec![slot.into()]
            }
            Kind::Limit { limiter } | Kind::LimitFound { limiter } => vec![limiter.into()],
            Kind::LimitEach4 { limiter: index, mask }
            | Kind::Connections4 { limiter: index, mask }
            | Kind::Add4 { adder: index, mask } => vec![index.into(), mask.into()],
            Kind::LimitEach6 { limiter: index, mask }
            | Kind::Connections6 { limiter: index, mask }
            | Kind::Add6 { adder: index, mask } => {
                let [hi, lo] = halves(mask);
                vec![index.into(), hi, lo]
            }
            Kind::Sample { rule, below } => vec![rule.into(), below],
            Kind::Raw { byte, first, bits } => vec![byte.into(), first.into(), bits.into()],
        }
    }

    /// The call in C of what it does, with `worker` and `mailbox`.
    pub(super) fn call(&self) -> String {
        let halves = |mask: u128| format!("{:#x}ULL, {:#x}ULL", (mask >> 64) as u64, mask as u64);
        let (function, constants) = match *self {
            Kind::Counter => ("p4_count", String::new()),
            Kind::Find4 { slot, layout } => ("p4_find4", format!("{slot}, {}", find_function(layout))),
            Kind::Find6 { slot, layout } => ("p4_find6", format!("{slot}, {}", find_function(layout))),
            Kind::Label { slot } => ("p4_label", slot.to_string()),
            Kind::Hit { slot } => ("p4_hit", slot.to_string()),
            Kind::Limit { limiter } => ("p4_limit", limiter.to_string()),
            Kind::LimitFound { limiter } => ("p4_limit_found", limiter.to_string()),
            Kind::LimitEach4 { limiter, mask } => ("p4_limit_each4", format!("{limiter}, {mask:#x}U")),
            Kind::LimitEach6 { limiter, mask } => ("p4_limit_each6", format!("{limiter}, {}", halves(mask))),
            Kind::Connections4 { limiter, mask } => ("p4_connections4", format!("{limiter}, {mask:#x}U")),
            Kind::Connections6 { limiter, mask } => ("p4_connections6", format!("{limiter}, {}", halves(mask))),
            Kind::Add4 { adder, mask } => ("p4_add4", format!("{adder}, {mask:#x}U")),
            Kind::Add6 { adder, mask } => ("p4_add6", format!("{adder}, {}", halves(mask))),
            Kind::Track => ("p4_track", String::new()),
            Kind::Tracked => ("p4_tracked", String::new()),
            Kind::Left => ("p4_left", String::new()),
            Kind::Synproxy => ("p4_synproxy", String::new()),
            Kind::Observe => ("p4_observe", String::new()),
            Kind::Slot { slot } => ("p4_slot", slot.to_string()),
            Kind::Sample { rule, below } => ("p4_sample", format!("{rule}, {below:#x}ULL")),
            Kind::Raw { byte, first, bits } => ("p4_raw", format!("{byte}, {first}, {bits}")),
        };
        match constants.as_str() {
            "" => format!("{function}(worker, mailbox)"),
            _ => format!("{function}(worker, mailbox, {constants})"),
        }
    }
}

/// The lookup of a layout in C.
fn find_function(layout: Layout) -> &'static str {
    match layout {
        Layout::Dxr16x4 => "dxr16x4_find",
        Layout::ExactSet => "exact_set_find",
        Layout::ExactSets => "exact_sets_find",
        Layout::ExactSet6 => "exact_set6_find",
        Layout::ExactSets6 => "exact_sets6_find",
        Layout::Range6 => "range6_find",
        Layout::RankLeaf => "rank_leaf_find",
        Layout::RankLeaf6 => "rank_leaf6_find",
        Layout::CountedLeaf => "counted_leaf_find",
        Layout::ExactLeaf => "exact_leaf_find",
        Layout::ExactLeaf6 => "exact_leaf6_find",
    }
}
