//! Statements of nftables that Weir does not have ("STATEMENTS" of `nft(8)`).

use super::row::{Foreign, none, rule};

/// Words that begin a statement of a rule.
pub(super) const STATEMENTS: &[Foreign] = &[
    none(
        "jump",
        "chains",
        "tcp dport 22 jump ssh_rules",
        "write the rules where they apply; shared sets go into a `define`",
    ),
    none("goto", "chains", "goto other", "write the rules where they apply; shared sets go into a `define`"),
    none(
        "return",
        "chains",
        "tcp dport 22 return",
        "a rule ends with accept, drop or divert, or the next rule follows",
    ),
    none(
        "continue",
        "the verdict `continue`",
        "counter continue",
        "leave it out: the next rule follows if there is no verdict",
    ),
    none(
        "log",
        "logging",
        "log prefix \"telnet\" drop",
        "`counter` counts packets, `sample 1/1000` copies packets to the divert interfaces",
    ),
    rule("reject", "`reject`: a scrubber sends no answers", "tcp dport 25 reject with tcp reset", "drop", ""),
    rule(
        "queue",
        "queues to user space",
        "udp dport 53 queue num 1",
        "divert",
        "it sends packets to the divert interfaces",
    ),
    none(
        "quota",
        "quotas",
        "quota over 100 mbytes drop",
        "`limit rate 80mbit` bounds bytes a second; nothing bounds their sum",
    ),
    none(
        "last",
        "the statement `last`",
        "last drop",
        "a table with `counters` has the time of each entry's last packet",
    ),
    none("snat", "address translation", "snat to 192.0.2.1", "Weir forwards packets unchanged"),
    none("dnat", "address translation", "tcp dport 80 dnat to 192.0.2.1", "Weir forwards packets unchanged"),
    none("masquerade", "address translation", "masquerade", "Weir forwards packets unchanged"),
    none("redirect", "address translation", "tcp dport 80 redirect to :8080", "Weir forwards packets unchanged"),
    none(
        "tproxy",
        "transparent proxies",
        "tcp dport 80 tproxy to :8080",
        "Weir forwards packets unchanged; `tcp synproxy` answers SYNs",
    ),
    none("dup", "copies to other hosts", "dup to 192.0.2.1", "`sample 1/1` copies packets to the divert interfaces"),
    rule("fwd", "forwarding to a device", "fwd to \"eth1\"", "divert", "it sends packets to the divert interfaces"),
    rule("set", "`set` statements", "set add ip saddr @attackers", "add @attackers { ip saddr timeout 10m }", ""),
    none(
        "delete",
        "deletions by rules",
        "delete @attackers { ip saddr }",
        "entries leave by their timeout: `add @NAME { ip saddr timeout 10m }`",
    ),
    none(
        "destroy",
        "deletions by rules",
        "destroy @attackers { ip saddr }",
        "entries leave by their timeout: `add @NAME { ip saddr timeout 10m }`",
    ),
    rule(
        "meter",
        "meters",
        "tcp dport 443 meter web { ip saddr timeout 10s limit rate 100/second } accept",
        "limit each ip saddr 100/second burst 20 packets",
        "it drops what exceeds the rate of each address",
    ),
    rule(
        "flow table",
        "meters",
        "flow table web { ip saddr limit rate over 100/second } drop",
        "limit each ip saddr 100/second",
        "it drops what exceeds the rate of each address",
    ),
    none("flow", "flow tables", "flow add @f", "every engine of Weir is a fast path"),
    none(
        "notrack",
        "the statement `notrack`",
        "udp dport 53 notrack",
        "a packet that is accepted or dropped before `track` and `ct state` costs no flow",
    ),
    none("reset", "changes of packets", "reset tcp option timestamp", "Weir forwards packets unchanged"),
    none("map", "maps of values", "map @m", "write one rule for each value"),
    none("xt", "extensions of iptables", "xt target \"LOG\"", "write the match or statement itself"),
    none("tunnel", "tunnel objects", "tunnel name \"t\"", "Weir forwards packets unchanged"),
    none("secmark", "security marks", "secmark name \"s\"", "packets of other hosts have no security context"),
    none("objref", "named objects", "objref \"x\"", "each rule has its own counter and limits"),
    none("comment", "rule comments", "accept comment \"web\"", "write `# ...`"),
    none("vmap", "maps to verdicts", "vmap @verdicts", "write one rule for each verdict"),
    none(
        "type",
        "chains",
        "type filter hook input priority 0",
        "the rules of `upstream { ... }` and `downstream { ... }` are the chains",
    ),
    none(
        "policy",
        "policies of chains",
        "policy drop",
        "end the direction with `drop`, or write `defaults { no-match drop }`",
    ),
    none(
        "hook",
        "hooks",
        "hook input priority 0",
        "the rules of `upstream { ... }` and `downstream { ... }` are the chains",
    ),
    none(
        "device",
        "devices in rules",
        "device \"eth0\" priority 0",
        "`weir run --lower eth0 --upper eth1` names the interfaces",
    ),
];

/// Words behind the left side of a match.
pub(super) const COMPARISONS: &[Foreign] = &[
    none("vmap", "maps to verdicts", "tcp dport vmap { 22 : accept, 80 : drop }", "write one rule for each verdict"),
    none("map", "maps of values", "ip saddr map { 192.0.2.1 : 5 } drop", "write one rule for each value"),
    none("set", "changes of packets", "ip ttl set 5", "Weir forwards packets unchanged"),
    rule("and", "the operator `and`", "tcp flags and 2 == 2 drop", "tcp flags & syn == syn drop", ""),
    rule("not", "the operator `not`", "tcp dport not 22 drop", "tcp dport != 22 drop", ""),
    none(
        "or",
        "the operator `or`",
        "ip dscp or 1 == 3 drop",
        "`&` is the only operator on a field: `ip dscp & 1 == 1`",
    ),
    none(
        "xor",
        "the operator `xor`",
        "ip dscp xor 1 == 3 drop",
        "`&` is the only operator on a field: `ip dscp & 1 == 1`",
    ),
    none("lshift", "shifts", "ip dscp lshift 1 == 2 drop", "`&` is the only operator on a field: `ip dscp & 1 == 1`"),
    none("rshift", "shifts", "ip dscp rshift 1 == 2 drop", "`&` is the only operator on a field: `ip dscp & 1 == 1`"),
];

/// Words behind the address in `add @NAME { ... }` and `update @NAME { ... }`.
pub(super) const ADDITIONS: &[Foreign] = &[
    rule(
        "limit",
        "limits in the braces of `add`",
        "update @attackers { ip saddr limit rate over 10/second }",
        "limit each ip saddr 10/second exceed add @attackers",
        "it adds the address of what exceeds the rate",
    ),
    rule(
        "ct count",
        "`ct count` in the braces of `add`",
        "add @attackers { ip saddr ct count over 20 } drop",
        "limit each ip saddr connections 20",
        "it drops what opens more connections",
    ),
    none(
        "counter",
        "counters in the braces of `add`",
        "add @attackers { ip saddr counter }",
        "write `counters` in the table: every entry then counts",
    ),
    none(
        "quota",
        "quotas",
        "add @attackers { ip saddr quota over 5 mbytes }",
        "`limit each ip saddr 80mbit` bounds the bytes a second of each address",
    ),
    none(
        "last",
        "the statement `last`",
        "add @attackers { ip saddr last }",
        "a table with `counters` has the time of each entry's last packet",
    ),
    rule(
        "expires",
        "`expires` of entries",
        "add @attackers { ip saddr expires 5m }",
        "add @attackers { ip saddr timeout 5m }",
        "",
    ),
    none(
        "comment",
        "comments of entries",
        "add @attackers { ip saddr comment \"ssh\" }",
        "a table of type `ipv4 : label` has labels, which the policy and lists give",
    ),
];

/// Words behind an element of a table.
pub(super) const ELEMENTS: &[Foreign] = &[
    none(
        "timeout",
        "timeouts of elements",
        "192.0.2.1 timeout 10m",
        "write `dynamic; timeout 10m` in the table: its elements have that timeout",
    ),
    none(
        "expires",
        "timeouts of elements",
        "192.0.2.1 expires 5m",
        "write `dynamic; timeout 10m` in the table: its elements have that timeout",
    ),
    none(
        "comment",
        "comments of elements",
        "192.0.2.1 comment \"office\"",
        "write `# ...`, or a label in a table of type `ipv4 : label`",
    ),
    none(
        "counter",
        "counters of single elements",
        "192.0.2.1 counter packets 0 bytes 0",
        "write `counters` in the table: every entry then counts",
    ),
    none(
        "limit",
        "limits of elements",
        "192.0.2.1 limit rate over 10/second",
        "write a list: `limits NAME { elements = { 192.0.2.1 : 10/second } }` and `ip saddr limit @NAME`",
    ),
    none(
        "quota",
        "quotas",
        "192.0.2.1 quota over 5 mbytes",
        "a list of limits bounds the bytes a second of each address",
    ),
    none(
        "last",
        "the statement `last`",
        "192.0.2.1 last used 5s",
        "write `counters` in the table: every entry then has the time of its last packet",
    ),
    none(
        "ct",
        "`ct count` of elements",
        "192.0.2.1 ct count over 20",
        "write `limit each ip saddr connections 20` in a rule",
    ),
];
