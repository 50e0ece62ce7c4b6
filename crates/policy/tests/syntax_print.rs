//! A printed tree parses to the same tree.

mod check_support;

use check_support::{Directory, front, root};
use proptest::prelude::*;
use std::fmt::Write;
use weir_policy::source::Source;
use weir_policy::syntax::tree::File;
use weir_policy::syntax::{NoIncludes, parse};

/// The tree without its spans.
fn shape(file: &File) -> String {
    let debug = format!("{:?}", file.items);
    let mut parts = debug.split("Span { file: ");
    let mut shape = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(" }").expect("a span ends");
        write!(shape, "_{rest}").expect("strings can be written to");
    }
    // The file of an include is not part of the text.
    shape.replace("file: Some(FileId(1))", "file: None")
}

fn assert_prints_to_itself(file: &File) {
    let printed = file.to_string();
    let (_, again) = parse(Source::new("printed", printed.as_str()), &NoIncludes);
    assert_eq!(shape(file), shape(&again.files[0]), "{printed}");
    assert_eq!(printed, again.files[0].to_string());
}

#[test]
fn all_cases_print_to_themselves() {
    for entry in std::fs::read_dir(root().join("tests/errors")).expect("tests/errors exists") {
        let path = entry.expect("tests/errors can be read").path();
        if path.extension().is_some_and(|extension| extension == "weir") {
            let text = std::fs::read_to_string(&path).expect("the case can be read");
            let (_, parsed, _) = front("case", &text, &Directory(root().join("tests/errors")));
            // A definition without a value cannot be printed.
            let whole = |item: &_| !format!("{item:?}").contains("values: None");
            let mut file = parsed.files[0].clone();
            file.items.retain(whole);
            assert_prints_to_itself(&file);
        }
    }
}

#[test]
fn the_manual_and_the_examples_print_to_themselves() {
    let manual =
        std::fs::read_to_string(root().join("docs/reference/language.md")).expect("docs/reference/language.md exists");
    let mut texts: Vec<String> = manual.split("\n```weir\n").skip(1).map(str::to_owned).collect();
    for text in &mut texts {
        text.truncate(text.find("\n```\n").expect("a block ends") + 1);
    }
    let folders = std::fs::read_dir(root().join("examples")).expect("there are examples").flatten();
    let files = folders.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let policies = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "weir"));
    texts.extend(policies.map(|path| std::fs::read_to_string(path).expect("the example can be read")));
    for text in texts {
        let (_, parsed) = parse(Source::new("example", text), &NoIncludes);
        assert!(parsed.diagnostics.iter().all(|d| d.code == "E0109"), "{:?}", parsed.diagnostics);
        assert_prints_to_itself(&parsed.files[0]);
    }
}

fn operand() -> impl Strategy<Value = String> {
    prop_oneof![
        "[0-9]{1,5}",
        "[a-z][a-z0-9]{0,4}(-[a-z0-9]{1,3})?",
        "\\$[A-Z]{1,3}",
        any::<u32>().prop_map(|address| std::net::Ipv4Addr::from_bits(address).to_string()),
        any::<u128>().prop_map(|address| std::net::Ipv6Addr::from_bits(address).to_string()),
    ]
    .prop_filter("statements are no values", |word| {
        !["counter", "sample", "limit", "track", "accept", "drop", "divert", "eq", "ne", "lt", "le", "gt", "ge"]
            .contains(&word.as_str())
    })
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        operand(),
        (any::<u32>(), 0..40_u8)
            .prop_map(|(address, length)| format!("{}/{length}", std::net::Ipv4Addr::from_bits(address))),
        (operand(), operand()).prop_map(|(a, b)| format!("{a} - {b}")),
        prop::collection::vec(operand(), 2..4).prop_map(|bits| format!("({})", bits.join(" | "))),
    ]
}

fn values() -> impl Strategy<Value = String> {
    let many = || prop::collection::vec(value(), 1..4);
    prop_oneof![
        value(),
        many().prop_map(|values| format!("{{ {} }}", values.join(", "))),
        many().prop_map(|values| format!("{{\n {},\n }}", values.join(",\n"))),
        prop::collection::vec(operand(), 2..4).prop_map(|values| values.join(",")),
        (operand(), operand()).prop_map(|(a, b)| format!("{a},1 / {b}")),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    let subject = || {
        prop_oneof![
            prop::sample::select(vec!["tcp dport", "ip saddr", "tcp flags", "meta length", "ct state", "quux field"])
                .prop_map(str::to_owned),
            (0..300_u16, 0..140_u16).prop_map(|(offset, bits)| format!("@nh,{offset},{bits}")),
        ]
    };
    let operator = prop::sample::select(vec!["", "==", "!=", "<", ">=", "!", "eq", "gt"]);
    let mask = prop::option::of(value()).prop_map(|mask| mask.map(|mask| format!("& {mask}")).unwrap_or_default());
    let labels = prop::sample::select(vec!["", "{ HR }", "{ \"a b\", 7, x-y }"]);
    let not = prop::sample::select(vec!["", "!="]);
    prop_oneof![
        (subject(), mask, operator, values()).prop_map(|(s, m, o, v)| format!("{s} {m} {o} {v}")),
        (subject(), not, "[a-z]{1,4}", labels).prop_map(|(s, n, t, l)| format!("{s} {n} @{t} {l}")),
    ]
}

fn rule() -> impl Strategy<Value = String> {
    let statement = prop::sample::select(vec!["counter", "sample 1/10", "track", "ip saddr limit @slow", "tcp track"]);
    let verdict = prop::sample::select(vec!["", "accept", "drop", "divert"]);
    (prop::collection::vec(condition(), 0..3), prop::option::of(statement), verdict).prop_map(
        |(matches, statement, verdict)| format!("{} {} {verdict}", matches.join(" "), statement.unwrap_or("counter")),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_rules_print_to_themselves(rules in prop::collection::vec(rule(), 0..5), define in values()) {
        let text = format!("define X = {define}\ntracking {{ size 5; embryonic 7%; timeout udp 5s; pickup off; one-way; vlan ignore; invalid drop }}\nupstream {{\n{}\n}}\nposture p {{ downstream {{ {} }} }}\n", rules.join("\n"), rules.join("; "));
        let (_, parsed) = parse(Source::new("random", text.as_str()), &NoIncludes);
        prop_assert!(parsed.diagnostics.is_empty(), "{}\n{:?}", text, parsed.diagnostics);
        assert_prints_to_itself(&parsed.files[0]);
    }
}
