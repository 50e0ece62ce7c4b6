//! What mitigation has learned, as the control protocol shows and changes it.

use super::state::State;
use std::collections::BTreeMap;
use weir_command::inside::Inside;
use weir_control::{BaselineBounds, BaselineChanged, BaselineListed, PrefixBaseline};
use weir_mitigate::baseline::{LEARNING_WINDOWS, Rate, Usual};
use weir_mitigate::learned::{DOUBLING_S, FAST_MAX, HALVING_S};
use weir_mitigate::measure::WINDOW_NS;
use weir_mitigate::mitigator::{Mitigator, Part};
use weir_mitigate::prefix::Prefix;

const HOUR_S: f64 = 3600.0;
/// Prefixes that are listed at once.
const TOP_MAX: usize = 8192;
/// The highest rate that can be set, packets a second: nothing sends more.
const PPS_MAX: u64 = 10_000_000_000;

/// What was learned, with at most `top` prefixes.
pub fn list(state: &State, top: usize) -> BaselineListed {
    let (mitigator, extractor) = (state.defence.mitigator(), state.defence.extractor());
    let prefixes = mitigator.baselines().prefixes();
    let sizes = mitigator.reference_sizes();
    let reference = [
        ("real", sizes.real),
        ("plausible", sizes.plausible),
        ("vouched", sizes.vouched),
        ("unproven", sizes.unproven),
        ("opening", sizes.opening),
        ("answered", sizes.answered),
    ];
    BaselineListed {
        seen_s: mitigator.seen_ns() as f64 / 1e9,
        is_two_way: extractor.is_two_way(),
        bounds: BaselineBounds {
            hourly_factor: (HOUR_S / DOUBLING_S).exp2(),
            crowd_factor: FAST_MAX,
            halving_s: HALVING_S,
            follows_s: f64::from(LEARNING_WINDOWS) * WINDOW_NS as f64 / 1e9,
        },
        source_pps: rounded(mitigator.source_pps()),
        known_sources: extractor.known_sources(),
        reference: reference.map(|(kind, size)| (kind.to_owned(), size)).into(),
        signatures: mitigator.remembered(),
        prefixes_total: prefixes.len(),
        prefixes: prefixes.iter().take(top.min(TOP_MAX)).map(|(prefix, usual)| of(mitigator, prefix, usual)).collect(),
    }
}

fn of(mitigator: &Mitigator, prefix: &Prefix, usual: &Usual) -> PrefixBaseline {
    let rates = Rate::all().map(|rate| (rate.to_string(), rounded(usual.pps(rate))));
    let rates_pps: BTreeMap<String, f64> = rates.filter(|(_, pps)| *pps > 0.0).collect();
    PrefixBaseline { prefix: prefix.to_string(), is_frozen: mitigator.is_attacked(prefix), rates_pps }
}

/// Sets a learned rate.
///
/// # Errors
/// There is no such rate or prefix, or no room.
pub fn set(state: &mut State, of: &str, rate: Option<&str>, pps: u64) -> Result<BaselineChanged, String> {
    if pps > PPS_MAX {
        return Err(format!("{pps} packets/s are more than {PPS_MAX}"));
    }
    let mitigator = state.defence.mitigator_mut();
    match (of, rate) {
        ("source", None) => mitigator.set_source_pps(pps as f64),
        ("source", Some(_)) => return Err("`source` has one rate, without a name".to_owned()),
        (_, None) => return Err("which rate of the prefix? Such as `unproven.udp`, `vouched` or `proven`".to_owned()),
        (of, Some(name)) => {
            let (prefix, rate) = (prefix(of)?, Rate::named(name));
            let Some(rate) = rate else { return Err(format!("`{}` is not a rate", name.escape_debug())) };
            if !mitigator.set_usual(prefix, rate, pps as f64) {
                return Err("there is no room for another prefix".to_owned());
            }
        }
    }
    Ok(BaselineChanged { of: of.to_owned(), changed: 1 })
}

/// Forgets what was learned.
///
/// # Errors
/// There is nothing of this name, or everything is to be forgotten while an attack lasts.
pub fn reset(state: &mut State, of: &str) -> Result<BaselineChanged, String> {
    let part = match of {
        "all" => Some(Part::All),
        "source" => Some(Part::Source),
        "reference" => Some(Part::Reference),
        "signatures" => Some(Part::Signatures),
        "known" => None,
        of => Some(Part::Prefix(prefix(of)?)),
    };
    let mut changed = 0;
    if let Some(part) = part {
        let reset = state.defence.mitigator_mut().reset(part);
        changed += reset.map_err(|_| "an attack lasts, and would be learned as usual".to_owned())?;
    }
    if matches!(part, None | Some(Part::All)) {
        changed += state.defence.forget_sources();
    }
    Ok(BaselineChanged { of: of.to_owned(), changed })
}

/// A prefix for which baselines are learned.
fn prefix(text: &str) -> Result<Prefix, String> {
    let read: Result<Inside, String> = text.parse();
    read.map(|inside| inside.prefix()).map_err(|problem| format!("`{}`: {problem}", text.escape_debug()))
}

/// To three digits behind the point.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::{list, reset, set};
    use crate::generations::automatic::{Holder, Why};
    use crate::parts::mitigation::events::Events;
    use crate::parts::mitigation::hands::{Carried, Hands, Places};
    use crate::parts::mitigation::state::State;
    use crate::requests::slots::Renewal;
    use weir_command::failure::Failure;
    use weir_control::{Reply, Request};
    use weir_mitigate::mitigator::Settings;

    /// Hands that have nothing to do.
    struct Idle;

    impl Hands for Idle {
        fn ask(&self, _: Request) -> Result<Reply, Failure> {
            unreachable!("they have nothing to do")
        }

        fn renew_rule(&self, _: &str, _: u32, _: u64) -> Renewal {
            Renewal::Gone
        }

        fn take_posture(&self, _: Holder, _: &str) -> Result<(), Failure> {
            Ok(())
        }

        fn renew_posture(&self, _: Holder) -> Result<u64, Option<Why>> {
            Err(None)
        }

        fn release_posture(&self, _: Holder) -> Result<(), Failure> {
            Ok(())
        }
    }

    fn state() -> State {
        let carried = Carried::new(Box::new(Idle), Places { slot: "attacks".to_owned(), tables: Vec::new() });
        State::new(Vec::new(), Settings::default(), carried, Events::default(), 1)
    }

    #[test]
    fn what_is_set_is_listed_until_it_is_reset() {
        let mut state = state();
        assert_eq!(list(&state, 20).prefixes_total, 0);
        set(&mut state, "192.0.2.1", Some("unproven.udp"), 500).expect("it is a rate");
        set(&mut state, "192.0.2.0/24", Some("vouched"), 700).expect("it is a rate");
        set(&mut state, "source", None, 900).expect("it is a rate");
        let listed = list(&state, 1);
        assert_eq!((listed.prefixes_total, listed.prefixes.len(), listed.source_pps), (2, 1, 900.0));
        let all = list(&state, 20).prefixes;
        let host = all.iter().find(|prefix| prefix.prefix == "192.0.2.1").expect("it is listed");
        assert_eq!((&host.rates_pps, host.is_frozen), (&[("unproven.udp".to_owned(), 500.0)].into(), false));
        assert_eq!(reset(&mut state, "192.0.2.0/24").map(|changed| changed.changed), Ok(2));
        assert_eq!(reset(&mut state, "source").map(|changed| changed.changed), Ok(1));
        assert_eq!((list(&state, 20).prefixes_total, list(&state, 20).source_pps), (0, 0.0));
        for part in ["all", "known", "reference", "signatures"] {
            assert_eq!(reset(&mut state, part).map(|changed| changed.changed), Ok(0), "{part}");
        }
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        let mut state = state();
        for (of, rate, pps) in [
            ("source", Some("proven"), 1),
            ("192.0.2.1", None, 1),
            ("192.0.2.1", Some("udp"), 1),
            ("192.0.2.1/24", Some("proven"), 1),
            ("everything", Some("proven"), 1),
            ("source", None, u64::MAX),
        ] {
            assert!(set(&mut state, of, rate, pps).is_err(), "{of} {rate:?} {pps}");
        }
        assert!(reset(&mut state, "").is_err() && reset(&mut state, "192.0.2.1/24").is_err());
    }
}
