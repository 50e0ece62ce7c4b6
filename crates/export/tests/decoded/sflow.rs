//! sFlow, read by `sflow-parser`.

use proptest::prelude::*;
use sflow_parser::models::{Address, CounterData, FlowData, SFlowDatagram, SampleData};
use std::collections::BTreeMap;
use std::net::IpAddr;
use weir_export::DATAGRAM_BYTES_MAX;
use weir_export::sflow::Sflow;
use weir_export::sflow::reason::DropReason;
use weir_export::sflow::sample::{
    AclDirection, DroppedBy, Encoding, HEADER_BYTES_MAX, HeaderProtocol, InterfaceCounters, Output, Packet,
};

/// What is exported in a test.
#[derive(Clone, Debug)]
enum Step {
    Sample { bytes: Vec<u8>, wire_len: u32, input: u32, output: Output, rate: u32, lost: u16 },
    Notify { bytes: Vec<u8>, wire_len: u32, input: u32, rule: Option<u32>, name: String, suppressed: u32 },
    Count(InterfaceCounters),
}

fn index(encoding: Encoding) -> impl Strategy<Value = u32> {
    let most = if encoding == Encoding::Compact { 0x00ff_ffff } else { u32::MAX };
    prop_oneof![0..4u32, Just(most), 0..=most]
}

fn output() -> impl Strategy<Value = Output> {
    prop_oneof![
        Just(Output::Unknown),
        Just(Output::Host),
        (1..0x3fff_ffffu32).prop_map(Output::Interface),
        Just(Output::Dropped(DropReason::Acl)),
    ]
}

fn counters(index: u32) -> impl Strategy<Value = InterfaceCounters> {
    let known = || (any::<(bool, bool)>(), "[a-z0-9]{0,20}", any::<Option<u32>>(), any::<Option<bool>>());
    (known(), any::<[u64; 7]>(), any::<Option<u32>>()).prop_map(move |(known, of, in_discards)| {
        let (is_up, name, speed_mbps, is_full_duplex) = known;
        InterfaceCounters {
            index,
            name,
            speed_mbps,
            is_full_duplex,
            is_up,
            in_bytes: of[0],
            in_packets: of[1],
            in_discards: in_discards.map(u64::from),
            in_errors: of[2],
            out_bytes: of[3],
            out_packets: of[4],
            out_discards: of[5],
            out_errors: of[6],
        }
    })
}

fn step(encoding: Encoding) -> impl Strategy<Value = Step> {
    // Lengths around the longest header, and those that need each padding.
    let bytes = || prop::collection::vec(any::<u8>(), 0..HEADER_BYTES_MAX + 9);
    prop_oneof![
        (bytes(), any::<u32>(), index(encoding), output(), any::<u32>(), any::<u16>()).prop_map(
            |(bytes, wire_len, input, output, rate, lost)| Step::Sample { bytes, wire_len, input, output, rate, lost }
        ),
        (bytes(), any::<u32>(), index(encoding), any::<Option<u32>>(), "\\PC{0,140}", any::<u32>()).prop_map(
            |(bytes, wire_len, input, rule, name, suppressed)| Step::Notify {
                bytes,
                wire_len,
                input,
                rule,
                name,
                suppressed
            }
        ),
        index(encoding).prop_flat_map(counters).prop_map(Step::Count),
    ]
}

fn setting() -> impl Strategy<Value = (Encoding, Vec<Step>)> {
    prop_oneof![Just(Encoding::Compact), Just(Encoding::Expanded)]
        .prop_flat_map(|encoding| (Just(encoding), prop::collection::vec(step(encoding), 1..60)))
}

/// Exports the steps, and reads each datagram.
fn exported(sflow: &mut Sflow, steps: &[Step]) -> Vec<SFlowDatagram> {
    let mut sent: Vec<Vec<u8>> = Vec::new();
    let mut send = |datagram: &[u8]| sent.push(datagram.to_vec());
    for (at, step) in steps.iter().enumerate() {
        let uptime_ms = at as u64;
        match step {
            Step::Sample { bytes, wire_len, input, output, rate, lost } => {
                sflow.lose(u64::from(*lost));
                let packet = Packet { protocol: HeaderProtocol::Ethernet, bytes, wire_len: *wire_len, input: *input };
                sflow.sample(packet, *output, *rate, uptime_ms, &mut send);
            }
            Step::Notify { bytes, wire_len, input, rule, name, suppressed } => {
                let packet = Packet { protocol: HeaderProtocol::Ethernet, bytes, wire_len: *wire_len, input: *input };
                let by = rule.map_or(DroppedBy::Fault(name), |number| DroppedBy::Rule {
                    number,
                    at: name,
                    direction: AclDirection::Egress,
                });
                sflow.notify(packet, DropReason::TrafficShaping, by, (*suppressed).into(), uptime_ms, &mut send);
            }
            Step::Count(counters) => sflow.count(*counters, uptime_ms, &mut send),
        }
    }
    sflow.flush(steps.len() as u64, &mut send);
    sflow.flush(steps.len() as u64, &mut send);
    let read = |datagram: &Vec<u8>| {
        assert!(datagram.len() <= DATAGRAM_BYTES_MAX && datagram.len().is_multiple_of(4), "{}", datagram.len());
        sflow_parser::parse_datagram(datagram).expect("the decoder reads it")
    };
    sent.iter().map(read).collect()
}

/// The samples of one kind in the order in which they were sent.
fn samples(datagrams: &[SFlowDatagram], is_notification: bool) -> Vec<SampleData> {
    let all = datagrams.iter().flat_map(|datagram| &datagram.samples).map(|sample| sample.sample_data.clone());
    all.filter(|sample| matches!(sample, SampleData::DiscardedPacket(_)) == is_notification).collect()
}

fn check_header(data: &FlowData, bytes: &[u8], wire_len: u32) {
    let FlowData::SampledHeader(header) = data else { panic!("{data:?}") };
    assert_eq!(header.header, bytes[..bytes.len().min(HEADER_BYTES_MAX)]);
    assert_eq!((header.frame_length, header.stripped), (wire_len.saturating_add(4), 4));
}

/// Fields of a flow sample of either form: sequence, source, rate, pool, drops, format and value of the output.
type Numbers = (u32, (u32, u32), u32, u32, u32, u32, (u32, u32));

fn check_sample(step: &Step, found: &SampleData, numbers: &mut BTreeMap<u32, (u32, u32, u32)>) {
    let Step::Sample { bytes, wire_len, input, output, rate, lost } = step else { panic!("{step:?}") };
    let (read, records): (Numbers, _) = match found {
        SampleData::FlowSample(one) => (
            (
                one.sequence_number,
                (one.source_id.source_type().into(), one.source_id.index()),
                one.sampling_rate,
                one.sample_pool,
                one.drops,
                one.input.0,
                (one.output.format().into(), one.output.value()),
            ),
            &one.flow_records,
        ),
        SampleData::FlowSampleExpanded(one) => (
            (
                one.sequence_number,
                (one.source_id.source_id_type, one.source_id.source_id_index),
                one.sampling_rate,
                one.sample_pool,
                one.drops,
                one.input.value,
                (one.output.format, one.output.value),
            ),
            &one.flow_records,
        ),
        other => panic!("{other:?}"),
    };
    let (sequence, pool, drops) = numbers.entry(*input).or_default();
    *sequence += 1;
    *drops = drops.wrapping_add(u32::from(*lost));
    *pool = pool.wrapping_add(rate.wrapping_mul(u32::from(*lost) + 1));
    let output = match *output {
        Output::Unknown => (0, 0),
        Output::Interface(index) => (0, index),
        Output::Host => (0, 0x3fff_ffff),
        Output::Dropped(reason) => (1, reason as u32),
    };
    assert_eq!(read, (*sequence, (0, *input), *rate, *pool, *drops, *input, output));
    assert_eq!(records.len(), 1);
    check_header(&records[0].flow_data, bytes, *wire_len);
}

fn check_counters(counters: &InterfaceCounters, found: &SampleData, sequences: &mut BTreeMap<u32, u32>) {
    let (sequence, index, records) = match found {
        SampleData::CountersSample(one) => (one.sequence_number, one.source_id.index(), &one.counters),
        SampleData::CountersSampleExpanded(one) => (one.sequence_number, one.source_id.source_id_index, &one.counters),
        other => panic!("{other:?}"),
    };
    let [CounterData::GenericInterface(read), CounterData::OpenFlowPortName(name)] =
        [&records[0].counter_data, &records[1].counter_data]
    else {
        panic!("{records:?}")
    };
    assert_eq!(name.port_name, counters.name);
    let direction = counters.is_full_duplex.map_or(0, |is_full| if is_full { 1 } else { 2 });
    let speed = u64::from(counters.speed_mbps.unwrap_or(0)) * 1_000_000;
    assert_eq!((read.if_speed, read.if_direction), (speed, direction));
    let wanted = sequences.entry(counters.index).or_default();
    *wanted += 1;
    assert_eq!(sequence, *wanted);
    assert_eq!((index, read.if_index, read.if_type, records.len()), (counters.index, counters.index, 6, 2));
    let (is_up, has_link) = counters.is_up;
    assert_eq!((read.if_in_octets, read.if_out_octets), (counters.in_bytes, counters.out_bytes));
    let in_discards = counters.in_discards.map_or(u32::MAX, |discards| discards as u32);
    assert_eq!((read.if_in_ucast_pkts, read.if_in_discards), (counters.in_packets as u32, in_discards));
    assert_eq!((read.if_out_ucast_pkts, read.if_in_errors), (counters.out_packets as u32, counters.in_errors as u32));
    let failed = (counters.out_discards as u32, counters.out_errors as u32);
    assert_eq!((read.if_out_discards, read.if_out_errors), failed);
    assert_eq!(read.if_status, u32::from(is_up) | u32::from(has_link) << 1);
}

fn check_notification(step: &Step, found: &SampleData, sequence: u32) {
    let Step::Notify { bytes, wire_len, input, rule, name, suppressed } = step else { panic!("{step:?}") };
    let SampleData::DiscardedPacket(read) = found else { panic!("{found:?}") };
    assert_eq!((read.sequence_number, read.drops, read.input_ifindex), (sequence, *suppressed, *input));
    assert_eq!((read.source_id.source_id_type, read.source_id.source_id_index), (3, 1));
    assert_eq!((read.output_ifindex, read.reason as u32), (0, DropReason::TrafficShaping as u32));
    assert_eq!(read.flow_records.len(), 2);
    check_header(&read.flow_records[0].flow_data, bytes, *wire_len);
    let cut = &name[..name.floor_char_boundary(128)];
    match (&read.flow_records[1].flow_data, rule) {
        (FlowData::ExtendedAcl(acl), Some(number)) => {
            assert_eq!((acl.number, &*acl.name, acl.direction), (*number, cut, AclDirection::Egress as u32));
        }
        (FlowData::ExtendedFunction(function), None) => assert_eq!(function.symbol, cut),
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn a_decoder_reads_what_was_exported((encoding, steps) in setting(), agent in any::<IpAddr>()) {
        let datagrams = exported(&mut Sflow::new(agent, encoding), &steps);
        let address = match agent {
            IpAddr::V4(address) => Address::IPv4(address),
            IpAddr::V6(address) => Address::IPv6(address),
        };
        for (number, datagram) in (1..).zip(&datagrams) {
            assert_eq!((datagram.sequence_number, datagram.sub_agent_id), (number, 0));
            assert_eq!(&datagram.agent_address, &address);
            let notifications = datagram.samples.iter().filter(|one| {
                matches!(one.sample_data, SampleData::DiscardedPacket(_))
            });
            assert!([0, datagram.samples.len()].contains(&notifications.count()), "datagrams of their own");
        }
        let is_notified = |step: &&Step| matches!(step, Step::Notify { .. });
        let (mut numbers, mut counted) = (BTreeMap::new(), BTreeMap::new());
        let (others, sampled) = (steps.iter().filter(|step| !is_notified(step)), samples(&datagrams, false));
        assert_eq!(others.clone().count(), sampled.len());
        for (step, found) in others.zip(&sampled) {
            match step {
                Step::Count(counters) => check_counters(counters, found, &mut counted),
                _ => check_sample(step, found, &mut numbers),
            }
        }
        let (notified, found) = (steps.iter().filter(is_notified), samples(&datagrams, true));
        assert_eq!(notified.clone().count(), found.len());
        for ((step, found), sequence) in notified.zip(&found).zip(1..) {
            check_notification(step, found, sequence);
        }
    }
}

#[test]
fn numbers_wrap_around() {
    let packet =
        || Step::Sample { bytes: vec![0; 60], wire_len: 60, input: 7, output: Output::Unknown, rate: 3, lost: 0 };
    let agent = IpAddr::from([192, 0, 2, 1]);
    let mut sflow = Sflow::new(agent, Encoding::Compact).starting_at(u32::MAX, &[7]);
    let datagrams: Vec<SFlowDatagram> = (0..3).flat_map(|_| exported(&mut sflow, &[packet()])).collect();
    let of = |datagram: &SFlowDatagram| {
        let SampleData::FlowSample(sample) = &datagram.samples[0].sample_data else { panic!("{datagram:?}") };
        (datagram.sequence_number, sample.sequence_number, sample.sample_pool)
    };
    let numbers: Vec<_> = datagrams.iter().map(of).collect();
    assert_eq!(numbers, [(u32::MAX, u32::MAX, 1), (0, 0, 4), (1, 1, 7)]);
}

#[test]
fn one_large_index_makes_all_samples_expanded() {
    assert_eq!(Encoding::of([1, 0x00ff_ffff]), Encoding::Compact);
    assert_eq!(Encoding::of([1, 0x0100_0000]), Encoding::Expanded);
}

#[test]
fn packets_without_ethernet_have_no_check_sequence() {
    let (mut sflow, mut sent) = (Sflow::new(IpAddr::from([192, 0, 2, 1]), Encoding::Compact), Vec::new());
    let packet = Packet { protocol: HeaderProtocol::Ipv6, bytes: &[0x60; 40], wire_len: 40, input: 1 };
    sflow.sample(packet, Output::Host, 1, 0, &mut |_| ());
    sflow.flush(0, &mut |datagram| sent.push(datagram.to_vec()));
    let datagram = sflow_parser::parse_datagram(&sent[0]).expect("the decoder reads it");
    let SampleData::FlowSample(sample) = &datagram.samples[0].sample_data else { panic!("{datagram:?}") };
    let FlowData::SampledHeader(header) = &sample.flow_records[0].flow_data else { panic!("{datagram:?}") };
    assert_eq!((header.protocol as u32, header.frame_length, header.stripped), (12, 40, 0));
}
