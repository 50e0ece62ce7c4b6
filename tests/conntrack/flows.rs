//! Generated flows: two hosts that talk TCP over a network that loses, doubles and reorders segments, and an attacker
//! who forges some.

#[path = "packets.rs"]
pub mod packets;

use packets::{Host, TCP, ip};

/// A deterministic generator (SplitMix64).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One time in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }
}

/// A segment of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// 0: from the host that opens the connection.
    pub from: Host,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: u16,
}

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;

impl Segment {
    /// The packet of a flow with a number: IPv6 if the number is odd.
    pub fn packet(&self, flow: u32) -> Vec<u8> {
        let ports = [1024 + (flow & 0xff) as u16, 80];
        let header = 20 + self.options.len();
        let mut segment: Vec<u8> = [ports[self.from], ports[1 - self.from]].map(u16::to_be_bytes).concat();
        segment.extend(self.seq.to_be_bytes());
        segment.extend(self.ack.to_be_bytes());
        segment.extend([(header / 4) as u8 * 16, self.flags]);
        segment.extend(self.window.to_be_bytes());
        segment.extend([0; 4]);
        segment.extend(&self.options);
        segment.resize(header + usize::from(self.payload), 0);
        ip(flow, [self.from, 1 - self.from], TCP, &segment)
    }
}

/// What a host does.
#[derive(Clone, Debug)]
struct Speaker {
    /// What it sends next, what of it was acknowledged, and what it expects next.
    next: u32,
    una: u32,
    expects: u32,
    window: u16,
    scale: Option<u8>,
    sack: bool,
    /// Whether its windows are scaled: not that of a SYN.
    spoke: bool,
}

/// A flow of `dice`: its segments in the order in which they pass.
pub fn flow(dice: &mut Dice) -> Vec<Segment> {
    let mut segments = conversation(dice);
    if dice.one_in(3) {
        disturb(dice, &mut segments);
    }
    if dice.one_in(2) {
        forge(dice, &mut segments);
    }
    if dice.one_in(12) {
        // The tracker comes late.
        let late = dice.below(segments.len() as u64) as usize;
        segments.drain(..late);
    }
    if dice.one_in(6) {
        // The ports are used again.
        segments.extend(conversation(dice));
    }
    segments
}

fn initial_number(dice: &mut Dice) -> u32 {
    // Half of the numbers wrap around soon.
    if dice.one_in(2) { u32::MAX - dice.below(5000) as u32 } else { dice.next() as u32 }
}

fn conversation(dice: &mut Dice) -> Vec<Segment> {
    let (mss, scales) = (dice.pick(&[536, 1448, 8000]), [Some(0), Some(2), Some(7), Some(14), None]);
    let mut hosts = [0, 1].map(|_| {
        let isn = initial_number(dice);
        let window = dice.pick(&[0xffff, 64240, 29200, 1000, 100]);
        Speaker {
            next: isn,
            una: isn,
            expects: 0,
            window,
            scale: dice.pick(&scales),
            sack: !dice.one_in(3),
            spoke: false,
        }
    });
    hosts[0].expects = hosts[1].next;
    hosts[1].expects = hosts[0].next;
    let mut segments = Vec::new();
    open(dice, &mut hosts, &mut segments);
    let (scaled, turns) = (hosts.iter().all(|host| host.scale.is_some()), dice.below(12));
    for _ in 0..turns {
        let from = dice.below(2) as usize;
        exchange(dice, &mut hosts, from, mss, scaled, &mut segments);
    }
    close(dice, &mut hosts, &mut segments);
    segments
}

fn options(dice: &mut Dice, host: &Speaker) -> Vec<u8> {
    let mut options = vec![2, 4, 5, 180];
    if host.sack {
        options.extend([4, 2, 1, 1]);
    }
    options.extend(host.scale.iter().flat_map(|&shift| [1, 3, 3, shift]));
    if dice.one_in(2) {
        options.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    }
    options
}

fn open(dice: &mut Dice, hosts: &mut [Speaker; 2], segments: &mut Vec<Segment>) {
    let [client, server] = hosts;
    let mut syn = |host: &Speaker, from, flags, ack| {
        let options = options(dice, host);
        Segment { from, flags, seq: host.next, ack, window: host.window, options, payload: 0 }
    };
    let opening = syn(client, 0, SYN, 0);
    let answer = syn(server, 1, SYN | ACK, client.next.wrapping_add(1));
    (client.next, server.next) = (client.next.wrapping_add(1), server.next.wrapping_add(1));
    (client.una, server.una) = (client.next, server.next);
    (client.expects, server.expects) = (server.next, client.next);
    client.spoke = true;
    segments.extend([opening, answer]);
    segments.push(plain(client, 0, ACK, 0));
}

fn plain(host: &Speaker, from: usize, flags: u8, payload: u16) -> Segment {
    Segment { from, flags, seq: host.next, ack: host.expects, window: host.window, options: vec![], payload }
}

/// One host sends as much as the other takes, and that one acknowledges.
fn exchange(
    dice: &mut Dice,
    hosts: &mut [Speaker; 2],
    from: usize,
    mss: u16,
    scaled: bool,
    segments: &mut Vec<Segment>,
) {
    let to = 1 - from;
    // Some hosts ignore that the window of a SYN is not scaled.
    let scaled = scaled && (hosts[to].spoke || dice.one_in(20));
    let shift = if scaled { hosts[to].scale.unwrap_or(0) } else { 0 };
    let window = u64::from(hosts[to].window) << shift;
    let mut room = window.min(20_000);
    for _ in 0..1 + dice.below(6) {
        let payload = (1 + dice.below(u64::from(mss))).min(room) as u16;
        if payload == 0 {
            break;
        }
        room -= u64::from(payload);
        segments.push(plain(&hosts[from], from, ACK, payload));
        hosts[from].next = hosts[from].next.wrapping_add(payload.into());
    }
    let mut answer = plain(&hosts[to], to, ACK, 0);
    if hosts[0].sack && hosts[1].sack && dice.one_in(4) && hosts[from].next != hosts[to].expects {
        // The first byte is missing.
        let first = hosts[to].expects.wrapping_add(1);
        answer.options =
            [vec![1, 1, 5, 10], first.to_be_bytes().into(), hosts[from].next.to_be_bytes().into()].concat();
        segments.push(answer.clone());
        answer.options.clear();
        let again = Segment { seq: hosts[from].una, ..plain(&hosts[from], from, ACK, 1) };
        segments.push(again);
    }
    (hosts[to].spoke, hosts[from].spoke) = (true, true);
    hosts[to].expects = hosts[from].next;
    hosts[from].una = hosts[from].next;
    if dice.one_in(10) {
        hosts[to].window = dice.pick(&[0xffff, 32000, 1000, 1]);
    }
    (answer.ack, answer.window) = (hosts[to].expects, hosts[to].window);
    segments.push(answer);
}

fn close(dice: &mut Dice, hosts: &mut [Speaker; 2], segments: &mut Vec<Segment>) {
    let first = dice.below(2) as usize;
    match dice.below(5) {
        0 => {}
        1 => segments.push(plain(&hosts[first], first, RST | ACK, 0)),
        2 => segments.push(Segment { ack: 0, ..plain(&hosts[first], first, RST, 0) }),
        kind => {
            for from in [first, 1 - first] {
                let payload = dice.below(3) as u16;
                segments.push(plain(&hosts[from], from, FIN | ACK, payload));
                hosts[from].next = hosts[from].next.wrapping_add(u32::from(payload) + 1);
                hosts[1 - from].expects = hosts[from].next;
                if kind == 3 || from != first {
                    segments.push(plain(&hosts[1 - from], 1 - from, ACK, 0));
                }
            }
        }
    }
}

/// The network loses, doubles, reorders and joins segments.
fn disturb(dice: &mut Dice, segments: &mut Vec<Segment>) {
    for _ in 0..1 + dice.below(5) {
        let count = segments.len();
        if count < 4 {
            return;
        }
        let at = dice.below(count as u64) as usize;
        match dice.below(5) {
            0 => _ = segments.remove(at),
            1 => segments.insert(at, segments[at].clone()),
            2 => {
                // Sent again later.
                let late = (at + 1 + dice.below(8) as usize).min(count);
                segments.insert(late, segments[at].clone());
            }
            3 => {
                let with = (at + 1 + dice.below(3) as usize).min(count - 1);
                segments.swap(at, with);
            }
            _ => {
                // Sent again with other boundaries.
                let mut again = segments[at].clone();
                if again.payload > 2 && again.flags & SYN == 0 {
                    let less = dice.below(u64::from(again.payload)) as u16;
                    (again.seq, again.payload) = (again.seq.wrapping_add(less.into()), again.payload - less);
                    segments.insert(at + 1, again);
                }
            }
        }
    }
}

/// An attacker forges segments of both hosts, blindly or not.
fn forge(dice: &mut Dice, segments: &mut Vec<Segment>) {
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(segments.len() as u64) as usize;
        let mut forged = segments[at].clone();
        forged.options.clear();
        let near = [0, 1, 2, 100, 1000, 30_000, 65_534, 65_535, 65_536, 66_000, 70_000, 200_000, 1 << 24, 1 << 30];
        let mut moved = |number: u32| match dice.below(4) {
            0 => number,
            1 => number.wrapping_add(dice.pick(&near)),
            2 => number.wrapping_sub(dice.pick(&near)),
            _ => dice.next() as u32,
        };
        (forged.seq, forged.ack) = (moved(forged.seq), moved(forged.ack));
        forged.flags = dice.pick(&[RST, RST | ACK, SYN, SYN | ACK, ACK, ACK, FIN | ACK, FIN | SYN, 0, RST]);
        if forged.flags & ACK == 0 && dice.one_in(2) {
            forged.ack = 0;
        }
        forged.payload = if forged.flags & (RST | SYN) == 0 { dice.pick(&[0, 0, 1, 1000]) } else { 0 };
        forged.window = dice.pick(&[0, 1, 1024, 0xffff]);
        segments.insert(at + 1, forged);
    }
}
