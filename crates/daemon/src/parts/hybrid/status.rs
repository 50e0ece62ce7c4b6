//! What a hybrid card does, as the control protocol shows it.

use super::splitter::Offloaded;
use crate::parts::card::accounts::Accounts;
use crate::parts::card::counted_rule::CountedRule;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_abi::Reason;
use weir_abi::card::SEAL_BYTES;
use weir_card::Profile;
use weir_card::receive::Configured;
use weir_control::{CardFrames, FramesShare, FromCard, HybridRule, HybridStatus, Stats, Tally};
use weir_planning::card::RuleReport;

/// A card as it is now.
pub struct Facts<'a> {
    pub profile: &'a Profile,
    /// The interface behind which it is.
    pub port: &'a str,
    /// The active configuration.
    pub active: Configured,
    /// The rules for which it drops.
    pub counted: &'a [Arc<CountedRule>],
    /// Why the software decides alone.
    pub alone: &'a Option<String>,
    /// Why the card does not answer.
    pub problem: &'a Option<String>,
    /// Whether frames without a seal are dropped.
    pub sealed: bool,
    /// Number of commits.
    pub changes: u64,
    /// How often it was opened again.
    pub reopened: u64,
    pub accounts: &'a Accounts,
}

/// The card. `stats` are all counters, with the counters of the card.
pub fn status(facts: &Facts<'_>, stats: &Stats, offloaded: Option<&Offloaded>) -> HybridStatus {
    let Facts { profile, port, active, counted, alone, problem, sealed, changes, reopened, accounts } = facts;
    let dropped: BTreeMap<&str, u64> = accounts.by_rule().map(|(rule, count)| (&*rule.at, count.packets)).collect();
    let offloaded = offloaded.filter(|_| alone.is_none());
    let by_card = |at: &str| counted.iter().any(|rule| rule.at == at);
    let rule = |RuleReport { at, category, offload, metadata, .. }: &RuleReport| HybridRule {
        at: at.clone(),
        category: category.clone(),
        offload: if by_card(at) { "dropped" } else { offload }.to_owned(),
        metadata: metadata.clone(),
        dropped: dropped.get(at.as_str()).copied().unwrap_or_default(),
    };
    let upstream = &stats.upstream.current;
    let card = stats.card.as_ref().map(|card| card.upstream.current).unwrap_or_default();
    let frames = frames(upstream);
    let share = |packets: u64| if upstream.packets == 0 { 0.0 } else { packets as f64 / upstream.packets as f64 };
    HybridStatus {
        card: format!("hybrid at {port}"),
        profile: profile.name.clone(),
        epoch: active.epoch,
        changes: *changes,
        reopened: *reopened,
        sealed: *sealed,
        alone: (*alone).clone(),
        problem: (*problem).clone(),
        flag_bits: offloaded.map_or(0, |offloaded| offloaded.card.body.flags_bits()),
        body_bytes: active.body.into(),
        trailer_bytes: usize::from(active.body) + SEAL_BYTES,
        lookups: offloaded
            .map(|offloaded| offloaded.card.lookups.iter().map(|key| key.name.clone()).collect())
            .unwrap_or_default(),
        rules: offloaded.map(|offloaded| offloaded.rules.iter().map(rule).collect()).unwrap_or_default(),
        packets: card.packets,
        bytes: card.bytes,
        share: share(card.packets),
        unsealed: frames.unsealed.frames,
        frames,
        follow: None,
    }
}

/// Frames at the card's port.
fn frames(upstream: &Tally) -> CardFrames {
    let of = |reason: Reason| {
        let name = reason.builtin_name().expect("it has a name");
        upstream.reasons.get(name).copied().unwrap_or_default()
    };
    let FromCard { answered, alone } = upstream.from_card.unwrap_or_default();
    let (control, unsealed) = (of(Reason::CARD_CONTROL), of(Reason::UNSEALED));
    let all = answered + alone + control + unsealed;
    let share = |frames: u64| FramesShare { frames, share: if all == 0 { 0.0 } else { frames as f64 / all as f64 } };
    CardFrames { answered: share(answered), alone: share(alone), control: share(control), unsealed: share(unsealed) }
}
