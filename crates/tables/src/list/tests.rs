//! Tests every format with good and bad input to the letter, and properties of all formats: line numbers, chunks, odd
//! bytes.

use super::*;
use crate::entries::Kind;
use crate::prefix::{Prefix4, Prefix6};
use crate::problem::Problem;
use proptest::prelude::*;
use std::num::NonZero;
use weir_abi::Family;

mod database;
mod published;
mod readings;

const LENIENT: ReadOptions = ReadOptions { field_path: None, lenient: true, threads: None };

fn read4(kind: Kind, name: &str, text: &str) -> Result<(Vec<String>, ReadReport), String> {
    let mut entries = Entries::new(Family::Ipv4, kind);
    let report = entries.read(name, text.as_bytes(), &ReadOptions::default()).map_err(|error| error.to_string())?;
    Ok((shown4(entries), report))
}

fn shown4(entries: Entries) -> Vec<String> {
    let table = entries.settle();
    let label = |prefix: &Prefix4| table.labels().get(prefix.label as usize - 1).map_or("", |label| label).to_owned();
    table.prefixes4().iter().map(|prefix| format!("{prefix} {}", label(prefix)).trim_end().to_owned()).collect()
}

fn set(name: &str, text: &str) -> Vec<String> {
    read4(Kind::Set, name, text).unwrap().0
}

fn labels(name: &str, text: &str) -> Vec<String> {
    read4(Kind::Labels, name, text).unwrap().0
}

fn set_error(name: &str, text: &str) -> String {
    read4(Kind::Set, name, text).unwrap_err()
}

fn label_error(name: &str, text: &str) -> String {
    read4(Kind::Labels, name, text).unwrap_err()
}

fn set6(name: &str, text: &str) -> Result<Vec<String>, String> {
    let mut entries = Entries::new(Family::Ipv6, Kind::Set);
    entries.read(name, text.as_bytes(), &ReadOptions::default()).map_err(|error| error.to_string())?;
    Ok(entries.settle().prefixes6().iter().map(Prefix6::to_string).collect())
}

#[test]
fn plain_lists() {
    let text = "# FireHOL netset\n\n198.51.100.7\n192.0.2.0/28 ; SBL1\r\n  10.0.0.1\t# tail\n;\n10.1.0.0-10.1.0.2 text, more\n0.0.0.0/0";
    assert_eq!(
        set("a.netset", text),
        ["0.0.0.0/0", "10.0.0.1/32", "10.1.0.0/31", "10.1.0.2/32", "192.0.2.0/28", "198.51.100.7/32"]
    );
    assert_eq!(set6("a.txt", "::/0\n2001:db8::1-2001:db8::2\nfe80::/10 # x\n::ffff:1.2.3.4").unwrap().len(), 5);
}

#[test]
fn ranges_with_blanks_are_ranges_and_dashes_in_text_are_text() {
    assert_eq!(set("a", "10.0.0.0 - 10.0.0.255"), ["10.0.0.0/24"]);
    assert_eq!(set("a", "10.0.0.0\t-\t10.0.0.255 Example"), ["10.0.0.0/24"]);
    assert_eq!(set("a", "10.0.0.0 - seen twice"), ["10.0.0.0/32"]);
    assert_eq!(set_error("a", "10.0.0.9 - 10.0.0.1"), "a:1: `10.0.0.9 - 10.0.0.1`: range ends before it starts");
}

#[test]
fn ranges_become_the_fewest_prefixes() {
    assert_eq!(set("a", "0.0.0.0-255.255.255.255"), ["0.0.0.0/0"]);
    assert_eq!(set("a", "255.255.255.255-255.255.255.255"), ["255.255.255.255/32"]);
    assert_eq!(set("a", "0.0.0.1-255.255.255.254").len(), 62);
    assert_eq!(set6("a", "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").unwrap(), ["::/0"]);
    assert_eq!(set6("a", "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe").unwrap().len(), 254);
}

#[test]
fn bad_plain_lines() {
    let bad = |line: &str| set_error("l.txt", line);
    let no_address = "not an IPv4 address, prefix or range";
    for line in ["1.2.3", "1.2.3.4.5", "1.2.3.256", "1.2.3.4x", "x", "1.2.3.4/24x", "1..2.3", "-1.2.3.4"] {
        assert_eq!(bad(line), format!("l.txt:1: `{line}`: {no_address}"));
    }
    assert_eq!(bad("1.2.3.4-"), format!("l.txt:1: `1.2.3.4-`: {no_address}"));
    assert_eq!(bad("1.2.3.0/33"), "l.txt:1: `1.2.3.0/33`: prefix length above 32");
    assert_eq!(bad("1.2.3.0/4294967300"), "l.txt:1: `1.2.3.0/4294967300`: prefix length above 32");
    assert_eq!(bad("1.2.3.0/"), "l.txt:1: `1.2.3.0/`: prefix length missing after `/`");
    assert_eq!(bad("1.2.3.0/-1"), "l.txt:1: `1.2.3.0/-1`: prefix length missing after `/`");
    assert_eq!(bad("1.2.3.4-1.2.3.3"), "l.txt:1: `1.2.3.4-1.2.3.3`: range ends before it starts");
    assert_eq!(bad("2001:db8::/32"), "l.txt:1: `2001:db8::/32`: address of the other family in an IPv4 table");
    assert_eq!(bad("1.2.3.4-::1"), "l.txt:1: `1.2.3.4-::1`: address of the other family in an IPv4 table");
    assert_eq!(set6("l", "1.2.3.4").unwrap_err(), "l:1: `1.2.3.4`: address of the other family in an IPv6 table");
    assert_eq!(set6("l", "::1/129").unwrap_err(), "l:1: `::1/129`: prefix length above 128");
    assert_eq!(set6("l", "fe80::1%eth0").unwrap_err(), "l:1: `fe80::1%eth0`: not an IPv6 address, prefix or range");
    assert_eq!(label_error("l", "1.2.3.4 US"), "l:1: `1.2.3.4 US`: label missing");
    assert_eq!(bad("1.1.1.1\n1.2.3.4,x"), format!("l.txt:2: `1.2.3.4,x`: {no_address}"));
}

#[test]
fn nothing_is_a_list_too() {
    for text in ["", "\n", "\u{feff}", "  \t\r\n"] {
        for name in ["a.txt", "a.csv"] {
            let said = "the file is empty; a list that is meant to be says so in a comment, such as `# none`";
            assert_eq!(read4(Kind::Set, name, text).unwrap_err(), format!("{name}: {said}"));
        }
    }
    for text in ["# only\n;comments\n\n", "\u{feff}# x", "#"] {
        for name in ["a.txt", "a.csv"] {
            let (prefixes, report) = read4(Kind::Labels, name, text).unwrap();
            assert_eq!((prefixes.len(), report.prefixes), (0, 0), "{text:?}");
        }
    }
}

#[test]
fn csv_lists() {
    let text = "\u{feff}# made today\r\nstart_ip,end_ip,country\r\n1.0.0.0,1.0.0.255,AU\r\n\"1.0.4.0\",\"1.0.7.255\",\"CN\"\r\n";
    assert_eq!(labels("geo.csv", text), ["1.0.0.0/24 AU", "1.0.4.0/22 CN"]);
    let text = "network,label,more\n1.0.0.0/24, Bosnia and Herzegovina ,x\n10.0.0.1,\"a, \"\"b\"\"\",\n1.1.0.0-1.1.0.255,AS13335,\"x\"\n";
    assert_eq!(
        labels("a.csv", text),
        ["1.0.0.0/24 Bosnia and Herzegovina", "1.1.0.0/24 AS13335", "10.0.0.1/32 a, \"b\""]
    );
    assert_eq!(labels("no-extension", "1.0.0.0/8,x"), ["1.0.0.0/8 x"]);
    assert_eq!(set("a.csv", "1.0.0.0,1.0.0.255,AU\n2.0.0.0,2.255.255.255,\n"), ["1.0.0.0/24", "2.0.0.0/8"]);
    assert_eq!(set("a.csv", "1.0.0.0\n2.0.0.0/8\n"), ["1.0.0.0/32", "2.0.0.0/8"]);
    assert_eq!(set("a.csv", "first,last\n1.0.0.0,1.0.0.255\n2.0.0.0,2.255.255.255\n"), ["1.0.0.0/24", "2.0.0.0/8"]);
}

#[test]
fn bad_csv_lines() {
    let bad = |line: &str| label_error("g.csv", &format!("a,b\n{line}"));
    assert_eq!(bad("1.0.0.0,1.0.0.256,AU"), "g.csv:2: `1.0.0.0,1.0.0.256,AU`: not an IPv4 address, prefix or range");
    assert_eq!(bad("1.0.0.0,::1,AU"), "g.csv:2: `1.0.0.0,::1,AU`: address of the other family in an IPv4 table");
    assert_eq!(bad("1.0.0.9,1.0.0.1,AU"), "g.csv:2: `1.0.0.9,1.0.0.1,AU`: range ends before it starts");
    assert_eq!(bad("1.0.0.0,1.0.0.255"), "g.csv:2: `1.0.0.0,1.0.0.255`: label missing");
    assert_eq!(bad("1.0.0.0/8"), "g.csv:2: `1.0.0.0/8`: label missing");
    assert_eq!(bad("1.0.0.0/8,\"x"), "g.csv:2: `1.0.0.0/8,\"x`: unbalanced quotes");
    assert_eq!(bad("1.0.0.0/8,\"x\"y"), "g.csv:2: `1.0.0.0/8,\"x\"y`: unbalanced quotes");
    assert_eq!(bad("header,again"), "g.csv:2: `header,again`: not an IPv4 address, prefix or range");
    let long = "x".repeat(300);
    assert!(bad(&format!("1.0.0.0/8,{long}")).ends_with("…`: label longer than 255 bytes"));
    let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
    let error = entries.read("g", b"1.0.0.0/8,\xff\xfe", &ReadOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "g:1: `1.0.0.0/8,\u{fffd}\u{fffd}`: label is not UTF-8 text");
}

#[test]
fn ipset_lists() {
    let text = "create a hash:ip family inet hashsize 1024 maxelem 65536\nadd a 1.2.3.4 timeout 9\n\
                add a 10.0.0.0/8 comment \"nomatch here\"\n";
    assert_eq!(set("x", text), ["1.2.3.4/32", "10.0.0.0/8"]);
    assert_eq!(
        set6("x", "create c hash:ip family inet6 hashsize 1024\nadd c 2001:db8::1").unwrap(),
        ["2001:db8::1/128"]
    );
}

#[test]
fn bad_ipset_lines() {
    let bad = |line: &str| set_error("s", &format!("create a hash:net family inet\n{line}"));
    assert_eq!(
        bad("add a 10.0.0.0/8 nomatch"),
        "s:2: `add a 10.0.0.0/8 nomatch`: `nomatch` entries are not supported: a table has no exceptions"
    );
    assert_eq!(bad("flush a"), "s:2: `flush a`: not a `create` or `add` line of `ipset save`");
    assert_eq!(bad("add a"), "s:2: `add a`: not a `create` or `add` line of `ipset save`");
    assert_eq!(
        bad("create p hash:ip,port family inet\nadd p 1.2.3.4,tcp:80"),
        "s:2: `create p hash:ip,port family inet`: set type `hash:ip,port` not supported: only hash:ip, hash:net and \
         bitmap:ip are lists of addresses\ns:3: `add p 1.2.3.4,tcp:80`: not an IPv4 address, prefix or range"
    );
    assert_eq!(
        bad("create q hash:ip family inet6"),
        "s:2: `create q hash:ip family inet6`: address of the other family in an IPv4 table"
    );
}

#[test]
fn formats_are_recognised() {
    let cases = [
        ("x.csv", "1.2.3.4", Format::Csv),
        ("x.CSV", "", Format::Csv),
        ("x", "# c\n\n1.2.3.4,US", Format::Csv),
        ("x", "network,label", Format::Csv),
        ("x.txt", "1.2.3.4 a, b", Format::Plain),
        ("x", "1.2.3.4 # a,b", Format::Plain),
        ("x", "", Format::Plain),
        ("x", "create s hash:ip", Format::Ipset),
        ("x.txt", "add s 1.2.3.4", Format::Ipset),
        ("x.mmdb", "", Format::Mmdb),
        ("x.bin", "\u{1}", Format::Plain),
    ];
    for (name, text, format) in cases {
        assert_eq!(Format::detect(name, text.as_bytes()), format, "{name} {text:?}");
    }
}

/// A list long enough for several chunks.
fn long_list(lines: u32) -> String {
    (0..lines).map(|index| format!("10.{}.{}.{}\n", index >> 16 & 255, index >> 8 & 255, index & 255)).collect()
}

#[test]
fn line_77001_is_named_however_many_threads_read() {
    let mut lines: Vec<String> = long_list(120_000).lines().map(str::to_owned).collect();
    lines[77_000] = "10.1.300.9".to_owned();
    let text = lines.join("\n");
    for threads in [1, 2, 3, 7] {
        let options = ReadOptions { threads: NonZero::new(threads), ..ReadOptions::default() };
        let mut entries = Entries::new(Family::Ipv4, Kind::Set);
        let error = entries.read("bad.txt", text.as_bytes(), &options).unwrap_err();
        assert_eq!(error.to_string(), "bad.txt:77001: `10.1.300.9`: not an IPv4 address, prefix or range");
        assert!(entries.is_empty(), "a refused list leaves nothing behind");
    }
}

#[test]
fn many_bad_lines_are_cut_and_counted_in_order() {
    let text = long_list(120_000).replace(".77\n", ".x\n");
    for threads in [1, 3] {
        let options = ReadOptions { threads: NonZero::new(threads), ..ReadOptions::default() };
        let error = Entries::new(Family::Ipv4, Kind::Set).read("l", text.as_bytes(), &options).unwrap_err();
        let ListError::Lines { lines, total, .. } = &error else { panic!("{error}") };
        let numbers: Vec<_> = lines.iter().map(|bad| bad.line).collect();
        let expected: Vec<_> = (0..20).map(|index| 78 + 256 * index).collect();
        assert_eq!((numbers, *total), (expected, 469));
        assert!(error.to_string().ends_with("\nl: 449 more bad lines"));
    }
}

#[test]
fn lenient_counts_and_reports() {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    let report = entries.read("l", b"1.1.1.1\nbad\n::1\n2.2.2.2\n", &LENIENT).unwrap();
    assert_eq!((report.prefixes, report.lines, report.skipped), (2, 4, 2));
    let shown: Vec<_> = report.first_skipped.iter().map(BadLine::to_string).collect();
    assert_eq!(
        shown,
        [
            "line 2: `bad`: not an IPv4 address, prefix or range",
            "line 3: `::1`: address of the other family in an IPv4 table"
        ]
    );
}

#[test]
fn parallel_is_sequential() {
    let text: String = (0..90_000u32)
        .map(|index| match index % 1000 {
            7 => "# comment\r\n".to_owned(),
            8 => "\n".to_owned(),
            9 => "nonsense\n".to_owned(),
            _ => format!("{},L{}\n", std::net::Ipv4Addr::from(index.wrapping_mul(0x9e37_79b1)), index % 777),
        })
        .collect();
    let read = |threads| {
        let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
        let report =
            entries.read("l.csv", text.as_bytes(), &ReadOptions { threads: NonZero::new(threads), ..LENIENT }).unwrap();
        (shown4(entries), report)
    };
    let sequential = read(1);
    for threads in 2..9 {
        assert!(read(threads) == sequential, "{threads} threads");
    }
}

#[test]
fn a_huge_line_is_one_bad_line() {
    let text = "9".repeat(3 << 20);
    let error = set_error("h", &format!("1.1.1.1\n{text}\n"));
    assert_eq!(error, format!("h:2: `{}…`: not an IPv4 address, prefix or range", "9".repeat(60)));
}

#[test]
fn odd_bytes_are_shown_harmless() {
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    let error = entries.read("o", b"\x1b[31m\xff\0\xe2\x80\xaex\n", &ReadOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "o:1: `\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}x`: not an IPv4 address, prefix or range");
}

#[test]
fn too_many_prefixes_are_refused() {
    let line = "::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe\n";
    let mut entries = Entries::new(Family::Ipv6, Kind::Set);
    let error = entries.read("m", line.repeat((1 << 24) / 254 + 1).as_bytes(), &ReadOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "m: more than 16777216 prefixes");
}

#[test]
fn elements_of_a_policy() {
    let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
    entries.insert_text("10.0.0.0/8", Some("a")).unwrap();
    entries.insert_text("10.0.0.1-10.0.0.2", Some("b")).unwrap();
    entries.insert_range("1.1.1.1".parse().unwrap(), "1.1.1.1".parse().unwrap(), Some("a")).unwrap();
    assert_eq!(
        entries.insert_text("10.0.0.1 x", Some("a")).unwrap_err().to_string(),
        "not an IPv4 address, prefix or range"
    );
    assert_eq!(entries.insert_text("10.0.0.1", None), Err(Problem::NoLabel));
    assert_eq!(entries.insert_prefix("::1".parse().unwrap(), 32, Some("a")), Err(Problem::OtherFamily(Family::Ipv4)));
    assert_eq!(
        entries.insert_prefix("1.1.1.1".parse().unwrap(), 33, Some("a")),
        Err(Problem::LongLength(Family::Ipv4))
    );
    assert_eq!(shown4(entries), ["1.1.1.1/32 a", "10.0.0.0/8 a", "10.0.0.1/32 b", "10.0.0.2/32 b"]);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400), name in "[a-z]{0,3}(\\.csv|\\.mmdb)?") {
        for family in [Family::Ipv4, Family::Ipv6] {
            for kind in [Kind::Set, Kind::Labels] {
                let _ = Entries::new(family, kind).read(&name, &bytes, &ReadOptions::default());
                let _ = Entries::new(family, kind).read(&name, &bytes, &LENIENT);
            }
        }
    }

    #[test]
    fn no_text_panics(text in "([0-9a-f.:/,;#\" \t\r\n-]|create a hash:|add a |\n){0,80}") {
        for family in [Family::Ipv4, Family::Ipv6] {
            let _ = Entries::new(family, Kind::Labels).read("l", text.as_bytes(), &LENIENT);
            let _ = Entries::new(family, Kind::Set).read("l", text.as_bytes(), &LENIENT);
        }
    }

    #[test]
    fn addresses_read_as_the_standard_library_reads_them(text in "[0-9]{1,3}(\\.[0-9]{1,3}){3}") {
        let ours = Entries::new(Family::Ipv4, Kind::Set).insert_text(&text, None).is_ok();
        prop_assert_eq!(ours, text.parse::<std::net::Ipv4Addr>().is_ok());
    }

    #[test]
    fn ranges_cover_exactly(first: u32, size in 0u32..100_000) {
        let last = first.saturating_add(size);
        let mut entries = Entries::new(Family::Ipv4, Kind::Set);
        entries.insert_range(std::net::Ipv4Addr::from(first).into(), std::net::Ipv4Addr::from(last).into(), None).unwrap();
        let table = entries.settle();
        let mut next = u64::from(first);
        for prefix in table.prefixes4() {
            prop_assert_eq!(u64::from(prefix.addr), next);
            next = u64::from(prefix.last()) + 1;
        }
        prop_assert_eq!(next, u64::from(last) + 1);
    }
}

/// The rule's example, and its result by longest prefix match.
#[test]
fn of_ranges_that_overlap_the_smaller_decides_in_every_format() {
    let expected =
        ["1.2.3.0/29 AA", "1.2.3.8/31 AA", "1.2.3.10/31 BB", "1.2.3.12/30 BB", "1.2.3.16/30 BB", "1.2.3.20/32 BB"];
    let orders = [["1.2.3.0,1.2.3.9,AA", "1.2.3.5,1.2.3.20,BB"], ["1.2.3.5,1.2.3.20,BB", "1.2.3.0,1.2.3.9,AA"]];
    for lines in orders {
        assert_eq!(labels("a.csv", &lines.join("\n")), expected);
        let dashes = lines.map(|line| line.replacen(',', "-", 1));
        assert_eq!(labels("a.csv", &dashes.join("\n")), expected);
        let mut entries = Entries::new(Family::Ipv4, Kind::Labels);
        for line in dashes {
            let (range, label) = line.split_once(',').unwrap();
            entries.insert_text(range, Some(label)).unwrap();
        }
        let crossings = entries.clone().settle().facts().crossings.clone();
        let first = ["1.2.3.0-1.2.3.9", "1.2.3.5-1.2.3.20"].map(str::to_owned);
        assert_eq!((crossings.count, crossings.first), (1, Some(first)));
        assert_eq!(shown4(entries), expected);
    }
    // A set has no labels, so overlaps are a union.
    let union = ["1.2.3.0/29", "1.2.3.5/32", "1.2.3.6/31", "1.2.3.8/29", "1.2.3.8/31", "1.2.3.16/30", "1.2.3.20/32"];
    assert_eq!(set("a.csv", "1.2.3.0,1.2.3.9,AA\n1.2.3.5,1.2.3.20,BB"), union);
    assert_eq!(set("a.txt", "1.2.3.0-1.2.3.9\n1.2.3.5 - 1.2.3.20"), union);
    assert_eq!(set("a", "create a hash:ip\nadd a 1.2.3.0-1.2.3.9\nadd a 1.2.3.5-1.2.3.20"), union);
}

/// The inner range decides in any order of input, even if both ranges contain the same prefix.
#[test]
fn the_inner_range_decides_in_any_order() {
    for lines in ["10.0.0.1,10.0.0.6,OUT\n10.0.0.2,10.0.0.3,IN", "10.0.0.2,10.0.0.3,IN\n10.0.0.1,10.0.0.6,OUT"] {
        assert_eq!(labels("a.csv", lines), ["10.0.0.1/32 OUT", "10.0.0.2/31 IN", "10.0.0.4/31 OUT", "10.0.0.6/32 OUT"]);
    }
}

#[test]
fn what_looks_like_an_entry_and_would_be_none() {
    let bad = |line: &str| set_error("l", &format!("1.1.1.1\n{line}")).split("`: ").last().unwrap().to_owned();
    let second = Problem::SecondAddress.to_string();
    for line in [
        "1.2.3.4 5.6.7.8",
        "1.2.3.4\t5.6.7.0/24 x",
        "1.2.3.4;5.6.7.8",
        "1.2.3.4 - 5.6.7.256",
        "10.0.0.0 255.0.0.0",
        "1.2.3.4 ::1",
    ] {
        assert_eq!(bad(line), second, "{line}");
    }
    assert_eq!(bad("10.0.0.0 /8"), "a blank before `/`");
    assert_eq!(bad("1.2.3.4 \u{2028}x"), Problem::Control.to_string());
    assert_eq!(bad("# x\u{c}1.2.3.4"), Problem::Control.to_string());
    let csv = |text: &str| set_error("l.csv", text).split("`: ").last().unwrap().to_owned();
    assert_eq!(csv("1.1.1.1,2.2.2.2"), Problem::TwoAddresses.to_string());
    assert_eq!(csv("1.1.1.1,x\n2.2.2.2,3.3.3.3"), second);
    assert_eq!(csv("1.1.1.0/24,2.2.2.0/24"), second);
    assert_eq!(csv("1.1.1.1,2.2.2.2,x\n3.3.3.3,y,z"), Problem::NotAnAddress(Family::Ipv4).to_string());
    assert_eq!(csv("1.1.1.1,2.2.2.2,x\n3.3.3.3,4.4"), "2 fields, where the first line has 3");
    assert_eq!(set("l", "1.1.1.1\r2.2.2.2\r\n3.3.3.3\r").len(), 3);
    assert_eq!(set("l", "1.1.1.0/24 1.1.1.9\n2.2.2.2 # 9.9.9.9\n").len(), 2);
}

#[test]
fn a_file_holds_one_set() {
    let error = set_error("s", "create a hash:ip\nadd a 1.2.3.4\ncreate b hash:ip\nadd b 5.6.7.8\n");
    assert_eq!(error, "s: holds 2 sets, and a table is one: a, b; save each to a file (`ipset save NAME`)");
    let bad = |line: &str| set_error("s", line).split("`: ").last().unwrap().to_owned();
    assert_eq!(bad("create a hash:ip netmask 24"), Problem::SetMask.to_string());
    assert_eq!(bad("add a 1.2.3.4 5.6.7.8"), "`5.6.7.8` is no option of `ipset save`");
    assert_eq!(bad("add a 1.2.3.4 comment \"x"), "unbalanced quotes");
    assert_eq!(set("s", "create a bitmap:ip range 10.0.0.0-10.0.0.9 timeout 5\nadd a 10.0.0.1 timeout 3").len(), 1);
}

#[test]
fn what_is_no_list_is_refused_however_lenient() {
    let read = |bytes: &[u8]| {
        let read = Entries::new(Family::Ipv4, Kind::Set).read("l", bytes, &LENIENT);
        read.map(|report| report.prefixes).map_err(|error| error.to_string())
    };
    let utf16: Vec<u8> = "1.2.3.4\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    for (bytes, what) in [
        (&b"\x1f\x8b\x08\0\n1.2.3.4\n"[..], "l: not a list but gzip data: unpack it first"),
        (&utf16, "l: not a list but text of two or four bytes a character: convert it to UTF-8"),
        (b"\n <html>\n1.2.3.4\n", "l: not a list but an HTML or XML page"),
        (b"[\n1.2.3.4\n]", "l: not a list but JSON"),
        (b"", "l: the file is empty; a list that is meant to be says so in a comment, such as `# none`"),
        (
            b"# x\n\0\n::1\n",
            "l: none of its lines is an entry (2 are bad), which `lenient` does not excuse; the first: line 2: `\u{fffd}`: not an IPv4 address, prefix or range",
        ),
    ] {
        assert_eq!(read(bytes).unwrap_err(), what);
    }
    assert_eq!(read(b"\0\n1.2.3.4\n"), Ok(1));
    let error = Entries::new(Family::Ipv4, Kind::Set).read(
        "l",
        b"1.2.3.4",
        &ReadOptions { field_path: Some("x".to_owned()), ..LENIENT },
    );
    assert_eq!(error.unwrap_err().to_string(), "l: a plain list has no fields to choose; only a MaxMind DB has");
}

#[test]
fn what_is_ignored_is_counted() {
    let (_, report) = read4(Kind::Set, "l", "# x\n# 1.2.3.4\n1.1.1.1 # and 2.2.2.2\n3.3.3.3 # 3.3.3.3").unwrap();
    assert_eq!((report.commented, report.unended), (Remark { count: 2, line: Some(2) }, Some(4)));
    let named = "1.0.0.0,1.0.0.255,38498,a\n2.0.0.0,2.0.0.255,7,203.31.164.0/23\n3.0.0.0,3.0.0.255,8,3.0.0.9\n";
    let (_, report) = read4(Kind::Labels, "l.csv", named).unwrap();
    assert_eq!((report.passed_over, report.prefixes), (Remark { count: 1, line: Some(2) }, 3));
    let (_, report) = read4(Kind::Set, "l", "add a 1.1.1.1\nadd a 2.2.2.2 timeout 3\n").unwrap();
    assert_eq!((report.timeouts, report.unended), (Remark { count: 1, line: Some(2) }, None));
}
