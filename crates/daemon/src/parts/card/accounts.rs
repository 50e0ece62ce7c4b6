//! What the card has dropped, in the same accounts as all other packets.

use super::counted_rule::CountedRule;
use crate::generations::tally::GONE_RULES_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_abi::Counter;
use weir_control::{
    CardCounts, GONE, InterfaceStats, Outcome, OutcomeStats, RuleCount, Stats, TableCount, Tally, TxDropped,
};
use weir_mitigate::offload::Hits;

/// Counts by rule, since the last activation and since the start.
#[derive(Default)]
pub struct Accounts {
    current: Share,
    total: Share,
}

#[derive(Default)]
struct Share(BTreeMap<Arc<CountedRule>, Counter>);

impl Accounts {
    /// Counts what was dropped for a rule.
    pub fn add(&mut self, rule: &Arc<CountedRule>, hits: Hits) {
        self.current.add(rule, hits);
        self.total.add(rule, hits);
    }

    /// Another policy or posture was activated.
    pub fn begin(&mut self) {
        self.current = Share::default();
    }

    /// Packets that were dropped since the last activation.
    pub fn current(&self) -> u64 {
        self.current.sum().packets
    }

    /// What was dropped since the start, by rule.
    pub fn by_rule(&self) -> impl Iterator<Item = (&CountedRule, Counter)> {
        self.total.0.iter().map(|(rule, counter)| (&**rule, *counter))
    }

    /// Adds everything to the counters of the software. `interface` is the name of the card.
    pub fn add_to(&self, stats: &mut Stats, interface: &str) {
        stats.upstream.current.add(&self.current.tally());
        stats.upstream.total.add(&self.total.tally());
        let Counter { packets, bytes } = self.total.sum();
        let interface = InterfaceStats {
            interface: interface.to_owned(),
            side: "lower".to_owned(),
            rx_packets: packets,
            rx_bytes: bytes,
            tx_packets: 0,
            tx_bytes: 0,
            rx_missed: None,
            rx_too_long: 0,
            sampled: 0,
            tx_dropped: TxDropped::default(),
        };
        stats.interfaces.push(interface.clone());
        let upstream = OutcomeStats { current: self.current.outcome(), total: self.total.outcome() };
        stats.card = Some(CardCounts { upstream, interface });
    }
}

impl Share {
    fn add(&mut self, rule: &Arc<CountedRule>, hits: Hits) {
        if self.0.len() >= GONE_RULES_MAX && !self.0.contains_key(rule) {
            let sum = self.sum();
            let gone = CountedRule { at: GONE.to_owned(), text: GONE.to_owned(), tables: vec![GONE.to_owned()] };
            self.0 = BTreeMap::from([(Arc::new(gone), sum)]);
        }
        let counter = self.0.entry(rule.clone()).or_default();
        counter.packets += hits.packets;
        counter.bytes += hits.bytes;
    }

    fn sum(&self) -> Counter {
        self.0.values().fold(Counter::default(), |sum, counter| Counter {
            packets: sum.packets + counter.packets,
            bytes: sum.bytes + counter.bytes,
        })
    }

    fn outcome(&self) -> Outcome {
        let Counter { packets, bytes } = self.sum();
        Outcome { packets, bytes, dropped: packets, ..Outcome::default() }
    }

    /// The counts in the form of all others.
    fn tally(&self) -> Tally {
        let Counter { packets, bytes } = self.sum();
        let mut tally = Tally { packets, bytes, dropped: packets, ..Tally::default() };
        for (rule, &Counter { packets, bytes }) in &self.0 {
            let CountedRule { at, text, tables } = &**rule;
            *tally.reasons.entry(at.clone()).or_default() += packets;
            *tally.drops.entry(at.clone()).or_default() += packets;
            tally.rules.push(RuleCount { at: at.clone(), rule: text.clone(), packets, bytes });
            let count = |table: &String| TableCount { table: table.clone(), packets, bytes };
            tally.tables.extend(tables.iter().map(count));
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::{Accounts, CountedRule};
    use serde_json::json;
    use std::sync::Arc;
    use weir_control::Stats;
    use weir_mitigate::offload::Hits;

    #[test]
    fn what_the_card_drops_is_counted_like_all_else() {
        let outcome = json!({ "packets": 5, "bytes": 300, "passed": 4, "dropped": 1, "diverted": 0 });
        let mut tally = outcome.clone();
        tally["sampled"] = 0.into();
        tally["rules"] = json!([{ "at": "p:3", "rule": "ip saddr @bad drop", "packets": 1, "bytes": 60 }]);
        tally["reasons"] = json!({ "p:3": 1, "no-match": 4 });
        tally["tables"] = json!([{ "table": "bad", "packets": 1, "bytes": 60 }]);
        let mut direction = tally.clone();
        direction["total"] = tally;
        let additions = json!({ "added": 0, "updated": 0, "additions-overflow": 0, "table-full": 0, "protected": 0 });
        let stats = json!({ "upstream": direction, "downstream": direction, "workers": [], "interfaces": [],
            "additions": additions });
        let mut stats: Stats = serde_json::from_value(stats).expect("stats");
        let rule = |at: &str, text: &str| {
            Arc::new(CountedRule { at: at.to_owned(), text: text.to_owned(), tables: vec!["bad".to_owned()] })
        };
        let mut accounts = Accounts::default();
        accounts.add(&rule("q:9", "ip saddr @bad drop"), Hits { packets: 7, bytes: 700, last_ns: 1 });
        accounts.begin();
        accounts.add(&rule("p:3", "ip saddr @bad drop"), Hits { packets: 2, bytes: 120, last_ns: 1 });
        accounts.add_to(&mut stats, "outer");
        let (current, total) = (&stats.upstream.current, &stats.upstream.total);
        assert_eq!((current.packets, current.bytes, current.dropped, current.passed), (7, 420, 3, 4));
        assert_eq!((total.packets, total.dropped, total.reasons["p:3"], total.reasons["q:9"]), (14, 10, 3, 7));
        assert_eq!((total.rules.len(), total.rules[0].packets, total.rules[1].bytes), (2, 3, 700));
        assert_eq!((current.tables[0].packets, total.tables[0].packets), (3, 10));
        assert_eq!(total.reasons.values().sum::<u64>(), total.packets);
        assert_eq!((stats.interfaces[0].rx_packets, stats.interfaces[0].rx_bytes), (9, 820));
        let card = stats.card.expect("there is one");
        assert_eq!((card.upstream.current.packets, card.upstream.total.dropped), (2, 9));
    }
}
