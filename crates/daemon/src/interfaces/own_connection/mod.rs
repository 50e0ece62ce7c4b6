//! Checks whether a policy would end the operator's own login connection. The check comes before any change.
//!
//! The connection is the one of `SSH_CONNECTION`, if its address here is one of this machine and its packets may pass
//! the interfaces of Weir. The interpreter decides packets of this connection, packets of a new one between the same
//! hosts, and packets that find neighbours. It decides by the policy as it is written: without what `--state` restores,
//! and without VLAN tags.

mod neighbours;
mod packets;
mod session;

use crate::options::RunOptions;
use packets::Passing;
use session::Session;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr, stdin};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use weir_abi::{Action, Link};
use weir_command::engine::action;
use weir_command::failure::Failure;
use weir_engine::bundle::trust::Trust;
use weir_engine::live::paths;
use weir_loading::{Policy, PolicyFile};
use weir_policy::capability::Engine;
use weir_policy::diag::printable::printable_line;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;

/// The time between two packets.
const GAP_NS: u64 = 10_000_000;

/// A packet that the policy does not let pass.
struct Lost {
    what: &'static str,
    /// `edge.weir:12`, or the name of a built-in reason.
    by: String,
    /// The rule, if one decided.
    rule: Option<String>,
}

/// Refuses a start that would end the operator's connection. On a terminal the operator may decide otherwise.
///
/// # Errors
/// The policy is invalid, or would end the connection.
pub fn check(options: &RunOptions, trust: &Trust) -> Result<(), Failure> {
    if options.drop_own_connection {
        return Ok(());
    }
    let Some(session) = Session::find().filter(|session| may_pass(*session, options)) else { return Ok(()) };
    let policy = PolicyFile::open(&options.policy)?.read(trust)?;
    policy.refuse_unsupported(&[Engine::Eval])?;
    let Some(lost) = lost(&policy, session)? else { return Ok(()) };
    let told = describe(&options.policy, session, &lost);
    if stdin().is_terminal() && stderr().is_terminal() {
        if wants_to_start(&told) {
            return Ok(());
        }
        return Err(Failure::Rejected("weir: not started".to_owned()));
    }
    Err(Failure::Rejected(format!(
        "weir: {told}\n`--drop-own-connection` starts anyway; with `--confirm 60s` it then ends by itself unless confirmed"
    )))
}

/// Whether packets of the connection may pass the interfaces. If the kernel does not know, they may.
fn may_pass(session: Session, options: &RunOptions) -> bool {
    // Only an address of this machine, in this network namespace, can be bound.
    if UdpSocket::bind((session.here.ip(), 0)).is_err() {
        return false;
    }
    let Ok(ways) = paths::towards(session.here.ip(), session.client.ip()) else { return true };
    options.host.iter().chain(&options.lower).chain(&options.upper).any(|interface| ways.contains(interface))
}

/// The first packet that the policy does not let pass.
fn lost(policy: &Policy, Session { client, here }: Session) -> Result<Option<Lost>, Failure> {
    // The next connection has another port.
    let next = SocketAddr::new(client.ip(), client.port() ^ 1);
    let neighbours = neighbours::found(client.ip(), here.ip());
    for talk in [packets::standing(client, here), packets::opened(next, here), neighbours] {
        let mut evaluator = Evaluator::new(&policy.program, policy.answers());
        for (number, Passing { direction, what, frame }) in (1..).zip(&talk) {
            let chain = policy.chain(None, *direction)?;
            let time_ns = number * GAP_NS;
            let frame = Frame { bytes: frame, wire_len: frame.len() as u32, link: Link::Ethernet, time_ns };
            let verdict = evaluator.decide(chain, frame, &mut ());
            match action(verdict) {
                Action::Accept => {}
                // A SYN proxy answers in place of this machine. What follows depends on its answer.
                Action::Reply => break,
                Action::Drop | Action::Divert => {
                    let by = weir_command::report::reason_name(&policy.program, verdict.reason());
                    let index = verdict.reason().rule_index().map(usize::from);
                    let rule = index.and_then(|index| policy.program.rules.get(index)).map(|rule| rule.text.clone());
                    return Ok(Some(Lost { what, by, rule }));
                }
            }
        }
    }
    Ok(None)
}

fn describe(policy: &Path, Session { client, here }: Session, Lost { what, by, rule }: &Lost) -> String {
    let policy = policy.display();
    let mut text = format!("{policy} would end your own connection, from {client} to {here}: ");
    let _ = match rule {
        Some(rule) => write!(text, "{by} drops {what}: `{rule}`"),
        None => write!(text, "{what} is dropped: {by}"),
    };
    printable_line(&text).into_owned()
}

/// Asks the operator on the terminal.
fn wants_to_start(told: &str) -> bool {
    let mut terminal = stderr();
    let asked = write!(terminal, "weir: {told}\nStart anyway? [y/N] ").and_then(|()| terminal.flush());
    let mut answer = String::new();
    asked.is_ok() && stdin().read_line(&mut answer).is_ok() && ["y", "yes"].contains(&answer.trim())
}
