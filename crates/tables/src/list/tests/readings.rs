//! Text that could mean two things is refused and says both; text that can mean only one thing is taken.

use super::*;
use crate::padded::Octets;
use crate::prefix::Element;

/// What is wrong with the only bad line.
fn problem(name: &str, text: &str) -> String {
    set_error(name, text).split_once("`: ").expect("a line and its problem").1.to_owned()
}

#[test]
fn host_bits_are_refused_in_every_text_format() {
    let said = "bits are set behind the length: write `203.0.113.0/24` for the network, or `203.0.113.77` for the one \
                address";
    for (name, text) in [
        ("l.txt", "203.0.113.77/24"),
        ("l.txt", "203.0.113.77/24 ; SBL1"),
        ("l.txt", "203.0.113.77/255.255.255.0"),
        ("l.txt", "203.000.113.077/24\n203.000.113.099"),
        ("l.csv", "203.0.113.77/24,HR"),
        ("l.csv", "network,label\n\"203.0.113.77/24\",\"HR\""),
        ("l", "create a hash:net\nadd a 203.0.113.77/24 timeout 9"),
    ] {
        assert_eq!(problem(name, text), said, "{text}");
    }
    let six = set6("l", "2001:db8::1/64").unwrap_err();
    assert!(six.ends_with("write `2001:db8::/64` for the network, or `2001:db8::1` for the one address"), "{six}");
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    assert_eq!(entries.insert_text("203.0.113.77/24", None).unwrap_err().to_string(), said);
    assert!(entries.is_empty());
    // Every prefix without such bits, and every single address, is taken.
    for (text, entry) in [("0.0.0.0/0", "0.0.0.0/0"), ("203.0.113.77/32", "203.0.113.77/32"), ("1.2.3.4", "1.2.3.4/32")]
    {
        assert_eq!(set("l", text), [entry]);
    }
    // A lenient list leaves the line out and says so.
    let report = entries.read("l", b"203.0.113.77/24\n192.0.2.0/24\n", &LENIENT).unwrap();
    assert_eq!((report.skipped, report.prefixes), (1, 1));
    assert_eq!(report.first_skipped[0].to_string(), format!("line 1: `203.0.113.77/24`: {said}"));
    // An address beside the entry may be written so.
    assert_eq!(set("l", "203.0.113.0/24 at 203.0.113.1/25"), ["203.0.113.0/24"]);
}

#[test]
fn octets_with_one_reading_are_taken() {
    let (prefixes, report) = read4(Kind::Set, "l", "203.0.113.001\n192.000.02.007/32\n192.0.2.9\n").unwrap();
    assert_eq!(prefixes, ["192.0.2.7/32", "192.0.2.9/32", "203.0.113.1/32"]);
    assert_eq!(report.padded, Remark { count: 2, line: Some(1) });
    // 8 and 9 are no octal digits.
    assert_eq!(
        set("l", "203.0.113.08\n203.0.113.019-203.0.113.020"),
        ["203.0.113.8/32", "203.0.113.19/32", "203.0.113.20/32"]
    );
}

#[test]
fn octets_with_two_readings_are_refused_unless_the_list_shows_which() {
    let said = |octet: &str, octal: u32, decimal: u32| {
        format!(
            "`{octet}` is {octal} (octal) to some programs and {decimal} to others: write the octet without leading zeros"
        )
    };
    assert_eq!(problem("l", "198.51.100.040\n203.0.113.001\n192.0.2.7"), said("040", 32, 40));
    assert_eq!(problem("l", "010.0.0.1"), said("010", 8, 10));
    assert_eq!(problem("l", "10.0.0.1-010.0.0.9"), said("010", 8, 10));
    assert_eq!(problem("l", "10.0.0.1 - 010.0.0.9"), said("010", 8, 10));
    assert_eq!(problem("l.csv", "start,end\n1.0.0.0,1.0.0.077"), said("077", 63, 77));
    assert_eq!(problem("l", "create a hash:ip\nadd a 010.0.0.1"), said("010", 8, 10));
    // Octal numbers of three digits would look like this.
    assert_eq!(problem("l", "010.020.030.040"), said("010", 8, 10));
    // Another octet of the list is no octal number.
    for text in ["010.0.0.1\n10.0.0.09", "10.0.0.099\n010.0.0.1", "010.0.0.098"] {
        let (prefixes, report) = read4(Kind::Set, "l", text).unwrap();
        assert!(prefixes.iter().all(|prefix| prefix.starts_with("10.")), "{prefixes:?}");
        assert!(report.padded.count >= 1, "{report:?}");
    }
    // A name or a comment shows nothing.
    assert_eq!(problem("l", "010.0.0.1 v1.08.099.1 # 1.2.3.099\n# 9.9.9.099"), said("010", 8, 10));
    // Every octet has three digits, and some need them.
    let dat = "192.000.002.000 - 192.000.002.255 , 000 , Example range\n\
               198.051.100.105 - 198.051.100.105 , 000 , Example host\n";
    let (prefixes, report) = read4(Kind::Set, "l.dat", dat).unwrap();
    assert_eq!(prefixes, ["192.0.2.0/24", "198.51.100.105/32"]);
    assert_eq!((report.padded, report.named.count), (Remark { count: 2, line: Some(1) }, 2));
    assert_eq!(problem("l.dat", &format!("{dat}1.2.3.4\n")), said("051", 41, 51));
}

/// Four digits are octal and no decimal octet. More than 255 is neither.
#[test]
fn what_is_no_octet_stays_no_address() {
    for text in ["0300.0.0.1", "0177.0.0.1", "10.0.0.0256", "10.0.0.00", "1.2.3.0400"] {
        let read = read4(Kind::Set, "l", text).map(|(prefixes, _)| prefixes);
        let expected: Result<Vec<String>, _> = Err("not an IPv4 address, prefix or range".to_owned());
        match text {
            "10.0.0.00" => assert_eq!(read.unwrap(), ["10.0.0.0/32"]),
            _ => assert_eq!(read.map_err(|error| error.split_once("`: ").unwrap().1.to_owned()), expected, "{text}"),
        }
    }
    // What is typed is not taken: it can be typed again.
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    let said = entries.insert_text("192.0.2.001", None).unwrap_err().to_string();
    assert_eq!(said, "`001` has a leading zero: write `1`");
}

#[test]
fn netmasks_are_lengths() {
    for (text, entry) in [
        ("192.0.2.0/255.255.255.0", "192.0.2.0/24"),
        ("192.0.2.1/255.255.255.255", "192.0.2.1/32"),
        ("10.0.0.0/255.0.0.0 x", "10.0.0.0/8"),
        ("128.0.0.0/128.0.0.0", "128.0.0.0/1"),
        ("192.0.2.128/255.255.255.192", "192.0.2.128/26"),
    ] {
        assert_eq!(set("l", text), [entry], "{text}");
        assert_eq!(set("l.csv", &format!("{},x", text.split(' ').next().unwrap())), [entry], "{text}");
    }
    assert_eq!(
        problem("l", "192.0.2.0/0.0.0.255"),
        "`0.0.0.255` is a wildcard mask: write the length of the prefix, `/24`"
    );
    assert_eq!(problem("l", "192.0.2.0/255.0.255.0"), "`255.0.255.0` is no netmask: write the length of the prefix");
    assert_eq!(
        problem("l", "192.0.2.0/255.255.255.00"),
        "`255.255.255.00` is no netmask: write the length of the prefix"
    );
    let two = |mask: &str| {
        format!("`{mask}` may be a netmask or a wildcard mask: write `/0` for every address, or the address alone")
    };
    assert_eq!(problem("l", "192.0.2.1/0.0.0.0"), two("0.0.0.0"));
    assert_eq!(problem("l", "0.0.0.0/255.255.255.255"), two("255.255.255.255"));
    assert_eq!(problem("l", "192.0.2.0/24.0.0.0"), "`24.0.0.0` is no netmask: write the length of the prefix");
    assert_eq!(problem("l", "192.0.2.0/24.5"), "not an IPv4 address, prefix or range");
    assert!(set6("l", "2001:db8::/255.255.255.0").unwrap_err().ends_with("prefix length above 128"));
}

/// Read as a range, the line would hold most of the Internet.
#[test]
fn a_column_of_netmasks_is_no_range() {
    let said = Problem::MaskColumn.to_string();
    for text in ["192.0.2.0,255.255.255.0,HR", "10.0.0.0,255.0.0.0,HR", "start,end\n192.0.2.4,255.255.255.252"] {
        assert_eq!(problem("l.csv", text), said, "{text}");
    }
    assert_eq!(set("l.csv", "224.0.0.0,255.255.255.255,x"), ["224.0.0.0/3"]);
    assert_eq!(set("l.csv", "1.0.0.1,255.255.255.0,x").len(), 54);
}

#[test]
fn an_empty_label_is_left_out_and_counted() {
    let text = "network,label\n1.0.0.0/24,HR\n2.0.0.0/24,\n3.0.0.0/24,\"\"\n4.0.0.0/24, \n";
    let (prefixes, report) = read4(Kind::Labels, "l.csv", text).unwrap();
    assert_eq!(prefixes, ["1.0.0.0/24 HR"]);
    assert_eq!((report.unlabelled, report.prefixes), (Remark { count: 3, line: Some(3) }, 1));
    // A set has no labels, so nothing is missing.
    let (prefixes, report) = read4(Kind::Set, "l.csv", text).unwrap();
    assert_eq!((prefixes.len(), report.unlabelled.count), (4, 0));
    assert_eq!(label_error("l.csv", "1.0.0.0/24,\n2.0.0.0/24,\n"), "l.csv: none of its 2 entries has a label");
    // A line without the field was cut.
    assert!(label_error("l.csv", "1.0.0.0/24,HR\n2.0.0.0/24\n").ends_with("1 fields, where the first line has 2"));
}

#[test]
fn names_behind_entries_are_counted() {
    let hosts = "127.0.0.1 localhost\n0.0.0.0 ads.example # x\n0.0.0.0 track.example\n192.0.2.1 12\n192.0.2.2 ; SBL1\n192.0.2.3 # y\n";
    let (prefixes, report) = read4(Kind::Set, "hosts", hosts).unwrap();
    assert_eq!(prefixes.len(), 5);
    assert_eq!(report.named, Remark { count: 3, line: Some(1) });
    let mut entries = Entries::new(Family::Ipv4, Kind::Set);
    entries.read("hosts", hosts.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!(entries.settle().facts().repeated, 1);
}

proptest! {
    /// Every octet of a padded list is read as the number that was padded, whatever the chunks.
    #[test]
    fn padded_lists_are_read_as_they_were_written(addresses in prop::collection::vec(any::<[u8; 4]>(), 1..50)) {
        let padded = |[a, b, c, d]: [u8; 4]| format!("{a:03}.{b:03}.{c:03}.{d:03}");
        let text: String = addresses.iter().map(|address| padded(*address) + "\n").collect();
        let has_proof = addresses.iter().flatten().any(|octet| *octet >= 100 || octet.to_string().contains(['8', '9']));
        let is_plain = addresses.iter().flatten().all(|octet| *octet < 8 || *octet >= 100);
        let mut entries = Entries::new(Family::Ipv4, Kind::Set);
        let read = entries.read("l", text.as_bytes(), &ReadOptions::default());
        prop_assert_eq!(read.is_ok(), has_proof || is_plain, "{}", text);
        if read.is_ok() {
            let table = entries.settle();
            let mut expected: Vec<u32> = addresses.iter().map(|address| u32::from_be_bytes(*address)).collect();
            expected.sort_unstable();
            expected.dedup();
            prop_assert_eq!(table.prefixes4().iter().map(|prefix| prefix.addr).collect::<Vec<_>>(), expected);
        }
    }

    /// A reading that is taken without proof is the reading of `inet_aton`, too.
    #[test]
    fn octets_with_one_reading_are_the_same_in_octal(text in "0{0,2}[0-9]{1,3}(\\.0{0,2}[0-9]{1,3}){3}") {
        if let Ok((Element::Prefix { addr, .. }, _)) = Element::<u32>::take_padded(text.as_bytes(), Octets::OneReading) {
            let octet = |octet: &str| match octet {
                "0" => 0,
                octet if octet.starts_with('0') => {
                    u32::from_str_radix(octet, 8).unwrap_or_else(|_| octet.parse().expect("no octal number"))
                }
                octet => octet.parse().expect("a number"),
            };
            prop_assert_eq!(text.split('.').fold(0, |addr, part| addr << 8 | octet(part)), addr);
        }
    }
}
