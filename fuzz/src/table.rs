//! Fuzz targets for lists and table images.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZero;
use std::sync::OnceLock;
use weir_abi::limit::ROOM_MAX;
use weir_abi::{Family, Layout};
use weir_tables::{BadLines, Entries, Format, ImageView, Kind, LabelLimits, Nesting, PrefixLimits, ReadOptions};

/// Lists with one element per line.
pub(crate) fn list_plain(data: &[u8]) {
    list("list.txt", data);
}

/// Lists of `start,end,label` or `cidr,label`.
pub(crate) fn list_csv(data: &[u8]) {
    list("list.csv", data);
}

/// Lists in the format of `ipset save`.
pub(crate) fn list_ipset(data: &[u8]) {
    list("list.ipset", data);
}

/// Lists of `prefix,rate,burst` and `label,rate,burst`. Lenient reading accepts everything that strict reading accepts.
pub(crate) fn list_limits(data: &[u8]) {
    for bad_lines in [BadLines::Refuse, BadLines::Skip] {
        let mut prefixes = PrefixLimits::default();
        if let Ok(report) = prefixes.read("limits.csv", data, bad_lines) {
            assert!(bad_lines == BadLines::Skip || report.skipped == 0, "a strict reader skips nothing");
            if let Ok(table) = prefixes.settle() {
                for family in [Family::Ipv4, Family::Ipv6] {
                    let entries = table.entries(family, Nesting::Nested, None);
                    assert_eq!(
                        entries.entries.len(),
                        table.len(family) + 1,
                        "an entry for each prefix, and one for none"
                    );
                    let numbers = entries.entries.iter().enumerate().all(|(label, entry)| {
                        (entry.parent as usize) < label.max(1) && (entry.profile as usize) < entries.profiles.len()
                    });
                    assert!(numbers, "parents stand before, profiles are there");
                    assert!(
                        entries.profiles.iter().all(|profile| profile.room <= ROOM_MAX),
                        "limits are within their bounds"
                    );
                }
            }
        }
        let mut labels = LabelLimits::default();
        if labels.read("limits.csv", data, bad_lines).is_ok()
            && let Ok(rates) = labels.settle()
        {
            assert_eq!(rates.entries(&["HR", "SI"], None).entries.len(), 3);
        }
    }
}

/// MaxMind databases, with a common field path.
pub(crate) fn list_mmdb(data: &[u8]) {
    list("list.mmdb", data);
}

/// Reads a list strictly and leniently, for both families, with and without labels.
fn list(name: &str, data: &[u8]) {
    let kinds = [Kind::Set, Kind::Labels];
    for (family, kind) in [Family::Ipv4, Family::Ipv6].into_iter().flat_map(|family| kinds.map(|kind| (family, kind))) {
        for lenient in [false, true] {
            let options = ReadOptions {
                field_path: (kind == Kind::Labels).then(|| "country.iso_code".to_owned()),
                lenient,
                // Threads would take more time than a small list.
                threads: NonZero::new(1),
            };
            let mut entries = Entries::new(family, kind);
            let Ok(report) = entries.read(name, data, &options) else {
                assert!(entries.is_empty(), "a list that is refused leaves nothing behind");
                continue;
            };
            assert_eq!(report.prefixes, entries.len() as u64, "the report counts what was added");
            assert!(lenient || report.skipped == 0, "a strict reader skips nothing");
            let table = entries.settle();
            if table.facts().crossings.count == 0 {
                assert!(table.facts().entries as u64 <= report.prefixes, "a table holds no more than it was given");
            }
            if !lenient && matches!(report.format, Format::Plain | Format::Csv) {
                let reference = table.reference();
                let lost = lines_that_lose(data, |addr| match (addr, family) {
                    (IpAddr::V4(addr), Family::Ipv4) => reference.find4(addr.into()) > 0,
                    (IpAddr::V6(addr), Family::Ipv6) => reference.find6(addr.into()) > 0,
                    _ => false,
                });
                assert!(
                    lost <= report.passed_over.count,
                    "{lost} lines lose addresses, {:?} are reported",
                    report.passed_over
                );
            }
        }
    }
}

/// Number of lines with an address before any comment that the table does not contain. Strict reading accepts only
/// complete lists, and reports CSV lines with an address after the label.
fn lines_that_lose(data: &[u8], holds: impl Fn(IpAddr) -> bool) -> u64 {
    let of_address = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':' | b'/');
    let data = data.strip_prefix(b"\xef\xbb\xbf").unwrap_or(data);
    let lines = data.split(|byte| matches!(byte, b'\n' | b'\r')).map(<[u8]>::trim_ascii);
    let loses = |line: &&[u8]| {
        let text = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut addrs =
            text.split(|byte| !of_address(byte)).filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok());
        addrs.any(|addr| !holds(addr))
    };
    lines.filter(|line| !line.starts_with(b";")).filter(loses).count() as u64
}

/// Altered images, as in a damaged bundle: lookups must work in every image that passes the check.
///
/// Images are large and mostly empty, so the input only describes the changes. The first byte selects an image. The
/// second one truncates it to that many 256ths (0: no truncation). The rest are 4-byte words to overwrite, as position
/// and value.
pub(crate) fn table_image(data: &[u8]) {
    let [which, left, patches @ ..] = data else { return };
    let images = whole_images();
    let mut bytes = images[usize::from(*which) % images.len()].clone();
    let words = bytes.len() / 4;
    for patch in patches.chunks_exact(8) {
        let (place, value) = patch.split_at(4);
        let place = u32::from_le_bytes(place.try_into().expect("half of 8 bytes")) as usize % words;
        bytes[4 * place..4 * place + 4].copy_from_slice(value);
    }
    if *left > 0 {
        bytes.truncate(bytes.len() * usize::from(*left) / 256);
    }
    let Ok(view) = ImageView::new(&bytes) else { return };
    let known = [0, u128::MAX, 0xc000_0200, 0xc000_0210, 0xa00_0000, 0x2001_0db8 << 96, 0x2001_0db8_0001 << 80];
    let asked =
        patches.chunks_exact(4).map(|word| u128::from_be_bytes([word; 4].concat().try_into().expect("4 words")));
    for addr in known.into_iter().chain(asked) {
        for addr in [addr, addr.wrapping_add(1), addr.wrapping_sub(1)] {
            assert!(view.find4(addr as u32) <= view.labels(), "a label that no table has");
            assert!(view.find6(addr) <= view.labels(), "a label that no table has");
        }
    }
}

/// An image of several sets.
fn fused(family: Family, lists: [&str; 3]) -> Vec<u8> {
    let tables = lists.map(|list| {
        let mut entries = Entries::new(family, Kind::Set);
        entries.read("list", list.as_bytes(), &ReadOptions::default()).expect("a good list");
        entries.settle()
    });
    weir_tables::fused(&tables.each_ref()).expect("sets of addresses").as_bytes().to_vec()
}

/// An image of each layout.
fn whole_images() -> &'static [Vec<u8>] {
    static IMAGES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    let image = |family, layout, list: &str| {
        let mut entries = Entries::new(family, if list.contains(',') { Kind::Labels } else { Kind::Set });
        entries.read("list", list.as_bytes(), &ReadOptions::default()).expect("a good list");
        entries.settle().build(layout).expect("the layout takes the list").as_bytes().to_vec()
    };
    // With fewer prefixes, the builder would choose rank leaves.
    let halves = || (0..1u32 << 17).map(|net| format!("{}/17,L{net}\n", Ipv4Addr::from(net << 15))).collect::<String>();
    IMAGES.get_or_init(|| {
        vec![
            image(Family::Ipv4, Layout::ExactSet, "192.0.2.1\n198.51.100.7\n10.0.0.1\n"),
            image(Family::Ipv4, Layout::Dxr16x4, "192.0.2.0/28,AT\n192.0.2.4/32,HR\n10.0.0.0/8,SI\n10.0.128.0/20,AT\n"),
            image(Family::Ipv6, Layout::Range6, "2001:db8::/32,AT\n2001:db8:1::/48,HR\n2001:db8:1::7/128,SI\n"),
            fused(Family::Ipv4, ["192.0.2.1\n198.51.100.7\n", "192.0.2.1\n255.255.0.1\n", "10.0.0.1\n"]),
            image(
                Family::Ipv4,
                Layout::RankLeaf,
                "192.0.2.0/28,AT\n192.0.2.4/32,HR\n10.0.0.0/8,SI\n10.0.128.0/20,AT\n",
            ),
            image(Family::Ipv6, Layout::RankLeaf6, "2001:db8::/32,AT\n2001:db8:1::/48,HR\n2001:db8:1::7/128,SI\n"),
            image(Family::Ipv6, Layout::ExactSet6, "2001:db8::/64\n2001:db8:1::7/128\nffff:ffff:ffff:ffff::/64\n"),
            image(Family::Ipv4, Layout::CountedLeaf, &halves()),
            image(Family::Ipv4, Layout::ExactLeaf, "192.0.2.1\n198.51.100.7\n10.0.0.0/8\n10.0.128.0/20\n"),
            image(Family::Ipv6, Layout::ExactLeaf6, "2001:db8::/64\n2001:db8:1::7/128\n2001:db8:1::/48\n"),
            fused(
                Family::Ipv6,
                ["2001:db8::/64\n2001:db8:1::7/128\n", "2001:db8::/64\n", "ffff:ffff:ffff:ffff::1/128\n"],
            ),
        ]
    })
}
