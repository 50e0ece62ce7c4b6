//! Binds the tables of a policy to shared state, so that they can change while packets pass.

use crate::policy_tables::{DeclaredTable, PolicyTables};
use std::collections::HashMap;
use std::sync::Arc;
use weir_policy::checked::{Dynamic, TableId};
use weir_policy::ir::eval::Protected;
use weir_policy::ir::{AddKind, Adder, Program, Slot, SlotId};
use weir_state::tables::{
    Adders, ByRules, DynamicBounds, ImageDeclared, ListedEntries, LiveTables, Member, ProtectedTable, ReplayedTables,
    TableAdder, TableBinding, TableImage, TableStore,
};
use weir_state::{Declared, SharedState, StateError};
use weir_tables::{Image, Table};

/// A program with the tables that its policy declares.
#[derive(Clone, Copy)]
pub struct TablesOf<'a> {
    /// The program.
    pub program: &'a Program,
    /// The tables.
    pub tables: &'a PolicyTables,
}

/// Binds the tables of a policy to `shared` state. In a replay these are dynamic tables and tables with counters;
/// others are constant. `images` are the images of the policy, in slot order; `None` for lists of limits.
///
/// # Errors
/// A layout cannot hold the entries that a table continues with, or the kernel refuses the memory of tables.
pub fn bind(of: TablesOf<'_>, images: &[Option<Arc<Image>>], shared: &SharedState) -> Result<LiveTables, StateError> {
    let bound = if shared.is_replay() { Bound::Replayed } else { Bound::All };
    let live = bind_images(of, images, shared.tables(), bound)?;
    let by_rules = match bound {
        Bound::All if of.program.adders.is_empty() => ByRules::Never,
        Bound::All => ByRules::Queued(shared.additions().clone(), adders(of, &live.binding)),
        Bound::Replayed => {
            let (store, adders) = (shared.tables().clone(), adders(of, &live.binding));
            ByRules::Replayed(ReplayedTables { store, adders, listed: listed(of) })
        }
    };
    Ok(LiveTables { by_rules, ..live })
}

/// The entries of tables with timeouts. Packets of a replay have another clock than this machine. So timeouts begin
/// with the first packet.
fn listed(of: TablesOf<'_>) -> Vec<ListedEntries> {
    let listed = |table: &DeclaredTable| {
        let timeout_ms = table.dynamic?.timeout_ms?;
        Some(ListedEntries { table: table.name.clone(), entries: table.entries.clone(), timeout_ms })
    };
    of.tables.all().iter().filter_map(listed).collect()
}

/// The entries of tables that are dynamic or have counters, by slot.
pub fn followed(of: TablesOf<'_>) -> HashMap<SlotId, Arc<Table>> {
    let followed = of.slots().filter_map(|(id, slot)| Some((id, of.tables.alone_in(slot)?)));
    followed.filter(|(_, table)| table.is_followed()).map(|(id, table)| (id, table.entries.clone())).collect()
}

/// What rules must not add to dynamic tables, by slot.
pub fn protected(of: TablesOf<'_>) -> HashMap<SlotId, Vec<Protected>> {
    // A dynamic table has an image of its own.
    let slot_of = |table: &DeclaredTable| of.slots().find(|(_, slot)| slot.tables() == [table.name.as_str()]);
    let protects = |&id: &TableId| {
        let table = of.tables.get(id);
        match table.dynamic.and_then(|_| slot_of(table)) {
            Some((slot, _)) => Protected::Slot(slot),
            None => Protected::Prefixes(prefixes(&table.entries)),
        }
    };
    let protected = |(id, slot): (SlotId, &Slot)| {
        Some((id, of.tables.alone_in(slot)?.updates.protected.iter().map(protects).collect()))
    };
    of.slots().filter_map(protected).collect()
}

impl<'a> TablesOf<'a> {
    fn slots(self) -> impl Iterator<Item = (SlotId, &'a Slot)> {
        (0..).map(SlotId).zip(&self.program.slots)
    }
}

fn prefixes(table: &Table) -> Vec<(u128, u8)> {
    let prefixes4 = table.prefixes4().iter().map(|prefix| (prefix.addr.into(), prefix.len));
    prefixes4.chain(table.prefixes6().iter().map(|prefix| (prefix.addr, prefix.len))).collect()
}

fn adders(of: TablesOf<'_>, binding: &Arc<TableBinding>) -> Adders {
    let protects = |&id: &TableId| {
        let table = of.tables.get(id);
        ProtectedTable { name: table.name.clone(), listed: table.entries.coverage() }
    };
    let adder = |adder: &Adder| {
        let slot = of.program.slot(adder.slot);
        let protected = of.tables.alone_in(slot).map(|table| table.updates.protected.iter().map(protects).collect());
        TableAdder {
            table: slot.name(),
            family: slot.family,
            length: adder.length,
            timeout_ms: adder.timeout_ms.or(slot.dynamic.and_then(|dynamic| dynamic.timeout_ms)),
            updates: adder.kind == AddKind::Update,
            protected: protected.unwrap_or_default(),
        }
    };
    Adders { adders: of.program.adders.iter().map(adder).collect(), binding: binding.clone() }
}

/// Which tables are bound.
#[derive(Clone, Copy)]
enum Bound {
    /// All, with the timeouts of their declarations.
    All,
    /// Dynamic tables and tables with counters, without timeouts.
    Replayed,
}

impl Bound {
    fn has(self, tables: &[&DeclaredTable]) -> bool {
        match self {
            Bound::All => !tables.is_empty(),
            Bound::Replayed => tables.iter().any(|table| table.is_followed()),
        }
    }

    fn bounds(self, Dynamic { size, timeout_ms }: Dynamic) -> DynamicBounds {
        let timeout_ms = match self {
            Bound::All => timeout_ms,
            Bound::Replayed => None,
        };
        DynamicBounds { size: size as usize, timeout_ms }
    }
}

/// Binds the images of tables.
fn bind_images(
    of: TablesOf<'_>,
    images: &[Option<Arc<Image>>],
    store: &TableStore,
    bound: Bound,
) -> Result<LiveTables, StateError> {
    // What finishes a card's lookups is as the card has it, until there is another program.
    let constant = of.program.card.iter().flat_map(|card| &card.lookups).collect::<Vec<_>>();
    let declared = |((id, slot), image): ((SlotId, &Slot), &Option<Arc<Image>>)| {
        if constant.contains(&&id) {
            return None;
        }
        let tables = of.tables.of_slot(slot);
        let image = image.as_ref().filter(|_| bound.has(&tables))?;
        Some(declaration(slot, &tables, image, bound))
    };
    let declared: Vec<Option<Declared<ImageDeclared>>> = of.slots().zip(images).map(declared).collect();
    let is_bound: Vec<bool> = declared.iter().map(Option::is_some).collect();
    let binding = store.bind(declared.into_iter().flatten().collect(), weir_state::now_ns())?;
    let mut objects = binding.objects();
    let of_slot = |&is_bound: &bool| is_bound.then(|| objects.next()).flatten();
    let of_slots: Vec<Option<&TableImage>> = is_bound.iter().map(of_slot).collect();
    let images = of_slots.iter().map(|image| image.map(TableImage::published)).collect();
    let counted = of_slots.iter().map(|image| image.filter(|image| image.counters().is_some()).cloned()).collect();
    drop(objects);
    Ok(LiveTables { readers: store.readers().clone(), images, counted, binding, by_rules: ByRules::Never })
}

fn declaration(slot: &Slot, tables: &[&DeclaredTable], image: &Arc<Image>, bound: Bound) -> Declared<ImageDeclared> {
    let member = |table: &&DeclaredTable| Member {
        name: table.name.clone(),
        table: table.entries.clone(),
        dynamic: table.dynamic.map(|dynamic| bound.bounds(dynamic)),
    };
    let members = tables.iter().map(member).collect();
    let (layout, counted) = (slot.layout, slot.counted.is_some());
    Declared { name: slot.name(), declaration: ImageDeclared { members, layout, image: image.clone(), counted } }
}
