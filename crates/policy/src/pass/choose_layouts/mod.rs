//! Plans the images of tables: the layout of each image, and which tables share one.
//!
//! The [`Catalog`] measures the image of a table in each layout. A table gets the layout for which [`CostModel`]
//! expects the fewest cycles. Up to four exact sets of one family are *fused* into one image, so that one lookup
//! serves all of them. This is done if the expected cycles of all lookups are fewer than without fusing.

mod cost;

pub use cost::{CostModel, Estimate};

use crate::catalog::{Catalog, ImageFacts};
use crate::checked::{Checked, Effect, LimitBy, LimitKeys, LimitsId, Match, Table, TableId, TableKind};
use crate::field::Field;
use crate::ir::Direction;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use weir_abi::{Family, Layout};

/// Most sets in one image.
pub const FUSED_MAX: usize = 4;

/// The images of a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The images.
    pub images: Vec<Planned>,
}

/// One image.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// Its content.
    pub contents: ImageContents,
    /// Its layout.
    pub layout: Layout,
    /// Why this layout.
    pub reason: Reason,
}

/// The content of a planned image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageContents {
    /// Tables. If there are several, each has one bit in the result of a lookup.
    Tables(Vec<TableId>),
    /// The prefixes of one family in a list of limits.
    Limits(LimitsId, Family),
}

impl Planned {
    /// The tables in the image. Empty if it holds limits.
    pub fn tables(&self) -> &[TableId] {
        match &self.contents {
            ImageContents::Tables(tables) => tables,
            ImageContents::Limits(..) => &[],
        }
    }
}

/// Why a layout was chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The estimates of all layouts that can hold the table, the cheapest first.
    Cheapest(Vec<Estimate>),
    /// The policy sets the layout. The estimates of all layouts.
    Forced(Vec<Estimate>),
    /// One lookup for several tables.
    Fused {
        /// The estimate of the shared image.
        together: Estimate,
        /// The estimates of an image for each table.
        apart: Vec<Estimate>,
    },
}

impl Plan {
    /// The index of a table's image, and the index of the table in that image.
    pub fn image_of(&self, table: TableId) -> (usize, usize) {
        let found = self.images.iter().enumerate().find_map(|(image, planned)| {
            planned.tables().iter().position(|&member| member == table).map(|member| (image, member))
        });
        found.expect("every table has an image")
    }

    /// The index of the image of a list's prefixes.
    pub fn image_of_limits(&self, list: LimitsId, family: Family) -> usize {
        let found = self.images.iter().position(|planned| planned.contents == ImageContents::Limits(list, family));
        found.expect("every list that a statement uses has an image")
    }
}

impl Reason {
    /// Expected TSC cycles per lookup in a layout. `None` if there is no estimate for it.
    pub fn expected_cycles(&self, layout: Layout) -> Option<f64> {
        let estimates = match self {
            Reason::Cheapest(estimates) | Reason::Forced(estimates) => estimates.as_slice(),
            Reason::Fused { together, .. } => std::slice::from_ref(together),
        };
        estimates.iter().find(|estimate| estimate.layout == layout).map(|estimate| estimate.cycles)
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Cheapest(estimates) => write!(f, "expected {}", list(estimates)),
            Reason::Forced(estimates) => write!(f, "the policy says so; expected {}", list(estimates)),
            Reason::Fused { together, apart } => {
                write!(
                    f,
                    "one lookup for {} tables: expected {}; apart {}",
                    apart.len(),
                    list(&[*together]),
                    list(apart)
                )
            }
        }
    }
}

fn list(estimates: &[Estimate]) -> String {
    let one = |estimate: &Estimate| {
        let mib = estimate.bytes as f64 / f64::from(1 << 20);
        format!("{} {:.0} cycles {mib:.2} MiB", estimate.layout.name(), estimate.cycles)
    };
    estimates.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Plans the images of all tables.
pub fn plan(policy: &Checked, catalog: &dyn Catalog, model: &CostModel) -> Plan {
    let planner = Planner { policy, catalog, model, lookups: lookups(policy) };
    let mut images: Vec<Planned> = Vec::new();
    let mut fused = vec![false; policy.tables.len()];
    for (index, table) in policy.tables.iter().enumerate() {
        if fused[index] {
            continue;
        }
        let lookups = &planner.lookups;
        let mut candidates: Vec<usize> = (index..policy.tables.len())
            .filter(|&other| !fused[other] && !lookups[other].is_disjoint(&lookups[index]))
            .filter(|&other| may_be_fused(&policy.tables[other]))
            .collect();
        // Sets of similar size share buckets best.
        candidates.sort_by_key(|&other| policy.tables[other].facts.entries.abs_diff(table.facts.entries));
        let planned = if candidates.contains(&index) { planner.fuse(&candidates) } else { None };
        let planned = planned.unwrap_or_else(|| planner.alone(table, TableId(index as u16)));
        planned.tables().iter().for_each(|table| fused[usize::from(table.0)] = true);
        images.push(planned);
    }
    images.extend(lists(policy).into_iter().map(|(list, family)| planner.list_alone(list, family)));
    Plan { images }
}

/// The input of planning.
struct Planner<'p> {
    policy: &'p Checked,
    catalog: &'p dyn Catalog,
    model: &'p CostModel,
    /// The lookups of each table.
    lookups: Vec<BTreeSet<Lookup>>,
}

impl Planner<'_> {
    /// Plans an image for one table: in the layout that the policy sets, or else the cheapest.
    fn alone(&self, table: &Table, id: TableId) -> Planned {
        let estimates = self.estimates(
            |layout| holds_table(layout, table),
            |layout| self.catalog.image(&[table.name.as_str()], layout),
        );
        let (layout, reason) = match table.layout {
            Some(layout) => (layout, Reason::Forced(estimates)),
            None => (cheapest(&estimates, table.family), Reason::Cheapest(estimates)),
        };
        Planned { contents: ImageContents::Tables(vec![id]), layout, reason }
    }

    /// Plans the image of a list of limits, in which every prefix has its own label.
    fn list_alone(&self, list: LimitsId, family: Family) -> Planned {
        let name = &self.policy.limits[usize::from(list.0)].name;
        let estimates = self
            .estimates(|layout| holds_limits(layout, family), |layout| self.catalog.limits_image(name, family, layout));
        let layout = cheapest(&estimates, family);
        Planned { contents: ImageContents::Limits(list, family), layout, reason: Reason::Cheapest(estimates) }
    }

    /// The estimates of the layouts for which `accepts` holds, the cheapest first.
    fn estimates(
        &self,
        accepts: impl Fn(Layout) -> bool,
        image: impl Fn(Layout) -> Option<ImageFacts>,
    ) -> Vec<Estimate> {
        let images = Layout::ALL.into_iter().filter(|&layout| accepts(layout)).filter_map(image);
        let mut estimates: Vec<Estimate> = images.map(|image| self.model.estimate(image)).collect();
        estimates.sort_by_key(Estimate::rank);
        estimates
    }

    /// Plans a shared image for the first table and those others that make lookups cheaper. `None` if there are no such
    /// others.
    ///
    /// Packets that are looked up in one are looked up in the others. So images apart share the cache, and each is
    /// estimated beside the bytes of the others.
    fn fuse(&self, tables: &[usize]) -> Option<Planned> {
        let table = |table: usize| &self.policy.tables[table];
        let image = |members: &[usize], layout: Layout| {
            let members: BTreeSet<usize> = members.iter().copied().collect();
            let names: Vec<&str> = members.into_iter().map(|member| table(member).name.as_str()).collect();
            self.catalog.image(&names, layout)
        };
        let cycles = |image: ImageFacts, others: usize, lookups: &BTreeSet<Lookup>| {
            self.model.estimate_beside(image, others).cycles * lookups.len() as f64
        };
        let (&first, others) = tables.split_first()?;
        let family = table(first).family;
        let mut members = vec![first];
        let mut apart = vec![image(&[first], exact_set(family))?];
        let mut all_lookups = self.lookups[first].clone();
        let mut shared = apart[0];
        for &other in others {
            if members.len() == FUSED_MAX {
                break;
            }
            let with_other = [members.as_slice(), &[other]].concat();
            let together = image(&with_other, Layout::fused(family));
            let (Some(together), Some(alone)) = (together, image(&[other], exact_set(family))) else { continue };
            let all: BTreeSet<Lookup> = all_lookups.union(&self.lookups[other]).copied().collect();
            let two = cycles(shared, alone.bytes, &all_lookups) + cycles(alone, shared.bytes, &self.lookups[other]);
            if table(other).layout.is_some() || cycles(together, 0, &all) < two {
                (members, all_lookups, shared) = (with_other, all, together);
                apart.push(alone);
            }
        }
        let tables: BTreeSet<usize> = members.iter().copied().collect();
        let bytes: usize = apart.iter().map(|image| image.bytes).sum();
        let beside = |image: ImageFacts| self.model.estimate_beside(image, bytes - image.bytes);
        (members.len() > 1).then(|| Planned {
            contents: ImageContents::Tables(tables.into_iter().map(|member| TableId(member as u16)).collect()),
            layout: Layout::fused(family),
            reason: Reason::Fused {
                together: self.model.estimate(shared),
                apart: apart.into_iter().map(beside).collect(),
            },
        })
    }
}

/// The layout of the first estimate. If no layout can hold the table, the most general one, whose builder then reports
/// why.
fn cheapest(estimates: &[Estimate], family: Family) -> Layout {
    match (estimates.first(), family) {
        (Some(estimate), _) => estimate.layout,
        (None, Family::Ipv4) => Layout::RankLeaf,
        (None, Family::Ipv6) => Layout::RankLeaf6,
    }
}

/// Whether the layout suits the table. An exact set needs a table that already has addresses, because an empty table
/// may get prefixes later. A dynamic table may get any prefix, and its layout must change in place; most of its entries
/// are hosts. Counters need a layout that numbers entries.
fn holds_table(layout: Layout, table: &Table) -> bool {
    if table.counters || table.dynamic.is_some() && table.kind == TableKind::Labels {
        return matches!((layout, table.family), (Layout::RankLeaf, Family::Ipv4) | (Layout::RankLeaf6, Family::Ipv6));
    }
    if table.dynamic.is_some() {
        return matches!(
            (layout, table.family),
            (Layout::ExactLeaf, Family::Ipv4) | (Layout::ExactLeaf6, Family::Ipv6)
        );
    }
    let only = |lengths: &[usize]| {
        let held: usize = lengths.iter().filter_map(|&length| table.facts.by_length.get(length)).sum();
        table.kind == TableKind::Set && table.facts.entries > 0 && table.facts.entries == held
    };
    match layout {
        Layout::Dxr16x4 | Layout::RankLeaf => table.family == Family::Ipv4,
        Layout::Range6 | Layout::RankLeaf6 => table.family == Family::Ipv6,
        Layout::ExactSet => table.family == Family::Ipv4 && only(&[32]),
        Layout::ExactSet6 => table.family == Family::Ipv6 && only(&[64, 128]),
        // Layouts for several tables, for lists of limits, and for dynamic tables.
        Layout::ExactSets | Layout::ExactSets6 | Layout::CountedLeaf | Layout::ExactLeaf | Layout::ExactLeaf6 => false,
    }
}

/// The labels of these images become tickets of up to 31 bits. `d16x4r` and `range6` hold 20.
fn holds_limits(layout: Layout, family: Family) -> bool {
    match layout {
        Layout::RankLeaf | Layout::CountedLeaf => family == Family::Ipv4,
        Layout::RankLeaf6 => family == Family::Ipv6,
        Layout::Dxr16x4
        | Layout::Range6
        | Layout::ExactSet
        | Layout::ExactSets
        | Layout::ExactSet6
        | Layout::ExactSets6
        | Layout::ExactLeaf
        | Layout::ExactLeaf6 => false,
    }
}

/// The lists and families of all `limit @LIST` statements whose keys are prefixes.
fn lists(policy: &Checked) -> BTreeSet<(LimitsId, Family)> {
    let chains = policy.postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]);
    let effects = chains.flatten().flatten().flat_map(|rule| &rule.effects);
    let used = effects.filter_map(|effect| match effect {
        Effect::Limit { by: LimitBy::List { key, limits }, .. } => Some((*limits, *key)),
        _ => None,
    });
    let of_prefixes = |list: &LimitsId| matches!(policy.limits[usize::from(list.0)].keys, LimitKeys::Prefixes { .. });
    used.filter(|(list, _)| of_prefixes(list)).map(|(list, key)| (list, key.family())).collect()
}

/// Whether a table may share an image. A dynamic table may not, because it may get prefixes.
fn may_be_fused(table: &Table) -> bool {
    let fused = Layout::fused(table.family);
    holds_table(exact_set(table.family), table) && table.layout.is_none_or(|layout| layout == fused)
}

/// The layout of an exact set alone.
const fn exact_set(family: Family) -> Layout {
    match family {
        Family::Ipv4 => Layout::ExactSet,
        Family::Ipv6 => Layout::ExactSet6,
    }
}

/// A lookup: the posture's number, the direction and the key.
type Lookup = (usize, Direction, Field);

/// The lookups of each table.
fn lookups(policy: &Checked) -> Vec<BTreeSet<Lookup>> {
    let mut lookups = vec![BTreeSet::new(); policy.tables.len()];
    for (number, posture) in policy.postures.iter().enumerate() {
        let chains = [(Direction::Upstream, &posture.upstream), (Direction::Downstream, &posture.downstream)];
        for (direction, rules) in chains {
            for found in rules.iter().flatten().flat_map(|rule| &rule.matches) {
                if let Match::Table { key, table, .. } = found {
                    lookups[usize::from(table.0)].insert((number, direction, *key));
                }
            }
        }
    }
    lookups
}

#[cfg(test)]
mod tests;
