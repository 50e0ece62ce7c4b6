//! The real Prometheus scrapes a running Weir: every expression of the dashboard and of the alerts has a value, and
//! what is in `packaging` passes `promtool`.
//!
//! A Weir without a card has no metrics of a card. So Prometheus also scrapes the full page that a test of the daemon
//! keeps (`every_line_of_a_full_page`), as the instance `recorded`.

use super::{get, scrape, started, traffic};
use crate::device_under_test::wait_until;
use crate::hosts::{Host, Hosts};
use crate::put;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PROMETHEUS_PORT: u16 = 9090;
const RECORDED_PORT: u16 = 9465;
const RECORDED: &str =
    "crates/daemon/src/parts/metrics/snapshots/weir_daemon__parts__metrics__tests__every_line_of_a_full_page.snap";

fn at_root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(at_root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The full page.
fn recorded() -> String {
    let snapshot = read(RECORDED);
    snapshot[snapshot.find("# HELP").expect("it is a page")..].to_owned()
}

/// Runs promtool. Returns what it prints.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("promtool: {error}; see scripts/install-deps.sh"));
    child.stdin.take().expect("it has one").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    said
}

/// The names of alerts in a file of rules, or in their tests.
fn alerts(text: &str, key: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.trim().strip_prefix(key));
    names.map(|name| name.trim().to_owned()).collect()
}

#[test]
fn promtool_accepts_what_is_packaged_and_each_alert_is_tested_and_explained() {
    let path = |name: &str| at_root(&format!("packaging/prometheus/{name}")).display().to_string();
    promtool(&["check", "rules", "--lint=all", "--lint-fatal", &path("weir.rules.yml")], "");
    promtool(&["check", "config", &path("prometheus.yml")], "");
    promtool(&["check", "metrics"], &recorded());
    promtool(&["test", "rules", &path("weir.rules.test.yml")], "");
    let declared = alerts(&read("packaging/prometheus/weir.rules.yml"), "- alert:");
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(alerts(&read("packaging/prometheus/weir.rules.test.yml"), "alertname:"), declared, "tests of alerts");
    assert_eq!(alerts(&read("docs/guide/monitoring.md"), "### "), declared, "docs/guide/monitoring.md");
}

/// A running Prometheus, which is killed when this value is dropped.
struct Prometheus<'h> {
    child: Child,
    host: &'h Host,
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl<'h> Prometheus<'h> {
    fn start(host: &'h Host, folder: &Path) -> Self {
        let rules = at_root("packaging/prometheus/weir.rules.yml");
        let rules = fs::canonicalize(rules).expect("it is there");
        let mut config = format!(
            "global: {{ scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 200ms }}\n\
             rule_files: [ {} ]\nscrape_configs:\n  - job_name: weir\n    static_configs:\n",
            rules.display()
        );
        for (port, instance) in [(super::PORT, "live"), (RECORDED_PORT, "recorded")] {
            writeln!(config, "      - {{ targets: [ '127.0.0.1:{port}' ], labels: {{ instance: {instance} }} }}")
                .expect("a string takes all");
        }
        put(folder, "prometheus.yml", &config);
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"))
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", "--log.level=warn"])
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = host.run(move || command.spawn());
        Prometheus {
            child: child.unwrap_or_else(|error| panic!("prometheus: {error}; see scripts/install-deps.sh")),
            host,
        }
    }

    /// The data of an answer of its API, once it answers.
    fn ask(&self, path: &str) -> Option<Value> {
        let (_, body) = get(self.host, PROMETHEUS_PORT, path)?;
        let answer: Value = serde_json::from_str(&body).ok()?;
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// The samples that an expression has now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let mut path = "/api/v1/query?query=".to_owned();
        for byte in expression.bytes() {
            write!(path, "%{byte:02x}").expect("a string takes all");
        }
        self.ask(&path).and_then(|data| data["result"].as_array().cloned()).unwrap_or_default()
    }

    /// The samples of an expression, once it has any. It has none for a moment if a scrape fails on a busy machine.
    fn value(&self, expression: &str) -> Vec<Value> {
        let mut samples = Vec::new();
        wait_until(&format!("{expression} has a value"), || {
            samples = self.query(expression);
            !samples.is_empty()
        });
        samples
    }
}

/// Serves the full page to all who ask, as long as the namespace lasts.
fn serve_recorded(host: &Host) {
    let page = recorded();
    let listener = host.run(|| TcpListener::bind(("127.0.0.1", RECORDED_PORT)).expect("it is free"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // What asks sends a short head.
            let _read = stream.read(&mut [0; 4096]);
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            let head = format!("HTTP/1.0 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n", page.len());
            let _gone = stream.write_all((head + &page).as_bytes());
        }
    });
}

/// The names of metrics on a page.
fn on_page(page: &str) -> BTreeSet<String> {
    let names = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

/// The names of metrics in an expression. `up` is Prometheus' own.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("weir_") || word.starts_with("process_")).map(str::to_owned).collect()
}

/// Every string under a key, in any depth.
fn strings<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if name == key => found.push(text),
                    _ => strings(field, key, found),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|one| strings(one, key, found)),
        _ => {}
    }
}

/// An expression without the comparisons with numbers that make an alert of it.
fn without_comparisons(expression: &str) -> String {
    let words: Vec<&str> = expression.split(" unless ").next().expect("a first part").split(' ').collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let is_number = |at: usize| words.get(at).is_some_and(|word| word.parse::<f64>().is_ok());
        if ["==", ">", "<"].contains(&words[at]) && is_number(at + 1) {
            at += 2;
            while words.get(at) == Some(&"*") {
                at += 2;
            }
        } else {
            kept.push(words[at]);
            at += 1;
        }
    }
    kept.join(" ")
}

#[test]
fn comparisons_are_left_out() {
    assert_eq!(without_comparisons("a > 0 and on (b) c{d=\"e\"} == 1"), "a and on (b) c{d=\"e\"}");
    assert_eq!(without_comparisons("time() - a > 2 * 86400"), "time() - a");
    assert_eq!(without_comparisons("rate(a[5m]) > 0.9 unless on (b) c == 1"), "rate(a[5m])");
}

/// Checks that each expression of the dashboard has a value.
fn check_dashboard(prometheus: &Prometheus<'_>, live: &BTreeSet<String>, full: &BTreeSet<String>) {
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/weir.json")).expect("it is JSON");
    assert_eq!(dashboard["uid"], "weir");
    let (mut expressions, mut sources, mut definitions) = (Vec::new(), Vec::new(), Vec::new());
    strings(&dashboard["panels"], "expr", &mut expressions);
    assert!(expressions.len() > 50, "{}", expressions.len());
    strings(&dashboard, "uid", &mut sources);
    assert!(sources.iter().all(|uid| ["weir", "${datasource}"].contains(uid)), "{sources:?}");
    strings(&dashboard["templating"], "definition", &mut definitions);
    assert_eq!(definitions, ["label_values(weir_build_info, instance)"]);
    for expression in expressions {
        let used = names(expression);
        let unknown: Vec<_> = used.iter().filter(|name| !full.contains(*name)).collect();
        assert!(unknown.is_empty() && expression.contains("instance=~\"$instance\""), "{expression}: {unknown:?}");
        // Only what has no metrics without a card or a shadow is looked at in the recorded page.
        let is_live = used.iter().all(|name| live.contains(name));
        let is_absent = |name: &&str| name.starts_with("weir_card_") || name.starts_with("weir_shadow_");
        assert!(is_live || used.iter().all(|name| is_absent(&name.as_ref())), "{expression}: {live:?}");
        let instance = if is_live { "live" } else { "recorded" };
        let asked = expression.replace("$__rate_interval", "1m").replace("$instance", instance);
        prometheus.value(&asked);
    }
    let mut annotations = Vec::new();
    strings(&dashboard["annotations"], "expr", &mut annotations);
    for expression in annotations {
        let asked = without_comparisons(&expression.replace("$instance", "live"));
        prometheus.value(&asked);
    }
}

/// Checks that Prometheus evaluates each alert, and that what it compares exists.
fn check_alerts(prometheus: &Prometheus<'_>, full: &BTreeSet<String>) {
    let mut loaded = Value::Null;
    let mut rules: Vec<Value> = Vec::new();
    wait_until("all alerts are evaluated", || {
        loaded = prometheus.ask("/api/v1/rules").unwrap_or_default();
        let groups = loaded["groups"].as_array().cloned().unwrap_or_default();
        rules = groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect();
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")
    });
    assert_eq!(rules.len(), alerts(&read("packaging/prometheus/weir.rules.yml"), "- alert:").len());
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{rule}");
        let expression = rule["query"].as_str().expect("an expression");
        let unknown: Vec<_> = names(expression).into_iter().filter(|name| !full.contains(name)).collect();
        assert!(unknown.is_empty(), "{expression}: {unknown:?}");
        let asked = without_comparisons(expression);
        assert_ne!(asked, expression, "it compares nothing");
        prometheus.value(&asked);
    }
    // The recorded page has attacks, the running Weir has none.
    let attacks = "ALERTS{alertname=\"WeirAttack\",alertstate=\"firing\"}";
    let firing = prometheus.value(attacks);
    assert!(firing.len() == 1 && firing[0]["metric"]["instance"] == "recorded", "{firing:?}");
}

#[test]
fn the_real_prometheus_evaluates_every_panel_and_alert() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    let running = started("afpacket", &hosts, folder);
    serve_recorded(&hosts.weir);
    let prometheus = Prometheus::start(&hosts.weir, folder);
    traffic(&hosts);
    // A rate needs two scrapes.
    let twice = "count_over_time(weir_build_info{engine=~\".+\"}[1m]) >= 2";
    wait_until("Prometheus has scraped twice", || prometheus.query(twice).len() == 2);
    let stats = running.settled();
    let dropped = format!(
        "weir_packets_total{{instance=\"live\",direction=\"upstream\",verdict=\"drop\"}} == {}",
        stats.upstream.total.dropped
    );
    prometheus.value(&dropped);
    let page = scrape(&hosts.weir);
    promtool(&["check", "metrics"], &page);
    let live = on_page(&page);
    let full = on_page(&recorded());
    assert!(live.is_subset(&full), "{:?} is not on the full page", live.difference(&full));
    let full = full
        .into_iter()
        .chain(["weir_card_alone", "weir_card_configurations_total", "weir_card_reopened_total"].map(str::to_owned))
        .collect();
    check_dashboard(&prometheus, &live, &full);
    check_alerts(&prometheus, &full);
    drop(prometheus);
    assert_eq!(running.stop(), 0);
}
