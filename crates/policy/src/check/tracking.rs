//! Checks `tracking { ... }`, and finds out whether the policy tracks.

use super::limit_each::counts_connections;
use super::settings::Settings;
use super::{Check, Checker, nearest};
use crate::checked::{Effect, Match, Posture, Rule};
use crate::diag::Diagnostic;
use crate::field::{Field, Subject};
use crate::source::Span;
use crate::syntax::tree::{Atom, Item, Name, Statement, TrackingSetting};
use crate::time;
use crate::tracking::{Invalid, TIMEOUTS, Tracking};
use weir_abi::flow::{SIZE_MAX, SIZE_MIN, TIMEOUT_MAX_MS};

/// Shortest timeout.
const TIMEOUT_MIN_MS: u64 = 1000;

impl Checker<'_> {
    /// Reads `tracking`, which may have several blocks, and the place of the first one. A policy without it tracks if a
    /// rule needs states.
    pub(super) fn tracking(&mut self, postures: &[Posture]) -> Option<(Tracking, Span)> {
        let mut tracking = Tracking::default();
        let mut settings = Settings::default();
        for item in self.items.clone() {
            let Item::Tracking(block) = item else { continue };
            settings.block(block.span);
            for setting in &block.settings {
                if settings.is_first(self, setting.name(), setting.span()) {
                    self.tracking_setting(&mut tracking, setting);
                }
            }
        }
        self.synproxy_needs_an_offer(&tracking, postures);
        self.connections_are_seen(&tracking, postures);
        let rules = postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]).flatten().flatten();
        let mut needing = rules.filter(|rule| needs_state(rule));
        settings.place().or_else(|| needing.next().map(|rule| rule.span)).map(|span| (tracking, span))
    }

    fn tracking_setting(&mut self, tracking: &mut Tracking, setting: &TrackingSetting) {
        match setting {
            TrackingSetting::Size(size) => match number(size, SIZE_MIN, SIZE_MAX) {
                Some(flows) => tracking.size = flows,
                None => {
                    let message = format!("`{size}` is not a number of flows");
                    let help = format!("a table holds {SIZE_MIN} to {SIZE_MAX} flows");
                    self.report(Diagnostic::error("E0325", size.span, message).help(help));
                }
            },
            TrackingSetting::Embryonic(share) => self.share(share, &mut tracking.embryonic_percent),
            TrackingSetting::Unproven(share) => self.share(share, &mut tracking.unproven_percent),
            TrackingSetting::Timeout(of, timeout) => self.tracking_timeout(tracking, of, timeout),
            TrackingSetting::Pickup(word) => match word.text.as_str() {
                "on" => tracking.pickup = true,
                "off" => tracking.pickup = false,
                _ => {
                    let message = format!("`pickup` cannot be `{}`", word.text);
                    let help = "write `on` to continue connections whose opening was not seen, or `off`";
                    self.report(Diagnostic::error("E0325", word.span, message).help(help));
                }
            },
            TrackingSetting::OneWay(_) => tracking.one_way = true,
            TrackingSetting::Vlan(word) => match word.text.as_str() {
                "match" => tracking.vlan_ignore = false,
                "ignore" => tracking.vlan_ignore = true,
                _ => {
                    let message = format!("`vlan` cannot be `{}`", word.text);
                    let help = "write `ignore` if tags may differ by direction, or `match`";
                    self.report(Diagnostic::error("E0325", word.span, message).help(help));
                }
            },
            TrackingSetting::SynproxyOffer(offer) => self.synproxy_offer(tracking, offer),
            TrackingSetting::SynproxyThreshold(threshold) => self.synproxy_threshold(tracking, threshold),
            TrackingSetting::Invalid(word) => match Invalid::from_name(&word.text) {
                Some(invalid) => tracking.invalid = invalid,
                None => {
                    let message = format!("`invalid` cannot be `{}`", word.text);
                    let help = "write accept, drop, divert, or `rules` to let the rules decide";
                    self.report(Diagnostic::error("E0325", word.span, message).help(help));
                }
            },
        }
    }

    /// Reads a share of the table.
    fn share(&mut self, share: &Atom, percent: &mut u8) {
        match number(share, 1, 100) {
            Some(number) => *percent = number as u8,
            None => {
                let message = format!("`{share}%` is not a share of the table");
                self.report(Diagnostic::error("E0325", share.span, message).help("write 1% to 100%"));
            }
        }
    }

    fn tracking_timeout(&mut self, tracking: &mut Tracking, of: &Name, timeout: &Atom) {
        let names = TIMEOUTS.map(|(_, name, _)| name);
        let Some(index) = names.iter().position(|&name| name == of.text) else {
            let diagnostic = Diagnostic::error("E0325", of.span, format!("there is no timeout `{}`", of.text));
            self.report(match nearest(&of.text, names) {
                Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                None => diagnostic.help(format!("the timeouts are {}", names.join(", "))),
            });
            return;
        };
        match time::milliseconds(&timeout.text).filter(|time| (TIMEOUT_MIN_MS..=TIMEOUT_MAX_MS).contains(time)) {
            Some(milliseconds) => tracking.timeouts_ms[index] = milliseconds,
            None => {
                let message = format!("`{timeout}` is not a timeout of flows");
                let help = format!("write 1s to {}d, such as `30s`, `10m` or `5d`", TIMEOUT_MAX_MS / 86_400_000);
                self.report(Diagnostic::error("E0325", timeout.span, message).help(help));
            }
        }
    }
}

impl Checker<'_> {
    /// Reports a `track` behind a statement that acts on the packet. A rule does not count refused packets, so nothing
    /// may happen to them before.
    pub(super) fn track_comes_first(&mut self, effects: &[Effect], statements: &[Statement]) -> Check<()> {
        let tracks = |effect: &Effect| matches!(effect, Effect::Track | Effect::Synproxy);
        let first = effects.iter().position(|effect| *effect != Effect::Counter && !tracks(effect));
        let track = effects.iter().rposition(tracks);
        match first.zip(track) {
            Some((first, track)) if first < track => {
                let name = if effects[track] == Effect::Track { "track" } else { "synproxy" };
                let message = format!("`{name}` comes after another statement");
                Err(self.report(
                    Diagnostic::error("E0324", statements[track].span(), message)
                        .note(statements[first].span(), "this happens to packets before they are tracked")
                        .help(format!("write `{name}` first: `tcp {name} sample 1/1000`")),
                ))
            }
            _ => Ok(()),
        }
    }
}

fn number(atom: &Atom, min: u32, max: u32) -> Option<u32> {
    atom.text.parse().ok().filter(|number| (min..=max).contains(number))
}

fn needs_state(rule: &Rule) -> bool {
    let is_state = |m: &Match| matches!(m, Match::Value { subject: Subject::Field(Field::CtState), .. });
    rule.effects.contains(&Effect::Track)
        || rule.effects.contains(&Effect::Synproxy)
        || counts_connections(rule)
        || rule.matches.iter().any(is_state)
}
