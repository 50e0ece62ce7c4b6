//! FastNetMon: `fastnetmon.conf`, `networks_list` and `networks_whitelist`.
//!
//! FastNetMon announces that a host is attacked when its traffic exceeds a threshold, and the network drops everything
//! for that host. Weir drops what exceeds the threshold of each host.

use crate::condition;
use crate::finding::{Effect, Findings};
use crate::policy_text::Writer;
use crate::sets::{Table, table_name};
use crate::{Import, Options, Refused, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Thresholds: the option that switches one on, the threshold, the match, and the unit of the rate.
const THRESHOLDS: [(&str, &str, &str, &str); 8] = [
    ("ban_for_pps", "threshold_pps", "", "pps"),
    ("ban_for_bandwidth", "threshold_mbps", "", "mbit"),
    ("ban_for_tcp_pps", "threshold_tcp_pps", "meta l4proto tcp ", "pps"),
    ("ban_for_tcp_bandwidth", "threshold_tcp_mbps", "meta l4proto tcp ", "mbit"),
    ("ban_for_udp_pps", "threshold_udp_pps", "meta l4proto udp ", "pps"),
    ("ban_for_udp_bandwidth", "threshold_udp_mbps", "meta l4proto udp ", "mbit"),
    ("ban_for_icmp_pps", "threshold_icmp_pps", "meta l4proto { icmp, icmpv6 } ", "pps"),
    ("ban_for_icmp_bandwidth", "threshold_icmp_mbps", "meta l4proto { icmp, icmpv6 } ", "mbit"),
];

/// A setting, with its place.
struct Setting {
    at: String,
    value: String,
    is_used: std::cell::Cell<bool>,
}

/// Networks that share thresholds.
struct Group {
    /// The beginning of its settings: empty for all other networks.
    prefix: String,
    name: String,
    networks: Vec<String>,
}

type Settings = BTreeMap<String, Setting>;

/// Turns thresholds into limits of each host.
///
/// # Errors
/// No file has networks or settings.
pub fn fastnetmon(sources: &[Source], options: &Options) -> Result<Import, Refused> {
    let mut findings = Findings::default();
    let (mut settings, mut networks, mut spared) = (Settings::new(), Vec::new(), Vec::new());
    let mut groups = Vec::new();
    for source in sources {
        if source.text.lines().any(|line| !line.starts_with('#') && line.contains('=')) {
            read_settings(source, &mut settings, &mut groups);
        } else if source.name.contains("white") {
            spared.extend(read_networks(source, &mut findings));
        } else {
            networks.extend(read_networks(source, &mut findings));
        }
    }
    if networks.is_empty() && groups.is_empty() {
        return Err(Refused("no networks: give networks_list, and fastnetmon.conf for the thresholds".to_owned()));
    }
    let mut inside: Vec<String> = networks.clone();
    inside.extend(options.inside.iter().cloned());
    groups.push(Group { prefix: String::new(), name: "networks".to_owned(), networks });
    let mut writer = Writer::new("FastNetMon", &Options { inside: Vec::new(), ..options.clone() });
    let mut taken = BTreeSet::new();
    let mut tables = Vec::new();
    let mut rules = [String::new(), String::new()];
    if !spared.is_empty() {
        let made = declare("whitelist", "networks_whitelist", &spared, &mut taken);
        for table in &made {
            each_direction(table, &mut rules, |family, side, text| {
                let _ = writeln!(text, "  {family} {side} @{} accept", table.name);
            });
        }
        tables.extend(made);
    }
    for group in &groups {
        let made = declare(&group.name, &group.name, &group.networks, &mut taken);
        let limits = limits(group, &settings, &mut findings);
        for table in &made {
            each_direction(table, &mut rules, |family, side, text| {
                for (matches, rate) in &limits {
                    let _ =
                        writeln!(text, "  {matches}{family} {side} @{} limit each {family} {side} {rate}", table.name);
                }
                // A host has the thresholds of its group and no others.
                if !group.prefix.is_empty() {
                    let _ = writeln!(text, "  {family} {side} @{} accept", table.name);
                }
            });
        }
        tables.extend(made);
    }
    say_unused(&settings, &mut findings);
    let used: Vec<&Table> =
        tables.iter().filter(|table| rules.concat().contains(&format!("@{} ", table.name))).collect();
    writer.tables(&used);
    if !inside.is_empty() {
        writer.item(&format!("inside {{ {} }}", inside.join(", ")));
    }
    writer.item(&format!("upstream {{\n{}  accept\n}}", rules[0]));
    let is_off = settings.get("process_outgoing_traffic").is_some_and(|setting| setting.value == "off");
    writer.item(&format!("downstream {{\n{}  accept\n}}", if is_off { "" } else { &rules[1] }));
    writer.finish(findings)
}

fn each_direction(table: &Table, rules: &mut [String; 2], write: impl Fn(&str, &str, &mut String)) {
    let family = if table.is_ipv6 { "ip6" } else { "ip" };
    let [upstream, downstream] = rules;
    write(family, "daddr", upstream);
    write(family, "saddr", downstream);
}

/// A table for each family of some networks.
fn declare(name: &str, origin: &str, networks: &[String], taken: &mut BTreeSet<String>) -> Vec<Table> {
    let families = [(false, ""), (true, "6")].map(|(is_ipv6, end)| {
        let entries: Vec<_> = networks.iter().filter(|network| network.contains(':') == is_ipv6).cloned().collect();
        (is_ipv6, format!("{name}{end}"), entries)
    });
    let made = families.into_iter().filter(|(.., entries)| !entries.is_empty()).map(|(is_ipv6, name, entries)| Table {
        name: table_name(&name, taken),
        origin: origin.to_owned(),
        is_ipv6,
        entries: entries.into_iter().map(|entry| (entry, None)).collect(),
        ..Table::default()
    });
    made.collect()
}

/// `KEY = VALUE` lines, and groups of hosts: `hostgroup = NAME:NETWORK,NETWORK`.
fn read_settings(source: &Source, settings: &mut Settings, groups: &mut Vec<Group>) {
    for (number, line) in source.text.lines().enumerate() {
        let line = line.trim();
        let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
        let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
        let at = format!("{}:{}", source.name, number + 1);
        if let Some((name, networks)) = value.split_once(':').filter(|_| key == "hostgroup") {
            let read = networks.split(',').filter_map(|network| condition::address(network.trim()));
            let networks = read.map(|(_, text)| text).collect();
            groups.push(Group { prefix: format!("{name}_"), name: name.to_owned(), networks });
            continue;
        }
        settings.insert(key, Setting { at, value, is_used: false.into() });
    }
}

fn read_networks(source: &Source, findings: &mut Findings) -> Vec<String> {
    let mut networks = Vec::new();
    for (number, line) in source.text.lines().enumerate() {
        let text = line.split('#').next().unwrap_or("").trim();
        match condition::address(text) {
            _ if text.is_empty() => {}
            Some((_, text)) => networks.push(text),
            None => {
                let at = format!("{}:{}", source.name, number + 1);
                findings.left_out(&at, text, "it is no network", Effect::Unknown);
            }
        }
    }
    networks
}

/// The limits of a group: matches and rates.
fn limits(group: &Group, settings: &Settings, findings: &mut Findings) -> Vec<(&'static str, String)> {
    let get = |key: &str| {
        let setting = settings.get(&format!("{}{key}", group.prefix));
        setting.inspect(|setting| setting.is_used.set(true))
    };
    let is_on = |key: &str| get(key).is_some_and(|setting| setting.value == "on");
    let bans = is_on("enable_ban");
    let mut limits = Vec::new();
    for (switch, threshold, matches, unit) in THRESHOLDS {
        let (is_on, setting) = (is_on(switch), get(threshold));
        let Some(setting) = setting else { continue };
        let text = format!("{}{threshold} = {}", group.prefix, setting.value);
        if !bans || !is_on {
            let reason = format!("it is off: {}", if bans { switch } else { "enable_ban" });
            findings.note(&setting.at, &text, &reason);
            continue;
        }
        match setting.value.parse::<u64>() {
            Ok(rate) if rate > 0 => {
                let reason =
                    "FastNetMon has everything dropped for a host above its threshold; Weir drops what is above";
                findings.approximate(&setting.at, &text, reason, Effect::Unknown);
                limits.push((matches, format!("{rate}{unit}")));
            }
            _ => findings.left_out(&setting.at, &text, "it is no rate", Effect::PassesMore),
        }
    }
    limits
}

/// Settings that have become nothing.
fn say_unused(settings: &Settings, findings: &mut Findings) {
    for (key, setting) in settings.iter().filter(|(_, setting)| !setting.is_used.get()) {
        let text = format!("{key} = {}", setting.value);
        let is_on = |key: &str| settings.get(key).is_some_and(|setting| setting.value == "on");
        if key.ends_with("ban_for_flows") && setting.value == "on" && is_on("enable_ban") {
            let reason = "Weir limits the TCP connections of each address: `limit each ip daddr connections N`";
            findings.left_out(&setting.at, &text, reason, Effect::PassesMore);
        } else if key == "ban_time" || key.starts_with("unban") {
            findings.note(
                &setting.at,
                &text,
                "a limit of Weir ends with the excess; `weir run --mitigate` blocks for a time",
            );
        } else {
            findings.note(&setting.at, &text, "it does not decide packets, or Weir has no such setting");
        }
    }
}
