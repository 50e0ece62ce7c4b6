//! Copies of packets for clients (`weir ctl capture`): each client has a tap, and its own thread of the server reads it.
//! So a slow client costs copies of its own and nothing else.

mod comment;
mod stream;
mod streams;

use crate::generations::generation::Generation;
use crate::server::Answered;
use serde_json::json;
use std::sync::Arc;
use stream::{Sides, Stream};
use streams::OpenStream;
pub use streams::Streams;
use weir_abi::tap_where::TapWhere;
use weir_abi::{Action, Reason};
use weir_command::failure::Failure;
use weir_control::{CaptureFilter, CaptureStarted, Status};
use weir_engine::live::tap::{BUDGET_PPS, Reasons, RuleName, TapFilter, Taps};
use weir_engine::live::{Interfaces, Side};
use weir_policy::ir::Program;
use weir_policy::slot_rule::SlotRule;

/// Most copies per second that a client may ask for: what one thread can hand on.
const BUDGET_PPS_MAX: u32 = 1_000_000;

/// What captures need of the daemon.
pub struct Captures {
    taps: Arc<Taps>,
    sides: Sides,
    streams: Arc<Streams>,
}

impl Captures {
    /// Captures at these interfaces, or at those of a host.
    pub fn new(taps: Arc<Taps>, interfaces: &Interfaces, host: &[String]) -> Self {
        let sides = match host {
            [] => [interfaces.lower.join(", "), interfaces.upper.join(", ")],
            host => [format!("received at {}", host.join(", ")), format!("sent at {}", host.join(", "))],
        };
        Captures { taps, sides, streams: Arc::default() }
    }

    /// The captures of all clients.
    pub fn streams(&self) -> Arc<Streams> {
        self.streams.clone()
    }

    /// Counts the captures that run, in a status.
    pub fn counts(&self) -> impl Fn(&mut Status) + Send + Sync + 'static {
        let streams = Arc::downgrade(&self.streams);
        move |status: &mut Status| status.captures = streams.upgrade().map_or(0, |streams| streams.open())
    }

    /// Opens a tap for a client.
    ///
    /// # Errors
    /// There is no such rule, reason or match, or too many captures run.
    pub fn begin<C>(&self, wanted: &CaptureFilter, active: &Generation<C>) -> Result<Answered, Failure> {
        let refused = |problem: String| Failure::Rejected(format!("weir: {problem}"));
        let mut filter = filter(wanted, active).map_err(refused)?;
        let matches = wanted.matches.as_deref().map(matches).transpose().map_err(refused)?;
        if let Some(matches) = &matches {
            filter.headers = TapWhere::of(&matches.record);
        }
        let rules = match &filter.reasons {
            Reasons::Rules(rules) => rules.iter().map(|RuleName { at, text }| format!("{at} {text}")).collect(),
            Reasons::All | Reasons::BuiltIn(_) => Vec::new(),
        };
        let budget_pps = filter.budget_pps;
        let reader = self.taps.open(filter).map_err(|error| refused(error.to_string()))?;
        let stream = Stream::new(reader, matches, wanted, budget_pps, self.sides.clone());
        let open = OpenStream::of(&self.streams);
        let started = CaptureStarted { generation: active.id, rules };
        Ok(Answered::followed_by(json!(started), Box::new(move |client| stream.send(client, &open))))
    }
}

/// What a tap wants.
fn filter<C>(wanted: &CaptureFilter, active: &Generation<C>) -> Result<TapFilter, String> {
    let usual = TapFilter::default();
    let named = |name: &String| {
        let action = Action::ALL.into_iter().find(|action| action.name() == name);
        action.ok_or_else(|| format!("no action `{name}`; actions are accept, drop, divert and reply"))
    };
    let actions = wanted.actions.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let sides = match wanted.side.as_deref() {
        None => usual.sides.clone(),
        Some("lower") => vec![Side::Lower],
        Some("upper") => vec![Side::Upper],
        Some(side) => return Err(format!("no side `{side}`; sides are lower and upper")),
    };
    let budget_pps = wanted.budget_pps.unwrap_or(BUDGET_PPS);
    if !(1..=BUDGET_PPS_MAX).contains(&budget_pps) {
        return Err(format!("a budget is 1 to {BUDGET_PPS_MAX} copies per second"));
    }
    let one_in = wanted.every.unwrap_or(1);
    let snap = wanted.snap.unwrap_or(usual.snap);
    if one_in == 0 || snap == 0 {
        return Err("every 0 packets, or 0 bytes of each: that is none".to_owned());
    }
    let actions = if actions.is_empty() { usual.actions.clone() } else { actions };
    Ok(TapFilter { actions, sides, reasons: reasons(wanted, active)?, one_in, snap, budget_pps, ..usual })
}

fn reasons<C>(wanted: &CaptureFilter, active: &Generation<C>) -> Result<Reasons, String> {
    match (&wanted.rule, &wanted.reason) {
        (None, None) => Ok(Reasons::All),
        (Some(_), Some(_)) => Err("a packet has one reason: a rule or a built-in one".to_owned()),
        (None, Some(name)) => {
            let found = Reason::BUILTIN.iter().find(|(_, known)| known == name);
            let names = || Reason::BUILTIN.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
            found
                .map(|(reason, _)| Reasons::BuiltIn(*reason))
                .ok_or_else(|| format!("no reason `{name}`; reasons are {}, and --rule takes rules", names()))
        }
        (Some(rule), None) => rules(rule, active.names().meant(rule), active.program()).map(Reasons::Rules),
    }
}

/// The rules that are meant and can be the reason of a verdict.
fn rules(given: &str, meant: Vec<RuleName>, program: &Program) -> Result<Vec<RuleName>, String> {
    if meant.is_empty() {
        return Err(format!("the active policy has no rule `{given}`; `weir ctl stats` lists its rules"));
    }
    let decides = |name: &RuleName| {
        let is_it = |rule: &&weir_policy::ir::Rule| rule.at == name.at && rule.text == name.text;
        program.rules.iter().filter(is_it).any(|rule| rule.verdict().is_some())
    };
    let (deciding, others): (Vec<_>, Vec<_>) = meant.into_iter().partition(decides);
    match (deciding.is_empty(), others.first()) {
        (true, Some(RuleName { at, text })) => Err(format!(
            "{at}: `{text}` has no verdict, so it is the reason of no packet; select its packets with --where"
        )),
        _ => Ok(deciding),
    }
}

/// The matches that packets must have, as a rule of a slot.
fn matches(text: &str) -> Result<SlotRule, String> {
    SlotRule::parse(&format!("{text} counter")).map_err(|refused| format!("--where: {refused}"))
}
