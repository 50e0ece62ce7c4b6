//! What a test of an interface says in one direction of a policy.
//!
//! Weir has no names of interfaces in its rules: a packet comes from outside or from inside. The operator names the
//! outer interfaces. All others that the ruleset names, except `lo`, are inner ones.

use crate::Options;
use crate::finding::Findings;
use crate::ruleset::{Hook, InterfaceTest, Ruleset, Test};
use std::collections::BTreeSet;

/// The outer and inner interfaces.
#[derive(Clone, Debug)]
pub struct Interfaces {
    outer: Vec<String>,
    inner: Vec<String>,
    is_host: bool,
}

/// The value of a test in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds for every packet.
    Always,
    /// It holds for no packet.
    Never,
    /// It depends on what Weir does not know.
    Unknown(String),
}

impl Interfaces {
    /// Sorts the interfaces that a ruleset names.
    pub fn new(ruleset: &Ruleset, options: &Options, findings: &mut Findings) -> Self {
        let tests = ruleset.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.tests);
        let named: BTreeSet<&str> = tests
            .filter_map(|test| match test {
                Test::Interface(test) => Some(test.names.iter().map(String::as_str)),
                _ => None,
            })
            .flatten()
            .filter(|name| *name != "lo" && !name.ends_with('*'))
            .collect();
        let mut outer = options.outside.clone();
        if let (true, true, [only]) = (outer.is_empty(), options.host, named.iter().collect::<Vec<_>>().as_slice()) {
            findings.note(
                "interfaces",
                only,
                "the only interface that the ruleset names; it is taken as the one of --host",
            );
            outer = vec![(**only).to_owned()];
        }
        let inner: Vec<String> =
            named.into_iter().filter(|name| !outer.iter().any(|known| known == name)).map(str::to_owned).collect();
        if options.host && !inner.is_empty() {
            let why = match outer.is_empty() {
                true => "rules for these interfaces hold for no packet: --outside names the interface of --host",
                false => "not the interface of --host (--outside): rules for it hold for no packet",
            };
            findings.note("interfaces", &inner.join(", "), why);
        }
        if !outer.is_empty() && !inner.is_empty() && !options.host {
            findings.note("interfaces", &inner.join(", "), "taken as the inner side (--outside names the outer one)");
        }
        Interfaces { outer, inner, is_host: options.host }
    }

    /// The value of a test at a hook.
    pub fn answer(&self, test: &InterfaceTest, hook: Hook, is_upstream: bool) -> Answer {
        let exists = match test.is_incoming {
            true => matches!(hook, Hook::Ingress | Hook::Prerouting | Hook::Input | Hook::Forward),
            false => matches!(hook, Hook::Forward | Hook::Output | Hook::Postrouting | Hook::Egress),
        };
        if !exists {
            // The kernel's match on an interface that is not there never holds, negated or not.
            return Answer::Never;
        }
        let is_outer = self.is_host || test.is_incoming == is_upstream;
        let side = if is_outer { &self.outer } else { &self.inner };
        let other = if is_outer { &self.inner } else { &self.outer };
        let answer = Self::compare(test, side, other);
        match (answer, test.is_negated) {
            (Answer::Always, true) => Answer::Never,
            (Answer::Never, true) => Answer::Always,
            (answer, _) => answer,
        }
    }

    fn compare(test: &InterfaceTest, side: &[String], other: &[String]) -> Answer {
        let matches = |interface: &String| test.names.iter().any(|name| is_match(name, interface));
        let count = side.iter().filter(|interface| matches(interface)).count();
        let is_elsewhere = |name: &String| name == "lo" || other.iter().any(|interface| is_match(name, interface));
        if count > 0 && count == side.len() {
            Answer::Always
        } else if count > 0 {
            Answer::Unknown(format!(
                "Weir does not know by which interface of a side ({}) a packet comes",
                side.join(", ")
            ))
        } else if test.names.iter().all(is_elsewhere) || !side.is_empty() {
            Answer::Never
        } else {
            Answer::Unknown("rules of Weir know no interface: --outside IF says which one is the outer side".to_owned())
        }
    }

    /// Whether an ingress or egress chain at a device is on the way of the packets.
    pub fn device(&self, devices: &[String], hook: Hook, is_upstream: bool) -> Answer {
        let is_incoming = hook == Hook::Ingress;
        let test = InterfaceTest { is_incoming, is_negated: false, names: devices.to_vec() };
        self.answer(&test, hook, is_upstream)
    }
}

fn is_match(pattern: &str, interface: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => interface.starts_with(start),
        None => pattern == interface,
    }
}
