//! What nftables has and Weir has not, each with what to write instead.

/// A word that begins something unsupported in a rule, what it is, and what to do.
type Foreign = (&'static [&'static str], &'static str, &'static str);

const IN_RULES: &[Foreign] = &[
    (
        &["jump", "goto", "return", "continue"],
        "chains",
        "write the rules where they apply; shared sets go into a `define`",
    ),
    (&["ct"], "connection tracking by `ct`", "write `tcp track` to follow TCP connections"),
    (&["log"], "logging", "`counter` counts, `sample 1/1000` copies packets to the divert bundle"),
    (&["reject"], "`reject`: a scrubber answers nothing", "write `drop`"),
    (&["queue"], "queues to user space", "`divert` hands packets to the divert bundle"),
    (&["vmap", "map"], "maps to verdicts", "write one rule for each verdict"),
    (&["quota"], "quotas", "`ip saddr limit @NAME` polices by a list of limits"),
    (&["snat", "dnat", "masquerade", "redirect", "tproxy"], "address translation", "Weir forwards packets unchanged"),
    (
        &["set", "update", "add", "delete"],
        "changing sets from rules",
        "declare the table `dynamic` and fill it from outside",
    ),
    (
        &["notrack", "synproxy", "flow", "dup", "fwd"],
        "this statement",
        "the statements are counter, sample, limit, track, accept, drop, divert",
    ),
    (
        &["iif", "oif", "iifname", "oifname", "fib", "rt", "socket", "osf", "numgen", "jhash", "symhash", "ipsec"],
        "this expression",
        "the direction (`upstream`, `downstream`) says where a packet comes from",
    ),
    (&["comment"], "rule comments", "write `# ...`"),
];

const ON_TOP: &[Foreign] = &[
    (
        &["add", "delete", "flush", "create", "insert", "replace", "list", "destroy"],
        "commands",
        "a policy is a whole: write what shall be in force",
    ),
    (&["chain"], "chains", "rules go into `upstream { ... }` and `downstream { ... }`"),
    (&["set", "map"], "sets of their own", "declare `table NAME { type ipv4; elements = { ... } }`"),
    (&["redefine", "undefine"], "changing definitions", "use another name"),
];

/// Families that nftables writes before a table's name.
pub(super) const FAMILIES: [&str; 5] = ["inet", "bridge", "netdev", "arp", "ip"];

/// What the word is in a rule, and what to write instead.
pub(super) fn in_rule(word: &str) -> Option<(&'static str, &'static str)> {
    find(IN_RULES, word)
}

/// What the word is at the top level, and what to write instead.
pub(super) fn on_top(word: &str) -> Option<(&'static str, &'static str)> {
    find(ON_TOP, word)
}

fn find(list: &[Foreign], word: &str) -> Option<(&'static str, &'static str)> {
    list.iter().find(|(words, ..)| words.contains(&word)).map(|&(_, what, help)| (what, help))
}
