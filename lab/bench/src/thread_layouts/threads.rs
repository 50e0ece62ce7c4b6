//! Which threads run in a turn, and what they did.

use super::layout::THREADS;

/// Numbers of Weir's workers.
const WORKERS: [usize; 2] = [1, 2];

/// What runs.
#[derive(Clone, Copy, Debug)]
pub enum Threads {
    /// A layout of the paper, by its number of threads.
    Layout(usize),
    /// Weir's workers, by their number.
    Workers(usize),
}

impl Threads {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Threads> {
        THREADS.map(Threads::Layout).into_iter().chain(WORKERS.map(Threads::Workers))
    }

    /// The name in rows.
    pub fn name(self) -> String {
        match self {
            Threads::Layout(threads) => format!("paper, {threads} threads").replace("1 threads", "1 thread"),
            Threads::Workers(workers) => format!("weir, {workers} workers").replace("1 workers", "1 worker"),
        }
    }
}

/// The counts of a turn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// Duration.
    pub seconds: f64,
    /// Packets that were sent.
    pub sent: u64,
    /// CPU time of all threads but the generator.
    pub processor_s: f64,
}
