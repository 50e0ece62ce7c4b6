//! Commands, objects and settings of nftables that Weir does not have.

use super::row::{Foreign, item, none};

const COMPLETE: &str = "a policy is complete: write the rules that shall apply";
const RUNNING: &str = "`weir ctl` asks and changes a running Weir";
const OBJECTS: &str = "each rule has its own counter and limits; lists of limits are `limits NAME { ... }`";

/// Words that begin a line of a file.
pub(super) const ITEMS: &[Foreign] = &[
    none("add", "commands", "add rule inet filter input drop", COMPLETE),
    none("create", "commands", "create table inet filter", COMPLETE),
    none("delete", "commands", "delete table inet filter", COMPLETE),
    none("destroy", "commands", "destroy table inet filter", COMPLETE),
    none("insert", "commands", "insert rule inet filter input drop", COMPLETE),
    none("replace", "commands", "replace rule inet filter input handle 4 drop", COMPLETE),
    none("flush", "commands", "flush ruleset", COMPLETE),
    none("rename", "commands", "rename chain inet filter a b", COMPLETE),
    none("rule", "commands", "rule inet filter input drop", COMPLETE),
    none("element", "commands", "element inet filter bad { 192.0.2.1 }", RUNNING),
    none("list", "commands", "list ruleset", RUNNING),
    none("get", "commands", "get element inet filter bad { 192.0.2.1 }", RUNNING),
    none("reset", "commands", "reset counters", RUNNING),
    none("monitor", "commands", "monitor trace", RUNNING),
    none("import", "commands", "import ruleset json", COMPLETE),
    none("export", "commands", "export ruleset json", "`weir compile --emit` writes what a policy becomes"),
    none("describe", "commands", "describe tcp dport", "the fields and their values are in docs/reference/language.md"),
    item(
        "chain",
        "chains",
        "chain input { tcp dport 22 accept }",
        "upstream { tcp dport 22 accept; drop }",
        "it has the rules for packets from outside, `downstream { ... }` the others",
    ),
    item(
        "set",
        "sets of their own",
        "set bad { type ipv4_addr; elements = { 192.0.2.1 } }",
        "table bad { type ipv4; elements = { 192.0.2.1 } }",
        "",
    ),
    item(
        "map",
        "maps of their own",
        "map geo { type ipv4_addr : mark; elements = { 192.0.2.1 : 5 } }",
        "table geo { type ipv4 : label; elements = { 192.0.2.1 : HR } }",
        "`ip saddr @geo { HR }` matches a label",
    ),
    none("flowtable", "flow tables", "flowtable f { hook ingress priority 0; }", "every engine of Weir is a fast path"),
    none(
        "ct helper",
        "helpers of connections",
        "ct helper ftp { type \"ftp\" protocol tcp; }",
        "allow the ports of data connections by rules",
    ),
    none(
        "ct timeout",
        "timeout policies",
        "ct timeout t { protocol tcp; }",
        "`tracking { timeout established 1d }` sets the timeouts of all flows",
    ),
    none(
        "ct expectation",
        "expectations",
        "ct expectation e { protocol tcp; }",
        "allow the ports of data connections by rules",
    ),
    none("counter", "named counters", "counter web { packets 0 bytes 0 }", OBJECTS),
    none("quota", "quotas", "quota q { over 5 mbytes }", OBJECTS),
    none("limit", "named limits", "limit l { rate 5/second }", OBJECTS),
    item(
        "synproxy",
        "named SYN proxies",
        "synproxy s { mss 1460 }",
        "tracking { synproxy mss 1460 wscale 7 sack-perm timestamp }",
        "a rule with `tcp synproxy` answers SYNs",
    ),
    none(
        "secmark",
        "security marks",
        "secmark s { \"system_u:object_r:ssh_t:s0\" }",
        "packets of other hosts have no security context",
    ),
    none("tunnel", "tunnel objects", "tunnel t { id 5 }", "Weir forwards packets unchanged"),
    none("redefine", "changing definitions", "redefine A = 5", "use another name"),
    none("undefine", "changing definitions", "undefine A", "use another name"),
];

/// Words that begin a line of a table.
pub(super) const SETTINGS: &[Foreign] = &[
    none(
        "flags",
        "flags of tables",
        "flags interval",
        "prefixes need no `flags interval`; a table that is filled while Weir runs is `dynamic`",
    ),
    none(
        "chain",
        "chains in tables",
        "chain input { accept }",
        "rules go into `upstream { ... }` and `downstream { ... }`",
    ),
    none(
        "set",
        "sets in tables",
        "set bad { type ipv4_addr; }",
        "a Weir table is the set: `table bad { type ipv4; elements = { 192.0.2.1 } }`",
    ),
    none(
        "map",
        "maps in tables",
        "map geo { type ipv4_addr : mark; }",
        "a Weir table is the map: `table geo { type ipv4 : label; file \"geo.csv\" }`",
    ),
    none(
        "typeof",
        "types by expression",
        "typeof ip saddr",
        "write `type ipv4`, `type ipv6`, or one of them with `: label`",
    ),
    none("gc-interval", "the setting `gc-interval`", "gc-interval 10s", "leave it out: entries leave at their timeout"),
    none(
        "auto-merge",
        "the setting `auto-merge`",
        "auto-merge",
        "leave it out: the longest prefix decides, and overlaps are allowed",
    ),
    none("policy", "the setting `policy`", "policy memory", "leave it out: the compiler chooses the layout"),
    none("comment", "comments of tables", "comment \"bad hosts\"", "write `# ...`"),
    none("flowtable", "flow tables", "flowtable f { hook ingress priority 0; }", "every engine of Weir is a fast path"),
    none("quota", "quotas", "quota over 5 mbytes", "a list of limits bounds the bytes a second of each prefix"),
    none(
        "limit",
        "limits in tables",
        "limit rate 5/second",
        "write a list: `limits NAME { elements = { 192.0.2.1 : 5/second } }`",
    ),
    none("ct", "`ct count` in tables", "ct count over 20", "write `limit each ip saddr connections 20` in a rule"),
    none("last", "the setting `last`", "last", "write `counters`: every entry then has the time of its last packet"),
];
