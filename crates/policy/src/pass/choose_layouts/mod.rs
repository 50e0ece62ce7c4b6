//! Chooses images for the tables: in which layout each is laid out, and which tables share one image.
//!
//! A table alone gets the layout that [`CostModel`] expects to be the fastest. Up to four sets of IPv4 addresses are *fused* if one lookup
//! that answers for all of them, wherever one of them is asked, is expected to be faster than one for each where it is asked.

mod cost;

use cost::Holding;
pub use cost::{CostModel, Estimate, FUSED_MAX};

use crate::catalog::PrefixCounts;
use crate::checked::{Checked, Effect, LimitBy, LimitsId, LimitsOf, Match, Table, TableId, TableKind};
use crate::field::Field;
use crate::ir::Direction;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use weir_abi::{Family, Layout};

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
pub fn plan(policy: &Checked, model: &CostModel) -> Plan {
    let questions = questions(policy);
    let mut images: Vec<Planned> = Vec::new();
    let mut fused = vec![false; policy.tables.len()];
    for (index, table) in policy.tables.iter().enumerate() {
        if fused[index] {
            continue;
        }
        let mut alike: Vec<usize> = (index..policy.tables.len())
            .filter(|&other| !fused[other] && !questions[other].is_disjoint(&questions[index]))
            .filter(|&other| may_be_fused(&policy.tables[other]))
            .collect();
        // Sets of like size share buckets best.
        alike.sort_by_key(|&other| policy.tables[other].facts.entries.abs_diff(table.facts.entries));
        let planned = if alike.contains(&index) { fuse(policy, &questions, &alike, model) } else { None };
        let planned = planned.unwrap_or_else(|| alone(table, TableId(index as u16), model));
        planned.tables().iter().for_each(|table| fused[usize::from(table.0)] = true);
        images.push(planned);
    }
    images.extend(lists(policy).into_iter().map(|(list, family)| list_alone(policy, list, family, model)));
    Plan { images }
}

/// The layout that the policy insists on, or the cheapest.
fn alone(table: &Table, id: TableId, model: &CostModel) -> Planned {
    let (cheapest, estimates) = cheapest(table.into(), model);
    let (layout, reason) = match table.layout {
        Some(layout) => (layout, Reason::Forced(estimates)),
        None => (cheapest, Reason::Cheapest(estimates)),
    };
    Planned { holds: Planning::Tables(vec![id]), layout, reason }
}

fn cheapest(holding: Holding, model: &CostModel) -> (Layout, Vec<Estimate>) {
    let mut estimates: Vec<Estimate> =
        Layout::ALL.into_iter().filter_map(|layout| model.estimate(holding, layout)).collect();
    estimates.sort_by_key(Estimate::rank);
    (estimates.first().expect("each family has a layout that holds everything").layout, estimates)
}

/// A list of limits, in which every prefix has a label of its own.
fn list_alone(policy: &Checked, list: LimitsId, family: Family, model: &CostModel) -> Planned {
    let PrefixCounts { entries, by_length } = policy.limits[usize::from(list.0)].facts.of(family);
    let (entries, labels) = (*entries, *entries);
    let holding = Holding { family, kind: TableKind::Labels, entries, labels, by_length, counts: true };
    let (layout, estimates) = cheapest(holding, model);
    Planned { holds: Planning::Limits(list, family), layout, reason: Reason::Cheapest(estimates) }
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

/// The first of the tables, with as many others as pay.
fn fuse(policy: &Checked, questions: &[BTreeSet<Question>], tables: &[usize], model: &CostModel) -> Option<Planned> {
    let size = |table: usize| policy.tables[table].facts.entries;
    let apart = |table: usize| {
        model.estimate(&policy.tables[table], Layout::ExactSet).expect("sets of addresses fit an exact set")
    };
    let (&first, others) = tables.split_first()?;
    let mut members = vec![first];
    let mut asked = questions[first].clone();
    let mut cost = apart(first);
    for &other in others {
        if members.len() == FUSED_MAX {
            break;
        }
        let sizes: Vec<usize> = members.iter().chain([&other]).map(|&member| size(member)).collect();
        let together = model.fused(&sizes);
        let all: BTreeSet<Question> = asked.union(&questions[other]).copied().collect();
        let total = |estimate: Estimate, asked: &BTreeSet<Question>| estimate.cycles * asked.len() as f64;
        let wanted = policy.tables[other].layout.is_some();
        if wanted || total(together, &all) < total(cost, &asked) + total(apart(other), &questions[other]) {
            members.push(other);
            (asked, cost) = (all, together);
        }
    }
    members.sort_unstable();
    (members.len() > 1).then(|| Planned {
        holds: Planning::Tables(members.iter().map(|&member| TableId(member as u16)).collect()),
        layout: Layout::ExactSets,
        reason: Reason::Fused { together: cost, apart: members.iter().map(|&member| apart(member)).collect() },
    })
}

/// Tables that are filled while running stay alone: nobody knows how large they will be.
fn may_be_fused(table: &Table) -> bool {
    table.dynamic.is_none()
        && cost::is_addresses(table)
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
