//! Binds the tables of a policy to shared state, so that they can change while packets pass.

use crate::text::Text;
use std::collections::HashMap;
use std::sync::Arc;
use weir_policy::checked::{Dynamic, TableId};
use weir_policy::ir::eval::Protected;
use weir_policy::ir::{AddKind, Adder, Program, SlotId};
use weir_policy::pass::choose_layouts::Planned;
use weir_state::tables::{
    Adders, Additions, ByRules, DynamicBounds, ImageDeclared, ListedEntries, LiveTables, Member, ProtectedTable,
    ReplayedTables, TableAdder, TableBinding, TableImage, TableStore,
};
use weir_state::{Declared, StateError};
use weir_tables::{Image, Table};

/// Binds the tables of a policy on interfaces. Additions of rules go to `additions`. `images` are those of the policy,
/// in slot order; `None` for lists of limits.
///
/// # Errors
/// A layout cannot hold the entries that a table continues with.
pub fn bind(
    text: &Text,
    program: &Program,
    images: &[Option<Arc<Image>>],
    store: &TableStore,
    additions: &Arc<Additions>,
) -> Result<LiveTables, StateError> {
    let live = bind_images(text, images, store, Bound::All)?;
    let by_rules = match program.adders.is_empty() {
        true => ByRules::Never,
        false => ByRules::Queued(additions.clone(), adders(text, program, &live.binding)),
    };
    Ok(LiveTables { by_rules, ..live })
}

/// Binds the tables of a policy whose packets are replayed: dynamic ones, and those with counters. Others are constant.
///
/// # Errors
/// The kernel refuses the memory of tables that its programs read.
pub fn bind_replayed(
    text: &Text,
    program: &Program,
    images: &[Option<Arc<Image>>],
    store: TableStore,
) -> Result<LiveTables, StateError> {
    let store = Arc::new(store);
    // Packets have another clock than this machine. So timeouts begin with the first packet.
    let live = bind_images(text, images, &store, Bound::Replayed)?;
    let listed = text.checked.tables.iter().zip(&text.tables).filter_map(|(checked, entries)| {
        let timeout_ms = checked.dynamic?.timeout_ms?;
        Some(ListedEntries { table: checked.name.clone(), entries: entries.clone(), timeout_ms })
    });
    let listed = listed.collect();
    let replayed = ReplayedTables { store, adders: adders(text, program, &live.binding), listed };
    Ok(LiveTables { by_rules: ByRules::Replayed(replayed), ..live })
}

/// The entries of tables that are dynamic or have counters, by slot.
pub fn followed(text: &Text) -> HashMap<SlotId, Arc<Table>> {
    let slots = (0..).map(SlotId).zip(&text.lowered.plan.images);
    let entries = |(slot, planned): (SlotId, &Planned)| {
        let &[table] = planned.tables() else { return None };
        let index = usize::from(table.0);
        let table = &text.checked.tables[index];
        is_followed(table).then(|| (slot, text.tables[index].clone()))
    };
    slots.filter_map(entries).collect()
}

/// What rules must not add to dynamic tables, by slot.
pub fn protected(text: &Text) -> HashMap<SlotId, Vec<Protected>> {
    let slots = || (0..).map(SlotId).zip(&text.lowered.plan.images);
    // A dynamic table has an image of its own.
    let slot_of = |table: TableId| slots().find(|(_, planned)| planned.tables() == [table]).map(|(slot, _)| slot);
    let of = |&table: &TableId| {
        let index = usize::from(table.0);
        match text.checked.tables[index].dynamic.and(slot_of(table)) {
            Some(slot) => Protected::Slot(slot),
            None => Protected::Prefixes(prefixes(&text.tables[index])),
        }
    };
    let protected = |(slot, planned): (SlotId, &Planned)| {
        let &[table] = planned.tables() else { return None };
        Some((slot, text.checked.tables[usize::from(table.0)].updates.protected.iter().map(of).collect()))
    };
    slots().filter_map(protected).collect()
}

fn prefixes(table: &Table) -> Vec<(u128, u8)> {
    let prefixes4 = table.prefixes4().iter().map(|prefix| (prefix.addr.into(), prefix.len));
    prefixes4.chain(table.prefixes6().iter().map(|prefix| (prefix.addr, prefix.len))).collect()
}

/// Whether the entries of a table change in a replay, or count its packets.
fn is_followed(table: &weir_policy::checked::Table) -> bool {
    table.dynamic.is_some() || table.counters
}

fn adders(text: &Text, program: &Program, binding: &Arc<TableBinding>) -> Adders {
    let protected = |table: &str| {
        let declared = text.checked.tables.iter().find(|declared| declared.name == table);
        let protected = declared.iter().flat_map(|declared| &declared.updates.protected);
        let of = |id: &TableId| ProtectedTable {
            name: text.checked.tables[usize::from(id.0)].name.clone(),
            listed: text.tables[usize::from(id.0)].coverage(),
        };
        protected.map(of).collect()
    };
    let adder = |adder: &Adder| {
        let slot = program.slot(adder.slot);
        TableAdder {
            table: slot.name(),
            family: slot.family,
            length: adder.length,
            timeout_ms: adder.timeout_ms.or(slot.dynamic.and_then(|dynamic| dynamic.timeout_ms)),
            updates: adder.kind == AddKind::Update,
            protected: protected(&slot.name()),
        }
    };
    Adders { adders: program.adders.iter().map(adder).collect(), binding: binding.clone() }
}

/// Which tables are bound.
#[derive(Clone, Copy)]
enum Bound {
    /// All, with the timeouts of their declarations.
    All,
    /// Dynamic ones and those with counters, without timeouts.
    Replayed,
}

/// Binds the images of tables.
fn bind_images(
    text: &Text,
    images: &[Option<Arc<Image>>],
    store: &TableStore,
    bound: Bound,
) -> Result<LiveTables, StateError> {
    let planned = &text.lowered.plan.images;
    let is_bound = |planned: &Planned| match (bound, planned.tables()) {
        (_, []) => false,
        (Bound::All, _) => true,
        (Bound::Replayed, tables) => tables.iter().map(|id| &text.checked.tables[usize::from(id.0)]).any(is_followed),
    };
    let timeout_ms = |dynamic: Dynamic| match bound {
        Bound::All => dynamic.timeout_ms,
        Bound::Replayed => None,
    };
    let slots = text.lowered.program.slots.iter();
    let built = planned.iter().zip(images).zip(slots);
    let built = built.filter_map(|((planned, image), slot)| Some((planned, image.as_ref()?, slot.counted.is_some())));
    let declared = built.filter(|(planned, ..)| is_bound(planned));
    let declared =
        declared.map(|(planned, image, counted)| declaration(text, (planned, image, counted), timeout_ms)).collect();
    let binding = store.bind(declared, weir_state::now_ns())?;
    let mut bound = binding.objects();
    let of_slot = |planned: &Planned| is_bound(planned).then(|| bound.next()).flatten();
    let of_slots: Vec<Option<&TableImage>> = planned.iter().map(of_slot).collect();
    let images = of_slots.iter().map(|image| image.map(TableImage::published)).collect();
    let counted = of_slots.iter().map(|image| image.filter(|image| image.counters().is_some()).cloned()).collect();
    drop(bound);
    Ok(LiveTables { readers: store.readers().clone(), images, counted, binding, by_rules: ByRules::Never })
}

fn declaration(
    text: &Text,
    (planned, image, counted): (&Planned, &Arc<Image>, bool),
    timeout_ms: impl Fn(Dynamic) -> Option<u64>,
) -> Declared<ImageDeclared> {
    let member = |index: usize| {
        let checked = &text.checked.tables[index];
        let bounds = |dynamic: Dynamic| DynamicBounds { size: dynamic.size as usize, timeout_ms: timeout_ms(dynamic) };
        Member { name: checked.name.clone(), table: text.tables[index].clone(), dynamic: checked.dynamic.map(bounds) }
    };
    let members: Vec<Member> = planned.tables().iter().map(|id| member(usize::from(id.0))).collect();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let name = names.join("+");
    Declared { name, declaration: ImageDeclared { members, layout: planned.layout, image: image.clone(), counted } }
}
