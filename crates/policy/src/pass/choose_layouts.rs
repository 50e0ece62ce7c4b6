//! Chooses how each table is laid out, from what it holds.

use crate::checked::{Table, TableKind};
use weir_abi::{Family, Layout};

/// The layout that the policy insists on, or the one that suits the table: an exact set where there are only addresses.
pub fn choose(table: &Table) -> Layout {
    if let Some(layout) = table.layout {
        return layout;
    }
    match table.family {
        Family::Ipv6 => Layout::Range6,
        Family::Ipv4 if table.kind == TableKind::Set && only_addresses(table) => Layout::ExactSet,
        Family::Ipv4 => Layout::Dxr16x4,
    }
}

fn only_addresses(table: &Table) -> bool {
    let addresses = table.facts.by_length.get(32).copied().unwrap_or(0);
    table.facts.entries > 0 && table.facts.entries == addresses
}
