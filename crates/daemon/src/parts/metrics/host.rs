//! The engine's workers, the process, and what the metrics themselves cost.

use super::figures::Figures;
use super::page::{Metric, Page};
use weir_policy::ir::Direction;

static WORKER_PACKETS: Metric = Metric::counter(
    "weir_worker_packets",
    &["worker", "direction"],
    "Packets that a worker has decided. Engines in the kernel have a worker for each processor.",
);
static WORKER_CPU: Metric = Metric::counter(
    "weir_worker_cpu_seconds",
    &["worker"],
    "Processor time of the thread of a worker: its rate is the share of time in which it is busy. Engines \
     in the kernel have no such threads.",
);
static POLLING: Metric =
    Metric::gauge("weir_workers_poll", &[], "1 if workers poll instead of sleeping, so that they are always busy.");
static MAIN_LOOP: Metric = Metric::gauge(
    "weir_main_loop_age_seconds",
    &[],
    "Seconds since the main loop began its last turn. It has 20 turns a second.",
);
static BUILD: Metric =
    Metric::gauge("weir_build_info", &["version", "engine"], "Always 1: the version of Weir, and its engine.");
static CPU: Metric = Metric::counter("process_cpu_seconds", &[], "Processor time of the process, with all threads.");
static START: Metric = Metric::gauge("process_start_time_seconds", &[], "Unix time of the start.");
static VIRTUAL: Metric = Metric::gauge("process_virtual_memory_bytes", &[], "Memory that is mapped.");
static RESIDENT: Metric = Metric::gauge("process_resident_memory_bytes", &[], "Memory that is used.");
static OPEN_FDS: Metric = Metric::gauge("process_open_fds", &[], "Open file descriptors.");
static MAX_FDS: Metric = Metric::gauge("process_max_fds", &[], "File descriptors that the process may open.");
static THREADS: Metric = Metric::gauge("process_threads", &[], "Threads.");
static PAGES: Metric = Metric::counter(
    "weir_metrics_pages",
    &[],
    "Pages that were made. Scrapes that follow each other fast get the same page.",
);
static PAGE_TIME: Metric = Metric::gauge("weir_metrics_page_seconds", &[], "Seconds that the last page took to make.");
static CROWDED_OUT: Metric = Metric::counter(
    "weir_metrics_closed_connections",
    &[],
    "Connections for metrics that were closed because newer ones needed their places.",
);
/// What a page has no room for.
pub static LEFT_OUT: Metric = Metric::gauge(
    "weir_metrics_left_out_samples",
    &[],
    "Samples that are not on the page, because their metric has more than 2,048.",
);

/// The metrics of this file.
#[cfg(test)]
pub const ALL: &[&Metric] = &[
    &WORKER_PACKETS,
    &WORKER_CPU,
    &POLLING,
    &MAIN_LOOP,
    &BUILD,
    &CPU,
    &START,
    &VIRTUAL,
    &RESIDENT,
    &OPEN_FDS,
    &MAX_FDS,
    &THREADS,
    &PAGES,
    &PAGE_TIME,
    &CROWDED_OUT,
    &LEFT_OUT,
];

/// Adds the metrics of this file to a page.
pub fn put(page: &mut Page, figures: &Figures) {
    for worker in &figures.stats.workers {
        let number = worker.worker.to_string();
        for (direction, stats) in Direction::BOTH.iter().zip([&worker.upstream, &worker.downstream]) {
            page.put(&WORKER_PACKETS, &[&number, direction.name()], stats.total.packets);
        }
    }
    let process = &figures.process;
    for (worker, cpu_s) in &process.workers {
        page.put(&WORKER_CPU, &[&worker.to_string()], *cpu_s);
    }
    page.put(&POLLING, &[], figures.polls);
    page.put(&MAIN_LOOP, &[], figures.own.main_loop_age_s);
    page.put(&BUILD, &[env!("CARGO_PKG_VERSION"), figures.engine], true);
    page.put(&CPU, &[], process.cpu_s);
    page.put(&START, &[], process.start_s);
    page.put(&VIRTUAL, &[], process.virtual_bytes);
    page.put(&RESIDENT, &[], process.resident_bytes);
    page.put(&OPEN_FDS, &[], process.open_fds);
    if let Some(max_fds) = process.max_fds {
        page.put(&MAX_FDS, &[], max_fds);
    }
    page.put(&THREADS, &[], process.threads);
    page.put(&PAGES, &[], figures.own.pages);
    page.put(&PAGE_TIME, &[], figures.own.page_s);
    page.put(&CROWDED_OUT, &[], figures.own.crowded_out);
}
