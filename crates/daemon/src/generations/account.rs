//! All counts since the start: counts of policies that decide packets, and counts of previous policies.

use crate::generations::interface_stats;
use crate::generations::named_counts::NamedCounts;
use crate::generations::tally::{self, GONE_RULES_MAX, LoadedNames};
use weir_abi::{Action, Counter, Reason};
use weir_command::report::{self, Decided};
use weir_control::{AdditionStats, DirectionStats, Outcome, OutcomeStats, Stats, WorkerStats};
use weir_engine::live::{Counts, PortStatus, Role};
use weir_policy::ir::{Direction, Program};

/// The counts of a policy, and the program that gives them meaning.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    /// The policy.
    pub program: &'a Program,
    /// Indexed by worker and direction.
    pub counts: &'a Counts,
    /// What it had counted since its activation when an upgrade replaced its programs.
    pub carried: Option<&'a NamedCounts>,
}

impl<'a> Counted<'a> {
    /// Counts without any before.
    pub fn of(program: &'a Program, counts: &'a Counts) -> Self {
        Counted { program, counts, carried: None }
    }
}

/// Packets from the lower side since the start that did not get past the datapath.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// SYNs that were answered with a cookie.
    pub cookies: u64,
    /// Packets that were dropped, apart from those that rules of slots drop.
    pub dropped: u64,
}

/// Final counts of policies that no longer decide packets.
#[derive(Clone, Default)]
pub struct Account {
    past: NamedCounts,
}

impl From<NamedCounts> for Account {
    fn from(past: NamedCounts) -> Self {
        Account { past }
    }
}

impl Account {
    /// Adds the final counts of a policy. Its counters are exact; `ports` was read a moment later.
    pub fn close(&mut self, counted: Counted<'_>, ports: &[PortStatus]) {
        let tallies = Direction::BOTH.map(|direction| self.direction(counted, &[], ports, direction).total);
        let workers = (0..counted.counts.len().max(self.past.workers.len()))
            .map(|worker| Direction::BOTH.map(|direction| self.worker(counted, &[], worker, direction).total))
            .collect();
        self.past = NamedCounts { tallies, workers };
    }

    /// What the next program in this process continues with: the final counts with those of `others`, and the counts of
    /// the active policy.
    pub fn hand_over(
        &self,
        active: Counted<'_>,
        others: &[Counted<'_>],
        ports: &[PortStatus],
    ) -> (NamedCounts, NamedCounts) {
        let tallies = Direction::BOTH.map(|direction| self.direction(active, others, ports, direction).current);
        let mut past = self.clone();
        others.iter().for_each(|other| past.close(*other, &[]));
        // Samples are counted at ports, for the active policy since its activation.
        past.past.tallies.iter_mut().zip(&self.past.tallies).for_each(|(past, known)| past.sampled = known.sampled);
        let workers = (0..active.counts.len())
            .map(|worker| Direction::BOTH.map(|direction| self.worker(active, &[], worker, direction).current));
        (past.past, NamedCounts { tallies, workers: workers.collect() })
    }

    /// Sums up the rules, reasons and tables of removed policies, if there are too many to list.
    pub fn forget<'a>(&mut self, loaded: impl IntoIterator<Item = &'a Program>) {
        let listed = self.past.tallies.iter().map(|past| past.rules.len()).max();
        if listed.is_some_and(|listed| listed > GONE_RULES_MAX) {
            let loaded = LoadedNames::of(loaded);
            self.past.tallies.iter_mut().for_each(|past| tally::forget(past, &loaded));
        }
    }

    /// All counts: of the active policy, and the totals. Totals include `others`, whose counts are not final.
    pub fn stats(&self, active: Counted<'_>, others: &[Counted<'_>], ports: &[PortStatus]) -> Stats {
        let worker = |worker: usize| {
            let [upstream, downstream] =
                Direction::BOTH.map(|direction| self.worker(active, others, worker, direction));
            let own_ports: Vec<PortStatus> = ports.iter().filter(|port| port.worker == worker).cloned().collect();
            WorkerStats { worker, upstream, downstream, interfaces: interface_stats::sums(&own_ports) }
        };
        let [upstream, downstream] = Direction::BOTH.map(|direction| self.direction(active, others, ports, direction));
        Stats {
            upstream,
            downstream,
            workers: (0..active.counts.len()).map(worker).collect(),
            interfaces: interface_stats::sums(ports),
            // The tables' state counts additions, for workers and for the kernel.
            additions: AdditionStats::default(),
            card: None,
            tracked: None,
        }
    }

    /// What did not get past the datapath. The totals include `others`, whose counts are not final.
    pub fn stopped(&self, active: Counted<'_>, others: &[Counted<'_>]) -> Stopped {
        let mut stopped = Stopped::default();
        let carried = others.iter().chain([&active]).filter_map(|counted| counted.carried);
        for NamedCounts { tallies, .. } in carried.chain([&self.past]) {
            let past = &tallies[Direction::Upstream as usize];
            let of_past =
                |reason: Reason| reason.builtin_name().and_then(|name| past.reasons.get(name)).copied().unwrap_or(0);
            stopped.cookies += of_past(Reason::SYN_COOKIE);
            stopped.dropped += past.dropped.saturating_sub(of_past(Reason::SLOT));
        }
        for counted in others.iter().chain([&active]) {
            for Decided { reason, action, counter, .. } in
                report::decided(counted.program, &sums(counted.counts, Direction::Upstream))
            {
                match action {
                    _ if reason == Reason::SYN_COOKIE => stopped.cookies += counter.packets,
                    Action::Drop if reason != Reason::SLOT => stopped.dropped += counter.packets,
                    _ => {}
                }
            }
        }
        stopped
    }

    fn direction(
        &self,
        active: Counted<'_>,
        others: &[Counted<'_>],
        ports: &[PortStatus],
        direction: Direction,
    ) -> DirectionStats {
        let past = &self.past.tallies[direction as usize];
        let tally = |counted: &Counted<'_>| {
            let own = tally::tally(counted.program, &sums(counted.counts, direction));
            match counted.carried {
                Some(carried) => {
                    // In the order of the policy's rules.
                    let mut sum = own;
                    sum.add(&carried.tallies[direction as usize]);
                    sum
                }
                None => own,
            }
        };
        let mut current = tally(&active);
        // Ports count since the start.
        let from = if direction == Direction::Upstream { Role::Lower } else { Role::Upper };
        let sampled: u64 = ports.iter().filter(|port| port.role == from).map(|port| port.reading.sampled).sum();
        current.sampled = sampled.saturating_sub(past.sampled);
        let mut total = past.clone();
        others.iter().for_each(|other| total.add(&tally(other)));
        total.add(&current);
        DirectionStats { current, total }
    }

    fn worker(&self, active: Counted<'_>, others: &[Counted<'_>], worker: usize, direction: Direction) -> OutcomeStats {
        let outcome = |counted: &Counted<'_>| {
            let of = |workers: &[[Outcome; 2]]| workers.get(worker).map(|worker| worker[direction as usize]);
            let counters = counted.counts.get(worker).map(|worker| &worker[direction as usize]);
            let own = counters.map(|counters| tally::outcome(counted.program, counters)).unwrap_or_default();
            own.plus(counted.carried.and_then(|carried| of(&carried.workers)).unwrap_or_default())
        };
        let current = outcome(&active);
        let past = self.past.workers.get(worker).map(|past| past[direction as usize]).unwrap_or_default();
        let others = others.iter().fold(past, |sum, other| sum.plus(outcome(other)));
        OutcomeStats { current, total: others.plus(current) }
    }
}

/// Adds counts of a policy, without samples of ports.
pub fn add_counts(sum: &mut NamedCounts, program: &Program, counts: &Counts) {
    let sampled = sum.tallies.each_ref().map(|tally| tally.sampled);
    let mut account = Account::from(std::mem::take(sum));
    account.close(Counted::of(program, counts), &[]);
    *sum = account.past;
    sum.tallies.iter_mut().zip(sampled).for_each(|(tally, sampled)| tally.sampled = sampled);
}

/// The counters of a direction, summed over workers.
pub fn sums(counts: &Counts, direction: Direction) -> Vec<Counter> {
    let mut sums: Vec<Counter> = Vec::new();
    for worker in counts {
        let counters = &worker[direction as usize];
        sums.resize(counters.len(), Counter::default());
        for (sum, counter) in sums.iter_mut().zip(counters) {
            *sum = Counter { packets: sum.packets + counter.packets, bytes: sum.bytes + counter.bytes };
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_engine::live::{PortNature, PortReading};
    use weir_policy::ir::parse::parse;

    const UP: usize = Direction::Upstream as usize;

    /// The counts of two workers for a program with one rule, which accepts.
    fn counted(upstream: [u64; 2]) -> Counts {
        let block = |packets: u64| {
            let mut counters = vec![Counter::default(); usize::from(Reason::RULE_BASE) + 1];
            counters[usize::from(Reason::rule(0).0)] = Counter { packets, bytes: 60 * packets };
            counters
        };
        upstream.map(|packets| [block(packets), block(0)]).to_vec()
    }

    fn ports(sampled: u64) -> Vec<PortStatus> {
        let port = |worker, interface: &str, role, sampled| PortStatus {
            worker,
            interface: interface.to_owned(),
            role,
            nature: PortNature::default(),
            has_link: true,
            reading: PortReading { sampled, rx_packets: sampled, ..PortReading::default() },
            knows_missed: true,
        };
        vec![port(0, "lower", Role::Lower, sampled), port(1, "lower", Role::Lower, 1), port(1, "upper", Role::Upper, 5)]
    }

    #[test]
    fn what_is_stopped_is_counted_over_generations_without_what_slots_drop() {
        let text = "program p\nrules 0 attacks size 16\nrule 0 p:1 [drop] drop\nrule 1 p:2 [slot 0] slot attacks\n\
                    chain upstream\n  rule 1\n  rule 0\n";
        let program = parse(text).expect("a program");
        let counts = |cookies, slot, rule| -> Counts {
            // The counters of rules are followed by those of limits and slots.
            let [of_rule, of_slot] = [Reason::rule(0), Reason::rule(2)];
            let mut counters = vec![Counter::default(); usize::from(Reason::RULE_BASE) + 3];
            for (reason, packets) in [(Reason::SYN_COOKIE, cookies), (of_slot, slot), (of_rule, rule)] {
                counters[usize::from(reason.0)] = Counter { packets, bytes: 60 * packets };
            }
            vec![[counters.clone(), counters]]
        };
        let (one, two, three) = (counts(1, 10, 100), counts(2, 20, 200), counts(4, 40, 400));
        let [one, two, three] = [&one, &two, &three].map(|counts| Counted::of(&program, counts));
        let mut account = Account::default();
        account.close(one, &[]);
        assert_eq!(account.stopped(three, &[two]), Stopped { cookies: 7, dropped: 700 });
        account.close(two, &[]);
        assert_eq!(account.stopped(three, &[]), Stopped { cookies: 7, dropped: 700 });
    }

    #[test]
    fn counts_before_a_change_remain_in_each_total() {
        let one = parse("program p\nrule 0 p:1 [accept] accept\nchain upstream\n  rule 0\n").expect("a program");
        let two = parse("program p\nrule 0 p:9 [drop] drop\nchain upstream\n  rule 0\n").expect("a program");
        let mut account = Account::default();
        account.close(Counted::of(&one, &counted([10, 20])), &ports(3));
        let (of_two, of_one) = (counted([1, 0]), counted([100, 200]));
        let (of_two, of_one) = (Counted::of(&two, &of_two), Counted::of(&one, &of_one));
        // The total includes counts of another policy that still counts, both before and after they are final.
        let stats = account.stats(of_one, &[of_two], &ports(7));
        account.close(of_two, &ports(3));
        assert_eq!(json!(stats), json!(account.stats(of_one, &[], &ports(7))));
        let DirectionStats { current, total } = &stats.upstream;
        assert_eq!((current.packets, current.sampled, total.packets, total.sampled), (300, 4, 331, 8));
        assert_eq!((total.passed, total.dropped, total.bytes), (330, 1, 331 * 60));
        assert_eq!(stats.downstream.total.sampled, 5);
        let workers: Vec<(u64, u64)> = stats
            .workers
            .iter()
            .map(|worker| (worker.upstream.current.packets, worker.upstream.total.packets))
            .collect();
        assert_eq!(workers, [(100, 111), (200, 220)]);
        assert_eq!(stats.workers[0].upstream.total.dropped, 1);
        assert_eq!((stats.workers[1].interfaces.len(), stats.interfaces.len()), (2, 2));
        assert_eq!(stats.interfaces[0].rx_packets, 8);
        assert_eq!(account.past.tallies[UP].packets, 31);
    }
}
