//! Meetings of packets of proxied flows. The cookies have the key of replays, which is known.

use super::{Decided, Meeting, Scene, TIME_NS, agree, in_kernel, key, policy, raw, serial, with_workers};
use crate::conntrack_flows::{ACK, Dice, FIN, RST, SYN, Segment};
use weir_abi::cookie::{self, REPLAY_SECRET, Request, StampedOptions, epoch, mss_index};
use weir_abi::flow::Arrival;
use weir_test_support::Packet;

const PROXIED: Scene = Scene { policy: POLICY, kinds: KINDS, meeting };

/// Both chains answer SYNs, because the packets of a client come on both CPUs.
const POLICY: &str = "tracking { size 1024; embryonic 100%; synproxy mss 1460 wscale 7 sack-perm timestamp }
upstream {
  tcp synproxy
  ct state new accept
  ct state established accept
  drop
}
downstream {
  tcp synproxy
  ct state new accept
  ct state established accept
  drop
}
";

/// A client and a server. Each knows its own numbers; the client takes the cookie for the number of the server.
struct Ends {
    flow: u32,
    /// The numbers of the SYN of the client and of the SYN-ACK of the server.
    client: u32,
    server: u32,
    /// The shift of the client's windows, if the client has timestamps.
    scale: Option<u8>,
}

/// The options of all SYNs besides timestamps.
const MSS: u16 = 1300;
/// The server's shift, and the one that the proxy tells.
const SERVER_SCALE: u8 = 9;
const TOLD_SCALE: u8 = 7;
/// Timestamps of the client and of the server.
const CLIENT_STAMP: u32 = 1000;
const SERVER_STAMP: u32 = 7_000_000;

impl Ends {
    fn segment(&self, from: usize, (flags, seq, ack): (u8, u32, u32), options: Vec<u8>, payload: u16) -> Packet {
        raw(Segment { from, flags, seq, ack, window: 8000, options, payload }.packet(self.flow))
    }

    fn stamps(&self, value: u32, echo: u32) -> Vec<u8> {
        let stamps = [&[1, 1, 8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat();
        self.scale.map_or(vec![], |_| stamps)
    }

    /// The timestamp of the answer to a SYN.
    fn told(&self) -> u32 {
        let kept = StampedOptions { scale: self.scale.unwrap_or(15), told_scale: TOLD_SCALE, sack: true };
        kept.timestamp(TIME_NS)
    }

    fn cookie(&self, isn: u32) -> u32 {
        let syn = self.syn(isn);
        let request = Request { key: key(&syn.bytes), client: Arrival::Outside.side(), isn };
        cookie::make(REPLAY_SECRET, &request, epoch(TIME_NS), mss_index(MSS))
    }

    fn syn(&self, isn: u32) -> Packet {
        let offer = self.scale.map_or(vec![], |scale| vec![4, 2, 1, 1, 1, 3, 3, scale]);
        let mss = [&[2, 4], &MSS.to_be_bytes()[..]].concat();
        self.segment(0, (SYN, isn, 0), [mss, offer, self.stamps(CLIENT_STAMP, 0)].concat(), 0)
    }

    /// The ACK that returns the cookie for a SYN, some numbers later.
    fn returned(&self, isn: u32, sent: u32) -> Packet {
        let ack = self.cookie(isn).wrapping_add(1);
        self.segment(0, (ACK, isn.wrapping_add(sent), ack), self.stamps(CLIENT_STAMP + 5, self.told()), 0)
    }

    fn syn_ack(&self, server: u32) -> Packet {
        let offer = self.scale.map_or(vec![], |_| vec![4, 2, 1, 1, 1, 3, 3, SERVER_SCALE]);
        let options = [vec![2, 4, 5, 180], offer, self.stamps(SERVER_STAMP, CLIENT_STAMP + 5)].concat();
        self.segment(1, (SYN | ACK, server, self.client.wrapping_add(1)), options, 0)
    }

    /// A segment behind the handshake: so many bytes were sent and are acknowledged.
    fn of(&self, from: usize, flags: u8, (sent, acked): (u32, u32), payload: u16) -> Packet {
        let stamps = [self.stamps(CLIENT_STAMP + 9, self.told() + 3), self.stamps(SERVER_STAMP + 3, CLIENT_STAMP + 9)];
        let numbers = match from {
            0 => [self.client, self.cookie(self.client)],
            _ => [self.server, self.client],
        };
        let [seq, ack] = numbers.map(|number| number.wrapping_add(1));
        let ack = if flags & ACK == 0 { 0 } else { ack.wrapping_add(acked) };
        let [of_client, of_server] = stamps;
        self.segment(from, (flags, seq.wrapping_add(sent), ack), if from == 0 { of_client } else { of_server }, payload)
    }
}

/// Number of kinds of [`meeting`].
const KINDS: usize = 23;

fn meeting(kind: usize, flow: u32, dice: &mut Dice) -> Meeting {
    // Some numbers wrap around.
    let mut number = || if dice.one_in(2) { 0_u32.wrapping_sub(dice.below(600) as u32) } else { dice.next() as u32 };
    let (client, server) = (number(), number());
    let scale = (!dice.one_in(3)).then(|| dice.below(15) as u8);
    let ends = Ends { flow, client, server, scale };
    let e = &ends;
    let syn = || vec![e.syn(client)];
    let waits = || [syn(), vec![e.returned(client, 1)]].concat();
    let answered = || [waits(), vec![e.syn_ack(server)]].concat();
    let ack = || e.of(0, ACK, (0, 0), 0);
    let with = |more: Vec<Packet>| [answered(), vec![ack()], more].concat();
    let open = || with(vec![]);
    // The client's next connection.
    let next = client.wrapping_add(70_000);
    let ended = |end: Vec<Packet>| with([end, vec![e.syn(next)]].concat());
    let fins = || {
        let (first, second) = (e.of(0, FIN | ACK, (0, 0), 0), e.of(1, FIN | ACK, (0, 1), 0));
        ended(vec![first, second, e.of(0, ACK, (1, 1), 0)])
    };
    let (name, before, meet) = match kind {
        0 => ("the cookie twice", syn(), [e.returned(client, 1), e.returned(client, 1)]),
        1 => ("the cookie and a probe of the window", syn(), [e.returned(client, 1), e.returned(client, 0)]),
        2 => ("the cookie again and the SYN-ACK", waits(), [e.returned(client, 1), e.syn_ack(server)]),
        3 => ("the SYN-ACK twice", waits(), [e.syn_ack(server), e.syn_ack(server)]),
        4 => ("two SYN-ACKs", waits(), [e.syn_ack(server), e.syn_ack(server.wrapping_add(5))]),
        5 => ("the SYN again and the SYN-ACK", waits(), [e.syn(client), e.syn_ack(server)]),
        6 => ("another SYN and the SYN-ACK", waits(), [e.syn(next), e.syn_ack(server)]),
        7 => ("the cookie again and a refusal", waits(), [e.returned(client, 1), e.of(1, RST | ACK, (0, 0), 0)]),
        8 => ("a reset of the client and the SYN-ACK", waits(), [e.of(0, RST, (0, 0), 0), e.syn_ack(server)]),
        9 => ("the end of the handshake and the SYN-ACK again", answered(), [ack(), e.syn_ack(server)]),
        10 => ("the end of the handshake and data", answered(), [ack(), e.of(1, ACK, (0, 0), 20)]),
        11 => ("the end of the handshake twice", answered(), [ack(), ack()]),
        12 => ("data of both sides", open(), [e.of(0, ACK, (0, 0), 100), e.of(1, ACK, (0, 0), 300)]),
        13 => (
            "data and its acknowledgement",
            with(vec![e.of(0, ACK, (0, 0), 500)]),
            [e.of(0, ACK, (500, 0), 500), e.of(1, ACK, (0, 500), 0)],
        ),
        14 => ("FINs of both sides", open(), [e.of(0, FIN | ACK, (0, 0), 0), e.of(1, FIN | ACK, (0, 0), 0)]),
        15 => ("a reset and data", open(), [e.of(0, RST, (0, 0), 0), e.of(1, ACK, (0, 0), 40)]),
        16 => ("a SYN in a connection and data", open(), [e.syn(next), e.of(1, ACK, (0, 0), 20)]),
        17 => ("the next cookie twice", fins(), [e.returned(next, 1), e.returned(next, 1)]),
        18 => ("the next cookie and an old ACK", fins(), [e.returned(next, 1), e.of(1, ACK, (1, 1), 0)]),
        19 => (
            "the next cookie and data behind a reset",
            ended(vec![e.of(0, RST, (0, 0), 0)]),
            [e.returned(next, 1), e.of(1, ACK, (0, 0), 40)],
        ),
        20 => ("the cookie and an early SYN-ACK", syn(), [e.returned(client, 1), e.syn_ack(server)]),
        21 => ("the SYN again and the cookie", syn(), [e.syn(client), e.returned(client, 1)]),
        _ => ("the same SYN twice", vec![], [e.syn(client), e.syn(client)]),
    };
    let after = Some([e.of(0, ACK, (0, 0), 10), e.of(1, ACK, (0, 0), 10)]);
    Meeting { name, before, meet, after }
}

/// The state of the flow after both serial orders, and how many packets leave changed: of those that meet, and of those
/// afterwards.
#[test]
fn meetings_are_what_they_are_called() {
    let expected: [(&str, &str, &str); KINDS] = [
        ("the cookie twice", "syn-sent 2+1", "syn-sent 2+1"),
        ("the cookie and a probe of the window", "syn-sent 2+1", "syn-sent 2+1"),
        ("the cookie again and the SYN-ACK", "syn-recv 2+2", "established 2+2"),
        ("the SYN-ACK twice", "syn-recv 2+2", "syn-recv 2+2"),
        ("two SYN-ACKs", "syn-recv 2+2", "syn-recv 2+2"),
        ("the SYN again and the SYN-ACK", "syn-recv 2+2", "syn-recv 2+2"),
        ("another SYN and the SYN-ACK", "syn-recv 2+2", "syn-recv 2+2"),
        ("the cookie again and a refusal", "none 2+1", "syn-sent 2+1"),
        ("a reset of the client and the SYN-ACK", "none 1+1", "closed 2+2"),
        ("the end of the handshake and the SYN-ACK again", "established 2+2", "established 2+2"),
        ("the end of the handshake and data", "established 2+2", "established 2+2"),
        ("the end of the handshake twice", "established 2+2", "established 2+2"),
        ("data of both sides", "established 2+2", "established 2+2"),
        ("data and its acknowledgement", "established 2+2", "established 2+2"),
        ("FINs of both sides", "last-ack 2+2", "last-ack 2+2"),
        ("a reset and data", "closed 2+2", "closed 2+2"),
        ("a SYN in a connection and data", "established 2+2", "established 2+2"),
        ("the next cookie twice", "syn-sent 2+1", "syn-sent 2+1"),
        ("the next cookie and an old ACK", "syn-sent 1+1", "syn-sent 2+1"),
        ("the next cookie and data behind a reset", "syn-sent 1+1", "syn-sent 2+1"),
        ("the cookie and an early SYN-ACK", "syn-recv 2+2", "syn-sent 1+1"),
        ("the SYN again and the cookie", "syn-sent 2+1", "syn-sent 2+1"),
        ("the same SYN twice", "none 2+1", "none 2+1"),
    ];
    let policy = policy(&PROXIED);
    for (kind, (name, one, other)) in expected.into_iter().enumerate() {
        let mut dice = Dice::new(kind as u64);
        let meetings: Vec<Meeting> = (0..8).map(|flow| meeting(kind, flow, &mut dice)).collect();
        for (first, expected) in [one, other].into_iter().enumerate() {
            for outcome in serial(&policy, &meetings, first) {
                let changed = |decided: &[Decided]| decided.iter().filter(|(_, leaves)| leaves.is_some()).count();
                let state = outcome.flow.map_or("none", |flow| flow.state.name());
                let found = format!("{state} {}+{}", changed(&outcome.met), changed(&outcome.after));
                assert_eq!((meetings[0].name, found.as_str()), (name, expected), "CPU {first} first");
            }
        }
    }
}

#[test]
fn two_cpus_in_the_kernel_agree_with_a_serial_order_on_proxied_flows() {
    in_kernel(&PROXIED, agree);
}

#[test]
fn two_workers_agree_with_a_serial_order_on_proxied_flows() {
    with_workers(&PROXIED, agree);
}
