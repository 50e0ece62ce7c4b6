//! Requests about tracked flows.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_abi::FlowState;
use weir_abi::flow::{Flow, FlowKey, TICK_SHIFT, Timeouts, age, ticks};
use weir_command::failure::Failure;
use weir_control::{FLOWS_MAX, FlowEntry, FlowOperation, FlowsCounted, FlowsKilled, FlowsListed, Reply};
use weir_loading::flow_match::{FlowMatch, Opening};
use weir_policy::ir::{Program, Tracking};
use weir_state::SharedState;
use weir_state::flows::FlowTable;

/// The flows of the active generation.
struct Flows<'a> {
    table: &'a FlowTable,
    timeouts: Timeouts,
    now: u32,
}

/// Executes a request about the flows of a program.
///
/// # Errors
/// The program does not track, or the request is wrong.
pub fn perform(operation: &FlowOperation, program: &Program, shared: &SharedState) -> Result<Reply, Failure> {
    let Some((tracking, needs)) = program.tracking.as_ref().zip(program.flow_needs()) else {
        return Err(Failure::Nothing("the active policy does not track flows".to_owned()));
    };
    let table = shared.flows(&needs).expect("the active generation is bound to its flows");
    let flows = Flows { table: &table, timeouts: needs.timeouts, now: ticks(weir_state::now_ns()) };
    Ok(match operation {
        FlowOperation::List { top, state, matches } => {
            let state = state.as_deref().map(named).transpose()?;
            let matches = matches.as_deref().map(read).transpose()?;
            flows.list((*top).min(FLOWS_MAX), state, matches.as_ref()).into()
        }
        FlowOperation::Count => flows.count(tracking).into(),
        FlowOperation::Kill { matches } => {
            let matches = read(matches)?;
            let is_wanted =
                |key: &FlowKey, flow: &Flow| flows.is_alive(key, flow) && matches.matches(&Opening::of(key, flow));
            FlowsKilled { killed: table.end(flows.now, &is_wanted) }.into()
        }
    })
}

fn named(name: &str) -> Result<FlowState, Failure> {
    let found = FlowState::ALL.into_iter().find(|(_, known)| *known == name).map(|(state, _)| state);
    found.ok_or_else(|| {
        let names = FlowState::ALL.map(|(_, name)| name).join(", ");
        Failure::Rejected(format!("weir: there is no state `{}`; the states are {names}", name.escape_debug()))
    })
}

fn read(matches: &str) -> Result<FlowMatch, Failure> {
    FlowMatch::parse(matches).map_err(|problem| Failure::Rejected(format!("weir: {problem}")))
}

impl Flows<'_> {
    fn is_alive(&self, key: &FlowKey, flow: &Flow) -> bool {
        !self.timeouts.has_passed(flow, key.protocol(), self.now)
    }

    fn each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.table.each(&mut |key, flow| {
            if self.is_alive(key, flow) {
                visit(key, flow);
            }
        });
    }

    fn list(&self, top: usize, state: Option<FlowState>, matches: Option<&FlowMatch>) -> FlowsListed {
        let (mut total, mut found): (_, Vec<(FlowKey, Flow)>) = (0, Vec::new());
        let order = |(key, flow): &(FlowKey, Flow)| (age(self.now, flow.time), Reverse(key.words));
        self.each(&mut |key, flow| {
            let has_state = state.is_none_or(|state| flow.state == state);
            if has_state && matches.is_none_or(|matches| matches.matches(&Opening::of(key, flow))) {
                total += 1;
                found.push((*key, *flow));
            }
            // A table has millions of flows, and few are listed.
            if found.len() > 2 * FLOWS_MAX {
                found.sort_by_key(order);
                found.truncate(top);
            }
        });
        found.sort_by_key(order);
        found.truncate(top);
        FlowsListed { total, flows: found.iter().map(|(key, flow)| self.entry(key, flow)).collect() }
    }

    fn entry(&self, key: &FlowKey, flow: &Flow) -> FlowEntry {
        let seconds = |ticks: u32| (u64::from(ticks) << TICK_SHIFT) as f64 / 1e9;
        let opening = Opening::of(key, flow);
        let [saddr, daddr] = opening.addresses.map(|address| match opening.is_ipv6 {
            true => IpAddr::V6(Ipv6Addr::from_bits(address)),
            false => IpAddr::V4(Ipv4Addr::from_bits(address as u32)),
        });
        let protocol = match opening.protocol {
            1 => "icmp".to_owned(),
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            58 => "icmpv6".to_owned(),
            number => number.to_string(),
        };
        let has_ports = matches!(opening.protocol, 6 | 17 | 33 | 132 | 136);
        let [sport, dport] = opening.ports.map(|port| has_ports.then_some(port));
        let idle = age(self.now, flow.time);
        let timeout = self.timeouts.of(flow, opening.protocol);
        FlowEntry {
            protocol,
            saddr,
            sport,
            daddr,
            dport,
            vlan: Some(opening.vlan).filter(|vlan| *vlan != [0, 0]),
            state: flow.state.name().to_owned(),
            replied: flow.replied,
            liberal: flow.liberal,
            idle_s: seconds(idle),
            expires_s: seconds(timeout.saturating_sub(idle)),
        }
    }

    fn count(&self, tracking: &Tracking) -> FlowsCounted {
        let (mut flows, mut classes, mut states) = (0, [0; 4], BTreeMap::new());
        self.each(&mut |_, flow| {
            flows += 1;
            classes[flow.class() as usize] += 1;
            *states.entry(flow.state.name().to_owned()).or_insert(0) += 1;
        });
        let [_, embryonic, unproven, closing] = classes;
        FlowsCounted { size: tracking.size, flows, embryonic, unproven, closing, states }
    }
}
