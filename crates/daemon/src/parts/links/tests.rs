use super::*;

fn interface(mtu: u32, longest_frame: Option<u32>) -> InterfaceStatus {
    let (interface, side) = ("lower".to_owned(), "lower".to_owned());
    InterfaceStatus { interface, side, state: LinkState::Up, mtu: Some(mtu), longest_frame, too_long: 0, problem: None }
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
