//! `weir ctl stats`: the counters, once or again and again.

use crate::cli::{CtlOptions, StatsOptions};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::thread;
use weir_command::additions;
use weir_command::failure::Failure;
use weir_command::figures;
use weir_command::report;
use weir_command::tracked;
use weir_control::{Client, DirectionStats, InterfaceStats, Request, Stats, Status, Tally, TxDropped, WorkerStats};
use weir_policy::diag::printable::printable;

/// Runs the command.
///
/// # Errors
/// No Weir listens on the socket, or it has gone away.
pub fn run(options: &CtlOptions, stats: &StatsOptions) -> Result<(), Failure> {
    if stats.watch {
        return watch(options, stats);
    }
    let value = weir_control::ask(&options.control, &Request::Stats)?;
    if options.json {
        return report::print_json(&value);
    }
    report::print(&text(&weir_control::read(value)?, stats.top))
}

/// Prints the counters until it is stopped, or standard output is closed.
fn watch(options: &CtlOptions, wanted: &StatsOptions) -> Result<(), Failure> {
    let mut client = Client::connect(&options.control)?;
    let mut before: Option<(Status, Stats)> = None;
    loop {
        let mut answers = Vec::new();
        let wanted_now = [Request::Status, Request::Stats];
        if client.ask_all(&wanted_now, &mut answers).is_err() {
            // After an upgrade the same process answers on a new connection.
            answers.clear();
            client = Client::connect(&options.control)?;
            client.ask_all(&wanted_now, &mut answers)?;
        }
        let mut next = || answers.remove(0);
        let (status, value) = (next()?, next()?);
        let line = if options.json { value.to_string() + "\n" } else { String::new() };
        let now: (Status, Stats) = (weir_control::read(status)?, weir_control::read(value)?);
        let shown = if options.json { line } else { rates(before.as_ref(), &now, wanted.top) };
        let mut out = io::stdout().lock();
        if out.write_all(shown.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(());
        }
        drop(out);
        before = Some(now);
        thread::sleep(wanted.every);
    }
}

/// The rates of both directions since the counters before, by the clock of Weir, and the busiest reasons. The first
/// counters have no rates, and neither have those after a restart.
fn rates(before: Option<&(Status, Stats)>, (status, now): &(Status, Stats), top: Option<usize>) -> String {
    let seconds = before.map(|(earlier, _)| status.uptime_s - earlier.uptime_s).filter(|seconds| *seconds > 0.0);
    let rate = |now: u64, before: Option<u64>| {
        let gained = before.and_then(|before| now.checked_sub(before));
        let rate =
            gained.zip(seconds).map(|(gained, seconds)| figures::grouped((gained as f64 / seconds).round() as u64));
        rate.unwrap_or("-".to_owned())
    };
    let mut text = format!("up {:.0} s\n", status.uptime_s);
    let earlier = before.map(|(_, stats)| stats);
    for (name, now, earlier) in [
        ("upstream", &now.upstream, earlier.map(|stats| &stats.upstream)),
        ("downstream", &now.downstream, earlier.map(|stats| &stats.downstream)),
    ] {
        let (now, earlier) = (&now.total, earlier.map(|direction| &direction.total));
        let of = |count: fn(&Tally) -> u64| rate(count(now), earlier.map(count));
        let (packets, passed, dropped) = (of(|of| of.packets), of(|of| of.passed), of(|of| of.dropped));
        let _ = writeln!(text, "{name}: {packets} packets/s, {passed} passed, {dropped} dropped");
        let mut reasons: Vec<(&String, &u64, u64)> = Vec::new();
        for (reason, packets) in &now.reasons {
            let before = earlier.map(|earlier| earlier.reasons.get(reason).copied().unwrap_or(0));
            reasons.push((reason, packets, before.map_or(0, |before| packets.saturating_sub(before))));
        }
        reasons.sort_by(|one, other| other.2.cmp(&one.2).then(other.1.cmp(one.1)));
        for (reason, packets, gained) in reasons.into_iter().take(top.unwrap_or(usize::MAX)) {
            let rate = rate(*packets, earlier.map(|_| packets - gained));
            let _ = writeln!(text, "  {rate:>14}/s  {}", printable(reason));
        }
    }
    text
}

/// `1,000 passed, 234 dropped, 0 diverted, 7 sampled`
fn counts(tally: &Tally) -> String {
    let replied = match tally.replied {
        0 => String::new(),
        replied => format!(" {} answered,", figures::grouped(replied)),
    };
    format!(
        "{} passed, {} dropped, {} diverted,{replied} {} sampled",
        figures::grouped(tally.passed),
        figures::grouped(tally.dropped),
        figures::grouped(tally.diverted),
        figures::grouped(tally.sampled)
    )
}

/// The packets by reason and table: all in the order of names, or those with the most packets.
fn reasons(tally: &Tally, top: Option<usize>) -> String {
    let mut text = String::new();
    let mut reasons: Vec<(u64, String)> =
        tally.reasons.iter().map(|(reason, packets)| (*packets, printable(reason).into_owned())).collect();
    let by_table = |table: &weir_control::TableCount| (table.packets, format!("by rules with @{}", table.table));
    let mut tables: Vec<(u64, String)> = tally.tables.iter().map(by_table).collect();
    for lines in [&mut reasons, &mut tables] {
        let all = lines.len();
        if let Some(top) = top {
            lines.sort_by_key(|(packets, _)| std::cmp::Reverse(*packets));
            lines.truncate(top);
        }
        for (packets, what) in lines.iter() {
            let _ = writeln!(text, "  {:>14}  {what}", figures::grouped(*packets));
        }
        if lines.len() < all {
            let _ = writeln!(text, "  {:>14}  more lines (--top N)", all - lines.len());
        }
    }
    text
}

/// The counters as text, with at most `top` reasons and tables of each direction.
fn text(stats: &Stats, top: Option<usize>) -> String {
    let mut text = String::new();
    for (name, direction) in [("upstream", &stats.upstream), ("downstream", &stats.downstream)] {
        let DirectionStats { current, total } = direction;
        let _ = writeln!(text, "{name}: {}", counts(current));
        let _ = writeln!(
            text,
            "  since activation {}, since start {}",
            figures::grouped(current.packets),
            figures::grouped(total.packets)
        );
        text += &reasons(current, top);
    }
    let busy = |worker: &&WorkerStats| worker.upstream.current.packets + worker.downstream.current.packets > 0;
    // With a single worker this would repeat the sums.
    for worker in stats.workers.iter().filter(|_| stats.workers.len() > 1).filter(busy) {
        let _ = writeln!(
            text,
            "worker {}: {} packets upstream, {} downstream",
            worker.worker,
            figures::grouped(worker.upstream.current.packets),
            figures::grouped(worker.downstream.current.packets)
        );
    }
    if let Some(card) = &stats.card {
        let (now, total) = (card.upstream.current.dropped, card.upstream.total.dropped);
        let _ = writeln!(
            text,
            "card: {} packets dropped since activation, {} since start",
            figures::grouped(now),
            figures::grouped(total)
        );
    }
    if let Some(tracked) = &stats.tracked {
        let _ = writeln!(text, "tracked {} since start", tracked::describe(tracked));
    }
    stats.interfaces.iter().for_each(|port| text += &interface(port));
    text + &additions::describe(&stats.additions)
}

fn interface(port: &InterfaceStats) -> String {
    let InterfaceStats {
        interface,
        side,
        rx_packets,
        rx_bytes: _,
        tx_packets,
        tx_bytes: _,
        rx_missed,
        rx_too_long,
        sampled: _,
        tx_dropped,
    } = port;
    let TxDropped { tx_full, link_down, tx_too_long, tx_unsupported, tx_error, no_divert } = *tx_dropped;
    let (received, sent) = (figures::grouped(*rx_packets), figures::grouped(*tx_packets));
    let mut text = format!("{interface} ({side}): {received} received, {sent} sent");
    let losses = [
        ("missed", rx_missed.unwrap_or_default()),
        ("too long to receive", *rx_too_long),
        ("not sent: tx-full", tx_full),
        ("not sent: link-down", link_down),
        ("not sent: tx-too-long", tx_too_long),
        ("not sent: tx-unsupported", tx_unsupported),
        ("not sent: tx-error", tx_error),
        ("not diverted: no-divert", no_divert),
    ];
    for (what, packets) in losses.into_iter().filter(|(_, packets)| *packets > 0) {
        let _ = write!(text, ", {} {what}", figures::grouped(packets));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::{rates, text};
    use serde_json::json;

    #[test]
    fn stats_as_text() {
        let outcome = json!({ "packets": 1234, "bytes": 99, "passed": 1000, "dropped": 234, "diverted": 0 });
        let tally = |packets: u64| {
            json!({ "packets": packets, "bytes": 99, "passed": 1000, "dropped": 234, "diverted": 0, "sampled": 7, "rules": [],
                "reasons": { "no-match": 1000, "edge.weir:9": 234 }, "tables": [{ "table": "bad", "packets": 234, "bytes": 9 }] })
        };
        let both = |current: &serde_json::Value, total: serde_json::Value| {
            let mut both = current.clone();
            both["total"] = total;
            both
        };
        let worker = |number: u64| {
            let share = both(&outcome, outcome.clone());
            json!({ "worker": number, "upstream": share, "downstream": share, "interfaces": [] })
        };
        let direction = both(&tally(1234), tally(5000));
        let value = json!({
            "upstream": direction, "downstream": direction, "workers": [worker(0), worker(1)],
            "interfaces": [{
                "interface": "eth0", "side": "lower", "rx_packets": 1234, "rx_bytes": 99, "tx_packets": 5, "tx_bytes": 6, "rx_missed": 2,
                "sampled": 0, "tx_dropped": { "tx-full": 0, "link-down": 3, "tx-too-long": 0, "tx-unsupported": 0, "tx-error": 0,
                                "no-divert": 0 },
            }],
            "additions": { "added": 3, "updated": 0, "additions-overflow": 1, "table-full": 0, "protected": 0 },
            "tracked": { "pipeline": 1200, "controller": 34 },
        });
        let stats = serde_json::from_value(value).expect("stats");
        let short = text(&stats, Some(1));
        assert!(short.contains("             1  more lines (--top N)\n") && !short.contains("edge.weir:9"), "{short}");
        let text = text(&stats, None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..5],
            [
                "upstream: 1,000 passed, 234 dropped, 0 diverted, 7 sampled",
                "  since activation 1,234, since start 5,000",
                "             234  edge.weir:9",
                "           1,000  no-match",
                "             234  by rules with @bad",
            ]
        );
        assert_eq!(
            lines[10..],
            [
                "worker 0: 1,234 packets upstream, 1,234 downstream",
                "worker 1: 1,234 packets upstream, 1,234 downstream",
                "tracked by the pipeline 1,200, by its controller 34 since start",
                "eth0 (lower): 1,234 received, 5 sent, 2 missed, 3 not sent: link-down",
                "rules added 3 entries to tables and updated 0, additions-overflow 1",
            ]
        );
    }

    #[test]
    fn watched_counters_have_rates_by_the_clock_of_weir() {
        let status = |uptime_s: f64| {
            serde_json::from_value(json!({
                "uptime_s": uptime_s, "workers": 1, "access": [], "generation": 1, "posture": null, "on_exit": "block",
                "taken_down": [], "activations": 1, "confirm_left_s": null, "rollback_to": null,
                "rollback_posture": null, "activating": null, "mixed": [], "generations": []
            }))
            .expect("a status")
        };
        let stats = |passed: u64, dropped: u64| {
            let tally = json!({
                "packets": passed + dropped, "bytes": 0, "passed": passed, "dropped": dropped, "diverted": 0,
                "sampled": 0, "rules": [], "tables": [], "reasons": { "no-match": passed, "p:1": dropped }
            });
            let mut both = tally.clone();
            both["total"] = tally;
            let stats = json!({
                "upstream": both, "downstream": both, "workers": [], "interfaces": [],
                "additions": { "added": 0, "updated": 0, "additions-overflow": 0, "table-full": 0, "protected": 0 }
            });
            serde_json::from_value(stats).expect("stats")
        };
        let (first, second) = ((status(10.0), stats(100, 0)), (status(12.0), stats(300, 5000)));
        let lines = |text: &str| text.lines().take(3).map(str::to_owned).collect::<Vec<_>>();
        let texts = ["up 12 s", "upstream: 2,600 packets/s, 100 passed, 2,500 dropped", "           2,500/s  p:1"];
        assert_eq!(lines(&rates(Some(&first), &second, Some(1))), texts);
        // The first counters have no rates, and neither have those after a restart.
        for before in [None, Some(&(status(99.0), stats(9, 9)))] {
            assert_eq!(lines(&rates(before, &first, None))[1], "upstream: - packets/s, - passed, - dropped");
        }
    }
}
