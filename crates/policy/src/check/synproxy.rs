//! Checks the settings of `synproxy`.

use super::Checker;
use crate::checked::{Effect, Posture};
use crate::diag::Diagnostic;
use crate::source::Span;
use crate::syntax::tree::{Item, Name, SynproxyOffer, SynproxyThreshold, TrackingSetting};
use crate::time;
use crate::tracking::{Synproxy, Threshold, Tracking};
use weir_abi::Rate;
use weir_abi::flow::Side;
use weir_abi::rate::Per;

impl Checker<'_> {
    /// `synproxy mss 1460 wscale 7 sack-perm timestamp`
    pub(super) fn synproxy_offer(&mut self, tracking: &mut Tracking, offer: &SynproxyOffer) {
        let (mss_min, mss_max) = (Synproxy::MSS_MIN, Synproxy::MSS_MAX);
        let mss = offer.mss.text.parse().ok().filter(|mss| (mss_min..=mss_max).contains(mss));
        if mss.is_none() {
            let message = format!("`{}` is not a size of segments", offer.mss);
            let help = format!("write {mss_min} to {mss_max}; for packets of 1500 bytes it is 1460");
            self.report(Diagnostic::error("E0325", offer.mss.span, message).help(help));
        }
        let mut wscale = None;
        if let Some(shift) = &offer.wscale {
            wscale = shift.text.parse().ok().filter(|&shift| shift <= Side::SCALE_MAX);
            if wscale.is_none() {
                let message = format!("`{shift}` is not a shift of windows");
                let help = format!("write 0 to {} (RFC 7323)", Side::SCALE_MAX);
                self.report(Diagnostic::error("E0325", shift.span, message).help(help));
            }
        }
        if offer.timestamp.is_none() {
            let options = [("wscale", offer.wscale.as_ref().map(|atom| atom.span)), ("sack-perm", offer.sack_perm)];
            for (name, span) in options.iter().filter_map(|&(name, span)| Some((name, span?))) {
                let help = "a SYN-ACK with a cookie keeps the client's options in its timestamp: write `timestamp` too";
                self.report(Diagnostic::error("E0325", span, format!("`{name}` needs `timestamp`")).help(help));
            }
        }
        let threshold = tracking.synproxy.and_then(|synproxy| synproxy.threshold);
        tracking.synproxy = Some(Synproxy {
            mss: mss.unwrap_or(mss_min),
            wscale,
            sack: offer.sack_perm.is_some(),
            timestamp: offer.timestamp.is_some(),
            threshold,
        });
    }

    /// `synproxy on 10000/second off 1000/second for 30s`
    pub(super) fn synproxy_threshold(&mut self, tracking: &mut Tracking, written: &SynproxyThreshold) {
        let (on, off) = (self.syns_a_second(&written.on), self.syns_a_second(&written.off));
        if let Some((_, off)) = on.zip(off).filter(|(on, off)| off > on) {
            let message = format!("{off} SYNs a second would switch the proxy off, and fewer would switch it on");
            self.report(
                Diagnostic::error("E0325", written.off.span, message)
                    .note(written.on.span, "it is switched on here")
                    .help("the rate after `off` is at most that after `on`"),
            );
        }
        let milliseconds = time::milliseconds(&written.calm.text);
        let seconds =
            milliseconds.filter(|time| time.is_multiple_of(1000)).and_then(|time| u32::try_from(time / 1000).ok());
        let calm_s = seconds.filter(|seconds| (1..=Threshold::CALM_MAX_S).contains(seconds));
        if calm_s.is_none() {
            let message = format!("`{}` is not a number of seconds", written.calm);
            self.report(Diagnostic::error("E0325", written.calm.span, message).help("write 1s to 1d, such as `30s`"));
        }
        let (Some(on), Some(off), Some(calm_s)) = (on, off, calm_s) else { return };
        let none = Synproxy { mss: Synproxy::MSS_MIN, wscale: None, sack: false, timestamp: false, threshold: None };
        tracking.synproxy.get_or_insert(none).threshold = Some(Threshold { on, off, calm_s });
    }

    fn syns_a_second(&mut self, written: &Name) -> Option<u32> {
        let rate = match Rate::parse(&written.text) {
            Ok(Rate::Packets { count, per: Per::Second }) => u32::try_from(count).ok().filter(|&count| count > 0),
            _ => None,
        };
        if rate.is_none() {
            let message = format!("`{}` is not a number of SYNs a second", written.text);
            let help = "write 1/second to 250000000/second, such as `10000/second` or `10kpps`";
            self.report(Diagnostic::error("E0325", written.span, message).help(help));
        }
        rate
    }

    /// Reports a `synproxy` without the servers' options, or where it cannot work.
    pub(super) fn synproxy_needs_an_offer(&mut self, tracking: &Tracking, postures: &[Posture]) {
        let mut offer = None;
        let mut threshold = None;
        for item in self.items.clone() {
            let Item::Tracking(block) = item else { continue };
            for setting in &block.settings {
                match setting {
                    TrackingSetting::SynproxyOffer(_) => offer = offer.or(Some(setting.span())),
                    TrackingSetting::SynproxyThreshold(_) => threshold = threshold.or(Some(setting.span())),
                    _ => {}
                }
            }
        }
        let rules = postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]).flatten().flatten();
        let answering = rules.filter(|rule| rule.effects.contains(&Effect::Synproxy)).map(|rule| rule.span).next();
        let used: Option<Span> = offer.or(threshold).or(answering);
        let Some(span) = used else { return };
        if offer.is_none() {
            let help = "write `synproxy mss 1460 wscale 7 sack-perm timestamp` in `tracking { }`, as the servers are";
            let message = "`synproxy` must know what the servers offer";
            self.report(Diagnostic::error("E0325", answering.unwrap_or(span), message).help(help));
        }
        if tracking.one_way {
            let message = "`synproxy` needs both directions of a connection";
            let help = "take out `one-way`, or `synproxy`";
            self.report(Diagnostic::error("E0325", answering.unwrap_or(span), message).help(help));
        }
        if tracking.vlan_ignore {
            let message = "`synproxy` answers with the tags of the SYN, so both directions must have the same tags";
            let help = "take out `vlan ignore`, or `synproxy`";
            self.report(Diagnostic::error("E0325", answering.unwrap_or(span), message).help(help));
        }
    }
}
