//! Tests lists of limits with good and bad lines to the letter, and parents and entries against their definition.

use super::*;
use crate::entries::Prefixes;
use crate::list::ReadReport;
use crate::problem::Problem;
use proptest::prelude::*;
use weir_abi::{Family, Layout};

fn limit(text: &str) -> Limit {
    text.parse().unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

fn read(text: &str) -> Result<(LimitTable, ReadReport), String> {
    let mut limits = PrefixLimits::default();
    let report = limits.read("l.csv", text.as_bytes(), BadLines::Refuse).map_err(|error| error.to_string())?;
    Ok((limits.settle().map_err(|error| error.to_string())?, report))
}

/// `10.0.0.0/8 5pps burst 10packets`, in the order of labels.
fn shown(table: &LimitTable, family: Family) -> Vec<String> {
    let labelled = table.family(family);
    let prefixes: Vec<String> = match &labelled.prefixes {
        Prefixes::V4(prefixes) => prefixes.iter().map(|prefix| format!("{} {prefix}", prefix.label)).collect(),
        Prefixes::V6(prefixes) => prefixes.iter().map(|prefix| format!("{} {prefix}", prefix.label)).collect(),
    };
    prefixes
        .iter()
        .zip(&labelled.limits)
        .map(|(text, &number)| format!("{text} {}", table.profiles.limit(number)))
        .collect()
}

#[test]
fn both_families_share_a_list() {
    let text = "prefix,rate,burst\n# comment\n10.0.0.0/8,5\n2001:db8::/32, 10mbit , 64kbytes # the office\r\n\n\
                10.1.0.0/16,20kpps,100,ignored\n\"192.0.2.1\",400/minute,\n; more\n10.0.0.0/8,5pps,10";
    let (table, report) = read(text).unwrap();
    assert_eq!(
        shown(&table, Family::Ipv4),
        [
            "1 10.0.0.0/8 5pps burst 10packets",
            "2 10.1.0.0/16 20kpps burst 100packets",
            "3 192.0.2.1/32 400/minute burst 10packets"
        ]
    );
    assert_eq!(shown(&table, Family::Ipv6), ["1 2001:db8::/32 10mbit burst 64kbytes"]);
    assert_eq!((table.len(Family::Ipv4), table.len(Family::Ipv6), table.rates()), (3, 1, 4));
    assert_eq!((report.prefixes, report.lines, report.skipped), (5, 9, 0));
    assert_eq!((table.by_length(Family::Ipv4)[8], table.by_length(Family::Ipv6)[32]), (1, 1));
}

#[test]
fn bad_lines_are_named() {
    let text = "10.0.0.0/8,5\n10.0.0.0/33,5\n10.0.0.0-10.0.0.9,5\nHR,5\n10.1.0.0/16\n10.1.0.0/16,\n10.1.0.0/16,fast\n10.1.0.0/16,251mpps\n\
                10.1.0.0/16,1bit\n10.1.0.0/16,5,0\n10.1.0.0/16,5,9bytes\n10.1.0.0/16,1mbit,99\n10.1.0.0/16,1/hour,99\n2001:db8::/129,5";
    let expected = "\
l.csv:2: `10.0.0.0/33,5`: prefix length above 32
l.csv:3: `10.0.0.0-10.0.0.9,5`: a range is no prefix: give each of its prefixes a limit
l.csv:4: `HR,5`: not an IPv4 address, prefix or range
l.csv:5: `10.1.0.0/16`: rate missing after `,`
l.csv:6: `10.1.0.0/16,`: rate missing after `,`
l.csv:7: `10.1.0.0/16,fast`: not a rate such as `500`, `20kpps`, `400/minute` or `10mbit`
l.csv:8: `10.1.0.0/16,251mpps`: packet rates go from 1/hour to 250mpps
l.csv:9: `10.1.0.0/16,1bit`: bit rates go from 8kbit to 1tbit
l.csv:10: `10.1.0.0/16,5,0`: a burst is at least one packet
l.csv:11: `10.1.0.0/16,5,9bytes`: the burst of a packet rate is in packets
l.csv:12: `10.1.0.0/16,1mbit,99`: a burst is at least 1514 bytes, or longer packets would never pass
l.csv:13: `10.1.0.0/16,1/hour,99`: the rate takes more than 78 hours for the burst
l.csv:14: `2001:db8::/129,5`: prefix length above 128";
    assert_eq!(read(text).unwrap_err(), expected);

    let mut limits = PrefixLimits::default();
    limits.insert("192.0.2.0".parse().unwrap(), 24, limit("7"), "edge.weir:3").unwrap();
    limits.read("l.csv", text.as_bytes(), BadLines::Refuse).unwrap_err();
    let report = limits.read("l.csv", text.as_bytes(), BadLines::Skip).unwrap();
    assert_eq!((report.skipped, report.prefixes, report.first_skipped[0].line), (13, 1, 2));
    let table = limits.settle().unwrap();
    assert_eq!(table.len(Family::Ipv4), 2, "what a refused list held is gone");
}

#[test]
fn a_header_is_two_words_in_the_first_line() {
    assert_eq!(read("Network;Rate\n").unwrap_err(), "l.csv:1: `Network;Rate`: rate missing after `,`");
    assert_eq!(read("a,5\n").unwrap_err(), "l.csv:1: `a,5`: not an IPv4 address, prefix or range");
    assert!(read("# list\nnet,pps\n").is_ok());
    assert!(read("10.0.0.0/8,5\nnet,pps\n").is_err());
}

#[test]
fn two_limits_of_a_prefix_name_both_places() {
    let text = "10.0.0.0/8,5\n10.0.0.0/8,60/minute,10\n10.0.0.0/8,300/minute,10\n";
    assert_eq!(
        read(text).unwrap_err(),
        "l.csv:2: 10.0.0.0/8 is limited to 60/minute burst 10packets, and in l.csv:1 to 5pps burst 10packets"
    );
    let mut limits = PrefixLimits::default();
    limits.insert("2001:db8::".parse().unwrap(), 32, limit("5"), "edge.weir:4").unwrap();
    limits.read("l.csv", b"2001:db8::/32,6", BadLines::Skip).unwrap();
    let error = limits.settle().unwrap_err().to_string();
    assert_eq!(
        error,
        "l.csv:1: 2001:db8::/32 is limited to 6pps burst 10packets, and in edge.weir:4 to 5pps burst 10packets"
    );
}

/// Ignored text contains no other limit.
#[test]
fn one_limit_a_line() {
    for line in
        ["10.0.0.0/8,5;11.0.0.0/8,6", "10.0.0.0/8,5,10,11.0.0.0/8,6", "10.0.0.0/8,5,10 ; HR,6", "10.0.0.0/8,5,10,x,::1"]
    {
        assert_eq!(read(line).unwrap_err(), format!("l.csv:1: `{line}`: {}", Problem::SecondLimit));
    }
    assert_eq!(read("10.0.0.0/8,5,10,x ; y # 11.0.0.0/8,5\n").unwrap().1.commented.count, 1);
    assert!(read("").unwrap_err().contains("the file is empty"));
    assert_eq!(read("# none").unwrap().0.len(Family::Ipv4), 0);
    assert_eq!(read("10.0.0.0/8,5\r11.0.0.0/8,6\r").unwrap().0.len(Family::Ipv4), 2);
}

/// A limit for 65,536 addresses and one for a single address look alike if host bits are cleared.
#[test]
fn host_bits_are_refused() {
    assert_eq!(
        read("10.0.0.0/8,5\n10.1.2.3/16,5\n").unwrap_err(),
        "l.csv:2: `10.1.2.3/16,5`: bits are set behind the length: write `10.1.0.0/16` for the network, or `10.1.2.3` \
         for the one address"
    );
    assert!(read("2001:db8::1/64,5").unwrap_err().contains("write `2001:db8::/64` for the network"));
}

#[test]
fn padded_octets_are_read_as_in_other_lists() {
    let (table, report) = read("010.008.000.000/16,5\n010.009.020.000/24,5\n").unwrap();
    assert_eq!((report.padded.count, report.padded.line), (2, Some(1)));
    assert_eq!(shown(&table, Family::Ipv4)[1], "2 10.9.20.0/24 5pps burst 10packets");
    let ambiguous = read("10.0.0.0/8,5\n010.1.0.0/16,5\n").unwrap_err();
    assert!(ambiguous.starts_with("l.csv:2: `010.1.0.0/16,5`: `010` is 8 (octal) to some programs and 10 to others"));
}

#[test]
fn entries_follow_labels() {
    let (table, _) = read("10.0.0.0/8,5\n10.1.0.0/16,6\n10.1.2.0/24,5\n10.2.0.0/16,7\n11.0.0.0/8,5\n").unwrap();
    let profiles = ["5", "6", "7", "8"].map(|text| limit(text).profile());
    let pairs = |nesting, default| {
        let entries = table.entries(Family::Ipv4, nesting, default);
        let pairs: Vec<(u32, u32)> = entries.entries.iter().map(|entry| (entry.profile, entry.parent)).collect();
        (entries.profiles, pairs)
    };
    assert_eq!((table.depth(Family::Ipv4), table.depth(Family::Ipv6)), (3, 0));
    let (given, entries) = pairs(Nesting::Nested, Some(limit("6")));
    assert_eq!(given, [LimitProfile::default(), profiles[0], profiles[1], profiles[2]]);
    assert_eq!(entries, [(2, 0), (1, 0), (2, 1), (1, 2), (3, 1), (1, 0)]);
    let (given, entries) = pairs(Nesting::Flat, Some(limit("8")));
    assert_eq!((given.len(), given[4], entries[0], entries[3]), (5, profiles[3], (4, 0), (1, 0)));
    assert_eq!(pairs(Nesting::Flat, None).1[0], (0, 0));
    let empty = table.entries(Family::Ipv6, Nesting::Nested, None);
    assert_eq!(empty.entries, [LimitEntry::default()]);
}

#[test]
fn labels_have_limits() {
    let mut limits = LabelLimits::default();
    limits.insert("HR", limit("100"), "edge.weir:1").unwrap();
    limits.read("r.csv", b"country,rate\nHR,100\nCN,1kpps,20\n\"A, B\",5\nXX,5\n", BadLines::Refuse).unwrap();
    let rates = limits.settle().unwrap();
    let of_table = ["AT", "HR", "CN", "A, B"];
    assert_eq!((rates.len(), rates.rates(), rates.unknown(&of_table)), (4, 3, vec!["XX"]));
    let profiles_of = |default| {
        let LimitEntries { profiles, entries } = rates.entries(&of_table, default);
        entries.iter().map(|entry| profiles[entry.profile as usize]).collect::<Vec<_>>()
    };
    let open = LimitProfile::default();
    let [hr, cn, ab, others] = ["100", "1kpps burst 20", "5", "9"].map(|text| limit(text).profile());
    assert_eq!(profiles_of(None), [open, open, hr, cn, ab]);
    assert_eq!(profiles_of(Some(limit("9"))), [open, others, hr, cn, ab]);

    let refused = |text: &str| {
        let mut limits = LabelLimits::default();
        match limits.read("r.csv", text.as_bytes(), BadLines::Refuse) {
            Ok(_) => limits.settle().unwrap_err().to_string(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(refused("HR,5\n,5\n"), "r.csv:2: `,5`: label missing");
    assert_eq!(
        refused("HR,5\nHR,6\n"),
        "r.csv:2: `HR` is limited to 6pps burst 10packets, and in r.csv:1 to 5pps burst 10packets"
    );
}

proptest! {
    /// A parent is the longest other prefix that contains the whole prefix. An image finds what the reference finds.
    #[test]
    fn parents_and_labels_are_as_defined(given in prop::collection::vec((0..1u32 << 12, 0..=32u8), 1..60), probes in prop::collection::vec(any::<u32>(), 20)) {
        let lines: String = given.iter().map(|&(addr, len)| format!("{},5\n", crate::prefix::Prefix::new(addr << 20 | addr, len, 0))).collect();
        let (table, _) = read(&lines).unwrap();
        let Prefixes::V4(prefixes) = &table.families[0].prefixes else { panic!("of IPv4") };
        let entries = table.entries(Family::Ipv4, Nesting::Nested, None);
        for (index, prefix) in prefixes.iter().enumerate() {
            let around = prefixes.iter().filter(|outer| outer.len < prefix.len && outer.addr <= prefix.addr && outer.last() >= prefix.last());
            let parent = around.max_by_key(|outer| outer.len).map_or(0, |outer| outer.label);
            prop_assert_eq!(entries.entries[index + 1].parent, parent);
        }
        let (image, reference) = (table.build(Family::Ipv4, Layout::RankLeaf).unwrap(), table.reference(Family::Ipv4));
        for addr in prefixes.iter().flat_map(|prefix| [prefix.addr, prefix.last(), prefix.last().wrapping_add(1)]).chain(probes) {
            let longest = prefixes.iter().filter(|prefix| prefix.addr <= addr && addr <= prefix.last()).max_by_key(|prefix| prefix.len);
            prop_assert_eq!(reference.find4(addr), longest.map_or(0, |prefix| prefix.label));
            prop_assert_eq!(image.view().find4(addr), reference.find4(addr));
        }
    }

    /// Any bytes are parsed or refused. Whatever strict reading accepts, lenient reading accepts too.
    #[test]
    fn any_bytes_are_survived(lines in prop::collection::vec("[0-9a-z./:,# \"-]{0,30}", 0..20)) {
        let text = lines.join("\n");
        let mut lenient = PrefixLimits::default();
        let lenient_report = lenient.read("l.csv", text.as_bytes(), BadLines::Skip);
        if let Ok((table, report)) = read(&text) {
            prop_assert!(lenient_report.is_ok());
            prop_assert!(report.skipped == 0 && (table.len(Family::Ipv4) + table.len(Family::Ipv6)) as u64 <= report.prefixes);
            prop_assert_eq!(shown(&lenient.settle().unwrap(), Family::Ipv4), shown(&table, Family::Ipv4));
        }
    }
}
