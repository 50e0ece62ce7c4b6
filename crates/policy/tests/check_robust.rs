//! No text makes the front end panic, hang, or report an error without a position.

mod check_support;

use check_support::{Directory, front, root};
use proptest::prelude::*;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use weir_abi::Reason;
use weir_policy::diag::render::{Style, render};
use weir_policy::syntax::NoIncludes;

/// The texts of all cases of tests/errors, and the manual.
fn corpus() -> &'static [String] {
    static CORPUS: OnceLock<Vec<String>> = OnceLock::new();
    CORPUS.get_or_init(|| {
        let directory = std::fs::read_dir(root().join("tests/errors")).expect("tests/errors exists");
        let paths = directory.map(|entry| entry.expect("tests/errors can be read").path());
        let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "weir")).collect();
        paths.sort();
        paths.push(root().join("docs/reference/language.md"));
        paths.iter().map(|path| std::fs::read_to_string(path).expect("the case can be read")).collect()
    })
}

fn survive(text: &str) {
    let (sources, _, checked) = front("fuzz.weir", text, &Directory(root().join("tests/errors")));
    let diagnostics = checked.map_or_else(|errors| errors, |checked| checked.warnings);
    for diagnostic in &diagnostics {
        let position = diagnostic.position(&sources);
        assert!(position.line >= 1 && position.column >= 1 && !diagnostic.message.is_empty());
    }
    let rendered = render(&diagnostics, &sources, Style::Plain);
    assert!(!rendered.contains('\u{1b}') || text.contains('\u{1b}'));
    render(&diagnostics, &sources, Style::Coloured);
}

const PIECES: &[&str] = &[
    "{",
    "}",
    "(",
    ")",
    ",",
    ";",
    "\n",
    ":",
    ".",
    "=",
    "==",
    "!=",
    "!",
    "<",
    ">=",
    "&",
    "|",
    "/",
    "-",
    "@",
    "$",
    "\"",
    "\\\n",
    "#",
    "tcp dport",
    "ip saddr",
    "ip6 saddr",
    "tcp flags",
    "meta length",
    "@nh,0,8",
    "@t",
    "$D",
    "22",
    "0xffffffff",
    "::",
    "192.0.2.0/24",
    "99999999999999999999999999999999999999999",
    "0-65535",
    "syn",
    "upstream",
    "downstream",
    "posture p",
    "table t {",
    "define D =",
    "define E = $D",
    "limits l {",
    "type ipv4 : label",
    "type ipv6",
    "elements = {",
    "file \"x\"",
    "include \"five-mistakes.weir\"",
    "defaults {",
    "accept",
    "drop",
    "counter",
    "sample 1/2",
    "limit",
    "track",
    "tracking {",
    "ct state new,established",
    "pickup off",
    "invalid drop",
    "embryonic 5%",
    "é€",
    "\u{0}",
    "dynamic",
    "size 1",
    "timeout 1s",
    "layout exact-set",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_pieces(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        survive(&pieces.join(" "));
    }

    #[test]
    fn mutated_policies(case in any::<prop::sample::Index>(), edits in prop::collection::vec(
        (any::<prop::sample::Index>(), 0..3_u8, prop::sample::select(PIECES)), 1..6)) {
        let mut text: Vec<char> = case.get(corpus()).chars().collect();
        for (place, kind, piece) in edits {
            if text.is_empty() { break }
            let at = place.index(text.len());
            match kind {
                0 => { text.remove(at); }
                1 => { text.splice(at..at, piece.chars()); }
                _ => { let end = (at + 7).min(text.len()); text.splice(at..end, piece.chars()); }
            }
        }
        survive(&text.into_iter().collect::<String>());
    }
}

/// Inputs that are built to be slow or deeply nested. Each takes well under a second; the bound is larger for slow
/// machines.
#[test]
fn large_inputs_stay_quick() {
    let doubled = |n: usize| {
        let defines: String = (0..n).map(|i| format!("define D{i} = {{ $D{0}, $D{0} }}\n", i + 1)).collect();
        format!("{defines}define D{n} = 1\nupstream {{ tcp dport $D0 drop; accept }}\ndownstream {{ accept }}\n")
    };
    let addresses = |n: u32, by: u32| {
        let list: Vec<_> = (0..n).map(|i| format!("{}", std::net::Ipv4Addr::from_bits(i * by))).collect();
        format!(
            "table t {{ type ipv4; elements = {{ {} }} }}\nupstream {{ ip saddr @t drop; accept }}\ndownstream {{ accept }}\n",
            list.join(",\n")
        )
    };
    let rules = |n: usize| {
        let list: String = (0..n)
            .map(|i| format!("ip saddr {} tcp dport {} drop\n", std::net::Ipv4Addr::from_bits(i as u32 * 7), i % 65536))
            .collect();
        format!("upstream {{\n{list}accept }}\ndownstream {{ accept }}\n")
    };
    let ranges: String = (0..60_000).map(|i| format!("tcp dport {i} accept\n")).collect();
    let overlapping: Vec<_> =
        (0..40_000).map(|i| format!("0.{}.{}.1-1.{}.{}.1", i / 256, i % 256, i / 256, i % 256)).collect();
    let unknown: String = (0..50_000).map(|i| format!("ip saddr @nothing{i} drop\n")).collect();
    let tables: String = (0..1000).map(|i| format!("table longer-name-{i} {{ type ipv4; file \"x\" }}\n")).collect();
    let texts = [
        "{".repeat(1 << 18),
        "(".repeat(1 << 18),
        format!("upstream {}", "{".repeat(1 << 18)),
        format!("upstream {{ tcp dport {}", "{ ".repeat(1 << 18)),
        format!("upstream {{ tcp dport {} }}", "1,".repeat(1 << 18)),
        "tcp ".repeat(1 << 18),
        "upstream {\n".repeat(1 << 16),
        "posture p { upstream { } }\n".repeat(1 << 14),
        "% ".repeat(1 << 18),
        "\"\n".repeat(1 << 18),
        doubled(30),
        doubled(200),
        addresses(200_000, 5),
        rules(70_000),
        format!("upstream {{\n{ranges}accept }}\ndownstream {{ accept }}\n"),
        format!(
            "table t {{ type ipv4; elements = {{ {} }} }}\nupstream {{ ip saddr @t drop; accept }}",
            overlapping.join(",")
        ),
        format!("{tables}upstream {{\n{unknown}accept }}\ndownstream {{ accept }}\n"),
    ];
    for text in &texts {
        let start = Instant::now();
        let (sources, _, checked) = front("large.weir", text, &NoIncludes);
        let diagnostics = checked.map_or_else(|errors| errors, |checked| checked.warnings);
        render(&diagnostics, &sources, Style::Plain);
        let begin: String = text.chars().take(40).collect();
        assert!(start.elapsed() < Duration::from_secs(20), "{begin}: {:?}", start.elapsed());
        if std::env::var_os("WEIR_TIMES").is_some() {
            eprintln!("{:>8.3}s {:>8} bytes  {begin:?}", start.elapsed().as_secs_f64(), text.len());
        }
    }
}

/// Rules have numbers of 16 bits. All postures share them.
#[test]
fn rules_of_all_postures_are_bounded() {
    let checked = |rules: usize, first: &str| {
        let rules = "tcp dport 9 counter\n".repeat(rules);
        let posture = |name: &str| format!("posture {name} {{ upstream {{\n{rules}}} }}\n");
        let base = "upstream { accept }\ndownstream { accept }\n";
        let text = [first, base, &posture("a"), &posture("b")].concat();
        let (_, _, checked) = front("p.weir", &text, &NoIncludes);
        checked.map(drop).map_err(|errors| errors[0].code)
    };
    let most = (Reason::RULES_MAX - 2) / 2;
    assert_eq!(checked(most, ""), Ok(()));
    assert_eq!(checked(most + 1, ""), Err("E0314"));
    // The statement has two rules in each of three directions.
    let inside = "inside { 192.0.2.0/24, 2001:db8::/32 }\n";
    assert_eq!((checked(most, inside), checked(most - 3, inside)), (Err("E0314"), Ok(())));
}
