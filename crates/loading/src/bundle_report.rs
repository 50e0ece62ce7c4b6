//! The report in a bundle's manifest: the program as IR, for reports and the interpreter, the declarations of tables,
//! and the lists of limits.
//!
//! Entries of tables and of lists of prefixes are members of the archive, as lists (`prefix,label number` and
//! `prefix,rate,burst`). Everything else about them is in the report. Loading builds all images: tables continue with
//! what they have become, and the images of lists of limits name buckets.

use crate::bundle_tables::{self, TableReport};
use crate::limit_lists::{LimitList, ListedLimits};
use crate::policy_tables::PolicyTables;
use crate::shape::shape;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use weir_abi::{Limit, LimitProblem};
use weir_engine::bundle::Bundle;
use weir_policy::check::LIMITERS_MAX;
use weir_policy::ir::{self, Effect, Limiter, LimiterKind, Program, SlotContents, SlotId, match_tree};
use weir_state::words::BUCKETS_MAX;
use weir_tables::limit_image::NESTING_MAX;
use weir_tables::{BadLines, Kind, LabelLimits, PrefixLimits};

/// The report as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleReport {
    ir: String,
    tables: Vec<TableReport>,
    limits: Vec<ListReport>,
}

/// A list of limits. Limits are written as in policies: `10kpps burst 100packets`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListReport {
    name: String,
    default: Option<String>,
    /// The limits of a table's labels. `None` for a list of prefixes, which is the next member of the archive.
    labels: Option<LabelReport>,
}

/// Limits of labels.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LabelReport {
    /// The slot of the table.
    slot: u16,
    limits: BTreeMap<String, String>,
}

/// The contents of a bundle besides its code.
pub(crate) struct Contents {
    pub program: Program,
    pub tables: PolicyTables,
    pub lists: Vec<LimitList>,
}

/// Whether a limiter has its limits from a list.
fn is_listed(limiter: &Limiter) -> bool {
    matches!(limiter.kind, LimiterKind::Prefixes { .. } | LimiterKind::Labels)
}

/// The lists that rules use, in order of declaration.
fn used<'a>(program: &'a Program, lists: &'a [LimitList]) -> impl Iterator<Item = &'a LimitList> {
    let names: HashSet<&str> = limited(program).map(|(limiter, _)| limiter.name.as_str()).collect();
    lists.iter().filter(move |list| names.contains(list.name.as_str()))
}

/// Makes the report from the program, its tables and the lists of limits.
pub(crate) fn written(program: &Program, tables: &PolicyTables, lists: &[LimitList]) -> serde_json::Value {
    let limits = used(program, lists).map(|list| ListReport {
        name: list.name.clone(),
        default: list.default.map(|limit| limit.to_string()),
        labels: match &list.limits {
            ListedLimits::Prefixes(_) => None,
            ListedLimits::Labels { rates, labels } => {
                let limit = |label: &str| Some((label.to_owned(), rates.limit(label)?.to_string()));
                let slot = limited(program).find(|(limiter, _)| limiter.name == list.name);
                let (_, SlotId(slot)) = slot.expect("only lists that rules use are written");
                Some(LabelReport { slot, limits: labels.iter().filter_map(|label| limit(label)).collect() })
            }
        },
    });
    let tables = bundle_tables::written(tables);
    let report = BundleReport { ir: program.to_string(), tables, limits: limits.collect() };
    serde_json::to_value(report).expect("strings are JSON")
}

/// The lists of prefixes that limiters use, as members of a bundle.
pub(crate) fn lists(program: &Program, lists: &[LimitList]) -> Vec<Arc<[u8]>> {
    let csv = |list: &LimitList| match &list.limits {
        ListedLimits::Prefixes(table) => Some(table.to_csv().into_bytes().into()),
        ListedLimits::Labels { .. } => None,
    };
    used(program, lists).filter_map(csv).collect()
}

/// Each use of a limiter with a list, with the slot of its prefixes, or of the table whose labels it polices by.
fn limited(program: &Program) -> impl Iterator<Item = (&Limiter, SlotId)> {
    program.chains.iter().flat_map(move |chain| {
        let effects = match_tree::rules(&chain.tree.nodes).flat_map(|rule| &program.rule(rule).effects);
        effects.filter_map(move |effect| match effect {
            Effect::Limit { limiter, find: Some(find), .. } => {
                Some((program.limiter(*limiter), chain.finds[usize::from(find.0)].slot))
            }
            _ => None,
        })
    })
}

/// Reads the report and the lists of a bundle. `path` is for messages.
///
/// # Errors
/// The IR is not of this version, or the parts of the bundle do not match.
pub(crate) fn read(path: &Path, bundle: &Bundle) -> Result<Contents, String> {
    let report: BundleReport =
        serde_json::from_value(bundle.artifact.report.clone()).map_err(|error| error.to_string())?;
    let program = ir::parse::parse(&report.ir)?;
    if shape(&program) != *bundle.shape() {
        return Err("its IR and its code belong to different policies".to_owned());
    }
    let tables = bundle_tables::read(path, &report.tables, bundle)?;
    bundle_tables::check(&program, &tables)?;
    let lists = read_lists(path, &program, (&report, &tables), bundle)?;
    check_limiters(&program, &lists)?;
    check_labels(&program, (&report, &tables))?;
    let buckets = crate::limits::buckets(&lists, &program);
    if buckets >= BUCKETS_MAX {
        return Err(format!("its limits need {buckets} buckets, at most {} are possible", BUCKETS_MAX - 1));
    }
    Ok(Contents { program, tables, lists })
}

fn read_lists(
    path: &Path,
    program: &Program,
    (report, tables): (&BundleReport, &PolicyTables),
    bundle: &Bundle,
) -> Result<Vec<LimitList>, String> {
    let mut members = bundle.lists.iter();
    let mut lists: Vec<LimitList> = Vec::new();
    for ListReport { name, default, labels } in &report.limits {
        let problem = |problem: &dyn std::fmt::Display| format!("limits {name}: {problem}");
        let limit = |text: &String| text.parse::<Limit>().map_err(|error: LimitProblem| problem(&error));
        if lists.iter().any(|list| list.name == *name) {
            return Err(problem(&"it is there twice"));
        }
        let limits = match labels {
            None => {
                let bytes = members.next().ok_or_else(|| problem(&"its prefixes are missing"))?;
                let mut limits = PrefixLimits::default();
                let origin = format!("{}: limits {name}", path.display());
                limits.read(&origin, bytes, BadLines::Refuse).map_err(|error| error.to_string())?;
                ListedLimits::Prefixes(Arc::new(limits.settle().map_err(|error| error.to_string())?))
            }
            Some(LabelReport { slot, limits }) => {
                let table = program.slots.get(usize::from(*slot)).and_then(|slot| tables.alone_in(slot));
                let labels = table.ok_or_else(|| problem(&"its table is missing"))?.entries.labels();
                let mut rates = LabelLimits::default();
                for (label, text) in limits {
                    rates.insert(label, limit(text)?, name).map_err(|error| problem(&error))?;
                }
                let rates = Arc::new(rates.settle().map_err(|error| error.to_string())?);
                ListedLimits::Labels { rates, labels: labels.into() }
            }
        };
        let limiter = program.limiters.iter().find(|limiter| is_listed(limiter) && limiter.name == *name);
        let log = limiter.ok_or_else(|| problem(&"no rule uses it"))?.log;
        let default = default.as_ref().map(limit).transpose()?;
        lists.push(LimitList { name: name.clone(), log, default, limits });
    }
    match members.next() {
        None => Ok(lists),
        Some(_) => Err("it has more lists of prefixes than its report".to_owned()),
    }
}

/// Checks that each limiter has its list, and that lists can be laid out.
fn check_limiters(program: &Program, lists: &[LimitList]) -> Result<(), String> {
    if program.limiters.len() > LIMITERS_MAX {
        return Err(format!("{} limiters, at most {LIMITERS_MAX} are possible", program.limiters.len()));
    }
    let list = |name: &str| lists.iter().find(|list| list.name == name);
    for Limiter { name, kind, .. } in program.limiters.iter().filter(|limiter| is_listed(limiter)) {
        let fits = match (kind, list(name).map(|list| &list.limits)) {
            (&LimiterKind::Prefixes { family, nested }, Some(ListedLimits::Prefixes(table))) => {
                !nested || table.depth(family) <= NESTING_MAX
            }
            (LimiterKind::Labels, Some(ListedLimits::Labels { .. })) => true,
            _ => false,
        };
        if !fits {
            return Err(format!("limits {name}: its list does not match its rules"));
        }
    }
    for slot in &program.slots {
        let SlotContents::Limits(name) = &slot.contents else { continue };
        let polices = |limiter: &Limiter| {
            limiter.name == *name
                && matches!(limiter.kind, LimiterKind::Prefixes { family, .. } if family == slot.family)
        };
        if !program.limiters.iter().any(polices) {
            return Err(format!("limits {name}: no rule uses its prefixes"));
        }
    }
    Ok(())
}

/// Checks that a limiter has the labels of the table that it polices by. Then each label that a lookup can return has a
/// bucket.
fn check_labels(program: &Program, (report, tables): (&BundleReport, &PolicyTables)) -> Result<(), String> {
    for (limiter, slot) in limited(program).filter(|(limiter, _)| limiter.kind == LimiterKind::Labels) {
        let list = report.limits.iter().find(|list| list.name == limiter.name);
        let declared = list.and_then(|list| list.labels.as_ref()).map(|labels| labels.slot);
        let is_map = tables.alone_in(program.slot(slot)).is_some_and(|table| table.entries.kind() == Kind::Labels);
        if declared != Some(slot.0) || !is_map {
            return Err(format!("limits {}: its labels do not match its table", limiter.name));
        }
    }
    Ok(())
}
