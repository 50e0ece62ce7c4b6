//! What nftables and iptables have in common: chains of rules that are called, and base chains that a packet meets one
//! after the other.

use crate::condition::Condition;
use crate::finding::Effect;

/// A whole ruleset.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    /// All chains.
    pub chains: Vec<Chain>,
}

/// A chain.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The name in reports: `inet filter input`.
    pub name: String,
    /// Where packets enter it; `None` if only rules call it.
    pub base: Option<Base>,
    /// Holds for every packet of the chain: its family.
    pub scope: Vec<Condition>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// Where packets enter a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The hook.
    pub hook: Hook,
    /// The order at the hook: the lowest comes first.
    pub priority: i64,
    /// Whether a packet that no rule decides is dropped.
    pub drops: bool,
    /// The interface of an ingress chain.
    pub device: Vec<String>,
    /// Where the policy is in the source.
    pub at: String,
}

/// The places of the kernel where chains are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// As received from a device.
    Ingress,
    /// Before routing.
    Prerouting,
    /// For the host itself.
    Input,
    /// Between interfaces.
    Forward,
    /// From the host itself.
    Output,
    /// After routing.
    Postrouting,
    /// As sent to a device.
    Egress,
}

impl Hook {
    /// The name in nftables.
    pub fn name(self) -> &'static str {
        match self {
            Hook::Ingress => "ingress",
            Hook::Prerouting => "prerouting",
            Hook::Input => "input",
            Hook::Forward => "forward",
            Hook::Output => "output",
            Hook::Postrouting => "postrouting",
            Hook::Egress => "egress",
        }
    }

    /// The hook of a name.
    pub fn of(name: &str) -> Option<Hook> {
        let all = [
            Hook::Ingress,
            Hook::Prerouting,
            Hook::Input,
            Hook::Forward,
            Hook::Output,
            Hook::Postrouting,
            Hook::Egress,
        ];
        all.into_iter().find(|hook| hook.name() == name)
    }
}

/// A rule. A rule of the source may become several, with the same place.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    /// The place in the source.
    pub at: String,
    /// Its text in the source, on one line.
    pub text: String,
    /// The comment that the source gives it.
    pub comment: Option<String>,
    /// All of these must hold.
    pub tests: Vec<Test>,
    /// What it limits.
    pub limit: Option<Limit>,
    /// What it adds to tables: statements of a policy.
    pub adds: Vec<String>,
    /// Whether the source asks for its counts.
    pub counts: bool,
    /// What happens to the packet.
    pub verdict: Verdict,
    /// Statements that are not carried over and do not decide packets, with the reason.
    pub ignored: Vec<String>,
    /// What is not quite the same, with the meaning for packets.
    pub approximations: Vec<(String, Effect)>,
}

/// One match of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// A match of the policy language.
    Field(Condition),
    /// The interface of a packet.
    Interface(InterfaceTest),
    /// What Weir cannot test, with the reason.
    Foreign(String),
    /// What no packet fulfils, such as an empty set.
    Never,
}

/// The interface by which a packet came or leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceTest {
    /// By which it came; otherwise by which it leaves.
    pub is_incoming: bool,
    /// Whether it is none of these.
    pub is_negated: bool,
    /// Names. A `*` at the end stands for any text.
    pub names: Vec<String>,
}

/// What happens to a packet that a rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The next rule follows.
    #[default]
    Continue,
    /// It leaves the base chain.
    Accept,
    /// It ends.
    Drop,
    /// The calling chain continues.
    Return,
    /// A chain is called.
    Jump(usize),
    /// A chain takes over.
    Goto(usize),
    /// What Weir cannot do, with the reason.
    Foreign(String),
}

/// A limit of a rule, which is a match in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The statement of a policy without `exceed`: `limit rate 10/second burst 5 packets`.
    pub statement: String,
    /// Whether the rule holds for packets above the limit, and not for packets within.
    pub is_over: bool,
    /// Whether it counts open connections. It then has to see packets of open connections.
    pub counts_connections: bool,
}

impl Rule {
    /// The tests that a policy can write.
    pub fn conditions(&self) -> Vec<Condition> {
        let conditions = self.tests.iter().filter_map(|test| match test {
            Test::Field(condition) => Some(condition.clone()),
            _ => None,
        });
        conditions.collect()
    }

    /// Why a policy cannot write this rule.
    pub fn foreign(&self) -> Option<&str> {
        let of_tests = self.tests.iter().find_map(|test| match test {
            Test::Foreign(reason) => Some(reason.as_str()),
            _ => None,
        });
        of_tests.or(match &self.verdict {
            Verdict::Foreign(reason) => Some(reason),
            _ => None,
        })
    }
}
