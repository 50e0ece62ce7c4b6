//! Writes the policy: tables, settings, and the lines of both directions.

use crate::condition::{Condition, IPV4, IPV6, joined};
use crate::finding::Findings;
use crate::flatten::{Flattener, Line};
use crate::interfaces::Interfaces;
use crate::ruleset::{Hook, Rule, Ruleset, Test};
use crate::sets::{Table, one_line};
use crate::trial::{self, Trial};
use crate::{Import, Options, Refused};
use std::collections::HashSet;

/// Hooks on the way of packets that are forwarded, in order.
const FORWARDED: &[Hook] = &[Hook::Ingress, Hook::Prerouting, Hook::Forward, Hook::Postrouting, Hook::Egress];
/// Hooks on the way of packets for the host.
const RECEIVED: &[Hook] = &[Hook::Ingress, Hook::Prerouting, Hook::Input];
/// Hooks on the way of packets from the host.
const SENT: &[Hook] = &[Hook::Output, Hook::Postrouting, Hook::Egress];

/// Turns a ruleset into a policy.
pub fn import(
    mut ruleset: Ruleset,
    tables: &[Table],
    origin: &str,
    options: &Options,
    mut findings: Findings,
) -> Result<Import, Refused> {
    try_out(&mut ruleset, tables);
    let interfaces = Interfaces::new(&ruleset, options, &mut findings);
    let (up, down) = if options.host { (RECEIVED, SENT) } else { (FORWARDED, FORWARDED) };
    say_elsewhere(&ruleset, &[up, down].concat(), options, &mut findings);
    let mut directions = Vec::new();
    for (is_upstream, hooks) in [(true, up), (false, down)] {
        let lines = Flattener::flatten(&ruleset, &interfaces, &mut findings, is_upstream, hooks);
        directions.push(lines.map_err(Refused)?);
    }
    say_unused(&ruleset, &mut findings);
    say_families(&ruleset, &mut findings);
    let mut writer = Writer::new(origin, options);
    let words = words_of(&directions);
    let (used, unused): (Vec<&Table>, Vec<&Table>) =
        tables.iter().partition(|table| words.contains(&format!("@{}", table.name)));
    for table in unused {
        findings.note(&table.origin, &table.name, "no imported rule uses this set, so the policy has no such table");
    }
    writer.tables(&used);
    writer.tracking(&directions, &mut findings);
    writer.direction("upstream", &directions[0]);
    writer.direction("downstream", &directions[1]);
    writer.finish(findings)
}

/// Replaces what the compiler refuses, with its reason.
fn try_out(ruleset: &mut Ruleset, tables: &[Table]) {
    let mut trial = Trial::default();
    for table in tables {
        let end = if table.is_dynamic { " }\n" } else { "; dynamic }\n" };
        trial.tables += &(table.empty() + end);
    }
    for rule in ruleset.chains.iter_mut().flat_map(|chain| &mut chain.rules) {
        let mut refused = None;
        for test in &mut rule.tests {
            if let Test::Field(condition) = test
                && let Some(reason) = trial.refuses(&format!("{} drop", condition.text))
            {
                *test = Test::Foreign(reason);
            }
        }
        if let Some(limit) = &rule.limit {
            let tracked = if limit.counts_connections { "\ntcp track" } else { "" };
            refused = trial.refuses(&format!("{}{tracked}", limit.statement));
        }
        refused = refused.or_else(|| rule.adds.iter().find_map(|add| trial.refuses(add)));
        rule.tests.extend(refused.map(Test::Foreign));
    }
}

/// Lists the rules of base chains that are not on the way of the packets.
fn say_elsewhere(ruleset: &Ruleset, hooks: &[Hook], options: &Options, findings: &mut Findings) {
    let other = if options.host { "leave out --host to import" } else { "--host imports" };
    for chain in &ruleset.chains {
        let Some(base) = chain.base.as_ref().filter(|base| !hooks.contains(&base.hook)) else { continue };
        let which = match base.hook {
            Hook::Forward => "packets that the host forwards",
            _ => "packets to and from the host itself",
        };
        let reason = format!("chain {} at hook {} is not on the way: {other} {which}", chain.name, base.hook.name());
        if chain.rules.is_empty() && !base.drops {
            continue;
        }
        let policy = if base.drops { "drop" } else { "accept" };
        findings.note(&base.at, &format!("policy {policy} of chain {}", chain.name), &reason);
        for rule in &chain.rules {
            findings.note(&rule.at, &rule.text, &reason);
        }
    }
}

/// Lists chains that nothing calls.
fn say_unused(ruleset: &Ruleset, findings: &mut Findings) {
    use crate::ruleset::Verdict;
    let all: Vec<&Rule> = ruleset.chains.iter().flat_map(|chain| &chain.rules).collect();
    for (index, chain) in ruleset.chains.iter().enumerate() {
        let is_called = |rule: &&Rule| matches!(rule.verdict, Verdict::Jump(to) | Verdict::Goto(to) if to == index);
        if chain.base.is_none() && !chain.rules.is_empty() && !all.iter().any(is_called) {
            findings.note(&chain.name, &format!("{} rules", chain.rules.len()), "no rule calls this chain");
        }
    }
}

/// Says that packets of a family pass, because no base chain sees them.
fn say_families(ruleset: &Ruleset, findings: &mut Findings) {
    let bases: Vec<_> = ruleset.chains.iter().filter(|chain| chain.base.is_some()).collect();
    for (number, name) in [(IPV4, "IPv4"), (IPV6, "IPv6")] {
        let family = [Condition::family(number)];
        if !bases.is_empty() && bases.iter().all(|chain| joined(&family, &chain.scope).is_none()) {
            findings.note(
                name,
                "no rules",
                &format!("the source has no rules for {name}, so its packets pass, as before"),
            );
        }
    }
}

/// The words of all rules. A rule that names a table has the word `@NAME`.
fn words_of(directions: &[Vec<Line>]) -> HashSet<String> {
    let mut words = HashSet::new();
    for line in directions.iter().flatten() {
        if let Line::Rule(rule) = line {
            words.extend(rule.text().split([' ', ',']).filter(|word| word.starts_with('@')).map(str::to_owned));
        }
    }
    words
}

/// The text so far.
pub struct Writer {
    text: String,
    lists: Vec<(String, String)>,
    list_files: bool,
    inside: Vec<String>,
}

impl Writer {
    /// A policy that says where it comes from.
    pub fn new(origin: &str, options: &Options) -> Self {
        let text = format!(
            "# Imported from {origin} by `weir import`.\n# The report says what was not carried over: read it before \
             this policy decides packets.\n"
        );
        Writer { text, lists: Vec::new(), list_files: options.list_files, inside: options.inside.clone() }
    }

    /// Declares tables.
    pub fn tables(&mut self, tables: &[&Table]) {
        if !tables.is_empty() {
            self.text.push('\n');
        }
        for table in tables {
            let (declaration, file) = table.declared(self.list_files);
            self.text += &declaration;
            self.text.push('\n');
            self.lists.extend(file);
        }
    }

    /// Text between tables and directions.
    pub fn item(&mut self, text: &str) {
        self.text += &format!("\n{text}\n");
    }

    /// The settings of a policy that tracks.
    fn tracking(&mut self, directions: &[Vec<Line>], findings: &mut Findings) {
        let tracks = directions.iter().flatten().any(|line| match line {
            Line::Rule(rule) => {
                rule.conditions.iter().any(|condition| condition.field == "ct state")
                    || rule.statements.iter().any(|statement| statement.contains(" connections "))
            }
            Line::Comment(_) => false,
        });
        if !self.inside.is_empty() {
            let inside = self.inside.join(", ");
            self.item(&format!("inside {{ {inside} }}"));
        }
        if tracks {
            // Flows of nftables have no table whose size a ruleset says.
            self.item("tracking { }   # sizes and timeouts: docs/reference/tracking.md");
            findings.note(
                "ct state",
                "fragments",
                "the kernel reassembles datagrams before its rules; Weir judges each fragment, and later fragments \
                 have no ports",
            );
            if self.inside.is_empty() {
                findings.note(
                    "ct state",
                    "inside",
                    "without `inside { ... }` a forged inside address from outside can open a flow: --inside PREFIX \
                     writes it",
                );
            }
        }
    }

    /// The rules of a direction.
    pub fn direction(&mut self, name: &str, lines: &[Line]) {
        self.text += &format!("\n{name} {{\n");
        for line in lines {
            match line {
                Line::Comment(text) => self.text += &format!("  # {}\n", one_line(text)),
                Line::Rule(rule) => {
                    self.text += "  ";
                    self.text += &rule.text();
                    if let Some(comment) = &rule.comment {
                        self.text += &format!("   # {}", one_line(comment));
                    }
                    self.text.push('\n');
                }
            }
        }
        self.text += "}\n";
    }

    /// The whole import, if the compiler takes the policy.
    pub fn finish(self, findings: Findings) -> Result<Import, Refused> {
        if let Some(errors) = trial::errors(&self.text) {
            return Err(Refused(format!("the imported policy would have errors:\n{errors}")));
        }
        Ok(Import { policy: self.text, lists: self.lists, findings })
    }
}
