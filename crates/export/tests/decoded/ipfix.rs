//! IPFIX, read by `netflow_parser`.

use netflow_parser::variable_versions::field_value::FieldValue;
use netflow_parser::variable_versions::ipfix::lookup::IPFixField;
use netflow_parser::variable_versions::ipfix::{FlowSetBody, Header};
use netflow_parser::{NetflowPacket, NetflowParser};
use proptest::prelude::*;
use weir_export::DATAGRAM_BYTES_MAX;
use weir_export::flows::{Addresses, End, Flow, Key};
use weir_export::ipfix::{Ipfix, Now, TEMPLATES_MS};

/// A record: the bytes of each element, in order.
type Record = Vec<(u16, Vec<u8>)>;

fn addresses() -> impl Strategy<Value = Addresses> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(source, destination)| Addresses::V4(source, destination)),
        any::<([u8; 16], [u8; 16])>().prop_map(|(source, destination)| Addresses::V6(source, destination)),
    ]
}

fn flow() -> impl Strategy<Value = (Key, Flow, End)> {
    let end = prop_oneof![Just(End::Idle), Just(End::Active), Just(End::Forced), Just(End::Full)];
    // The decoder does not keep reserved numbers of the status.
    let status = prop_oneof![Just(64u8), Just(128), Just(129), Just(136), Just(138), Just(192), Just(195)];
    let ports = any::<(u8, u16, u16, u16)>();
    (addresses(), ports, any::<(u32, u32)>(), status, any::<[u64; 4]>(), any::<u8>(), end).prop_map(
        |(addresses, (protocol, source_port, destination_port, icmp), (input, output), status, of, tcp_flags, end)| {
            let key = Key { addresses, protocol, source_port, destination_port, icmp, input, output, status };
            let [first_ms, last_ms, packets, bytes] = of;
            (key, Flow { first_ms, last_ms, packets, bytes, tcp_flags }, end)
        },
    )
}

/// The record that a collector must find, by the elements' numbers of IANA.
fn expected(key: &Key, flow: &Flow, end: End, one_in: u32) -> Record {
    let [source, destination, icmp] = match key.addresses {
        Addresses::V4(source, destination) => [(8, source.to_vec()), (12, destination.to_vec()), (32, Vec::new())],
        Addresses::V6(source, destination) => [(27, source.to_vec()), (28, destination.to_vec()), (139, Vec::new())],
    };
    let u16s = |element: u16, value: u16| (element, value.to_be_bytes().to_vec());
    let u32s = |element: u16, value: u32| (element, value.to_be_bytes().to_vec());
    let u64s = |element: u16, value: u64| (element, value.to_be_bytes().to_vec());
    vec![
        source,
        destination,
        u16s(icmp.0, key.icmp),
        u16s(7, key.source_port),
        u16s(11, key.destination_port),
        (4, vec![key.protocol]),
        (89, vec![key.status]),
        (136, vec![end as u8]),
        (6, vec![flow.tcp_flags]),
        u32s(10, key.input),
        u32s(14, key.output),
        u64s(2, flow.packets),
        u64s(1, flow.bytes),
        u64s(152, flow.first_ms),
        u64s(153, flow.last_ms),
        u32s(34, one_in),
    ]
}

/// A collector with what it has read.
#[derive(Default)]
struct Collector {
    parser: NetflowParser,
    headers: Vec<Header>,
    records: Vec<Record>,
    options: Vec<Record>,
    templates: usize,
}

impl Collector {
    fn read(&mut self, message: &[u8]) {
        assert!(message.len() <= DATAGRAM_BYTES_MAX && message.len().is_multiple_of(4), "{}", message.len());
        let result = self.parser.parse_bytes(message);
        assert!(result.error.is_none(), "{:?}", result.error);
        let [NetflowPacket::IPFix(packet)] = &*result.packets else { panic!("{:?}", result.packets) };
        assert_eq!(usize::from(packet.header.length), message.len());
        self.headers.push(packet.header);
        for set in &packet.flowsets {
            match &set.body {
                FlowSetBody::Data(data) => self.records.extend(data.fields.iter().map(|one| record(one))),
                FlowSetBody::OptionsData(data) => self.options.extend(data.fields.iter().map(|one| record(one))),
                FlowSetBody::Templates(templates) => self.templates += templates.len(),
                FlowSetBody::Template(_) | FlowSetBody::OptionsTemplate(_) => self.templates += 1,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn record(fields: &[(IPFixField, FieldValue)]) -> Record {
    let number = |field: &IPFixField| {
        (1..=200).find(|number| IPFixField::new(*number, None) == *field).expect("an element of IANA")
    };
    let bytes = |value: &FieldValue| {
        let mut bytes = Vec::new();
        value.write_be_bytes(&mut bytes).expect("memory takes it");
        bytes
    };
    fields.iter().map(|(field, value)| (number(field), bytes(value))).collect()
}

/// Records of both families in their own order: a message has a set of each.
fn by_family(records: &[Record]) -> [Vec<&Record>; 2] {
    [8, 27].map(|source| records.iter().filter(|record| record[0].0 == source).collect())
}

proptest! {
    #[test]
    fn a_decoder_reads_what_was_exported(
        flows in prop::collection::vec(flow(), 1..60),
        (domain, one_in, before) in any::<(u32, u32, u32)>(),
        (clock_ms, unix_ms) in (any::<u64>(), 0..u64::from(u32::MAX) * 1000),
    ) {
        let now = Now { clock_ms, unix_ms };
        let mut ipfix = Ipfix::new(domain, one_in).starting_at(before);
        let mut collector = Collector::default();
        for (key, flow, end) in &flows {
            ipfix.add(key, flow, *end, now, &mut |message| collector.read(message));
        }
        ipfix.flush(now, &mut |message| collector.read(message));
        let at = |at_ms: u64| unix_ms.saturating_sub(clock_ms.saturating_sub(at_ms));
        let unix = |flow: &Flow| Flow { first_ms: at(flow.first_ms), last_ms: at(flow.last_ms), ..*flow };
        let wanted: Vec<Record> =
            flows.iter().map(|(key, flow, end)| expected(key, &unix(flow), *end, one_in)).collect();
        assert_eq!(by_family(&collector.records), by_family(&wanted));
        let sampling =
            vec![(149, domain.to_be_bytes().to_vec()), (34, one_in.to_be_bytes().to_vec()), (35, vec![2])];
        assert_eq!(&collector.options, &[sampling]);
        assert_eq!(collector.templates, 3);
        let headers = &collector.headers;
        assert!(headers.iter().all(|header| header.observation_domain_id == domain));
        assert!(headers.iter().all(|header| u64::from(header.export_time) == unix_ms / 1000));
        assert_eq!(headers[0].sequence_number, before);
        assert_eq!(headers[1].sequence_number, before.wrapping_add(1), "options are a data record");
    }
}

fn plain(last: u8) -> (Key, Flow) {
    let addresses = Addresses::V4([192, 0, 2, last], [198, 51, 100, 1]);
    let (source_port, destination_port, icmp, input, output) = (1, 2, 0, 3, 4);
    let key = Key { addresses, protocol: 17, source_port, destination_port, icmp, input, output, status: 64 };
    (key, Flow { first_ms: 1, last_ms: 2, packets: 3, bytes: 4, tcp_flags: 0 })
}

fn at(clock_ms: u64) -> Now {
    Now { clock_ms, unix_ms: 1_700_000_000_000 + clock_ms }
}

#[test]
fn sequence_numbers_count_records_and_wrap_around() {
    let mut ipfix = Ipfix::new(1, 10).starting_at(u32::MAX - 20);
    let mut collector = Collector::default();
    for last in 0..100 {
        let (key, flow) = plain(last);
        ipfix.add(&key, &flow, End::Idle, at(0), &mut |message| collector.read(message));
    }
    ipfix.flush(at(0), &mut |message| collector.read(message));
    let numbers: Vec<u32> = collector.headers.iter().map(|header| header.sequence_number).collect();
    // 22 records of 62 bytes fit. The first record is the one of options.
    let before = u32::MAX - 20;
    let wanted = [0, 1, 23, 45, 67, 89].map(|records| before.wrapping_add(records));
    assert_eq!(numbers, wanted);
    assert_eq!(collector.records.len(), 100);
}

#[test]
fn templates_come_first_and_again() {
    let mut ipfix = Ipfix::new(1, 1);
    let mut collector = Collector::default();
    let (key, flow) = plain(1);
    for now_ms in [1000, 1000 + TEMPLATES_MS - 1, 1000 + TEMPLATES_MS, 1000 + 2 * TEMPLATES_MS] {
        ipfix.flush(at(now_ms), &mut |message| collector.read(message));
    }
    assert_eq!((collector.headers.len(), collector.templates, collector.options.len()), (3, 9, 3));
    ipfix.add(&key, &flow, End::Idle, at(1000), &mut |message| collector.read(message));
    ipfix.flush(at(1000), &mut |message| collector.read(message));
    assert_eq!((collector.headers.len(), collector.records.len()), (4, 1), "times that go back send no templates");
}
