//! Binds the tables of a policy to shared state, so that they can change while packets pass.

use crate::policy_tables::{DeclaredTable, PolicyTables};
use std::collections::HashMap;
use std::sync::Arc;
use weir_policy::checked::{Dynamic, TableId};
use weir_policy::ir::eval::Protected;
use weir_policy::ir::{AddKind, Adder, Program, Slot, SlotId};
use weir_state::tables::{
    Adders, Additions, ByRules, DynamicBounds, ImageDeclared, ListedEntries, LiveTables, Member, ProtectedTable,
    ReplayedTables, TableAdder, TableBinding, TableImage, TableStore,
};
use weir_state::{Declared, StateError};
use weir_tables::{Image, Table};

/// A program with the tables that its policy declares.
#[derive(Clone, Copy)]
pub struct TablesOf<'a> {
    /// The program.
    pub program: &'a Program,
    /// The tables.
    pub tables: &'a PolicyTables,
}

/// Binds the tables of a policy on interfaces. Additions of rules go to `additions`. `images` are the images of the
/// policy, in slot order; `None` for lists of limits.
///
/// # Errors
/// A layout cannot hold the entries that a table continues with.
pub fn bind(
    of: TablesOf<'_>,
    images: &[Option<Arc<Image>>],
    store: &TableStore,
    additions: &Arc<Additions>,
) -> Result<LiveTables, StateError> {
    let live = bind_images(of, images, store, Bound::All)?;
    let by_rules = match of.program.adders.is_empty() {
        true => ByRules::Never,
        false => ByRules::Queued(additions.clone(), adders(of, &live.binding)),
    };
    Ok(LiveTables { by_rules, ..live })
}

/// Binds the tables of a policy for a replay: dynamic tables, and tables with counters. Others are constant.
///
/// # Errors
/// The kernel refuses the memory of tables that its programs read.
pub fn bind_replayed(
    of: TablesOf<'_>,
    images: &[Option<Arc<Image>>],
    store: TableStore,
) -> Result<LiveTables, StateError> {
    let store = Arc::new(store);
    // Packets have another clock than this machine. So timeouts begin with the first packet.
    let live = bind_images(of, images, &store, Bound::Replayed)?;
    let listed = of.tables.all().iter().filter_map(|table| {
        let timeout_ms = table.dynamic?.timeout_ms?;
        Some(ListedEntries { table: table.name.clone(), entries: table.entries.clone(), timeout_ms })
    });
    let listed = listed.collect();
    let replayed = ReplayedTables { store, adders: adders(of, &live.binding), listed };
    Ok(LiveTables { by_rules: ByRules::Replayed(replayed), ..live })
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
