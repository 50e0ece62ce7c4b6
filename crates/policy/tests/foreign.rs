//! The table of nftables' words that Weir does not have: each row is one error, and its policy text passes the check.
//!
//! `WEIR_BLESS=1 cargo test -p weir-policy --test foreign` writes the table into `docs/reference/nftables.md`.

mod check_support;

use check_support::{front, root};
use std::fmt::Write;
use weir_policy::diag::Diagnostic;
use weir_policy::diag::render::{Style, render};
use weir_policy::syntax::NoIncludes;
use weir_policy::syntax::foreign::{Foreign, Instead, Place, table};

const DIRECTIONS: &str = "upstream {\naccept\n}\ndownstream { accept }\n";
const DYNAMIC: &str = "table attackers { type ipv4; dynamic; timeout 10m }\n";

fn of_rule(rule: &str) -> String {
    let table = if rule.contains("@attackers") { DYNAMIC } else { "" };
    let inside =
        if rule.contains("ct state") || rule.contains("connections") { "inside { 192.0.2.0/24 }\n" } else { "" };
    format!("{table}{inside}upstream {{\n{rule}\n}}\ndownstream {{ accept }}\n")
}

/// A policy with the example of a row in its place.
fn policy(place: Place, example: &str) -> String {
    match place {
        Place::Rule | Place::Comparison | Place::Addition => of_rule(example),
        Place::Item => format!("{example}\n{DIRECTIONS}"),
        Place::Setting => format!("table t {{\ntype ipv4\ndynamic\n{example}\n}}\n{DIRECTIONS}"),
        Place::Element => {
            format!("table t {{ type ipv4; dynamic; elements = {{ {example}, 192.0.2.2 timeout 5m }} }}\n{DIRECTIONS}")
        }
    }
}

fn diagnostics(text: &str) -> (Vec<Diagnostic>, String) {
    let (sources, _, checked) = front("policy.weir", text, &NoIncludes);
    let all = checked.map_or_else(|errors| errors, |checked| checked.warnings);
    let rendered = render(&all, &sources, Style::Plain);
    (all, rendered)
}

#[test]
fn every_row_is_one_error_with_its_words() {
    let mut rows = 0;
    let mut wrong = Vec::new();
    for (place, row) in table() {
        rows += 1;
        let (found, rendered) = diagnostics(&policy(place, row.example));
        let (code, label) = match place {
            Place::Setting => ("E0113", String::new()),
            _ => ("E0106", format!("`{}` is nftables syntax", row.words)),
        };
        let is_right = match found.as_slice() {
            [one] => {
                (one.code, one.label.as_str(), one.help.as_deref()) == (code, &*label, Some(&*row.help()))
                    || matches!(row.words, "meter" | "flow table" | "limit" | "ct count")
                        && one.label == label
                        && one.help.as_ref().is_some_and(|help| help.starts_with("write `limit each ip saddr "))
            }
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{place:?} {}: {}\n{rendered}", row.words, row.example));
        }
    }
    assert!(rows > 250, "only {rows} rows");
    assert!(wrong.is_empty(), "{} of {rows}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A row that stands after a match, or in front of other statements, is still one error.
#[test]
fn words_are_one_error_wherever_they_stand() {
    let mut wrong = Vec::new();
    for (_, row) in table().filter(|(place, _)| *place == Place::Rule) {
        for text in [format!("ip saddr 192.0.2.1 {}", row.example), format!("{} counter sample 1/5", row.example)] {
            let (found, rendered) = diagnostics(&of_rule(&text));
            if !matches!(found.as_slice(), [one] if one.code == "E0106") {
                wrong.push(format!("{text}\n{rendered}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_suggested_passes_the_check() {
    let mut texts = 0;
    let mut wrong = Vec::new();
    let mut check = |text: &str, policy: &str| {
        texts += 1;
        let (found, rendered) = diagnostics(policy);
        if !found.is_empty() {
            wrong.push(format!("{text}\n{rendered}"));
        }
    };
    for (_, row) in table() {
        match row.instead {
            // A verdict alone would end the direction.
            Instead::Rule(verdict, _) if !verdict.contains(' ') => {
                check(verdict, &of_rule(&format!("udp {verdict}\naccept")))
            }
            Instead::Rule(rule, _) => check(rule, &of_rule(&format!("{rule}\naccept"))),
            Instead::Item(item, _) => {
                let has_upstream = item.starts_with("upstream");
                let user = if item.starts_with("table") { "ip saddr @" } else { "" };
                let name = item.split(' ').nth(1).unwrap_or_default();
                let label = if item.contains(": label") { " { HR }" } else { "" };
                let rule = if user.is_empty() { String::new() } else { format!("{user}{name}{label} drop\n") };
                let track = if item.starts_with("tracking") { "inside { 192.0.2.0/24 }\n" } else { "" };
                let synproxy = if item.starts_with("tracking") { "tcp synproxy\n" } else { "" };
                let upstream = format!("upstream {{\n{synproxy}{rule}accept\n}}\n");
                let upstream = if has_upstream { "" } else { upstream.as_str() };
                check(item, &format!("{track}{item}\n{upstream}downstream {{ accept }}\n"));
            }
            Instead::Nothing(_) => {}
        }
    }
    assert!(texts > 130, "only {texts} texts");
    assert!(wrong.is_empty(), "{} of {texts}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Parts of rules and settings, and `flags interval` of nftables, that are named as such.
const PARTS: [&str; 10] = [
    ": label",
    "ct state",
    "exceed mark",
    "flags interval",
    "ip dscp",
    "ip saddr",
    "ipv4 : label",
    "type ipv4",
    "type ipv6",
    "vlan id",
];

/// Where nothing is the same, the text names what comes nearest. That is policy text, too: a rule, a match, an item or
/// a setting of a table.
#[test]
fn what_comes_nearest_is_policy_text() {
    let mut texts = std::collections::BTreeSet::new();
    for (_, row) in table() {
        if let Instead::Nothing(why) = row.instead {
            texts.extend(why.split('`').skip(1).step_by(2).filter(|text| text.contains(' ')));
        }
    }
    texts.retain(|text| !text.starts_with("weir ") && !text.contains("...") && !PARTS.contains(text));
    assert!(texts.len() > 15, "{texts:?}");
    let is_right = |text: &str| {
        let text = text.replace("@NAME", "@attackers");
        let rules = [of_rule(&format!("{text}\naccept")), of_rule(&format!("{text} drop\naccept"))];
        let others = [
            policy(Place::Item, &text),
            policy(Place::Setting, &text.replace("dynamic; ", "")),
            format!("table geo {{ type ipv4; {text}; elements = {{ 192.0.2.1 : HR }} }}\n{DIRECTIONS}"),
            format!("table geo {{ {text}; elements = {{ 192.0.2.1 : HR }} }}\n{DIRECTIONS}"),
            format!("{text}\nupstream {{ tcp track; accept }}\ndownstream {{ accept }}\n"),
            format!(
                "limits attackers {{ elements = {{ 192.0.2.1 : 5 }} }}\n{}",
                of_rule(&format!("{text}; accept")).replace(DYNAMIC, "")
            ),
            format!("tracking {{ synproxy mss 1460 }}\n{}", of_rule(&format!("{text}; accept"))),
        ];
        rules.iter().chain(&others).any(|policy| diagnostics(policy).0.iter().all(|one| one.code.starts_with('W')))
    };
    let wrong: Vec<&&str> = texts.iter().filter(|text| !is_right(text)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The text between the first backticks of a help.
fn suggested(help: &str) -> &str {
    help.split('`').nth(1).expect("a help quotes policy text")
}

#[test]
fn limits_in_braces_are_suggested_as_they_were_written() {
    for (rule, expected) in [
        (
            "tcp dport 443 meter sni { ip saddr limit rate 100/second burst 20 packets } accept",
            "limit each ip saddr 100/second burst 20 packets",
        ),
        ("flow table x { ip6 saddr limit rate over 7/minute } drop", "limit each ip6 saddr 7/minute"),
        (
            "tcp dport 22 ct state new update @attackers { ip saddr limit rate over 1/second burst 25 packets }",
            "limit each ip saddr 1/second burst 25 packets exceed add @attackers",
        ),
        (
            "add @attackers { ip saddr timeout 10s limit rate 3/hour } drop",
            "limit each ip saddr 3/hour exceed add @attackers",
        ),
        ("add @attackers { ip saddr ct count over 7 } drop", "limit each ip saddr connections 7"),
        // What Weir does not have is not made up: the row's own text follows.
        ("meter m { ip saddr limit rate 10 mbytes/second }", "limit each ip saddr 100/second burst 20 packets"),
        ("meter m { ip saddr . tcp dport limit rate 5/second }", "limit each ip saddr 100/second burst 20 packets"),
        ("meter m { tcp dport limit rate 5/second }", "limit each ip saddr 100/second burst 20 packets"),
        (
            "update @attackers { ip saddr limit rate over 5/week }",
            "limit each ip saddr 10/second exceed add @attackers",
        ),
    ] {
        let (found, rendered) = diagnostics(&of_rule(rule));
        assert_eq!(found.len(), 1, "{rule}\n{rendered}");
        let text = suggested(found[0].help.as_deref().expect("it has a help"));
        assert_eq!(text, expected, "{rule}");
        let (found, rendered) = diagnostics(&of_rule(&format!("{text}\naccept")).replace("accept\naccept", "accept"));
        let errors = found.iter().filter(|one| one.code.starts_with('E')).count();
        assert_eq!(errors, 0, "{text}\n{rendered}");
    }
}

/// Braces with anything in them end where they are closed, so the lines after them are parsed.
#[test]
fn one_mistake_in_braces_is_one_error() {
    for rule in [
        "meter m { ip saddr . tcp dport limit rate 5/second }",
        "meter m size 65535 { ip saddr timeout 10s limit rate over 5/second burst 3 packets } drop",
        "nonsense m { ip saddr { a b } limit rate 5/second } accept",
        "update @attackers { ip saddr ct count over 5 } drop",
        "add @attackers { ip saddr . tcp dport } drop",
        "add @attackers { ip saddr & 255.255.255.0 } drop",
        "add @attackers { ip saddr : 5 } drop",
        "add @attackers { ip saddr quota over 5 mbytes } drop",
        "ct count over 50 drop",
        "ct original ip saddr { 192.0.2.1, 192.0.2.2 } drop",
        "tcp dport vmap { 22 : accept, 80 : jump web }",
    ] {
        let (found, rendered) =
            diagnostics(&of_rule(&format!("{rule}\ntcp dport 80 accept\nudp dport 53 accept\ndrop")));
        assert_eq!(found.len(), 1, "{rule}\n{rendered}");
    }
}

fn line(row: &Foreign) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let instead = match row.instead {
        Instead::Rule(text, "") | Instead::Item(text, "") => format!("`{}`", cell(text)),
        Instead::Rule(text, note) | Instead::Item(text, note) => format!("`{}`: {}", cell(text), cell(note)),
        Instead::Nothing(why) => format!("not there: {}", cell(why)),
    };
    format!("| `{}` | {instead} |\n", cell(row.example))
}

/// `docs/reference/nftables.md` has every row.
#[test]
fn the_reference_has_every_row() {
    let path = root().join("docs/reference/nftables.md");
    let page = std::fs::read_to_string(&path).expect("docs/reference/nftables.md exists");
    let mut written = page.split_once("\n## ").expect("the page has sections").0.to_owned();
    for (place, title) in Place::ALL.into_iter().zip([
        "In rules",
        "Behind a field",
        "In the braces of `add` and `update`",
        "At the start of a line",
        "In tables",
        "Behind elements of tables",
    ]) {
        let _ = write!(written, "\n## {title}\n\n| nftables | Weir |\n| --- | --- |\n");
        table().filter(|(of, _)| *of == place).for_each(|(_, row)| written.push_str(&line(row)));
    }
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &written).expect("the page can be written");
    }
    assert!(page == written || std::env::var_os("WEIR_BLESS").is_some(), "WEIR_BLESS=1 writes the page");
}
