//! The text of an exported policy: included files, lists and the rules of slots are in it, so it needs no other file.

use super::attack::{Export, PolicyParts, rules_of_slots};
use super::narrow::{self, Addresses};
use std::collections::HashSet;
use std::fmt::{Display, Write};
use weir_loading::LimitList;
use weir_policy::pipeline;
use weir_policy::source::{FileId, Source, SourceMap};
use weir_policy::syntax::Parsed;
use weir_policy::syntax::tree::{
    DirectionBlock, Item, Limits, LimitsSetting, Match, Rule, Statement, Table, TableSetting,
};

/// A policy's text, and what it has only a part of.
pub struct PolicyText {
    /// The text.
    pub policy: String,
    /// What it has only a part of.
    pub notes: Vec<String>,
}

/// Writes the text of a policy with the rules against an attack; without a policy, of these rules alone.
pub fn text(sources: Option<&SourceMap>, export: &Export, policy: &PolicyParts, addresses: &Addresses) -> PolicyText {
    let mut text = heading(export);
    let mut notes = Vec::new();
    match sources {
        Some(sources) => {
            let parsed = parse_again(sources);
            let mut printer =
                Printer { export, policy, addresses, parsed: &parsed, text: &mut text, notes: &mut notes };
            printer.print();
        }
        None => bare(&mut text, export),
    }
    PolicyText { policy: text, notes }
}

fn heading(export: &Export) -> String {
    let mut text = format!("# {} on {}, exported by Weir\n", export.kind, export.victim);
    for line in export.details.lines().take(40) {
        let _ = writeln!(text, "# {line}");
    }
    text + "\n"
}

/// The policy if there was none: it drops what the actions drop.
fn bare(text: &mut String, export: &Export) {
    let (ipv6, ipv4): (Vec<&String>, Vec<&String>) = export.sources.iter().partition(|source| source.contains(':'));
    let families = [("blocked4", "ipv4", "ip", ipv4), ("blocked6", "ipv6", "ip6", ipv6)];
    let mut rules = String::new();
    for (name, family, layer, sources) in families {
        if !sources.is_empty() {
            let elements: Vec<&str> = sources.iter().map(|source| source.as_str()).collect();
            let _ = writeln!(text, "table {name} {{ type {family}; elements = {{ {} }} }}", elements.join(", "));
            let _ = writeln!(rules, "  {layer} saddr @{name} counter drop");
        }
    }
    export.rules.iter().for_each(|rule| _ = writeln!(rules, "  {rule}"));
    let _ = write!(text, "upstream {{\n{rules}  accept\n}}\ndownstream {{\n  accept\n}}\n");
}

/// The syntax tree of a text that was read without errors.
fn parse_again(sources: &SourceMap) -> Parsed {
    let main = sources.file(FileId(0));
    let included = |path: &str| {
        let index = (0..).zip(sources.names()).find(|(_, name)| *name == path).map(|(index, _)| FileId(index));
        index.map(|id| sources.file(id).text.clone()).ok_or_else(|| format!("{path}: it was not included before"))
    };
    pipeline::parse(Source::new(main.name.clone(), main.text.clone()), &included).1
}

struct Printer<'a> {
    export: &'a Export,
    policy: &'a PolicyParts,
    addresses: &'a Addresses,
    parsed: &'a Parsed,
    text: &'a mut String,
    notes: &'a mut Vec<String>,
}

impl Printer<'_> {
    fn print(&mut self) {
        let items = self.parsed.items();
        let has_place = items.iter().flat_map(|item| blocks(item)).any(|block| {
            block.rules.iter().any(|rule| slot_of(rule).is_some_and(|(_, name)| name == self.export.slot))
        });
        for item in &items {
            match item {
                Item::Table(table) => self.table(table, &items),
                Item::Limits(limits) => self.limits(limits),
                Item::Direction(block) => self.block(block, "", has_place),
                Item::Posture(posture) => {
                    self.line(format_args!("posture {} {{", posture.name.text));
                    posture.directions.iter().for_each(|block| self.block(block, "  ", has_place));
                    self.line("}");
                }
                // The rules of slots stand in their places.
                Item::Slot(_) | Item::Include(_) => {}
                Item::Define(_)
                | Item::Defaults(_)
                | Item::Tracking(_)
                | Item::Observe(_)
                | Item::Inside(_)
                | Item::OnExit(_) => {
                    self.line(item);
                }
            }
        }
    }

    fn line(&mut self, line: impl Display) {
        let _ = writeln!(self.text, "{line}");
    }

    fn table(&mut self, table: &Table, items: &[&Item]) {
        let name = &table.name.text;
        self.line(format_args!("table {name} {{"));
        for setting in &table.settings {
            match setting {
                // Contents follow; a layout is for the whole table, and updates are none of an export.
                TableSetting::Elements(..)
                | TableSetting::File(_)
                | TableSetting::Layout(_)
                | TableSetting::Watch(_)
                | TableSetting::MaxChange(_) => {}
                setting => self.line(format_args!("  {setting}")),
            }
        }
        let held = self.policy.tables.iter().find(|(known, _)| known == name).map(|(_, held)| held);
        let needed = labels_of(name, items);
        let added = self.blocked(table);
        let (elements, kept) = match held {
            Some(held) => narrow::elements(held, self.addresses, &needed, &added),
            None => (added.join(", "), added.len()),
        };
        if kept > 0 {
            self.line(format_args!("  elements = {{\n    {elements}\n  }}"));
        }
        self.line("}");
        match held.map(|held| narrow::len(held)) {
            Some(all) if all > kept => self.note("table", name, kept, all),
            Some(_) => {}
            None => self.notes.push(format!("table {name}: its contents could not be read")),
        }
    }

    fn note(&mut self, what: &str, name: &str, kept: usize, all: usize) {
        self.notes.push(format!("{what} {name}: {kept} of {all} entries, those with an address of the capture"));
    }

    /// The blocked sources that belong into a table.
    fn blocked(&self, table: &Table) -> Vec<String> {
        let takes_sources = self.export.source_tables.contains(&table.name.text);
        let is_ipv6 = table
            .settings
            .iter()
            .any(|setting| matches!(setting, TableSetting::Type { family, .. } if family.text.starts_with("ipv6")));
        let sources = self.export.sources.iter().filter(|source| takes_sources && source.contains(':') == is_ipv6);
        sources.cloned().collect()
    }

    fn limits(&mut self, limits: &Limits) {
        let name = &limits.name.text;
        self.line(format_args!("limits {name} {{"));
        for setting in &limits.settings {
            if !matches!(setting, LimitsSetting::Elements(..) | LimitsSetting::File(_)) {
                self.line(format_args!("  {setting}"));
            }
        }
        let list = self.policy.limits.iter().find(|list: &&LimitList| list.name == *name);
        let kept = list.map(|list| narrow::limits(&list.limits, self.addresses));
        if let Some((elements, kept, _)) = &kept
            && *kept > 0
        {
            self.line(format_args!("  elements = {{\n    {elements}\n  }}"));
        }
        self.line("}");
        match kept {
            Some((_, kept, all)) if all > kept => self.note("limits", name, kept, all),
            Some(_) => {}
            None => self.notes.push(format!("limits {name}: its contents could not be read")),
        }
    }

    fn block(&mut self, block: &DirectionBlock, indent: &str, has_place: bool) {
        self.line(format_args!("{indent}{} {{", block.direction.name()));
        if !has_place && block.direction == weir_policy::ir::Direction::Upstream {
            let rules = self.export.rules.clone();
            rules.iter().for_each(|rule| self.line(format_args!("{indent}  {rule}")));
        }
        for rule in &block.rules {
            self.expand(rule).iter().for_each(|rule| self.line(format_args!("{indent}  {rule}")));
        }
        self.line(format_args!("{indent}}}"));
    }

    /// A rule with the rules of its slot in the slot's place. Statements before it are executed once.
    fn expand(&self, rule: &Rule) -> Vec<String> {
        let Some((at, slot)) = slot_of(rule) else { return vec![rule.to_string()] };
        let matches: Vec<String> = rule.matches.iter().map(ToString::to_string).collect();
        let with = |rest: String| [&matches[..], &[rest]].concat().join(" ");
        let statements = |part: &[Statement]| part.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let (before, after) = (statements(&rule.statements[..at]), statements(&rule.statements[at + 1..]));
        let of_slot = rules_of_slots(self.export, self.policy).into_iter().filter(|one| one.slot == slot);
        let own = of_slot.map(|one| one.rule);
        let all = std::iter::once(before).chain(own).chain([after]);
        all.filter(|part| !part.is_empty()).map(with).collect()
    }
}

/// The directions of an item.
fn blocks(item: &Item) -> &[DirectionBlock] {
    match item {
        Item::Direction(block) => std::slice::from_ref(block),
        Item::Posture(posture) => &posture.directions,
        _ => &[],
    }
}

/// The first slot that a rule asks, with its position among the statements.
fn slot_of(rule: &Rule) -> Option<(usize, &str)> {
    rule.statements.iter().enumerate().find_map(|(at, statement)| match statement {
        Statement::Slot { slot, .. } => Some((at, slot.text.as_str())),
        _ => None,
    })
}

/// The labels of a table that rules name.
fn labels_of<'a>(name: &str, items: &[&'a Item]) -> HashSet<&'a str> {
    let rules = items.iter().flat_map(|item| blocks(item)).flat_map(|block| &block.rules);
    let mut labels = HashSet::new();
    for one in rules.flat_map(|rule| &rule.matches) {
        if let Match::Table { table, labels: Some(named), .. } = one
            && table.text == name
        {
            labels.extend(named.iter().map(|label| label.text.as_str()));
        }
    }
    labels
}
