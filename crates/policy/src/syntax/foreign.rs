//! nftables syntax that Weir does not support, each with what to write instead.

/// Keywords of an unsupported feature, its name, and the help.
type Foreign = (&'static [&'static str], &'static str, &'static str);

const IN_RULES: &[Foreign] = &[
    (
        &["jump", "goto", "return", "continue"],
        "chains",
        "write the rules where they apply; shared sets go into a `define`",
    ),
    (&["log"], "logging", "`counter` counts packets, `sample 1/1000` copies packets to the divert interfaces"),
    (&["reject"], "`reject`: a scrubber sends no answers", "write `drop`"),
    (&["queue"], "queues to user space", "`divert` sends packets to the divert interfaces"),
    (&["vmap", "map"], "maps to verdicts", "write one rule for each verdict"),
    (&["quota"], "quotas", "`ip saddr limit @NAME` applies a list of limits"),
    (&["snat", "dnat", "masquerade", "redirect", "tproxy"], "address translation", "Weir forwards packets unchanged"),
    (&["set"], "`set` statements", "write `add @NAME { ip saddr timeout 10m }` or `update @NAME { ... }`"),
    (&["delete"], "deletions by rules", "entries leave by their timeout: `add @NAME { ip saddr timeout 10m }`"),
    (
        &["notrack", "flow", "dup", "fwd"],
        "this statement",
        "the statements are counter, sample, limit, add, update, track, synproxy, accept, drop, divert",
    ),
    (
        &["iif", "oif", "iifname", "oifname", "fib", "rt", "socket", "osf", "numgen", "jhash", "symhash", "ipsec"],
        "this expression",
        "the direction (`upstream`, `downstream`) says where a packet comes from",
    ),
    (&["comment"], "rule comments", "write `# ...`"),
];

const AT_TOP_LEVEL: &[Foreign] = &[
    (
        &["add", "delete", "flush", "create", "insert", "replace", "list", "destroy"],
        "commands",
        "a policy is complete: write the rules that shall apply",
    ),
    (&["chain"], "chains", "rules go into `upstream { ... }` and `downstream { ... }`"),
    (&["set", "map"], "sets of their own", "declare `table NAME { type ipv4; elements = { ... } }`"),
    (&["redefine", "undefine"], "changing definitions", "use another name"),
];

/// Families that nftables allows before the name of a table.
pub(super) const FAMILIES: [&str; 5] = ["inet", "bridge", "netdev", "arp", "ip"];

/// The name of the feature that a word begins in a rule, and the help.
pub(super) fn in_rule(word: &str) -> Option<(&'static str, &'static str)> {
    find(IN_RULES, word)
}

/// The name of the feature that a word begins at the top level, and the help.
pub(super) fn at_top_level(word: &str) -> Option<(&'static str, &'static str)> {
    find(AT_TOP_LEVEL, word)
}

fn find(list: &[Foreign], word: &str) -> Option<(&'static str, &'static str)> {
    list.iter().find(|(words, ..)| words.contains(&word)).map(|&(_, what, help)| (what, help))
}
