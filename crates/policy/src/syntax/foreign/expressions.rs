//! Expressions of nftables that Weir does not have ("PRIMARY EXPRESSIONS" and "CONNTRACK EXPRESSIONS" of `nft(8)`).

use super::row::{Foreign, none, rule};

const DIRECTION: &str = "the direction (`upstream`, `downstream`) says where a packet comes from";
const HOST: &str = "packets of other hosts belong to no process of this one";
const ENGINES: &str = "every engine decides a packet in the same way, by its bytes and by time";
const PROCESS: &str = "sockets";
const FLOW: &str = "`ct state` is the only fact about a flow that rules match; `weir ctl flows` shows the others";
const ORIGINAL: &str =
    "`ip saddr` is the source of the packet itself: write the rule in the direction that opens the flow";

/// Facts about a packet that are not in its bytes. `meta` may come before each of them.
pub(super) const META: &[Foreign] = &[
    rule("protocol", "the field `meta protocol`", "meta protocol ip drop", "ether type ip drop", ""),
    none(
        "priority",
        "priorities of packets",
        "meta priority set 1",
        "Weir forwards packets in their order; `ip dscp` is the priority in the header",
    ),
    none(
        "mark",
        "marks of packets",
        "meta mark set 5",
        "a limit with `exceed mark` marks packets for later rules: `meta exceeded exists`",
    ),
    none("iif", "interfaces in rules", "iif eth0 accept", DIRECTION),
    none("iifname", "interfaces in rules", "iifname \"eth0\" accept", DIRECTION),
    none("iiftype", "interfaces in rules", "iiftype ether accept", DIRECTION),
    none("iifkind", "interfaces in rules", "meta iifkind \"bridge\" accept", DIRECTION),
    none("iifgroup", "interfaces in rules", "iifgroup 5 accept", DIRECTION),
    none("oif", "interfaces in rules", "oif eth0 accept", DIRECTION),
    none("oifname", "interfaces in rules", "oifname \"eth0\" accept", DIRECTION),
    none("oiftype", "interfaces in rules", "oiftype ether accept", DIRECTION),
    none("oifkind", "interfaces in rules", "meta oifkind \"bridge\" accept", DIRECTION),
    none("oifgroup", "interfaces in rules", "oifgroup 5 accept", DIRECTION),
    none("sdif", "interfaces in rules", "meta sdif 5 accept", DIRECTION),
    none("sdifname", "interfaces in rules", "meta sdifname \"eth0\" accept", DIRECTION),
    none("ibrname", "bridges in rules", "ibrname \"br0\" accept", DIRECTION),
    none("obrname", "bridges in rules", "obrname \"br0\" accept", DIRECTION),
    none("ibriport", "bridges in rules", "ibriport \"br0\" accept", DIRECTION),
    none("obriport", "bridges in rules", "obriport \"br0\" accept", DIRECTION),
    none("ibrpvid", "bridges in rules", "meta ibrpvid 5 accept", "`vlan id` is the tag in the packet"),
    none("ibrvproto", "bridges in rules", "meta ibrvproto 8021q accept", "`vlan id` is the tag in the packet"),
    none("ibrhwaddr", "bridges in rules", "meta ibrhwaddr 02:00:5e:00:00:01 accept", DIRECTION),
    none("broute", "bridges in rules", "meta broute set 1", "Weir routes no packets"),
    none("skuid", PROCESS, "skuid 1000 accept", HOST),
    none("skgid", PROCESS, "skgid 1000 accept", HOST),
    none("cgroup", PROCESS, "cgroup 5 accept", HOST),
    none("socket", PROCESS, "socket transparent 1 accept", HOST),
    none(
        "secpath",
        "facts of IPsec",
        "meta secpath exists accept",
        "Weir decrypts no packets; `meta l4proto esp` matches encrypted ones",
    ),
    none(
        "ipsec",
        "facts of IPsec",
        "ipsec in reqid 5 accept",
        "Weir decrypts no packets; `meta l4proto esp` matches encrypted ones",
    ),
    none("rtclassid", "facts of routing", "rtclassid 5 accept", "Weir routes no packets"),
    rule(
        "fib",
        "facts of routing",
        "fib saddr . iif oif missing drop",
        "ip saddr 192.0.2.0/24 drop",
        "in `upstream`, for the protected prefixes; `inside { 192.0.2.0/24 }` does it before all rules",
    ),
    none("nftrace", "traces", "meta nftrace set 1", "`weir why` shows which rules a packet of a capture meets"),
    rule(
        "pkttype",
        "the field `meta pkttype`",
        "meta pkttype multicast drop",
        "ip daddr 224.0.0.0/4 drop",
        "`ip6 daddr ff00::/8` is multicast of IPv6, `ip daddr 255.255.255.255` broadcast",
    ),
    none("cpu", "CPUs in rules", "meta cpu 1 accept", ENGINES),
    none(
        "random",
        "random numbers",
        "meta random < 100 drop",
        "`sample 1/100` copies packets and `limit rate 10kpps` thins them out",
    ),
    none(
        "numgen",
        "random numbers",
        "numgen random mod 10 < 3 drop",
        "`sample 1/100` copies packets and `limit rate 10kpps` thins them out",
    ),
    none(
        "jhash",
        "hashes",
        "jhash ip saddr mod 2 1 accept",
        "a set of prefixes divides addresses: `ip saddr 0.0.0.0/1`",
    ),
    none("symhash", "hashes", "symhash mod 2 1 accept", "a set of prefixes divides addresses: `ip saddr 0.0.0.0/1`"),
    none(
        "time",
        "times in rules",
        "meta time < 5 accept",
        "write a `posture`, which `weir ctl activate` makes active at that time",
    ),
    none(
        "hour",
        "times in rules",
        "meta hour 8-17 accept",
        "write a `posture`, which `weir ctl activate` makes active at that time",
    ),
    none(
        "day",
        "times in rules",
        "meta day \"Monday\" accept",
        "write a `posture`, which `weir ctl activate` makes active at that time",
    ),
    rule(
        "osf",
        "fingerprints of systems",
        "osf name \"Linux\" accept",
        "tcp flags syn ip ttl 33-64 accept",
        "it matches what a fingerprint is made of: TTL, window, flags",
    ),
];

/// Facts about the flow of a packet.
pub(super) const CONNTRACK: &[Foreign] = &[
    rule(
        "ct count",
        "`ct count`",
        "ct count over 20 drop",
        "limit each ip saddr connections 20",
        "it counts the connections of each address",
    ),
    none("ct original", "fields of a flow's directions", "ct original ip saddr 192.0.2.1 drop", ORIGINAL),
    none("ct reply", "fields of a flow's directions", "ct reply proto-dst 22 drop", ORIGINAL),
    none(
        "ct direction",
        "the field `ct direction`",
        "ct direction original accept",
        "`upstream { ... }` and `downstream { ... }` are the directions of packets",
    ),
    rule(
        "ct status",
        "the field `ct status`",
        "ct status assured accept",
        "ct state established accept",
        "a flow is established when it was answered",
    ),
    none("ct mark", "marks of flows", "ct mark 5 accept", FLOW),
    none("ct expiration", "the field `ct expiration`", "ct expiration < 30s drop", FLOW),
    none(
        "ct helper",
        "helpers of connections",
        "ct helper \"ftp\" accept",
        "allow the ports of data connections by rules",
    ),
    none("ct label", "labels of flows", "ct label 5 accept", FLOW),
    none("ct id", "the field `ct id`", "ct id 5 accept", FLOW),
    none(
        "ct l3proto",
        "the field `ct l3proto`",
        "ct l3proto ipv4 accept",
        "`meta nfproto ipv4` is the protocol of the packet",
    ),
    none(
        "ct protocol",
        "the field `ct protocol`",
        "ct protocol tcp accept",
        "`meta l4proto tcp` is the protocol of the packet",
    ),
    none("ct bytes", "counts of flows", "ct bytes > 100000 drop", FLOW),
    none("ct packets", "counts of flows", "ct packets > 100 drop", FLOW),
    none("ct avgpkt", "counts of flows", "ct avgpkt > 1000 drop", FLOW),
    none("ct zone", "zones of flows", "ct zone set 5", "flows with different VLAN tags are different flows"),
    none("ct event", "events of flows", "ct event set new", FLOW),
    none("ct secmark", "security marks", "ct secmark set 5", "packets of other hosts have no security context"),
    none(
        "ct timeout",
        "timeouts of rules",
        "ct timeout set \"t\"",
        "`tracking { timeout established 1d }` sets the timeouts of all flows",
    ),
    none("ct expectation", "expectations", "ct expectation set \"e\"", "allow the ports of data connections by rules"),
];
