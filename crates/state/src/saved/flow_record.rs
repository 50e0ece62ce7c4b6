//! Records of flows: what a slot of the table holds. The last record of a slot counts.
//!
//! ```text
//!   frame    day u64: the time of day, in nanoseconds since 1970    now u32: the same moment in ticks of flows
//!            count u32, each
//!     slot u32: bits 0 to 27 its number, bits 30 and 31 its contents: 0 none, 1 a flow of IPv4, 2 one of IPv6
//!     addresses 2 x 4 or 2 x 16    ports, protocol and VLAN u64    una u64    status u64: words 4, 5 and 7 of an entry
//! ```
//! A flow of IPv4 takes 36 bytes, one of IPv6 60. What a side has sent without an acknowledgement is left out: more may
//! pass before the flow is restored.

use weir_abi::flow::{Flow, FlowKey, FlowState, SIZE_MAX, SLOTS, TICKS, Window};

use super::cursor::Cursor;
use super::frame::append_frame;

/// Records of a frame. A frame has a megabyte at most.
pub(super) const FRAME_RECORDS_MAX: usize = 1 << 14;

const IPV4: u32 = 1;
const IPV6: u32 = 2;
/// Position of the contents in the first word of a record.
const CONTENTS: u32 = 30;

const _: () = assert!((SIZE_MAX as usize + SLOTS).ilog2() < CONTENTS);

/// The time of the flows of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameTime {
    /// Nanoseconds since 1970.
    pub day_ns: u64,
    /// The same moment in ticks of flows.
    pub now: u32,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub slot: u32,
    pub flow: Option<(FlowKey, Flow)>,
}

/// Appends a frame of at most [`FRAME_RECORDS_MAX`] records, or nothing if there are none.
pub(super) fn append(bytes: &mut Vec<u8>, time: FrameTime, records: &[Record]) {
    if records.is_empty() {
        return;
    }
    append_frame(bytes, |bytes| {
        bytes.extend(time.day_ns.to_le_bytes());
        bytes.extend(time.now.to_le_bytes());
        bytes.extend((records.len() as u32).to_le_bytes());
        records.iter().for_each(|record| append_record(bytes, record));
    });
}

fn append_record(bytes: &mut Vec<u8>, &Record { slot, flow }: &Record) {
    let contents = flow.map_or(0, |(key, _)| if key.is_ipv6 { IPV6 } else { IPV4 });
    bytes.extend((slot | contents << CONTENTS).to_le_bytes());
    let Some((key, flow)) = flow else { return };
    let ([addresses @ .., last], [una, _, status]) = (key.words, flow.pack(key.is_ipv6));
    match key.is_ipv6 {
        true => addresses.iter().for_each(|word| bytes.extend(word.to_le_bytes())),
        false => [addresses[1], addresses[3]].iter().for_each(|&word| bytes.extend((word as u32).to_le_bytes())),
    }
    [last, una, status].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
}

/// The records of a frame, or `None` if it has something else: another program wrote it, since its check is right.
pub(super) fn read(payload: &[u8], slots: usize) -> Option<(FrameTime, Vec<Record>)> {
    let mut cursor = Cursor(payload);
    let time = FrameTime { day_ns: cursor.u64()?, now: cursor.u32().filter(|&now| now < TICKS)? };
    let records = cursor.list(|cursor| read_record(cursor).filter(|record| (record.slot as usize) < slots))?;
    cursor.0.is_empty().then_some((time, records))
}

fn read_record(cursor: &mut Cursor<'_>) -> Option<Record> {
    let first = cursor.u32()?;
    let (slot, is_ipv6) = (
        first & ((1 << CONTENTS) - 1),
        match first >> CONTENTS {
            0 => return Some(Record { slot: first, flow: None }),
            IPV4 => false,
            IPV6 => true,
            _ => return None,
        },
    );
    let mut address = || match is_ipv6 {
        true => Some((cursor.u64()?, cursor.u64()?)),
        false => Some((0, cursor.u32()?.into())),
    };
    let (one, other) = (address()?, address()?);
    let key = FlowKey { words: [one.0, one.1, other.0, other.1, cursor.u64()?], is_ipv6 };
    let (una, status) = (cursor.u64()?, cursor.u64()?);
    let (flow, _) = Flow::read([una, una, status]).filter(|&(_, of)| of == is_ipv6)?;
    is_sound(&key, &flow).then_some(Record { slot, flow: Some((key, flow)) })
}

/// Whether a tracker can have made the flow. Code relies on states that belong to the protocol.
fn is_sound(key: &FlowKey, flow: &Flow) -> bool {
    let is_tcp = !matches!(flow.state, FlowState::Unreplied | FlowState::Replied);
    let largest = Window::of(u32::MAX);
    is_tcp == (key.protocol() == 6) && is_kept(flow) && flow.sides.iter().all(|side| side.window <= largest)
}

/// Whether a flow is worth keeping: it was answered and is not over. A connection in `time-wait` has nothing to send.
/// How numbers of a proxied one are translated is not in its flow, so it cannot continue.
pub(super) fn is_kept(flow: &Flow) -> bool {
    !flow.is_embryonic() && flow.state != FlowState::TimeWait && !flow.proxied
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Frames, Purpose, header};
    use super::*;
    use weir_abi::flow::Side;

    fn flow(state: FlowState) -> Flow {
        let side = |una: u32| Side { una, next: una, window: Window::of(65535), scale: 7, sack: true };
        let sides = [side(1), side(!0)];
        Flow { time: 99, state, opener: 1, liberal: false, replied: true, syn: false, proxied: false, sides }
    }

    fn records() -> Vec<Record> {
        let near = FlowKey::of((0x0a00_0001, 1), (0x0a00_0002, 2), 6, [100, 7], false).0;
        let far = FlowKey::of((0x2001_0db8 << 96, 1), (0xfe80 << 112 | 9, 2), 17, [0; 2], true).0;
        let udp = Flow { sides: [Side::default(); 2], ..flow(FlowState::Replied) };
        vec![
            Record { slot: 0, flow: Some((near, flow(FlowState::Established))) },
            Record { slot: 5, flow: None },
            Record { slot: 9, flow: Some((far, udp)) },
        ]
    }

    fn payload(records: &[Record]) -> Vec<u8> {
        let mut bytes = header(Purpose::Flows, 10);
        append(&mut bytes, FrameTime { day_ns: 1 << 60, now: 100 }, records);
        let mut frames = Frames::open(&bytes, Purpose::Flows, 10).expect("it has a header");
        frames.next().expect("it is whole").expect("there is one").to_vec()
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let bytes = payload(&records());
        assert_eq!(bytes.len(), 16 + 36 + 4 + 60, "what docs/state.md says");
        assert_eq!(read(&bytes, 10), Some((FrameTime { day_ns: 1 << 60, now: 100 }, records())));
        assert_eq!(read(&bytes, 9), None, "the table has no slot 9");
        assert!((0..bytes.len()).all(|cut| read(&bytes[..cut], 10).is_none()));
    }

    #[test]
    fn no_frame_has_a_flow_that_no_tracker_makes() {
        let [one, ..] = records()[..] else { unreachable!() };
        let (key, flow) = one.flow.expect("it has a flow");
        let udp = FlowKey { words: [key.words[0], key.words[1], key.words[2], key.words[3], 17 << 24], ..key };
        let window = |window: u8| {
            let [side, other] = flow.sides;
            Flow { sides: [side, Side { window: Window(window), ..other }], ..flow }
        };
        for (key, flow) in [
            (udp, flow),
            (key, Flow { state: FlowState::Replied, ..flow }),
            (key, Flow { state: FlowState::SynSent, ..flow }),
            (key, Flow { replied: false, ..flow }),
            (key, Flow { proxied: true, ..flow }),
            (key, window(255)),
        ] {
            let of = |flow| payload(&[Record { slot: 1, flow: Some((key, flow)) }]);
            assert_eq!(read(&of(flow), 10), None, "{flow:?}");
        }
        // Whatever the bytes are, what is read can be written and read again.
        let bytes = payload(&records());
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            if let Some((_, records)) = read(&changed, 10) {
                assert!(read(&payload(&records), 10).is_some_and(|(_, again)| again == records));
            }
        }
    }
}
