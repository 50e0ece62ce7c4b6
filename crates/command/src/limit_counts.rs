//! Reports of counts for limits: the limits that were exceeded most, by name.
//!
//! A list may have a million limits. They are read one after the other, and only the requested number of them is kept
//! and gets names.

use crate::failure::Failure;
use crate::figures;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::{Family, Limit};
use weir_control::{CountedLimit, Limited};
use weir_loading::{LimitList, ListedLimits, Policy};
use weir_policy::ir::{Effect, LimitEach, LimiterKind, Log, Program};
use weir_state::limits::LimitCount;
use weir_tables::{LimitTable, RateOfLabel};

/// The limits that were exceeded most, and the sums over all limits.
#[derive(Debug, Default)]
pub struct Top {
    /// Sorted by excess packets, then by passed packets, both descending.
    pub limits: Vec<CountedLimit>,
    /// Number of limits that have counts.
    pub counted: u64,
    /// Number of limits that were exceeded.
    pub exceeded_limits: u64,
    /// Packets that passed, for all limits that count them.
    pub passed: u64,
    /// Packets that exceeded a limit.
    pub exceeded: u64,
}

/// The name of a limiter without list, in reports.
const EACH: &str = "each";

/// Called with an entry of a limiter, or an address of `limit each`, and its counts.
pub type Visit<'v> = dyn FnMut(u128, LimitCount) + 'v;

/// A limiter that counts, with the names and rates of its entries.
struct CountingLimiter<'p> {
    /// Its index in the program.
    limiter: usize,
    list: &'p str,
    direction: &'static str,
    at: &'p str,
    log: Log,
    default: Option<Limit>,
    entries: Entries<'p>,
}

enum Entries<'p> {
    One(Limit),
    Prefixes(&'p LimitTable, Family),
    Labels(&'p [Box<str>], &'p RateOfLabel),
    Addresses(LimitEach),
}

/// The sort key of a limit. Greater keys come first in reports.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ranked<'p> {
    exceeded: u64,
    passed: u64,
    /// List, statement, label, and entry or address. The entries of prefixes are sorted.
    name: Reverse<(&'p str, usize, Option<&'p str>, u128)>,
}

/// The limiters of a policy that count.
pub struct Counting<'p> {
    limiters: Vec<CountingLimiter<'p>>,
}

impl<'p> Counting<'p> {
    /// The limiters of all lists, or of one list.
    ///
    /// # Errors
    /// There is no such list, or it does not count.
    pub fn of(policy: &'p Policy, list: Option<&str>) -> Result<Self, Failure> {
        if let Some(name) = list {
            let declared = policy.limit_lists().iter().find(|known| known.name == name);
            match declared.map(|known| known.log) {
                None => return Err(Failure::Rejected(format!("weir: the policy has no list of limits {name}"))),
                Some(Log::Off) => {
                    let problem =
                        format!("weir: limits {name}: nothing is counted without `log exceeded` or `log all`");
                    return Err(Failure::Rejected(problem));
                }
                Some(Log::Exceeded | Log::All) => {}
            }
        }
        let limiters = counting_limiters(policy.limit_lists(), &policy.program);
        let is_listed = |limiter: &CountingLimiter<'_>| !matches!(limiter.entries, Entries::Addresses(_));
        let wanted = |limiter: &CountingLimiter<'_>| list.is_none_or(|name| limiter.list == name && is_listed(limiter));
        Ok(Counting { limiters: limiters.into_iter().filter(wanted).collect() })
    }

    /// Number of limits.
    pub fn limits(&self) -> u64 {
        self.limiters.iter().map(CountingLimiter::limits).sum()
    }

    /// The `wanted` limits that were exceeded most. `each` passes every entry of a limiter that has counts to its
    /// second argument.
    ///
    /// # Errors
    /// The errors of `each`.
    pub fn top(
        &self,
        wanted: usize,
        mut each: impl FnMut(usize, &mut Visit<'_>) -> Result<(), Failure>,
    ) -> Result<Top, Failure> {
        let mut top = Top::default();
        // A heap whose top is the least of the kept limits.
        let mut first: BinaryHeap<Reverse<Ranked<'_>>> = BinaryHeap::new();
        for (index, counting) in self.limiters.iter().enumerate() {
            each(counting.limiter, &mut |entry, LimitCount { exceeded, passed }| {
                top.counted += 1;
                top.exceeded_limits += u64::from(exceeded > 0);
                top.exceeded += exceeded;
                top.passed += passed;
                let ranked =
                    Ranked { exceeded, passed, name: Reverse((counting.list, index, counting.label(entry), entry)) };
                let is_full = first.len() >= wanted;
                if !is_full || first.peek().is_some_and(|Reverse(least)| *least < ranked) {
                    first.push(Reverse(ranked));
                    if is_full {
                        first.pop();
                    }
                }
            })?;
        }
        let named = |Reverse(Ranked { exceeded, passed, name: Reverse((_, index, _, entry)) })| {
            self.limiters[index].named(entry, LimitCount { exceeded, passed })
        };
        top.limits = first.into_sorted_vec().into_iter().map(named).collect();
        Ok(top)
    }
}

impl Top {
    /// Adds another result and keeps the first `wanted` limits.
    pub fn add(&mut self, other: Top, wanted: usize) {
        self.limits.extend(other.limits);
        self.limits.sort_by_key(|limit| Reverse((limit.exceeded, limit.passed)));
        self.limits.truncate(wanted);
        self.counted += other.counted;
        self.exceeded_limits += other.exceeded_limits;
        self.passed += other.passed;
        self.exceeded += other.exceeded;
    }
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "ipv4",
        Family::Ipv6 => "ipv6",
    }
}

/// The limiters of the program that count, sorted by list.
fn counting_limiters<'p>(lists: &'p [LimitList], program: &'p Program) -> Vec<CountingLimiter<'p>> {
    let mut limiters = Vec::new();
    for (index, limiter) in program.limiters.iter().enumerate().filter(|(_, limiter)| limiter.log != Log::Off) {
        let charges =
            |effect: &Effect| matches!(effect, Effect::Limit { limiter, .. } if usize::from(limiter.0) == index);
        let rule = program.rules.iter().find(|rule| rule.effects.iter().any(charges));
        let declared = lists.iter().find(|list| list.name == limiter.name);
        let entries = match (limiter.kind, declared.map(|list| &list.limits)) {
            (LimiterKind::Rate(limit), _) => Entries::One(limit),
            (LimiterKind::Each(each), _) => Entries::Addresses(each),
            (LimiterKind::Prefixes { family, .. }, Some(ListedLimits::Prefixes(table))) => {
                Entries::Prefixes(table, family)
            }
            (LimiterKind::Labels, Some(ListedLimits::Labels { rates, labels })) => Entries::Labels(labels, rates),
            _ => panic!("compiler bug: limiter {index} has no list of its kind"),
        };
        limiters.push(CountingLimiter {
            limiter: index,
            list: &limiter.name,
            direction: limiter.direction.name(),
            at: rule.map_or("", |rule| &rule.at),
            log: limiter.log,
            default: declared.and_then(|list| list.default),
            entries,
        });
    }
    limiters.sort_by_key(|limiter| limiter.list);
    limiters
}

impl<'p> CountingLimiter<'p> {
    /// Number of its limits.
    fn limits(&self) -> u64 {
        let count = match self.entries {
            Entries::One(_) => 1,
            Entries::Addresses(each) => each.size as usize,
            Entries::Prefixes(table, family) => table.len(family) + usize::from(self.default.is_some()),
            Entries::Labels(labels, _) if self.default.is_some() => labels.len(),
            Entries::Labels(labels, rates) => labels.iter().filter(|label| rates.limit(label).is_some()).count(),
        };
        count as u64
    }

    /// The label of an entry, if the keys of the list are labels.
    fn label(&self, entry: u128) -> Option<&'p str> {
        match self.entries {
            Entries::Labels(labels, _) => labels.get((entry as usize).checked_sub(1)?).map(|label| &**label),
            Entries::One(_) | Entries::Prefixes(..) | Entries::Addresses(_) => None,
        }
    }

    fn named(&self, entry: u128, count: LimitCount) -> CountedLimit {
        let default = || self.default.expect("a bucket that counts has a limit");
        let (what, limit): (_, String) = match self.entries {
            Entries::One(limit) => (None, limit.to_string()),
            Entries::Prefixes(_, family) if entry == 0 => {
                (Some(Limited::Default(family_name(family).to_owned())), default().to_string())
            }
            Entries::Prefixes(table, family) => {
                let (prefix, limit) = table.limit(family, entry as u32);
                (Some(Limited::Prefix(prefix.to_string())), limit.to_string())
            }
            Entries::Addresses(each) => (Some(address(each, entry)), each.limit.to_string()),
            Entries::Labels(labels, rates) => {
                let label = &*labels[entry as usize - 1];
                (Some(Limited::Label(label.to_owned())), rates.limit(label).unwrap_or_else(default).to_string())
            }
        };
        CountedLimit {
            list: self.list.to_owned(),
            direction: self.direction.to_owned(),
            at: self.at.to_owned(),
            what,
            rate: limit,
            passed: (self.log == Log::All).then_some(count.passed),
            exceeded: count.exceeded,
        }
    }
}

/// An address of `limit each`, or the prefix of several.
fn address(each: LimitEach, number: u128) -> Limited {
    let address = match each.key.family() {
        Family::Ipv4 => IpAddr::from(Ipv4Addr::from(number as u32)),
        Family::Ipv6 => IpAddr::from(Ipv6Addr::from(number)),
    };
    match u32::from(each.length) == u32::from(each.key.bits()) {
        true => Limited::Address(address.to_string()),
        false => Limited::Prefix(format!("{address}/{}", each.length)),
    }
}

/// A table of limits as text; empty without limits.
pub fn describe(limits: &[CountedLimit]) -> String {
    let mut text = String::new();
    if !limits.is_empty() {
        let _ = writeln!(text, "  {:>13} {:>13}  limit", "exceeded", "passed");
    }
    for limit in limits {
        let CountedLimit { list, direction, at, what, rate, passed, exceeded } = limit;
        let what = match what {
            None => String::new(),
            Some(Limited::Prefix(name) | Limited::Label(name) | Limited::Address(name)) => format!(" {name}"),
            Some(Limited::Default(family)) => format!(" default {family}"),
        };
        let passed = passed.map_or_else(|| "-".to_owned(), figures::grouped);
        // `limit each` has no list.
        let list = if list == EACH { "limit each".to_owned() } else { format!("@{list}") };
        let _ = writeln!(
            text,
            "  {:>13} {passed:>13}  {list}{what}: {rate}  ({direction}, {at})",
            figures::grouped(*exceeded)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const POLICY: &str = "table geo { type ipv4 : label; elements = { 10.0.0.0/8 : SI, 11.0.0.0/8 : AT, 12.0.0.0/8 : HR } }
limits b { elements = { 10.0.0.0/8 : 1kpps, 10.1.0.0/16 : 10mbit burst 64kbytes, 2001:db8::/32 : 5 }; default 7; log exceeded }
limits a { table geo; default 2; elements = { AT : 3 }; log all }
limits quiet { elements = { 10.0.0.0/8 : 1 } }
upstream { ip saddr limit @b; ip6 saddr limit @b; ip saddr limit @a; ip saddr limit @quiet; accept }
downstream { accept }
";

    fn policy() -> Policy {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.weir");
        fs::write(&path, POLICY).expect("a file");
        weir_loading::load(&path).expect("it is right")
    }

    fn top(counting: &Counting<'_>, wanted: usize, counts: &[(usize, usize, u64, u64)]) -> Vec<String> {
        let top = counting.top(wanted, |limiter, visit| {
            let own = counts.iter().filter(|(of, ..)| *of == limiter);
            own.for_each(|&(_, entry, exceeded, passed)| visit(entry as u128, LimitCount { exceeded, passed }));
            Ok(())
        });
        let top = top.expect("nothing fails");
        assert_eq!(top.counted, counts.len() as u64);
        assert_eq!(top.exceeded, counts.iter().map(|(_, _, exceeded, _)| exceeded).sum::<u64>());
        let one = |limit: &CountedLimit| {
            let what = serde_json::to_value(&limit.what).expect("JSON");
            format!("{} {what} {} {:?} {}", limit.list, limit.rate, limit.passed, limit.exceeded)
        };
        top.limits.iter().map(one).collect()
    }

    #[test]
    fn the_most_exceeded_come_first_with_their_names() {
        let policy = policy();
        let counting = Counting::of(&policy, None).expect("all of them");
        // Prefixes and the default of both families, and three labels.
        assert_eq!(counting.limits(), 3 + 2 + 3);
        // Limiters 0 and 1 belong to list b, limiter 2 to list a.
        let counts = [(0, 0, 5, 0), (0, 2, 5, 0), (1, 1, 6, 0), (2, 1, 5, 1), (2, 2, 5, 0), (2, 3, 5, 0)];
        let all = [
            r#"b {"prefix":"2001:db8::/32"} 5pps burst 10packets None 6"#,
            r#"a {"label":"SI"} 2pps burst 10packets Some(1) 5"#,
            r#"a {"label":"AT"} 3pps burst 10packets Some(0) 5"#,
            r#"a {"label":"HR"} 2pps burst 10packets Some(0) 5"#,
            r#"b {"default":"ipv4"} 7pps burst 10packets None 5"#,
            r#"b {"prefix":"10.1.0.0/16"} 10mbit burst 64kbytes None 5"#,
        ];
        for wanted in [0, 1, 2, 3, 5, 6, 20] {
            assert_eq!(top(&counting, wanted, &counts), all[..wanted.min(6)], "{wanted}");
        }
    }

    #[test]
    fn lists_are_found_by_name() {
        let policy = policy();
        let refused = |list: &str| Counting::of(&policy, Some(list)).err().map(|failure| failure.message().to_owned());
        assert_eq!(Counting::of(&policy, Some("a")).expect("it counts").limits(), 3);
        assert_eq!(refused("c").as_deref(), Some("the policy has no list of limits c"));
        assert_eq!(
            refused("quiet").as_deref(),
            Some("limits quiet: nothing is counted without `log exceeded` or `log all`")
        );
    }
}
