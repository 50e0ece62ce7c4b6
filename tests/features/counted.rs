//! A list of so many limits that their labels are counted instead of stored: each prefix has its own bucket in every
//! engine.

use crate::engines::{Engines, load};
use std::fmt::Write;
use std::net::Ipv4Addr;
use weir_abi::{Action, Layout};

const POLICY: &str =
    "limits many { file \"many.csv\" }\nupstream { ip saddr limit @many; accept }\ndownstream { accept }\n";

/// Whether the /18 with index `net` has a limit.
fn is_limited(net: u32) -> bool {
    !net.is_multiple_of(5)
}

#[test]
fn each_of_many_prefixes_has_its_own_bucket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let addr = |net: u32, host: u32| Ipv4Addr::from(net << 14 | host);
    let mut list = String::new();
    for net in (0..1 << 18).filter(|&net| is_limited(net)) {
        let _ = writeln!(list, "{}/18,1,1", addr(net, 0));
    }
    // Nested prefixes with another rate, whose labels are out of order.
    list.push_str("10.1.66.0/24,2,1\n10.1.67.0/24,2,1\n");
    std::fs::write(folder.path().join("many.csv"), list).expect("the list can be written");
    std::fs::write(folder.path().join("many.weir"), POLICY).expect("the policy can be written");
    let policy = load(&folder.path().join("many.weir")).expect("the policy is right");
    assert_eq!(policy.program.slots[0].layout, Layout::CountedLeaf);
    assert_eq!(policy.images().expect("the images can be built")[0].layout(), Layout::CountedLeaf);

    // Two packets from each source: the second one exceeds the limit, if there is one.
    let nets = (0..1 << 18).step_by(1021).chain(0x0a01 << 2..0x0a02 << 2);
    let mut sources: Vec<(Ipv4Addr, bool)> =
        nets.map(|net| (addr(net, (net * 37) & 0x3fff), is_limited(net))).collect();
    sources.extend(["10.1.66.200", "10.1.67.1"].map(|source| (source.parse().expect("an address"), true)));
    let mut lines = String::new();
    for (source, _) in &sources {
        let line = format!("eth / ip saddr={source} / udp / at=0\n");
        lines.push_str(&line);
        lines.push_str(&line);
    }
    let packets = weir_test_support::packets(&lines).expect("the packets are right");
    let decided = Engines::load(&policy).and_then(|mut engines| engines.agree(&packets)).expect("all agree");
    for ((source, limited), verdicts) in sources.iter().zip(decided.verdicts[0].chunks_exact(2)) {
        let passes = [verdicts[0], verdicts[1]].map(|verdict| verdict.action() == Some(Action::Accept));
        assert_eq!(passes, [true, !limited], "{source}");
    }
}
