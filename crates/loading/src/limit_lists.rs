//! The lists of limits of a policy, from its text or from a bundle, and the entries of each limiter.

use crate::lists::ListOfLimits;
use crate::text::Text;
use std::sync::Arc;
use weir_abi::{Limit, LimitEntries, LimitProfile, each};
use weir_policy::checked::LimitKeys;
use weir_policy::ir::{EachLimit, LimitEach, LimiterKind, Log, Program};
use weir_tables::{LimitTable, Nesting, RateOfLabel};

/// A list of limits.
#[derive(Clone, Debug)]
pub struct LimitList {
    /// Its name.
    pub name: String,
    /// What is counted for each limit.
    pub log: Log,
    /// The limit of addresses outside its prefixes, or of each other label of its table.
    pub default: Option<Limit>,
    /// The limits.
    pub limits: ListedLimits,
}

/// The limits of a list.
#[derive(Clone, Debug)]
pub enum ListedLimits {
    /// Limits of prefixes.
    Prefixes(Arc<LimitTable>),
    /// Limits of a table's labels.
    Labels {
        /// The limits.
        rates: Arc<RateOfLabel>,
        /// The labels of the table.
        labels: Arc<[Box<str>]>,
    },
}

impl LimitList {
    /// The prefixes.
    ///
    /// # Panics
    /// If it is a list of labels. The caller has a limiter or slot of prefixes.
    pub(crate) fn prefixes(&self) -> &Arc<LimitTable> {
        match &self.limits {
            ListedLimits::Prefixes(table) => table,
            ListedLimits::Labels { .. } => panic!("compiler bug: `{}` is a list of labels", self.name),
        }
    }

    fn entries(&self, kind: LimiterKind) -> LimitEntries {
        match (&self.limits, kind) {
            (ListedLimits::Prefixes(table), LimiterKind::Prefixes { family, nested }) => {
                table.entries(family, if nested { Nesting::Nested } else { Nesting::Flat }, self.default)
            }
            (ListedLimits::Labels { rates, labels }, LimiterKind::Labels) => rates.entries(labels, self.default),
            _ => panic!("compiler bug: `{}` is a list of another kind", self.name),
        }
    }
}

impl Text {
    /// The lists of limits, in order of declaration.
    pub(crate) fn limit_lists(&self) -> Vec<LimitList> {
        let list = |(checked, read): (&weir_policy::checked::Limits, &ListOfLimits)| {
            let limits = match (read, checked.keys) {
                (ListOfLimits::Prefixes(table), _) => ListedLimits::Prefixes(table.clone()),
                (ListOfLimits::Labels(rates), LimitKeys::Labels(table)) => {
                    let labels = self.tables[usize::from(table.0)].labels().into();
                    ListedLimits::Labels { rates: rates.clone(), labels }
                }
                (ListOfLimits::Labels(_), LimitKeys::Prefixes { .. }) => {
                    panic!("compiler bug: `{}` names no table", checked.name)
                }
            };
            LimitList { name: checked.name.clone(), log: checked.log, default: checked.default, limits }
        };
        self.checked.limits.iter().zip(&self.limits).map(list).collect()
    }
}

/// The list of a limiter or slot.
///
/// # Panics
/// If there is none. Text and bundles are checked when they are read.
pub(crate) fn named<'a>(lists: &'a [LimitList], name: &str) -> &'a LimitList {
    lists.iter().find(|list| list.name == name).expect("the list of a limiter or slot is declared")
}

/// The entries of each limiter: the entries of its list, or the single limit in its rule. Limiters of the same list
/// share them.
pub(crate) fn entries(lists: &[LimitList], program: &Program) -> Vec<Arc<LimitEntries>> {
    let mut known: Vec<(&str, LimiterKind, Arc<LimitEntries>)> = Vec::new();
    let mut all = Vec::with_capacity(program.limiters.len());
    for limiter in &program.limiters {
        let (name, kind) = (limiter.name.as_str(), limiter.kind);
        let found = known.iter().find(|(other, of, _)| (*other, *of) == (name, kind));
        let entries = match found {
            Some((_, _, entries)) => Arc::clone(entries),
            None => Arc::new(entries_of(lists, name, kind)),
        };
        if found.is_none() {
            known.push((name, kind, Arc::clone(&entries)));
        }
        all.push(entries);
    }
    all
}

fn entries_of(lists: &[LimitList], name: &str, kind: LimiterKind) -> LimitEntries {
    match kind {
        LimiterKind::Rate(limit) => LimitEntries::single(limit.profile()),
        LimiterKind::Each(each) => LimitEntries::single(each_profile(&each)),
        LimiterKind::Prefixes { .. } | LimiterKind::Labels => named(lists, name).entries(kind),
    }
}

/// The profile of the buckets in a table of addresses. Seats have none.
pub(crate) fn each_profile(each: &LimitEach) -> LimitProfile {
    match each.limit {
        EachLimit::Rate(limit) => each::profile(limit).expect("compiler bug: a burst that check refuses"),
        EachLimit::Connections(_) => LimitProfile::CLOSED,
    }
}
