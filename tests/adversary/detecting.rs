//! The packets of an attack through detection, as `weir detect --policy --inside` runs it.

use crate::deciding::Decided;
use weir_abi::Action;
use weir_command::inside::Inside;
use weir_mitigate::action::{Measure, Mode, Prepared};
use weir_mitigate::defence::Fate;
use weir_mitigate::excerpt;
use weir_mitigate::header::{Arrival, Header};
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;
use weir_policy::ir::eval::packet::Frame;
use weir_recording::headers;
use weir_test_support::attack::{Attack, START_NS, Step};

/// What detection did.
pub struct Detected {
    /// Whether each packet was dropped; `None` if the policy dropped it before.
    pub drops: Vec<Option<bool>>,
    /// The victims, and when their attacks were detected, ns from the beginning.
    pub attacks: Vec<(Prefix, u64)>,
    /// The sources that were blocked at any time.
    pub blocked: Vec<Prefix>,
    /// Each action, for messages.
    pub actions: Vec<String>,
}

impl Detected {
    /// What was found and done, for messages.
    pub fn described(&self) -> String {
        let attack =
            |(victim, from_ns): &(Prefix, u64)| format!("attack on {victim} at {:.2} s", *from_ns as f64 / 1e9);
        let all: Vec<String> = self.attacks.iter().map(attack).chain(self.actions.iter().cloned()).collect();
        if all.is_empty() { "nothing was found".to_owned() } else { all.join("; ") }
    }
}

/// Runs the packets that the policy passes.
pub fn detect(attack: &Attack, decided: Option<&Decided>) -> Detected {
    let prefix = |text: &String| text.parse::<Inside>().unwrap_or_else(|error| panic!("{text}: {error}")).prefix();
    let inside = attack.inside.iter().map(prefix).collect();
    let settings = Settings { mode: Mode::Act, prepared: Prepared::SynProxy, ..Settings::default() };
    let mut recording = Recording::new(inside, settings);
    let (mut drops, mut waiting, mut now_ns) = (Vec::new(), Vec::new(), 0);
    for (at, step) in attack.steps.iter().enumerate() {
        // Times of recordings do not go back.
        now_ns = now_ns.max(step.packet.time_ns);
        if decided.is_some_and(|decided| decided.packets[at].verdict.action() == Some(Action::Drop)) {
            drops.push(None);
            continue;
        }
        let packet = &step.packet;
        let link = crate::engines::link_of(packet.link);
        let frame = Frame { bytes: &packet.bytes, wire_len: packet.wire, link, time_ns: now_ns };
        let fate = headers::of(frame).map_or(Fate::Passes, |header| see(&mut recording, &header, frame, step));
        drops.push(Some(fate.is_dropped()));
        match fate {
            Fate::Waits(handshake) => waiting.push((handshake, at)),
            Fate::Completes(completed) => {
                // Its SYNs pass after all.
                waiting.iter().filter(|(one, _)| *one == completed).for_each(|(_, at)| drops[*at] = Some(false));
                waiting.retain(|(one, _)| *one != completed);
            }
            Fate::Passes | Fate::Drops => {}
        }
    }
    recording.finish();
    let attacks = || recording.mitigator().attacks();
    let actions = || attacks().flat_map(|attack| attack.records.iter());
    let blocked = actions().filter_map(|record| match record.action.measure {
        Measure::Block((is_ipv6, address), _) => Some(Prefix::of(is_ipv6, address, u8::MAX)),
        _ => None,
    });
    Detected {
        drops,
        attacks: attacks().map(|attack| (attack.victim, attack.from_ns.saturating_sub(START_NS))).collect(),
        blocked: blocked.collect(),
        actions: actions().map(|record| format!("{} ({:?})", record.action.measure, record.state)).collect(),
    }
}

/// Tells detection of a packet and of the side from which it came.
fn see(recording: &mut Recording, header: &Header, frame: Frame<'_>, step: &Step) -> Fate {
    let excerpt = excerpt::Frame { bytes: frame.bytes, wire_len: frame.wire_len, link: frame.link };
    let arrival = Some(if step.is_upstream { Arrival::Outside } else { Arrival::Inside });
    recording.take_frame(&Header { arrival, ..*header }, Some(excerpt), frame.time_ns)
}
