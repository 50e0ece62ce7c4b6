//! The first pass: collects the declared names, and checks everything that is not a rule.

use super::definition::Definition;
use super::{Checker, Declared, POSTURES_MAX, Scope, TABLES_MAX, nearest};
use crate::checked::{Defaults, Fallback, LimitsId, OnExit, Posture, Rule, TableId};
use crate::diag::Diagnostic;
use crate::direction::Direction;
use crate::source::{FileId, SourceMap, Span};
use crate::syntax::reserved;
use crate::syntax::tree::{self, DirectionBlock, Item, Name};
use std::collections::HashMap;
use weir_abi::{Action, Reason};

/// The keys of `defaults`.
const DEFAULT_KINDS: [&str; 7] = ["malformed", "arp", "not-ip", "fragment", "ip-options", "spoofed", "no-match"];

impl<'a> Checker<'a> {
    /// Collects the names of tables, limits and definitions.
    pub(super) fn declare_names(&mut self) {
        for item in self.items.clone() {
            match item {
                Item::Table(table) => self.declare_table(&table.name),
                Item::Limits(limits) => self.declare_limits(&limits.name),
                Item::Define(define) => {
                    if let Some(first) = self.defines.get(define.name.text.as_str()) {
                        let diagnostic = duplicate("definition", &define.name, first.span);
                        self.report(diagnostic);
                    } else {
                        let target = Definition::new(define.values.as_ref());
                        self.defines
                            .insert(&define.name.text, Declared { span: define.name.span, used: false, target });
                    }
                }
                _ => {}
            }
        }
        self.measure_definitions();
    }

    fn declare_table(&mut self, name: &'a Name) {
        if let Some(first) = self.tables.get(name.text.as_str()) {
            let diagnostic = duplicate("table", name, first.span);
            self.report(diagnostic);
        } else if self.tables.len() == TABLES_MAX {
            self.report(Diagnostic::error("E0314", name.span, format!("the policy has more than {TABLES_MAX} tables")));
        } else {
            let id = TableId(u16::try_from(self.tables.len()).expect("TABLES_MAX is below 2^16"));
            self.tables.insert(&name.text, Declared { span: name.span, used: false, target: id });
        }
    }

    fn declare_limits(&mut self, name: &'a Name) {
        if let Some(first) = self.limits.get(name.text.as_str()) {
            let diagnostic = duplicate("list of limits", name, first.span);
            self.report(diagnostic);
        } else if self.limits.len() == TABLES_MAX {
            let message = format!("the policy has more than {TABLES_MAX} lists of limits");
            self.report(Diagnostic::error("E0314", name.span, message));
        } else {
            let id = LimitsId(u16::try_from(self.limits.len()).expect("TABLES_MAX is below 2^16"));
            self.limits.insert(&name.text, Declared { span: name.span, used: false, target: id });
        }
    }

    /// Reads `defaults`, which may have several blocks.
    pub(super) fn defaults(&mut self) -> Defaults {
        let mut defaults = Defaults::default();
        let mut set: HashMap<&str, Span> = HashMap::new();
        for item in self.items.clone() {
            let Item::Defaults(tree::Defaults { entries, .. }) = item else { continue };
            for (kind, what) in entries {
                if let Some(&first) = set.get(kind.text.as_str()) {
                    let message = format!("`{}` is set twice", kind.text);
                    self.report(Diagnostic::error("E0210", kind.span, message).note(first, "first here"));
                    continue;
                }
                set.insert(&kind.text, kind.span);
                self.default_entry(&mut defaults, kind, what);
            }
        }
        self.declared_no_match = set.contains_key("no-match");
        defaults
    }

    fn default_entry(&mut self, defaults: &mut Defaults, kind: &Name, what: &Name) {
        let action = Action::from_name(&what.text);
        let fallback = action.map(Fallback::Decide).or((what.text == "rules").then_some(Fallback::Rules));
        let accepted = match kind.text.as_str() {
            "malformed" => action.map(|action| defaults.malformed = action),
            "arp" => fallback.map(|fallback| defaults.arp = fallback),
            "not-ip" => fallback.map(|fallback| defaults.not_ip = fallback),
            "fragment" => fallback.map(|fallback| defaults.fragment = fallback),
            "ip-options" => fallback.map(|fallback| defaults.ip_options = fallback),
            "spoofed" => fallback.map(|fallback| self.spoofed = Some((fallback, kind.span.to(what.span)))),
            "no-match" => action.map(|action| defaults.no_match = action),
            "on-exit" => {
                let diagnostic = Diagnostic::error("E0113", kind.span, "`on-exit` is not part of `defaults`");
                self.report(diagnostic.help(format!("write `on-exit {}` outside of `defaults`", what.text)));
                return;
            }
            other => {
                let message = format!("there is no default for `{other}`");
                let help = format!("there are defaults for {}", DEFAULT_KINDS.join(", "));
                let diagnostic = Diagnostic::error("E0113", kind.span, message).help(help);
                self.unknown(diagnostic, other, "", DEFAULT_KINDS.into_iter());
                return;
            }
        };
        if accepted.is_none() && what.text == reserved::REPLY {
            self.report(reserved::reply(what.span));
        } else if accepted.is_none() {
            let message = format!("`{}` cannot be `{}`", kind.text, what.text);
            let help = match kind.text.as_str() {
                "malformed" => "packets that cannot be parsed have no fields for rules: write accept, drop or divert",
                "no-match" => "this applies when no rule decides: write accept, drop or divert",
                _ => "write accept, drop, divert, or `rules` to let the rules decide",
            };
            self.report(Diagnostic::error("E0317", what.span, message).help(help));
        }
    }

    /// Reads `on-exit`, which may be set once.
    pub(super) fn on_exit(&mut self) -> OnExit {
        let mut set: Option<(Span, OnExit)> = None;
        for item in self.items.clone() {
            let Item::OnExit(tree::OnExit { span, value }) = item else { continue };
            if let Some((first, _)) = set {
                let diagnostic = Diagnostic::error("E0210", *span, "`on-exit` is set twice").note(first, "first here");
                self.report(diagnostic.help("all directions and postures share one value: remove the others"));
                continue;
            }
            let on_exit = OnExit::from_name(&value.text);
            if on_exit.is_none() {
                let message = format!("`on-exit` cannot be `{}`", value.text);
                self.report(Diagnostic::error("E0319", value.span, message).help(on_exit_help(&value.text)));
            }
            set = Some((*span, on_exit.unwrap_or_default()));
        }
        set.map(|(_, on_exit)| on_exit).unwrap_or_default()
    }

    /// Checks the base policy and the named postures.
    pub(super) fn postures(&mut self, sources: &SourceMap, scope: Scope) -> Vec<Posture> {
        let end = u32::try_from(sources.file(FileId(0)).text.len()).expect("texts are bounded by TEXT_BYTES_MAX");
        let whole = Span { file: FileId(0), start: 0, end };
        let items = self.items.clone();
        let base = items.iter().filter_map(|item| match item {
            Item::Direction(block) => Some(block),
            _ => None,
        });
        let mut postures = vec![self.posture(None, whole, &base.collect::<Vec<_>>(), scope)];
        let mut names: HashMap<&str, Span> = HashMap::new();
        for item in &items {
            let Item::Posture(posture) = item else { continue };
            if let Some(&first) = names.get(posture.name.text.as_str()) {
                let diagnostic = duplicate("posture", &posture.name, first);
                self.report(diagnostic);
            } else if names.len() == POSTURES_MAX {
                let message = format!("the policy has more than {POSTURES_MAX} postures");
                self.report(Diagnostic::error("E0314", posture.name.span, message));
                break;
            }
            names.entry(&posture.name.text).or_insert(posture.name.span);
            let blocks: Vec<&'a DirectionBlock> = posture.directions.iter().collect();
            postures.push(self.posture(Some(posture.name.text.clone()), posture.name.span, &blocks, scope));
        }
        postures
    }

    fn posture(&mut self, name: Option<String>, span: Span, blocks: &[&'a DirectionBlock], scope: Scope) -> Posture {
        let mut posture = Posture { name, span, upstream: None, downstream: None };
        let mut keywords: HashMap<Direction, Span> = HashMap::new();
        let mut count = 0;
        for block in blocks {
            let rules = self.direction(block, scope, &mut count);
            if let Some(first) = keywords.insert(block.direction, block.keyword) {
                let message = format!("`{}` is written twice", block.direction.name());
                self.report(
                    Diagnostic::error("E0207", block.keyword, message)
                        .note(first, "first here")
                        .help("write all rules of a direction into one block, in order"),
                );
            }
            match block.direction {
                Direction::Upstream => posture.upstream = Some(rules),
                Direction::Downstream => posture.downstream = Some(rules),
            }
        }
        posture
    }

    fn direction(&mut self, block: &'a DirectionBlock, scope: Scope, count: &mut usize) -> Vec<Rule> {
        let mut rules = Vec::new();
        for rule in &block.rules {
            *count += 1;
            if *count == Reason::RULES_MAX + 1 {
                self.report(
                    Diagnostic::error("E0314", rule.span, format!("a policy has at most {} rules", Reason::RULES_MAX))
                        .help("join rules that differ only in an address into one with a table"),
                );
                break;
            }
            let rule = self.rule(rule, scope);
            assert!(rule.is_some() || self.has_errors(), "compiler bug: a rule is left out without an error");
            rules.extend(rule);
        }
        if !self.has_errors() {
            self.warn_of_reach(block, &rules);
        }
        rules
    }
}

/// Suggests a value for an unknown value of `on-exit`.
fn on_exit_help(word: &str) -> String {
    let known = match word {
        "accept" | "pass" | "open" | "bypass" => Some(OnExit::Forward.name()),
        "drop" | "deny" | "close" | "closed" => Some(OnExit::Block.name()),
        _ => nearest(word, OnExit::ALL.map(OnExit::name)),
    };
    match known {
        Some(known) => format!("did you mean `{known}`?"),
        None => "write `forward` to let everything pass unfiltered after Weir ends, or `block` to let nothing pass"
            .to_owned(),
    }
}

fn duplicate(what: &str, name: &Name, first: Span) -> Diagnostic {
    Diagnostic::error("E0206", name.span, format!("the {what} `{}` is declared twice", name.text))
        .note(first, "first here")
        .help("use another name")
}
