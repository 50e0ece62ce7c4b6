//! Generated connections through the SYN proxy. The cookies have the key of replays, which is known.

use crate::conntrack_flows::{ACK, Dice, FIN, RST, SYN, Segment};
use weir_abi::cookie::{self, REPLAY_SECRET, Request, StampedOptions, epoch, mss_index};
use weir_abi::flow::{FlowKey, Side};

/// What the client's SYN offers. Timestamps, if it has them, begin at a number.
struct Offer {
    mss: Option<u16>,
    scale: Option<u8>,
    sack: bool,
    stamp: Option<u32>,
}

impl Offer {
    fn of(dice: &mut Dice) -> Self {
        Offer {
            mss: dice.below(4).checked_sub(1).map(|_| dice.pick(&[0, 536, 1300, 1459, 1460, 9000])),
            scale: (!dice.one_in(3)).then(|| dice.below(16) as u8),
            sack: !dice.one_in(3),
            stamp: (!dice.one_in(4)).then(|| dice.next() as u32),
        }
    }

    fn options(&self) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some(mss) = self.mss {
            options.extend([[2, 4], mss.to_be_bytes()].concat());
        }
        options.extend(if self.sack { [4, 2] } else { [1, 1] });
        if let Some(stamp) = self.stamp {
            options.extend(timestamps(stamp, 0));
        }
        if let Some(scale) = self.scale {
            options.extend([3, 3, scale]);
        }
        options.resize(options.len().next_multiple_of(4), 1);
        options
    }
}

fn timestamps(value: u32, echo: u32) -> Vec<u8> {
    [&[8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat()
}

/// Both sides of a connection. Numbers are those that each side knows.
struct Sides {
    offer: Offer,
    /// The next number of the client, and of the server as the server counts.
    next: [u32; 2],
    /// The first number that the server has chosen, and the cookie.
    server: u32,
    cookie: u32,
    /// The timestamp of the cookie, and the timestamp of the server's SYN-ACK if it has one.
    told: u32,
    stamp: Option<u32>,
    clock: u32,
}

impl Sides {
    /// A segment of one side with these flags and data.
    fn segment(&mut self, from: usize, flags: u8, payload: u16, dice: &mut Dice) -> Segment {
        let delta = self.cookie.wrapping_sub(self.server);
        let ack = if from == 0 { self.next[1].wrapping_add(delta) } else { self.next[0] };
        self.clock += 1;
        let mut options = Vec::new();
        if let (Some(client), Some(server)) = (self.offer.stamp, self.stamp) {
            // Sometimes a filler less, so that numbers begin at odd offsets.
            options.resize(1 + dice.below(2) as usize, 1);
            let translation = self.told.wrapping_sub(server);
            let (client, server) = (client.wrapping_add(self.clock), server.wrapping_add(self.clock));
            options.extend(match from {
                0 => timestamps(client, server.wrapping_add(translation)),
                _ => timestamps(server, client),
            });
        }
        if dice.one_in(6) && options.len() < 20 {
            options.extend([5, 10]);
            options.extend(ack.wrapping_add(100).to_be_bytes());
            options.extend(ack.wrapping_add(200).to_be_bytes());
        }
        options.resize(options.len().next_multiple_of(4), 1);
        let seq = self.next[from];
        let controls = u32::from(flags & FIN != 0);
        self.next[from] = seq.wrapping_add(u32::from(payload)).wrapping_add(controls);
        let window = dice.next() as u16;
        Segment { from, flags, seq, ack, window, options, payload }
    }
}

/// The segments of a connection whose client is the side `client` of a key, and begins about at a time. Some are lost,
/// doubled, late or wrong.
pub fn connection(dice: &mut Dice, key: &FlowKey, client: usize, time_ns: u64) -> Vec<Segment> {
    let isn = dice.next() as u32;
    let offer = Offer::of(dice);
    let made = if dice.one_in(12) { time_ns + (1 << 36) } else { time_ns };
    let index = mss_index(offer.mss.unwrap_or(0));
    let cookie = cookie::make(REPLAY_SECRET, &Request { key: *key, client, isn }, epoch(made), index);
    let scale = offer.scale.map_or(Side::NO_SCALE, |scale| scale.min(14));
    let kept = StampedOptions { scale, told_scale: dice.below(16) as u8, sack: offer.sack };
    let (told, server) = (kept.timestamp(made), dice.next() as u32);
    let stamp = (!dice.one_in(5)).then(|| dice.next() as u32);
    let syn = Segment {
        from: 0,
        flags: SYN,
        seq: isn,
        ack: 0,
        window: dice.next() as u16,
        options: offer.options(),
        payload: if dice.one_in(8) { 5 } else { 0 },
    };
    let mut sides =
        Sides { offer, next: [isn.wrapping_add(1), server.wrapping_add(1)], server, cookie, told, stamp, clock: 0 };
    let mut segments = vec![syn];
    // Before the server has answered, the client echoes the timestamp of the cookie.
    let mut returned = sides.segment(0, ACK, 0, dice);
    returned.options = sides.offer.stamp.map_or(vec![], |own| [&[1, 1], &timestamps(own, told)[..]].concat());
    segments.push(returned.clone());
    if dice.one_in(6) {
        // A probe of the closed window.
        segments.push(Segment { seq: isn, ..returned.clone() });
    }
    segments.push(answer(&sides, isn, dice));
    segments.push(sides.segment(0, ACK, 0, dice));
    for _ in 0..dice.below(8) {
        let from = dice.below(2) as usize;
        let payload = if dice.one_in(3) { 0 } else { dice.below(60) as u16 };
        segments.push(sides.segment(from, ACK, payload, dice));
    }
    let ends = dice.below(2) as usize;
    match dice.below(4) {
        0 => segments.push(sides.segment(ends, RST | dice.pick(&[0, ACK]), 0, dice)),
        1 => {}
        _ => {
            segments.push(sides.segment(ends, FIN | ACK, 0, dice));
            segments.push(sides.segment(1 - ends, FIN | ACK, 0, dice));
            segments.push(sides.segment(ends, ACK, 0, dice));
        }
    }
    disturb(&mut segments, dice);
    segments
}

/// What the server answers to the SYN: most often a SYN-ACK.
fn answer(sides: &Sides, isn: u32, dice: &mut Dice) -> Segment {
    let mut options = vec![2, 4, 5, 180];
    if let (Some(own), Some(client)) = (sides.stamp, sides.offer.stamp) {
        options.extend([&[4, 2], &timestamps(own, client)[..]].concat());
    }
    options.extend([1, 3, 3, dice.below(15) as u8]);
    let (from, window) = (1, dice.next() as u16);
    let ack = isn.wrapping_add(1);
    match dice.below(12) {
        0 => Segment { from, flags: RST | ACK, seq: 0, ack, window, options: vec![], payload: 0 },
        1 => Segment { from, flags: ACK, seq: sides.server, ack, window, options: vec![], payload: 0 },
        _ => Segment { from, flags: SYN | ACK, seq: sides.server, ack, window, options, payload: 0 },
    }
}

/// Loses, doubles, delays and changes segments.
fn disturb(segments: &mut Vec<Segment>, dice: &mut Dice) {
    for _ in 0..dice.below(4) {
        let at = dice.below(segments.len() as u64) as usize;
        match dice.below(8) {
            0 if segments.len() > 3 => _ = segments.remove(at),
            1 | 2 => segments.insert(at, segments[at].clone()),
            3 if at + 1 < segments.len() => segments.swap(at, at + 1),
            4 => segments[at].seq = segments[at].seq.wrapping_add(dice.pick(&[1, u32::MAX, 70_000, 1 << 31])),
            5 => segments[at].ack = segments[at].ack.wrapping_add(dice.pick(&[1, u32::MAX, 8, 1 << 31])),
            6 => segments[at].options.clear(),
            _ => segments[at].flags = dice.pick(&[SYN, ACK, RST, FIN | ACK, SYN | ACK, RST | ACK, 0]),
        }
    }
}
