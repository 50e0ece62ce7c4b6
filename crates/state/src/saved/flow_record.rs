//! Records of flows: what a slot of the table holds. The last record of a slot counts.
//!
//! ```text
//!   frame    day u64: the time of day, in nanoseconds since 1970    now u32: the same moment in ticks of flows
//!            count u32, each
//!     slot u32: bits 0 to 27 its number, bits 30 and 31 its contents: 0 none, 1 a flow of IPv4, 2 one of IPv6
//!     addresses 2 x 4 or 2 x 16    ports, protocol and VLAN u64    una u64    status u64: words 4, 5 and 7 of an entry
//!     2 x u64 if the status says that the flow is proxied: what translates its packets (`weir_abi::flow::Proxied`)
//! ```
//! A flow of IPv4 takes 36 bytes, one of IPv6 60, and 16 more if it is proxied. What a side has sent without an
//! acknowledgement is left out: more may pass before the flow is restored.

use weir_abi::flow::{Flow, FlowClass, FlowKey, FlowState, Proxied, SIZE_MAX, SLOTS, TICKS, Window};

use super::cursor::Cursor;
use super::frame::append_frame;
use crate::flows::KnownFlow;

/// Records of a frame. A frame has a megabyte at most.
pub(super) const FRAME_RECORDS_MAX: usize = 1 << 14;

const TCP: u8 = 6;
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
    /// The time `day_ns` in ticks of flows.
    pub now: u32,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub slot: u32,
    pub flow: Option<KnownFlow>,
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
    let contents = flow.map_or(0, |known| if known.key.is_ipv6 { IPV6 } else { IPV4 });
    bytes.extend((slot | contents << CONTENTS).to_le_bytes());
    let Some(KnownFlow { key, flow, proxied }) = flow else { return };
    let ([addresses @ .., last], [una, _, status]) = (key.words, flow.pack(key.is_ipv6));
    match key.is_ipv6 {
        true => addresses.iter().for_each(|word| bytes.extend(word.to_le_bytes())),
        false => [addresses[1], addresses[3]].iter().for_each(|&word| bytes.extend((word as u32).to_le_bytes())),
    }
    let words = [last, una, status].into_iter().chain(proxied.iter().flat_map(Proxied::pack));
    words.for_each(|word| bytes.extend(word.to_le_bytes()));
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
    // Only connections have numbers.
    let next = if (key.words[4] >> 24) as u8 == TCP { una } else { 0 };
    let (flow, _) = Flow::read([una, next, status]).filter(|&(_, of)| of == is_ipv6)?;
    let proxied = match flow.proxied {
        true => Some(Proxied::unpack([cursor.u64()?, cursor.u64()?])),
        false => None,
    };
    let known = KnownFlow { key, flow, proxied };
    is_sound(&known).then_some(Record { slot, flow: Some(known) })
}

/// Whether a tracker can have made the flow. Code relies on states that belong to the protocol.
fn is_sound(known: &KnownFlow) -> bool {
    let KnownFlow { key, flow, proxied } = known;
    let is_tcp = flow.state.is_of_tcp();
    let largest = Window::of(u32::MAX);
    is_tcp == (key.protocol() == 6)
        && is_kept(known)
        && proxied.is_none_or(|proxied| is_tcp && proxied.is_sound())
        && flow.sides.iter().all(|side| side.window <= largest)
}

/// Whether a flow is worth keeping: it was answered and is not over. A connection in `time-wait` has nothing to send.
/// A proxied one is kept from the cookie on: its client has proven its address, and takes the connection for open.
pub(super) fn is_kept(known: &KnownFlow) -> bool {
    let KnownFlow { flow, proxied, .. } = known;
    let opens = matches!(flow.state, FlowState::SynSent | FlowState::SynReceived);
    let is_over = matches!(flow.state, FlowState::TimeWait | FlowState::Closed);
    let is_open = flow.replied && flow.class() != FlowClass::Embryonic && !is_over;
    flow.proxied == proxied.is_some() && (is_open || flow.proxied && opens)
}

#[cfg(test)]
mod tests {
    use super::super::frame::{Frames, Purpose, header};
    use super::*;
    use weir_abi::flow::{Agreed, Arrival, Side};

    fn flow(state: FlowState) -> Flow {
        let side = |una: u32| Side { una, next: una, window: Window::of(65535), scale: 7, sack: true };
        let sides = [side(1), side(!0)];
        Flow { time: 99, state, opener: 1, liberal: false, replied: true, syn: false, proxied: false, sides }
    }

    fn records() -> Vec<Record> {
        let near = FlowKey::of(Arrival::Outside, (0x0a00_0001, 1), (0x0a00_0002, 2), 6, [100, 7], false);
        let far = FlowKey::of(Arrival::Outside, (0x2001_0db8 << 96, 1), (0xfe80 << 112 | 9, 2), 17, [0; 2], true);
        let udp = Flow { sides: [Side::default(); 2], ..flow(FlowState::Replied) };
        vec![
            record(0, near, flow(FlowState::Established), None),
            Record { slot: 5, flow: None },
            record(9, far, udp, None),
        ]
    }

    fn record(slot: u32, key: FlowKey, flow: Flow, proxied: Option<Proxied>) -> Record {
        Record { slot, flow: Some(KnownFlow { key, flow, proxied }) }
    }

    /// Records of proxied flows whose server has not answered, whose client has not, and that are open.
    fn proxied_records() -> Vec<Record> {
        let near = |nth: u16| FlowKey::of(Arrival::Outside, (0x0a00_0001, nth), (0x0a00_0002, 2), 6, [100, 7], false);
        let far = FlowKey::of(Arrival::Outside, (0x2001_0db8 << 96, 1), (0xfe80 << 112 | 9, 2), 6, [0; 2], true);
        let agreed = Agreed { client_scale: 7, told_scale: 9, timestamps: true, sack: true };
        let asked = Proxied::new(0x8000_0001, u32::MAX, 1460, agreed);
        let answered = asked.answered(5, None);
        let flow = |state| Flow { proxied: true, ..flow(state) };
        vec![
            record(1, near(1), Flow { replied: false, ..flow(FlowState::SynSent) }, Some(asked)),
            record(2, near(2), flow(FlowState::SynReceived), Some(answered)),
            record(3, near(3), flow(FlowState::Established), Some(answered)),
            record(4, far, flow(FlowState::CloseWait), Some(answered)),
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
        assert_eq!(bytes.len(), 16 + 36 + 4 + 60, "what docs/reference/state.md says");
        assert_eq!(read(&bytes, 10), Some((FrameTime { day_ns: 1 << 60, now: 100 }, records())));
        assert_eq!(read(&bytes, 9), None, "the table has no slot 9");
        assert!((0..bytes.len()).all(|cut| read(&bytes[..cut], 10).is_none()));
    }

    #[test]
    fn what_translates_a_proxied_flow_is_read_as_it_was_written() {
        let records = [records(), proxied_records()].concat();
        let bytes = payload(&records);
        let plain = 16 + 36 + 4 + 60;
        assert_eq!(
            bytes.len(),
            plain + 3 * (36 + 16) + 60 + 16,
            "what docs/reference/state.md says; others do not grow"
        );
        assert_eq!(read(&bytes, 10).map(|(_, read)| read), Some(records));
        assert!((0..bytes.len()).all(|cut| read(&bytes[..cut], 10).is_none()));
    }

    #[test]
    fn no_frame_has_a_flow_that_no_tracker_makes() {
        let [one, ..] = records()[..] else { unreachable!() };
        let KnownFlow { key, flow, .. } = one.flow.expect("it has a flow");
        let of_proxied = proxied_records()[2].flow.expect("it has a flow");
        let proxied = of_proxied.proxied.expect("it is proxied");
        let mut other_mss = proxied;
        other_mss.mss = 1000;
        let is_proxied = |flow: Flow| Flow { proxied: true, ..flow };
        let udp = FlowKey { words: [key.words[0], key.words[1], key.words[2], key.words[3], 17 << 24], ..key };
        let window = |window: u8| {
            let [side, other] = flow.sides;
            Flow { sides: [side, Side { window: Window(window), ..other }], ..flow }
        };
        for (key, flow, proxied) in [
            (udp, flow, None),
            (key, Flow { state: FlowState::Replied, ..flow }, None),
            (key, Flow { state: FlowState::SynSent, ..flow }, None),
            (key, Flow { replied: false, ..flow }, None),
            (key, is_proxied(flow), None),
            (key, is_proxied(flow), Some(other_mss)),
            (key, is_proxied(Flow { state: FlowState::TimeWait, ..flow }), Some(proxied)),
            (key, is_proxied(Flow { state: FlowState::Closed, ..flow }), Some(proxied)),
            (udp, is_proxied(Flow { state: FlowState::Replied, ..flow }), Some(proxied)),
            (key, window(255), None),
        ] {
            assert_eq!(read(&payload(&[record(1, key, flow, proxied)]), 10), None, "{flow:?}");
        }
        assert!(read(&payload(&[record(1, key, is_proxied(flow), Some(proxied))]), 10).is_some());
        // Whatever the bytes are, what is read can be written and read again.
        let bytes = payload(&[records(), proxied_records()].concat());
        for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            if let Some((_, records)) = read(&changed, 10) {
                assert!(read(&payload(&records), 10).is_some_and(|(_, again)| again == records));
            }
        }
    }
}
