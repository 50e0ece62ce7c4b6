//! What a page contains: the metrics of all files, in their order.

use super::figures::{Figures, Memory};
#[cfg(test)]
use super::page::Metric;
use super::page::Page;
use super::{attacks, host, running, state, taps, traffic};

/// The page of some figures.
pub fn page(figures: &Figures, memory: &mut Memory) -> Page {
    let mut page = Page::default();
    traffic::put(&mut page, figures, memory);
    state::put(&mut page, figures);
    attacks::put(&mut page, figures, memory);
    running::put(&mut page, figures);
    taps::put(&mut page, figures);
    host::put(&mut page, figures);
    let left_out = page.left_out();
    page.put(&host::LEFT_OUT, &[], left_out);
    page
}

/// All metrics, with the headings that docs/reference/metrics.md gives them.
#[cfg(test)]
pub const ALL: [(&str, &[&Metric]); 6] = [
    ("Packets", traffic::ALL),
    ("Tables, lists, limits and flows", state::ALL),
    ("Attacks", attacks::ALL),
    ("Policies, interfaces and cards", running::ALL),
    ("Copies of packets and the shadow", taps::ALL),
    ("Engine, process and the metrics themselves", host::ALL),
];
