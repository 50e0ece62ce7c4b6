//! Checks the declarations of tables.

use super::overlap::Inner;
use super::value::{Domain, Range, address_text};
use super::{Check, Checker, nearest};
use crate::catalog::{Catalog, Family, TableFacts};
use crate::checked::{Dynamic, LabelId, Table, TableKind, Updates};
use crate::diag::Diagnostic;
use crate::field::Notation;
use crate::source::Span;
use crate::syntax::tree::{self, Atom, Element, Item, Name, TableSetting};
use crate::time::milliseconds;
use std::collections::{HashMap, HashSet};
use weir_abi::Layout;

/// Default size of a dynamic table, entries.
pub const DYNAMIC_SIZE_DEFAULT: u32 = 65_536;
/// Largest size of a dynamic table, entries.
pub const DYNAMIC_SIZE_MAX: u32 = 1 << 27;
/// Longest timeout, ms: one year.
pub const TIMEOUT_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// The elements of a table: `labels[i]` belongs to `ranges[i]`.
pub(super) struct Elements<'a> {
    pub(super) ranges: Vec<Range>,
    pub(super) labels: Vec<&'a str>,
}

/// The settings of a table, each read once.
#[derive(Default)]
struct Settings<'a> {
    kind: Option<(Family, TableKind)>,
    type_span: Option<Span>,
    filled: bool,
    dynamic: Option<Span>,
    size: Option<(&'a Atom, u32)>,
    timeout: Option<(&'a Atom, u64)>,
    layout: Option<(&'a Name, Layout)>,
    counters: bool,
}

/// The family and kind of a table, if its `type` is valid.
pub(super) fn table_type(table: &tree::Table) -> Option<(Family, TableKind)> {
    table.settings.iter().find_map(|setting| match setting {
        TableSetting::Type { family, label } => Some((family_of(family)?, kind_of(label.as_ref())?)),
        _ => None,
    })
}

fn written_labels(table: &tree::Table) -> HashSet<&str> {
    let lists = table.settings.iter().filter_map(|setting| match setting {
        TableSetting::Elements(elements, _) => Some(elements),
        _ => None,
    });
    lists.flatten().filter_map(|element| element.label.as_ref()).map(|label| label.text.as_str()).collect()
}

fn family_of(name: &Name) -> Option<Family> {
    match name.text.as_str() {
        "ipv4" | "ipv4_addr" => Some(Family::Ipv4),
        "ipv6" | "ipv6_addr" => Some(Family::Ipv6),
        _ => None,
    }
}

fn kind_of(label: Option<&Name>) -> Option<TableKind> {
    match label.map(|label| label.text.as_str()) {
        None => Some(TableKind::Set),
        Some("label") => Some(TableKind::Labels),
        Some(_) => None,
    }
}

/// The domain of the addresses of a family.
pub(super) fn domain_of(family: Family) -> Domain<'static> {
    match family {
        Family::Ipv4 => Domain { notation: Notation::Ipv4Address, bits: 32, name: "type ipv4" },
        Family::Ipv6 => Domain { notation: Notation::Ipv6Address, bits: 128, name: "type ipv6" },
    }
}

impl<'a> Checker<'a> {
    /// Checks all tables, in the order of their ids.
    pub(super) fn tables(&mut self, catalog: &dyn Catalog) -> Vec<Table> {
        let mut tables = Vec::new();
        for item in self.items.clone() {
            let Item::Table(table) = item else { continue };
            if self.tables.get(table.name.text.as_str()).is_some_and(|declared| declared.span == table.name.span) {
                let facts = catalog.table(&table.name.text);
                let labels = facts.map(|facts| facts.labels.as_slice()).unwrap_or_default();
                let ids = (1..).map(LabelId);
                self.labels.push(labels.iter().cloned().zip(ids).collect());
                self.written_labels.push(written_labels(table));
                tables.push(self.table(table, facts));
            }
        }
        tables
    }

    fn table(&mut self, table: &'a tree::Table, facts: Option<&TableFacts>) -> Table {
        let settings = self.settings(table);
        let name = &table.name;
        // With an assumed type the remaining rules can still be checked.
        let (family, kind) = settings.kind.unwrap_or((Family::Ipv4, TableKind::Set));
        if settings.type_span.is_none() && !self.parsed.has_errors() {
            self.report(
                Diagnostic::error("E0311", name.span, format!("the table `{}` has no type", name.text))
                    .help("write `type ipv4`, `type ipv6`, or `type ipv4 : label` in it"),
            );
        }
        if settings.kind.is_some() {
            let inner = match settings.counters || settings.dynamic.is_some() {
                true => Inner::Counts,
                false => Inner::NoEffect,
            };
            self.table_elements(table, (family, kind), inner);
        }
        let dynamic = self.dynamic(&settings);
        let empty = !settings.filled || facts.is_some_and(|facts| facts.entries == 0);
        if empty && dynamic.is_none() {
            self.warn(
                Diagnostic::warning("W0412", name.span, format!("the table `{}` is empty", name.text))
                    .help("give it `elements` or a `file`, or make it `dynamic`"),
            );
        }
        if let (Some((written, layout)), Some(_)) = (settings.layout, settings.kind) {
            self.check_layout(written, layout, (family, kind), settings.counters, facts);
        }
        Table {
            name: name.text.clone(),
            span: name.span,
            family,
            kind,
            dynamic,
            layout: settings.layout.map(|(_, layout)| layout),
            counters: settings.counters,
            updates: Updates::default(),
            facts: facts.cloned().unwrap_or_default(),
        }
    }

    fn settings(&mut self, table: &'a tree::Table) -> Settings<'a> {
        let mut settings = Settings::default();
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for setting in &table.settings {
            let (word, span) = match setting {
                TableSetting::Type { family, .. } => ("type", family.span),
                TableSetting::Elements(_, span) => ("elements", *span),
                TableSetting::File(_) => {
                    settings.filled = true;
                    continue;
                }
                TableSetting::Dynamic(span) => ("dynamic", *span),
                TableSetting::Size(atom) => ("size", atom.span),
                TableSetting::Timeout(atom) => ("timeout", atom.span),
                TableSetting::Layout(name) => ("layout", name.span),
                TableSetting::Counters(span) => ("counters", *span),
                // Checked in `updates.rs`, when all tables are known.
                TableSetting::Watch(_) | TableSetting::Protect(_) | TableSetting::MaxChange(_) => continue,
            };
            if let Some(&first) = seen.get(word) {
                let message = format!("`{word}` is set twice in the table `{}`", table.name.text);
                self.report(Diagnostic::error("E0210", span, message).note(first, "first here"));
                continue;
            }
            seen.insert(word, span);
            self.setting(setting, &mut settings);
        }
        settings
    }

    fn setting(&mut self, setting: &'a TableSetting, settings: &mut Settings<'a>) {
        match setting {
            TableSetting::Type { family, label } => {
                settings.type_span = Some(family.span);
                settings.kind = self.type_of(family, label.as_ref());
            }
            TableSetting::Elements(..) | TableSetting::File(_) => settings.filled = true,
            TableSetting::Dynamic(span) => settings.dynamic = Some(*span),
            TableSetting::Size(atom) => settings.size = self.size(atom).ok().map(|size| (atom, size)),
            TableSetting::Timeout(atom) => settings.timeout = self.timeout(atom).ok().map(|timeout| (atom, timeout)),
            TableSetting::Layout(name) => settings.layout = self.layout(name).ok().map(|layout| (name, layout)),
            TableSetting::Counters(_) => settings.counters = true,
            TableSetting::Watch(_) | TableSetting::Protect(_) | TableSetting::MaxChange(_) => {}
        }
    }

    fn type_of(&mut self, family: &Name, label: Option<&Name>) -> Option<(Family, TableKind)> {
        let kind = kind_of(label);
        if kind.is_none() {
            let label = label.expect("a type without a label has a kind");
            self.report(
                Diagnostic::error("E0311", label.span, format!("prefixes map to labels, not to `{}`", label.text))
                    .help(format!("write `type {} : label`", family.text)),
            );
        }
        let known = family_of(family);
        if known.is_none() {
            self.report(
                Diagnostic::error("E0311", family.span, format!("a table cannot hold `{}`", family.text))
                    .help("tables hold addresses: `type ipv4` or `type ipv6`; sets of ports go into a `define`"),
            );
        }
        Some((known?, kind?))
    }

    fn size(&mut self, atom: &Atom) -> Check<u32> {
        match atom.text.parse::<u32>() {
            Ok(size @ 1..=DYNAMIC_SIZE_MAX) => Ok(size),
            _ => Err(self.report(
                Diagnostic::error("E0301", atom.span, format!("`{}` is not a size", atom.text))
                    .help(format!("a dynamic table has 1 to {DYNAMIC_SIZE_MAX} entries")),
            )),
        }
    }

    pub(super) fn timeout(&mut self, atom: &Atom) -> Check<u64> {
        match milliseconds(&atom.text) {
            Some(ms) if (1..=TIMEOUT_MS_MAX).contains(&ms) => Ok(ms),
            _ => Err(self.report(
                Diagnostic::error("E0301", atom.span, format!("`{}` is not a time from 1ms to 365d", atom.text))
                    .help("write numbers with units: `30s`, `10m`, `1h30m`, `7d`, `500ms`"),
            )),
        }
    }

    fn layout(&mut self, name: &Name) -> Check<Layout> {
        let names = Layout::ALL.map(Layout::name);
        Layout::from_name(&name.text).ok_or_else(|| {
            let diagnostic = Diagnostic::error("E0312", name.span, format!("there is no layout `{}`", name.text));
            self.report(match nearest(&name.text, names) {
                Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                None => diagnostic.help(format!("the layouts are {}", names.join(", "))),
            })
        })
    }

    fn dynamic(&mut self, settings: &Settings) -> Option<Dynamic> {
        if settings.dynamic.is_some() {
            let size = settings.size.map_or(DYNAMIC_SIZE_DEFAULT, |(_, size)| size);
            return Some(Dynamic { size, timeout_ms: settings.timeout.map(|(_, ms)| ms) });
        }
        for (word, atom) in
            [("size", settings.size.map(|(atom, _)| atom)), ("timeout", settings.timeout.map(|(atom, _)| atom))]
        {
            let Some(atom) = atom else { continue };
            self.report(
                Diagnostic::error("E0311", atom.span, format!("`{word}` is only for dynamic tables"))
                    .help("add `dynamic` to the table, or remove this"),
            );
        }
        None
    }

    fn check_layout(
        &mut self,
        written: &Name,
        layout: Layout,
        (family, kind): (Family, TableKind),
        counters: bool,
        facts: Option<&TableFacts>,
    ) {
        let only = |lengths: &[usize]| {
            let has_others = |facts: &TableFacts| {
                (0..).zip(&facts.by_length).any(|(length, &prefixes)| prefixes > 0 && !lengths.contains(&length))
            };
            facts.is_none_or(|facts| !has_others(facts))
        };
        let problem = match layout {
            Layout::Dxr16x4
            | Layout::ExactSet
            | Layout::ExactSets
            | Layout::RankLeaf
            | Layout::CountedLeaf
            | Layout::ExactLeaf
                if family == Family::Ipv6 =>
            {
                Some("holds only IPv4")
            }
            Layout::Range6 | Layout::RankLeaf6 | Layout::ExactSet6 | Layout::ExactSets6 | Layout::ExactLeaf6
                if family == Family::Ipv4 =>
            {
                Some("holds only IPv6")
            }
            Layout::ExactSet
            | Layout::ExactSets
            | Layout::ExactSet6
            | Layout::ExactSets6
            | Layout::ExactLeaf
            | Layout::ExactLeaf6
                if kind == TableKind::Labels =>
            {
                Some("holds no labels")
            }
            _ if counters && !matches!(layout, Layout::RankLeaf | Layout::RankLeaf6) => Some("has no counters"),
            Layout::ExactSet | Layout::ExactSets if !only(&[32]) => {
                Some("holds only single addresses, but the table has prefixes")
            }
            Layout::ExactSet6 | Layout::ExactSets6 if !only(&[64, 128]) => {
                Some("holds only /64 networks and single addresses, but the table has other prefixes")
            }
            _ => None,
        };
        if let Some(problem) = problem {
            self.report(
                Diagnostic::error("E0312", written.span, format!("the layout `{}` {problem}", written.text))
                    .help("remove the line: the compiler chooses the layout that fits"),
            );
        }
    }

    fn table_elements(&mut self, table: &'a tree::Table, (family, kind): (Family, TableKind), inner: Inner) {
        let elements = self.elements(table, family, |checker, element| checker.element_label(element, kind, table));
        self.warn_of_overlap(&elements.ranges, &elements.labels, inner);
        self.contradicting_labels(&elements, family);
    }

    /// The valid elements. Calls `check_element` for each element, valid or not.
    pub(super) fn elements(
        &mut self,
        table: &'a tree::Table,
        family: Family,
        mut check_element: impl FnMut(&mut Self, &'a Element),
    ) -> Elements<'a> {
        let mut elements = Elements { ranges: Vec::new(), labels: Vec::new() };
        for setting in &table.settings {
            let TableSetting::Elements(list, _) = setting else { continue };
            for element in list {
                check_element(self, element);
                let before = elements.ranges.len();
                if self.ranges(&element.value, domain_of(family), &mut elements.ranges).is_err() {
                    elements.ranges.truncate(before);
                }
                let label = element.label.as_ref().map_or("", |label| label.text.as_str());
                elements.labels.resize(elements.ranges.len(), label);
            }
        }
        elements
    }

    fn element_label(&mut self, element: &'a Element, kind: TableKind, table: &tree::Table) {
        match (&element.label, kind) {
            (Some(label), TableKind::Set) => {
                let message = format!("the table `{}` has no labels", table.name.text);
                self.report(
                    Diagnostic::error("E0307", label.span, message)
                        .help("write `type ipv4 : label` in it, or remove this"),
                );
            }
            (None, TableKind::Labels) => {
                let message =
                    format!("the table `{}` maps prefixes to labels, but this prefix has no label", table.name.text);
                self.report(
                    Diagnostic::error("E0307", element.value.span(), message).help("write `: LABEL` after the prefix"),
                );
            }
            _ => {}
        }
    }

    fn contradicting_labels(&mut self, elements: &Elements, family: Family) {
        let mut first: HashMap<(u128, u128), usize> = HashMap::new();
        for (i, range) in elements.ranges.iter().enumerate() {
            let &mut earlier = first.entry((range.first, range.last)).or_insert(i);
            if elements.labels[earlier] != elements.labels[i] {
                let message = format!(
                    "{} has two labels, `{}` and `{}`",
                    address_text(family, range.first),
                    elements.labels[earlier],
                    elements.labels[i]
                );
                self.report(
                    Diagnostic::error("E0307", range.span, message).note(elements.ranges[earlier].span, "first here"),
                );
            }
        }
    }
}
