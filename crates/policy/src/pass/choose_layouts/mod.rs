//! Chooses images for the tables: in which layout each is laid out, and which tables share one image.
//!
//! What each layout would make of a table, the [`Catalog`] answers: bytes, words and lines are those of images that were built. A table alone gets the
//! layout of which [`CostModel`] then expects the fewest cycles. Up to four sets of IPv4 addresses are *fused* if one lookup
//! that answers for all of them, wherever one of them is asked, is expected to be faster than one for each where it is asked.

mod cost;

pub use cost::{CostModel, Estimate};

use crate::catalog::{Catalog, ImageFacts};
use crate::checked::{Checked, Effect, LimitBy, LimitsId, LimitsOf, Match, Table, TableId, TableKind};
use crate::field::Field;
use crate::ir::Direction;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use weir_abi::{Family, Layout};

/// Sets in one image at most.
pub const FUSED_MAX: usize = 4;

/// What a policy's tables become.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The images.
    pub images: Vec<Planned>,
}

/// One image.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// What is in it.
    pub holds: Planning,
    /// Its layout.
    pub layout: Layout,
    /// Why.
    pub reason: Reason,
}

/// What an image is planned for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Planning {
    /// Tables; several of them have a bit each in its answers.
    Tables(Vec<TableId>),
    /// The prefixes of a list of limits, of one family.
    Limits(LimitsId, Family),
}

impl Planned {
    /// The tables in it, none if it holds limits.
    pub fn tables(&self) -> &[TableId] {
        match &self.holds {
            Planning::Tables(tables) => tables,
            Planning::Limits(..) => &[],
        }
    }
}

/// Why a layout was chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Of all layouts that could hold the table, the cheapest first.
    Cheapest(Vec<Estimate>),
    /// The policy says so. What others would cost.
    Forced(Vec<Estimate>),
    /// One lookup for several tables.
    Fused {
        /// What it costs.
        together: Estimate,
        /// What one for each would.
        apart: Vec<Estimate>,
    },
}

impl Plan {
    /// The image of a table, and the table's place in it.
    pub fn place(&self, table: TableId) -> (usize, usize) {
        let place = self.images.iter().enumerate().find_map(|(image, planned)| {
            planned.tables().iter().position(|&member| member == table).map(|member| (image, member))
        });
        place.expect("every table has an image")
    }

    /// The image of a list's prefixes.
    pub fn limits(&self, list: LimitsId, family: Family) -> usize {
        let place = self.images.iter().position(|planned| planned.holds == Planning::Limits(list, family));
        place.expect("every list that is asked has an image")
    }
}

impl Reason {
    /// TSC cycles that a lookup was expected to cost. `None` if the policy chose, and nobody knows what its choice costs.
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
    let planner = Planner { policy, catalog, model, questions: questions(policy) };
    let mut images: Vec<Planned> = Vec::new();
    let mut fused = vec![false; policy.tables.len()];
    for (index, table) in policy.tables.iter().enumerate() {
        if fused[index] {
            continue;
        }
        let questions = &planner.questions;
        let mut alike: Vec<usize> = (index..policy.tables.len())
            .filter(|&other| !fused[other] && !questions[other].is_disjoint(&questions[index]))
            .filter(|&other| may_be_fused(&policy.tables[other]))
            .collect();
        // Sets of like size share buckets best.
        alike.sort_by_key(|&other| policy.tables[other].facts.entries.abs_diff(table.facts.entries));
        let planned = if alike.contains(&index) { planner.fuse(&alike) } else { None };
        let planned = planned.unwrap_or_else(|| planner.alone(table, TableId(index as u16)));
        planned.tables().iter().for_each(|table| fused[usize::from(table.0)] = true);
        images.push(planned);
    }
    images.extend(lists(policy).into_iter().map(|(list, family)| planner.list_alone(list, family)));
    Plan { images }
}

/// What images are planned by.
struct Planner<'p> {
    policy: &'p Checked,
    catalog: &'p dyn Catalog,
    model: &'p CostModel,
    /// By whom each table is asked.
    questions: Vec<BTreeSet<Question>>,
}

impl Planner<'_> {
    /// The layout that the policy insists on, or the cheapest.
    fn alone(&self, table: &Table, id: TableId) -> Planned {
        let estimates = self.estimates(
            |layout| holds_table(layout, table),
            |layout| self.catalog.image(&[table.name.as_str()], layout),
        );
        let (layout, reason) = match table.layout {
            Some(layout) => (layout, Reason::Forced(estimates)),
            None => (cheapest(&estimates, table.family), Reason::Cheapest(estimates)),
        };
        Planned { holds: Planning::Tables(vec![id]), layout, reason }
    }

    /// A list of limits, in which every prefix has a label of its own.
    fn list_alone(&self, list: LimitsId, family: Family) -> Planned {
        let name = &self.policy.limits[usize::from(list.0)].name;
        let estimates = self
            .estimates(|layout| holds_limits(layout, family), |layout| self.catalog.limits_image(name, family, layout));
        let layout = cheapest(&estimates, family);
        Planned { holds: Planning::Limits(list, family), layout, reason: Reason::Cheapest(estimates) }
    }

    /// What the layouts cost that hold something, the cheapest first.
    fn estimates(&self, holds: impl Fn(Layout) -> bool, image: impl Fn(Layout) -> Option<ImageFacts>) -> Vec<Estimate> {
        let images = Layout::ALL.into_iter().filter(|&layout| holds(layout)).filter_map(image);
        let mut estimates: Vec<Estimate> = images.map(|image| self.model.estimate(image)).collect();
        estimates.sort_by_key(Estimate::rank);
        estimates
    }

    /// The first of the tables, with as many others as pay.
    fn fuse(&self, tables: &[usize]) -> Option<Planned> {
        let table = |table: usize| &self.policy.tables[table];
        let image = |members: &[usize], layout: Layout| {
            let members: BTreeSet<usize> = members.iter().copied().collect();
            let names: Vec<&str> = members.into_iter().map(|member| table(member).name.as_str()).collect();
            self.catalog.image(&names, layout).map(|image| self.model.estimate(image))
        };
        let (&first, others) = tables.split_first()?;
        let mut members = vec![first];
        let mut apart = vec![image(&[first], Layout::ExactSet)?];
        let mut asked = self.questions[first].clone();
        let mut cost = apart[0];
        for &other in others {
            if members.len() == FUSED_MAX {
                break;
            }
            let with_other = [members.as_slice(), &[other]].concat();
            let together = image(&with_other, Layout::ExactSets);
            let (Some(together), Some(alone)) = (together, image(&[other], Layout::ExactSet)) else { continue };
            let all: BTreeSet<Question> = asked.union(&self.questions[other]).copied().collect();
            let total = |estimate: Estimate, asked: &BTreeSet<Question>| estimate.cycles * asked.len() as f64;
            let wanted = table(other).layout.is_some();
            if wanted || total(together, &all) < total(cost, &asked) + total(alone, &self.questions[other]) {
                (members, asked, cost) = (with_other, all, together);
                apart.push(alone);
            }
        }
        let tables: BTreeSet<usize> = members.iter().copied().collect();
        (members.len() > 1).then(|| Planned {
            holds: Planning::Tables(tables.into_iter().map(|member| TableId(member as u16)).collect()),
            layout: Layout::ExactSets,
            reason: Reason::Fused { together: cost, apart },
        })
    }
}

/// The layout of the first estimate. If no layout holds a table, building it says why, in the one that holds most.
fn cheapest(estimates: &[Estimate], family: Family) -> Layout {
    match (estimates.first(), family) {
        (Some(estimate), _) => estimate.layout,
        (None, Family::Ipv4) => Layout::RankLeaf,
        (None, Family::Ipv6) => Layout::RankLeaf6,
    }
}

/// Whether the layout is for such tables. Exact sets are for those that hold addresses now: an empty table may yet get prefixes.
fn holds_table(layout: Layout, table: &Table) -> bool {
    let only = |lengths: &[usize]| {
        let held: usize = lengths.iter().filter_map(|&length| table.facts.by_length.get(length)).sum();
        table.kind == TableKind::Set && table.facts.entries > 0 && table.facts.entries == held
    };
    match layout {
        Layout::Dxr16x4 | Layout::RankLeaf => table.family == Family::Ipv4,
        Layout::Range6 | Layout::RankLeaf6 => table.family == Family::Ipv6,
        Layout::ExactSet => table.family == Family::Ipv4 && only(&[32]),
        Layout::ExactSet6 => table.family == Family::Ipv6 && only(&[64, 128]),
        // Those are for several tables and for lists of limits.
        Layout::ExactSets | Layout::CountedLeaf => false,
    }
}

fn holds_limits(layout: Layout, family: Family) -> bool {
    match layout {
        Layout::Dxr16x4 | Layout::RankLeaf | Layout::CountedLeaf => family == Family::Ipv4,
        Layout::Range6 | Layout::RankLeaf6 => family == Family::Ipv6,
        Layout::ExactSet | Layout::ExactSets | Layout::ExactSet6 => false,
    }
}

/// The lists whose prefixes are asked for, each with the family.
fn lists(policy: &Checked) -> BTreeSet<(LimitsId, Family)> {
    let chains = policy.postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]);
    let effects = chains.flatten().flatten().flat_map(|rule| &rule.effects);
    let asked = effects.filter_map(|effect| match effect {
        Effect::Limit { by: LimitBy::List { key, limits }, .. } => Some((*limits, *key)),
        _ => None,
    });
    let of_prefixes = |list: &LimitsId| matches!(policy.limits[usize::from(list.0)].of, LimitsOf::Prefixes { .. });
    asked.filter(|(list, _)| of_prefixes(list)).map(|(list, key)| (list, key.family())).collect()
}

/// Tables that are filled while running stay alone: nobody knows how large they will be.
fn may_be_fused(table: &Table) -> bool {
    table.dynamic.is_none()
        && holds_table(Layout::ExactSet, table)
        && table.layout.is_none_or(|layout| layout == Layout::ExactSets)
}

/// A chain, by its posture's number, and a key that it asks for.
type Question = (usize, Direction, Field);

/// By whom each table is asked, and for which key.
fn questions(policy: &Checked) -> Vec<BTreeSet<Question>> {
    let mut questions = vec![BTreeSet::new(); policy.tables.len()];
    for (number, posture) in policy.postures.iter().enumerate() {
        let chains = [(Direction::Upstream, &posture.upstream), (Direction::Downstream, &posture.downstream)];
        for (direction, rules) in chains {
            for found in rules.iter().flatten().flat_map(|rule| &rule.matches) {
                if let Match::Table { key, table, .. } = found {
                    questions[usize::from(table.0)].insert((number, direction, *key));
                }
            }
        }
    }
    questions
}

#[cfg(test)]
mod tests;
