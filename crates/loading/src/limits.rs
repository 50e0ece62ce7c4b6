//! Makes the limits of a program: declares the buckets, and builds the images of rates and prefixes.

use crate::error::LoadError;
use crate::limit_lists::{self, LimitList, ListedLimits, each_profile};
use std::sync::Arc;
use weir_abi::{LimitEntries, each};
use weir_policy::ir::{LimitEach, Limiter, LimiterKind, Log, Program, Slot, SlotContents};
use weir_state::Declared;
use weir_state::limits::{
    BucketsDeclared, EntryNames, Exceeders, LimitBinding, LimitStore, LimiterBuckets, LimiterCounts, Limits, WordFormat,
};
use weir_tables::Image;
use weir_tables::limit_image::{self, Found, LimitImage, Logged};

/// Limiters of the same list, and the list.
struct Group {
    /// Index of each limiter in the program.
    members: Vec<usize>,
    entries: Arc<LimitEntries>,
    declared: Declared<BucketsDeclared>,
}

/// The limits of a program, and the images that find its tickets.
pub struct Assembled {
    /// For the engine.
    pub limits: Limits,
    /// By slot; `None` for tables.
    pub images: Vec<Option<Image>>,
}

/// Binds the limiters of a program to buckets of `store`. New buckets are full at `now_ns`.
///
/// # Errors
/// There are not enough buckets, or a list does not fit an image.
pub fn assemble(
    lists: &[LimitList],
    program: &Program,
    store: &LimitStore,
    now_ns: u64,
) -> Result<Assembled, LoadError> {
    let groups = groups(lists, program);
    let binding = store.bind(groups.iter().map(|group| group.declared.clone()).collect(), now_ns)?;
    let buckets: Vec<LimiterBuckets> =
        (0..program.limiters.len()).map(|index| buckets_of(program, &groups, index, store.seed())).collect();
    let in_image = |(limiter, buckets)| image_limiter(limiter, &groups, &binding, store.seed(), buckets);
    let limiters: Vec<limit_image::Limiter<'_>> = program.limiters.iter().zip(&buckets).map(in_image).collect();
    let image = LimitImage::build(&limiters).map_err(LoadError::Limits)?;
    let images: Result<Vec<_>, LoadError> = std::thread::scope(|scope| {
        let build = |slot| ticket_image(lists, program, slot, &image);
        let threads: Vec<_> = program.slots.iter().map(|slot| scope.spawn(move || build(slot))).collect();
        threads.into_iter().map(|thread| thread.join().expect("building an image does not panic")).collect()
    });
    let images = images?;
    let limiters: Arc<[LimiterBuckets]> = buckets.into();
    let counted = LimiterCounts::new(store, &binding, limiters.clone())?;
    let limits = Limits { image: Arc::new(image), buckets: store.buckets().clone(), binding, limiters, counted };
    Ok(Assembled { limits, images })
}

/// Number of buckets that the limiters of a program need.
pub fn buckets(lists: &[LimitList], program: &Program) -> usize {
    groups(lists, program).iter().map(|group| group.declared.declaration.buckets()).sum()
}

/// The limiters, grouped by list.
fn groups(lists: &[LimitList], program: &Program) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, (limiter, entries)) in program.limiters.iter().zip(limit_lists::entries(lists, program)).enumerate() {
        let mut name = name(limiter);
        if matches!(limiter.kind, LimiterKind::Rate(_) | LimiterKind::Each(_)) {
            // Postures may have other rates at the same position. They have buckets of their own then.
            let others = groups.iter().filter(|group| group.declared.name.trim_end_matches('+') == name).count();
            name.extend(std::iter::repeat_n('+', others));
        }
        match groups.iter_mut().find(|group| group.declared.name == name) {
            Some(group) => {
                group.members.push(index);
                group.declared.declaration.width += 1;
            }
            None => {
                let declared = Declared { name, declaration: declaration(lists, limiter) };
                groups.push(Group { members: vec![index], entries, declared });
            }
        }
    }
    groups
}

/// The name of a limiter's buckets in every generation.
fn name(limiter: &Limiter) -> String {
    let Limiter { name, direction, nth, kind, .. } = limiter;
    match kind {
        LimiterKind::Prefixes { family, .. } => format!("{name} {family:?}"),
        LimiterKind::Labels => name.clone(),
        LimiterKind::Rate(_) => format!("{name} {} {nth}", direction.name()),
        LimiterKind::Each(LimitEach { key, length, .. }) => {
            format!("{name} {}/{length} {} {nth}", key.name(), direction.name())
        }
    }
}

/// The buckets of one limiter.
fn declaration(lists: &[LimitList], limiter: &Limiter) -> BucketsDeclared {
    let entries = entry_names(lists, limiter);
    match limiter.kind {
        LimiterKind::Each(each) => {
            let width = each.words() as u32 + each::EXCEEDER_WORDS as u32;
            let format = match each.connections() {
                Some(number) => WordFormat::Seats(number),
                None => WordFormat::AddressTable { coarse: each_profile(&each).coarse },
            };
            BucketsDeclared { entries, width, format }
        }
        LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } | LimiterKind::Labels => {
            BucketsDeclared { entries, width: 1, format: WordFormat::Buckets }
        }
    }
}

fn entry_names(lists: &[LimitList], limiter: &Limiter) -> EntryNames {
    match limiter.kind {
        LimiterKind::Rate(_) | LimiterKind::Each(_) => EntryNames::One,
        LimiterKind::Prefixes { family, .. } => {
            EntryNames::Prefixes(limit_lists::named(lists, &limiter.name).prefixes().clone(), family)
        }
        LimiterKind::Labels => match &limit_lists::named(lists, &limiter.name).limits {
            ListedLimits::Labels { labels, .. } => EntryNames::Labels(labels.clone()),
            ListedLimits::Prefixes(_) => panic!("compiler bug: `{}` names no table", limiter.name),
        },
    }
}

/// The buckets of a limiter: the limiters of a group have neighbouring buckets.
fn buckets_of(program: &Program, groups: &[Group], index: usize, seed: u32) -> LimiterBuckets {
    let found = groups.iter().enumerate().find_map(|(group, of)| {
        of.members.iter().position(|&member| member == index).map(|offset| (group, offset as u32))
    });
    let (declared, offset) = found.expect("each limiter is in a group");
    let logged = match program.limiters[index].log {
        Log::Off => Logged::Nothing,
        Log::Exceeded => Logged::Exceeded,
        Log::All => Logged::All,
    };
    let entries = groups[declared].entries.entries.iter().zip(0..);
    let unlimited =
        entries.filter(|(entry, _)| logged != Logged::Nothing && entry.profile == 0).map(|(_, index)| index);
    let exceeders = match program.limiters[index].kind {
        LimiterKind::Each(each) => Some(Exceeders { family: each.key.family(), seed, buckets: each.words() as u32 }),
        LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } | LimiterKind::Labels => None,
    };
    LimiterBuckets { declared, offset, logged, exceeders, unlimited: unlimited.collect() }
}

/// A limiter for the image.
fn image_limiter<'a>(
    limiter: &Limiter,
    groups: &'a [Group],
    binding: &'a LimitBinding,
    seed: u32,
    buckets: &LimiterBuckets,
) -> limit_image::Limiter<'a> {
    let &LimiterBuckets { declared, offset, logged, .. } = buckets;
    let found = match limiter.kind {
        LimiterKind::Labels => Found::ByLabel,
        LimiterKind::Each(each) => {
            let seats = each.connections().map_or(0, u32::from);
            Found::ByHash { set_bits: each::set_bits(each.size), seed, seats }
        }
        LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } => Found::ByTicket,
    };
    let slots = binding.object(declared).slots();
    limit_image::Limiter { limits: &groups[declared].entries, slots, offset, found, logged }
}

/// The image of a list's prefixes, whose labels are the tickets of its limiters; `None` for a slot of tables.
fn ticket_image(
    lists: &[LimitList],
    program: &Program,
    slot: &Slot,
    limits: &LimitImage,
) -> Result<Option<Image>, LoadError> {
    let SlotContents::Limits(list) = &slot.contents else { return Ok(None) };
    let polices = |limiter: &Limiter| {
        limiter.name == *list && matches!(limiter.kind, LimiterKind::Prefixes { family, .. } if family == slot.family)
    };
    let limiter = program.limiters.iter().position(polices).expect("a list with an image has a limiter");
    let table = limit_lists::named(lists, list).prefixes();
    let built = table.build_tickets(slot.family, slot.layout, limits.tickets(limiter));
    built.map(Some).map_err(|error| LoadError::Image { object: format!("limits {list}"), error })
}
