use super::*;
use weir_engine::live::{PortNature, PortReading};

/// A port that the kernel does not know, so that only what is given here counts.
fn port(interface: &str, role: Role, longest: Option<u32>, too_long: u64) -> PortStatus {
    PortStatus {
        worker: 0,
        interface: interface.to_owned(),
        role,
        nature: PortNature { kernel_index: 0, longest },
        has_link: true,
        reading: PortReading { rx_too_long: too_long, tx_too_long: 1, ..PortReading::default() },
        knows_missed: true,
    }
}

fn interface(mtu: u32, longest_frame: Option<u32>) -> InterfaceStatus {
    let (interface, side) = ("lower".to_owned(), "lower".to_owned());
    InterfaceStatus { interface, side, state: LinkState::Up, mtu: Some(mtu), longest_frame, too_long: 0, problem: None }
}

#[test]
fn ports_of_workers_and_of_a_hosts_two_sides_are_one_interface() {
    let ports = [
        port("a", Role::Lower, Some(3840), 2),
        port("b", Role::Upper, None, 0),
        port("a", Role::Lower, Some(3840), 3),
        port("d", Role::Divert, None, 0),
    ];
    let shown: Vec<(String, String, u64, Option<u32>)> =
        status(&ports).into_iter().map(|one| (one.interface, one.side, one.too_long, one.longest_frame)).collect();
    let expected = [("a", "lower", 7, Some(3840)), ("b", "upper", 1, None), ("d", "divert", 1, None)];
    let expected = expected.map(|(name, side, lost, longest)| (name.to_owned(), side.to_owned(), lost, longest));
    assert_eq!(shown, expected);
    // The host is the opposite side of its own interface.
    let host = status(&[port("s", Role::Lower, None, 1), port("s", Role::Upper, None, 0)]);
    assert_eq!((host.len(), host[0].side.as_str(), host[0].too_long), (1, "lower", 3));
    let mut unknown = port("p", Role::Lower, None, 0);
    unknown.has_link = false;
    assert_eq!(status(&[unknown])[0].state, LinkState::NoLink);
    let gone = PortNature { kernel_index: i32::MAX as u32, longest: None };
    assert_eq!(status(&[PortStatus { nature: gone, ..port("p", Role::Lower, None, 0) }])[0].state, LinkState::Gone);
}

#[test]
fn an_mtu_is_compared_with_what_the_engine_receives_and_the_opposite_side_sends() {
    let opposite = |mtu: u32| [("upper".to_owned(), Some(mtu)), ("upper2".to_owned(), None)];
    let said = |own: u32, longest, other| problem(&interface(own, longest), opposite(other).iter());
    assert_eq!(said(1500, None, 1500), None);
    assert_eq!(said(3822, Some(3840), 9000), None, "a tag is not a part of the MTU");
    let lost = said(3823, Some(3840), 9000).expect("a byte too many");
    assert!(lost.starts_with("packets of more than 3822 bytes are lost"), "{lost}");
    assert!(lost.contains("restart weir, or set the MTU to 3822 or less"), "{lost}");
    let dropped = said(9000, None, 1500).expect("the other is shorter");
    assert!(dropped.starts_with("packets of more than 1500 bytes, the MTU of upper, are dropped"), "{dropped}");
    assert_eq!(problem(&interface(9000, None), [].iter()), None);
    assert_eq!(problem(&InterfaceStatus { mtu: None, ..interface(0, Some(1)) }, opposite(1).iter()), None);
}

#[test]
fn each_change_is_said_once() {
    let mut one = interface(1500, Some(3840));
    let mut said = Said::nothing(&one);
    assert_eq!(said.see(&one), [""; 0]);
    one.state = LinkState::NoLink;
    assert!(said.see(&one)[0].starts_with("lower has no link: "));
    assert_eq!(said.see(&one), [""; 0]);
    one.state = LinkState::Down;
    assert!(said.see(&one)[0].starts_with("lower was taken down"));
    (one.state, one.mtu) = (LinkState::Up, Some(3000));
    assert_eq!(said.see(&one), ["lower is up again", "lower has MTU 3000 (before: 1500)"]);
    (one.mtu, one.problem) = (Some(9000), Some("too much".to_owned()));
    assert_eq!(said.see(&one), ["lower has MTU 9000 (before: 3000): too much"]);
    one.too_long = 5;
    assert!(said.see(&one)[0].starts_with("lower: 5 packets were lost because they are too long"));
    one.too_long = 5000;
    assert_eq!(said.see(&one), [""; 0], "a flood of them is one message");
    one.problem = None;
    assert_eq!(said.see(&one), ["lower has MTU 9000"]);
    one.too_long = 5001;
    assert!(said.see(&one)[0].starts_with("lower: 1 packets were lost"));
}

#[test]
fn what_is_unusual_at_the_start_is_said() {
    let mut links = Links::default();
    let long = InterfaceStatus { problem: Some("too much".to_owned()), ..interface(9000, None) };
    assert_eq!(links.look(&[interface(1500, None), long.clone()]), ["lower has MTU 9000: too much"]);
    assert_eq!(links.look(&[interface(1500, None), long]), [""; 0]);
}
