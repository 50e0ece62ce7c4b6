//! The entries of each limiter: those of its list, or the single limit in its rule.

use crate::lists::ListOfLimits;
use crate::text::Text;
use std::sync::Arc;
use weir_abi::{LimitEntries, LimitProfile, each};
use weir_policy::checked::LimitKeys;
use weir_policy::ir::{LimitEach, LimiterKind, Program};
use weir_tables::Nesting;

impl Text {
    /// The entries of each limiter. Limiters of the same list share them.
    pub fn limit_entries(&self, program: &Program) -> Vec<Arc<LimitEntries>> {
        let mut known: Vec<(&str, LimiterKind, Arc<LimitEntries>)> = Vec::new();
        let mut all = Vec::with_capacity(program.limiters.len());
        for limiter in &program.limiters {
            let (name, kind) = (limiter.name.as_str(), limiter.kind);
            let found = known.iter().find(|(other, of, _)| (*other, *of) == (name, kind));
            let entries = match found {
                Some((_, _, entries)) => Arc::clone(entries),
                None => Arc::new(self.entries_of(name, kind)),
            };
            if found.is_none() {
                known.push((name, kind, Arc::clone(&entries)));
            }
            all.push(entries);
        }
        all
    }

    fn entries_of(&self, name: &str, kind: LimiterKind) -> LimitEntries {
        let list = || {
            let index = self.checked.limits.iter().position(|list| list.name == name);
            let index = index.expect("a limiter's list is declared");
            (&self.checked.limits[index], &self.limits[index])
        };
        match kind {
            LimiterKind::Rate(limit) => LimitEntries::single(limit.profile()),
            LimiterKind::Each(each) => LimitEntries::single(each_profile(&each)),
            LimiterKind::Prefixes { family, nested } => {
                let (checked, ListOfLimits::Prefixes(table)) = list() else {
                    panic!("compiler bug: `{name}` is a list of labels")
                };
                table.entries(family, if nested { Nesting::Nested } else { Nesting::Flat }, checked.default)
            }
            LimiterKind::Labels => {
                let (checked, ListOfLimits::Labels(rates)) = list() else {
                    panic!("compiler bug: `{name}` is a list of prefixes")
                };
                let LimitKeys::Labels(table) = checked.keys else { panic!("compiler bug: `{name}` names no table") };
                rates.entries(self.tables[usize::from(table.0)].labels(), checked.default)
            }
        }
    }
}

/// The profile of the buckets in a table of addresses.
pub(crate) fn each_profile(each: &LimitEach) -> LimitProfile {
    each::profile(each.limit).expect("compiler bug: a burst that check refuses")
}
