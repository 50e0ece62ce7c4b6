//! iptables: the output of `iptables-save` and `ip6tables-save`, and of `ipset save` for the sets that they match.
//!
//! A packet meets the tables `raw`, `mangle`, `filter` and `security` at each hook, in this order. Their chains are
//! base chains with the priorities of the kernel.

mod line;
mod matches;
mod set;
mod target;

use crate::condition::{Condition, IPV4, IPV6};
use crate::finding::{Effect, Findings};
use crate::policy_text;
use crate::ruleset::{Base, Chain, Hook, Rule, Ruleset, Test, Verdict};
use crate::{Import, Options, Refused, Source};
use line::Words;
use set::Sets;
use std::collections::BTreeMap;

/// Tables of iptables in the order of their priorities.
const PRIORITIES: [(&str, i64); 5] = [("raw", -300), ("mangle", -150), ("nat", -100), ("filter", 0), ("security", 50)];
/// The chains at hooks.
const HOOKS: [(&str, Hook); 5] = [
    ("PREROUTING", Hook::Prerouting),
    ("INPUT", Hook::Input),
    ("FORWARD", Hook::Forward),
    ("OUTPUT", Hook::Output),
    ("POSTROUTING", Hook::Postrouting),
];

/// Turns the outputs of `iptables-save`, `ip6tables-save` and `ipset save` into a policy.
///
/// # Errors
/// A file is none of these, or a line cannot be read.
pub fn iptables(sources: &[Source], options: &Options) -> Result<Import, Refused> {
    let mut reader = Reader::default();
    let (of_sets, of_rules): (Vec<&Source>, Vec<&Source>) = sources.iter().partition(|source| is_ipset(&source.text));
    for source in of_sets {
        reader.sets.read(source, &mut reader.findings)?;
    }
    for source in &of_rules {
        reader.rules(source)?;
    }
    if of_rules.is_empty() {
        return Err(Refused("no file has the output of iptables-save or ip6tables-save".to_owned()));
    }
    reader.sets.say_missing(&mut reader.findings);
    policy_text::import(reader.ruleset, &reader.sets.tables(), "iptables", options, reader.findings)
}

/// Whether a file is the output of `ipset save`.
fn is_ipset(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with("create ") || line.starts_with("add "))
}

/// What was read.
#[derive(Default)]
struct Reader {
    ruleset: Ruleset,
    sets: Sets,
    findings: Findings,
}

/// A table of one file.
struct Table<'a> {
    name: String,
    is_ipv6: bool,
    chains: BTreeMap<String, usize>,
    source: &'a Source,
}

impl Reader {
    fn rules(&mut self, source: &Source) -> Result<(), Refused> {
        let is_ipv6 = is_ipv6(&source.text);
        let mut table: Option<Table<'_>> = None;
        let mut lines: Vec<(usize, &str)> = Vec::new();
        for (number, line) in source.text.lines().enumerate() {
            let line = line.trim();
            let at = || format!("{}:{}", source.name, number + 1);
            match line.chars().next() {
                None | Some('#') => {}
                Some('*') => {
                    let name = line[1..].trim().to_owned();
                    table = Some(Table { name, is_ipv6, chains: BTreeMap::new(), source });
                    lines.clear();
                }
                _ if line == "COMMIT" => {
                    let table = table.take().ok_or_else(|| Refused(format!("{}: COMMIT without a table", at())))?;
                    self.rules_of(&table, &lines)?;
                }
                Some(':') => {
                    let table = table.as_mut().ok_or_else(|| Refused(format!("{}: a chain without a table", at())))?;
                    self.chain(table, &line[1..], at());
                }
                Some('-' | '[') if table.is_some() => lines.push((number + 1, line)),
                _ => {
                    let reason = "this is no line of iptables-save";
                    return Err(Refused(format!("{}: {reason}: {}", at(), line.chars().take(80).collect::<String>())));
                }
            }
        }
        match table {
            Some(table) => {
                Err(Refused(format!("{}: the table {} has no COMMIT: the file was cut", source.name, table.name)))
            }
            None => Ok(()),
        }
    }

    /// `:INPUT DROP [0:0]`
    fn chain(&mut self, table: &mut Table<'_>, line: &str, at: String) {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or("").to_owned();
        let drops = words.next() == Some("DROP");
        let known = PRIORITIES.iter().find(|(known, _)| *known == table.name && *known != "nat");
        let hook = HOOKS.iter().find(|(known, _)| *known == name);
        let base = known.zip(hook).map(|((_, priority), (_, hook))| Base {
            hook: *hook,
            priority: *priority,
            drops,
            device: Vec::new(),
            at,
        });
        let family = if table.is_ipv6 { "ip6tables" } else { "iptables" };
        let scope = vec![Condition::family(if table.is_ipv6 { IPV6 } else { IPV4 })];
        table.chains.insert(name.clone(), self.ruleset.chains.len());
        let name = format!("{family} {} {name}", table.name);
        self.ruleset.chains.push(Chain { name, base, scope, rules: Vec::new() });
    }

    fn rules_of(&mut self, table: &Table<'_>, lines: &[(usize, &str)]) -> Result<(), Refused> {
        for &(number, line) in lines {
            let at = format!("{}:{number}", table.source.name);
            // Counters in front: `[12:3456] -A INPUT ...`.
            let line = match line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                Some((_, rule)) => rule.trim(),
                None => line,
            };
            if PRIORITIES.iter().all(|(known, _)| *known != table.name) {
                self.findings.left_out(&at, line, "Weir does not know this table", Effect::Unknown);
                continue;
            }
            if table.name == "nat" {
                let reason = "NAT: Weir forwards packets unchanged, and its rules see the addresses on the wire";
                self.findings.left_out(&at, line, reason, Effect::Unknown);
                continue;
            }
            let mut words = Words::new(line).map_err(|reason| Refused(format!("{at}: {reason}")))?;
            let name = match (words.next().as_deref(), words.next()) {
                (Some("-A"), Some(name)) => name,
                _ => return Err(Refused(format!("{at}: iptables-save writes only `-A CHAIN`: {line}"))),
            };
            let chain = *table.chains.get(&name).ok_or_else(|| Refused(format!("{at}: no chain {name}")))?;
            let rules = self.rule(table, &at, line, words);
            self.ruleset.chains[chain].rules.extend(rules);
        }
        Ok(())
    }

    /// One rule. It becomes several if a match has alternatives.
    fn rule(&mut self, table: &Table<'_>, at: &str, text: &str, mut words: Words) -> Vec<Rule> {
        let mut rule = Rule { at: at.to_owned(), text: text.to_owned(), ..Rule::default() };
        let mut alternatives: Vec<Vec<Test>> = vec![Vec::new()];
        let mut context = matches::Context { is_ipv6: table.is_ipv6, protocol: None, sets: &mut self.sets, at };
        while let Some(option) = words.next() {
            match option.as_str() {
                "-j" | "-g" => {
                    let target = words.next().unwrap_or_default();
                    match table.chains.get(&target).filter(|_| HOOKS.iter().all(|(hook, _)| *hook != target)) {
                        Some(chain) if option == "-g" => rule.verdict = Verdict::Goto(*chain),
                        Some(chain) => rule.verdict = Verdict::Jump(*chain),
                        None => target::read(&mut rule, &target, &mut words, context.sets, context.is_ipv6),
                    }
                }
                _ => matches::read(&mut rule, &mut alternatives, &option, &mut words, &mut context),
            }
        }
        let has_limit = rule.limit.is_some();
        if has_limit && alternatives.len() > 1 {
            rule.tests.push(Test::Foreign("its one limit would become several".to_owned()));
            alternatives.truncate(1);
        }
        let with = |tests: Vec<Test>| {
            let mut rule = rule.clone();
            rule.tests.extend(tests);
            rule
        };
        alternatives.into_iter().map(with).collect()
    }
}

/// Whether a file is of `ip6tables-save`.
fn is_ipv6(text: &str) -> bool {
    let generated = text.lines().find(|line| line.starts_with("# Generated by "));
    if let Some(line) = generated {
        return line.contains("ip6tables");
    }
    let words = text.split([' ', '/', ',', '\n']);
    let is_address = |word: &str| word.contains(':') && word.parse::<std::net::Ipv6Addr>().is_ok();
    words.into_iter().any(|word| is_address(word) || word == "ipv6-icmp" || word == "icmp6")
}
