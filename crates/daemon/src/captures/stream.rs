//! The packets of a tap as pcapng, for one client.

use super::comment::comment;
use super::streams::OpenStream;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_abi::Link;
use weir_control::CaptureFilter;
use weir_engine::capture::packet_stream::{InterfaceStatistics, PacketStream, StreamedPacket};
use weir_engine::live::Side;
use weir_engine::live::tap::{Copied, TapCounts, TapReader};
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::eval::slots;
use weir_policy::slot_rule::SlotRule;

/// How long a stream waits for a packet before it looks whether the client has gone.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes that are sent together, at most. What waits is sent as soon as no further packet does.
const TOGETHER: usize = 1 << 16;

/// What the statistics of a capture say that did not end by itself.
const ENDED: &str = "; ended by an upgrade of Weir";

/// The interfaces of each side, in words.
pub type Sides = [String; 2];

/// The packets of a tap on their way to a client.
pub struct Stream {
    reader: TapReader,
    matches: Option<SlotRule>,
    /// Ends after so many packets.
    count: u64,
    budget_pps: u32,
    sides: Sides,
    blocks: PacketStream,
    /// The interfaces that were described.
    interfaces: Vec<(Side, Link)>,
    written: u64,
    /// Copies that do not match. The datapath has left out others.
    unmatched: u64,
}

impl Stream {
    pub fn new(
        reader: TapReader,
        matches: Option<SlotRule>,
        wanted: &CaptureFilter,
        budget_pps: u32,
        sides: Sides,
    ) -> Self {
        let given = [("rule", &wanted.rule), ("reason", &wanted.reason), ("where", &wanted.matches)];
        let given = given.iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        let blocks = PacketStream::new("weir", &given.collect::<Vec<_>>().join(", "));
        let count = wanted.count.unwrap_or(u64::MAX);
        Stream { reader, matches, count, budget_pps, sides, blocks, interfaces: vec![], written: 0, unmatched: 0 }
    }

    /// Sends packets until the client has enough or ends its half of the connection, or Weir is upgraded, then
    /// statistics.
    pub fn send(mut self, mut client: &UnixStream, open: &OpenStream) -> io::Result<()> {
        client.write_all(&self.blocks.take())?;
        while self.written < self.count && !open.is_ending() && !has_ended(client) {
            let mut next = self.reader.wait(LOOK);
            while let Some(copy) = next {
                self.take(&copy);
                if self.written == self.count || self.blocks.waiting() >= TOGETHER {
                    break;
                }
                next = self.reader.read();
            }
            client.write_all(&self.blocks.take())?;
        }
        self.finish(if open.is_ending() { ENDED } else { "" });
        client.write_all(&self.blocks.take())
    }

    /// Appends a packet, if it matches.
    fn take(&mut self, copy: &Copied) {
        let frame = Frame { bytes: &copy.bytes, wire_len: copy.wire_len, link: copy.link, time_ns: copy.at_ns };
        if self.matches.as_ref().is_some_and(|rule| !slots::matches(rule, frame)) {
            self.unmatched += 1;
            return;
        }
        let interface = self.interface(copy.from, copy.link);
        self.blocks.packet(&StreamedPacket {
            interface,
            at_ns: copy.at_ns,
            bytes: &copy.bytes,
            wire_len: copy.wire_len,
            is_inbound: copy.from == Side::Lower,
            comment: &comment(copy),
        });
        self.written += 1;
    }

    /// The number of the interface that stands for a side.
    fn interface(&mut self, side: Side, link: Link) -> u32 {
        let known = self.interfaces.iter().position(|&known| known == (side, link));
        if let Some(number) = known {
            return number as u32;
        }
        self.interfaces.push((side, link));
        let name = if side == Side::Lower { "lower" } else { "upper" };
        self.blocks.interface(link, name, &self.sides[side as usize])
    }

    fn finish(&mut self, ended: &str) {
        // Statistics belong to an interface.
        if self.interfaces.is_empty() {
            self.interface(Side::Lower, Link::Ethernet);
        }
        let waiting = self.reader.waiting();
        let counts = self.reader.counts();
        let statistics = InterfaceStatistics {
            received: counts.matched,
            dropped: counts.over + counts.lost + waiting,
            accepted: self.written,
            lost: counts.lost,
            delivered: self.written,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        self.blocks.statistics(0, now, statistics, &(self.report(counts, waiting) + ended));
    }

    /// What became of the packets, in words.
    fn report(&self, TapCounts { matched, over, excluded, lost, .. }: TapCounts, waiting: u64) -> String {
        let unmatched = match &self.matches {
            Some(_) => format!(", {} without a match of --where", excluded + self.unmatched),
            None => String::new(),
        };
        format!(
            "{} packets written of {matched} selected{unmatched}, {over} not copied (more than {} a second), \
             {lost} lost (the reader was too slow), {waiting} not yet written at the end",
            self.written, self.budget_pps
        )
    }
}

/// Whether a client has ended its half of the connection. What it sends is ignored.
fn has_ended(client: &UnixStream) -> bool {
    match recv(client, &mut [0; 64], RecvFlags::DONTWAIT) {
        Ok((bytes, _)) => bytes == 0,
        Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => true,
    }
}
