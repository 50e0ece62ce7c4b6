//! `weir run --metrics`: the figures of Weir for Prometheus (docs/guide/monitoring.md,
//! docs/decisions/0067-metrics.md).
//!
//! | file | content |
//! | --- | --- |
//! | `options.rs` | the options |
//! | `service.rs` | HTTP: who may ask, how often, and how long |
//! | `source.rs` | reads the figures through the door |
//! | `figures.rs`, `contents.rs` | all figures of one moment, and the page that they make |
//! | `traffic.rs` ... `host.rs` | the metrics, each declared beside what fills it |
//! | `page.rs` | what a metric is; the text |
//! | `growing.rs` | counters that never fall |
//! | `process.rs` | what the system knows of this process |

mod attacks;
mod contents;
mod figures;
mod growing;
mod host;
pub mod options;
mod page;
mod process;
mod running;
mod service;
mod source;
mod state;
mod taps;
mod traffic;

#[cfg(test)]
mod tests;

use crate::generations::generation::Loader;
use crate::options::RunOptions;
use crate::parts::part::{Part, Running};
use service::Times;
use source::{Heartbeat, Source};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use tokio::sync::oneshot;
use weir_command::failure::Failure;

/// The nice value of the thread. A scrape can wait, a packet cannot.
const NICE: i32 = 10;

/// `--metrics` as a part of the daemon.
pub struct Metrics {
    listener: Option<TcpListener>,
    /// The name of the engine, and whether its workers poll.
    engine: (&'static str, bool),
    heartbeat: Arc<Heartbeat>,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
}

impl Metrics {
    /// Listens, if the option is given. Who connects waits until the policy decides packets.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn listen(options: &RunOptions) -> Result<Option<Self>, Failure> {
        let Some(address) = options.metrics.metrics else { return Ok(None) };
        let failed = |error| Failure::system(format!("--metrics {address}"), error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        let name = options.engine.name();
        let engine = (name, options.busy_poll || options.engine.uses_dpdk());
        Ok(Some(Metrics { listener: Some(listener), engine, heartbeat: Arc::default(), stop: None }))
    }
}

impl<L: Loader> Part<L> for Metrics {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let failed = |error| Failure::system("metrics", error);
        let address = listener.local_addr().map_err(failed)?;
        self.heartbeat.beat();
        let mut source = Source::new(&running.door, running.taps.clone(), self.engine, self.heartbeat.clone());
        let (stop, stopped) = oneshot::channel();
        let work = move || {
            // Without the right to be nicer nothing is lost.
            let _kept = rustix::process::setpriority_process(None, NICE);
            let make = Box::new(move |closed| source.page(closed));
            if let Err(error) = service::serve(listener, make, Times::default(), stopped) {
                eprintln!("weir: metrics: {error}");
            }
        };
        thread::Builder::new().name("weir-metrics".to_owned()).spawn(work).map_err(failed)?;
        self.stop = Some(stop);
        eprintln!("weir: metrics at http://{address}/metrics");
        Ok(())
    }

    fn step(&mut self, _: &Running<'_, L>) {
        self.heartbeat.beat();
    }

    fn end(&mut self, _: &Running<'_, L>) {
        self.stop = None;
    }
}
