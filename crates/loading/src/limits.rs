//! From a policy's lists of limits to what its limiters police by: buckets from a pool, the image of rates, images of prefixes.

use crate::error::LoadError;
use crate::limit_entries::each_profile;
use crate::lists::ListOfLimits;
use crate::text::Text;
use std::sync::Arc;
use weir_abi::{LimitEntries, each};
use weir_engine::limits::counts::LimiterBuckets;
use weir_engine::limits::pool::{Held, Kind, Names, Pool, Wanted};
use weir_engine::limits::{Buckets, Limits};
use weir_policy::checked::LimitKeys;
use weir_policy::ir::{LimitEach, Limiter, LimiterKind, Log, Program, Slot, SlotContents};
use weir_tables::Image;
use weir_tables::limit_image::{self, Found, LimitImage, Logged};

/// Limiters that police by the same list, and the list.
struct Group {
    /// Index of each in the program.
    members: Vec<usize>,
    entries: Arc<LimitEntries>,
    wanted: Wanted,
}

/// What a program polices by, and the images that find its tickets.
pub struct Assembled {
    /// For the engine.
    pub limits: Limits,
    /// By slot; `None` for tables.
    pub images: Vec<Option<Image>>,
}

/// Takes buckets for the limiters of a program, from `pool` or, if there is none, as many as they need of their own; new ones are full at
/// `now_ns`. `None` if the program has no limiters.
///
/// # Errors
/// There are not as many buckets, or a list does not fit an image.
pub fn assemble(
    text: &Text,
    program: &Program,
    pool: Option<&Pool>,
    now_ns: u64,
) -> Result<Option<Assembled>, LoadError> {
    if program.limiters.is_empty() {
        return Ok(None);
    }
    let groups = groups(text, program);
    let wanted: Vec<Wanted> = groups.iter().map(|group| group.wanted.clone()).collect();
    let pool = match pool {
        Some(pool) => pool.clone(),
        // One is nobody's.
        None => Pool::new(each::REPLAY_SEED, Buckets::reserve(1 + wanted.iter().map(Wanted::buckets).sum::<usize>())?),
    };
    let held = pool.hold(wanted, now_ns)?;
    let places: Vec<LimiterBuckets> = (0..program.limiters.len()).map(|index| place(program, &groups, index)).collect();
    let laid_out = |(limiter, place)| laid_out(limiter, &groups, &held, pool.seed(), place);
    let limiters: Vec<limit_image::Limiter<'_>> = program.limiters.iter().zip(&places).map(laid_out).collect();
    let image = LimitImage::build(&limiters).map_err(LoadError::Limits)?;
    let mut images = Vec::with_capacity(program.slots.len());
    for slot in &program.slots {
        images.push(ticket_image(text, program, slot, &image)?);
    }
    let counted = pool.count(&held, places)?;
    let limits = Limits { image: Arc::new(image), buckets: pool.buckets().clone(), held, counted };
    Ok(Some(Assembled { limits, images }))
}

/// Buckets that a program's limiters need.
pub fn buckets(text: &Text, program: &Program) -> usize {
    groups(text, program).iter().map(|group| group.wanted.buckets()).sum()
}

/// The limiters, those of the same list together.
fn groups(text: &Text, program: &Program) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, (limiter, entries)) in program.limiters.iter().zip(text.limit_entries(program)).enumerate() {
        let mut name = name(limiter);
        if matches!(limiter.kind, LimiterKind::Rate(_) | LimiterKind::Each(_)) {
            // Postures may have other rates at the same place, and have buckets of their own then.
            let others = groups.iter().filter(|group| group.wanted.name.trim_end_matches('+') == name).count();
            name.extend(std::iter::repeat_n('+', others));
        }
        match groups.iter_mut().find(|group| group.wanted.name == name) {
            Some(group) => {
                group.members.push(index);
                group.wanted.width += 1;
            }
            None => groups.push(Group { members: vec![index], entries, wanted: wanted(text, limiter, name) }),
        }
    }
    groups
}

/// What its buckets are called in every generation.
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

fn wanted(text: &Text, limiter: &Limiter, name: String) -> Wanted {
    let names = names(text, limiter);
    match limiter.kind {
        LimiterKind::Each(each) => {
            let coarse = each_profile(&each).coarse;
            Wanted { name, names, width: each.size, kind: Kind::Each { coarse } }
        }
        LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } | LimiterKind::Labels => {
            Wanted { name, names, width: 1, kind: Kind::Buckets }
        }
    }
}

fn names(text: &Text, limiter: &Limiter) -> Names {
    let list = || {
        let index = text.checked.limits.iter().position(|list| list.name == limiter.name);
        let index = index.expect("a limiter's list is declared");
        (&text.checked.limits[index].keys, &text.limits[index])
    };
    match limiter.kind {
        LimiterKind::Rate(_) | LimiterKind::Each(_) => Names::One,
        LimiterKind::Prefixes { family, .. } => match list().1 {
            ListOfLimits::Prefixes(table) => Names::Prefixes(table.clone(), family),
            ListOfLimits::Labels(_) => panic!("compiler bug: `{}` is a list of labels", limiter.name),
        },
        LimiterKind::Labels => match list().0 {
            LimitKeys::Labels(table) => {
                let labels = text.tables[usize::from(table.0)].labels();
                Names::Labels(labels.iter().map(|label| Box::from(label.as_ref())).collect::<Vec<_>>().into())
            }
            LimitKeys::Prefixes { .. } => panic!("compiler bug: `{}` names no table", limiter.name),
        },
    }
}

/// Where a limiter's buckets are: in those of its group, the members' own one behind the other.
fn place(program: &Program, groups: &[Group], index: usize) -> LimiterBuckets {
    let place = groups.iter().enumerate().find_map(|(group, of)| {
        of.members.iter().position(|&member| member == index).map(|offset| (group, offset as u32))
    });
    let (wanted, offset) = place.expect("each limiter is in a group");
    let logged = match program.limiters[index].log {
        Log::Off => Logged::Nothing,
        Log::Exceeded => Logged::Exceeded,
        Log::All => Logged::All,
    };
    let entries = groups[wanted].entries.entries.iter().zip(0..);
    let unlimited =
        entries.filter(|(entry, _)| logged != Logged::Nothing && entry.profile == 0).map(|(_, index)| index);
    LimiterBuckets { wanted, offset, logged, unlimited: unlimited.collect() }
}

/// A limiter for the image.
fn laid_out<'a>(
    limiter: &Limiter,
    groups: &'a [Group],
    held: &'a Held,
    seed: u32,
    place: &LimiterBuckets,
) -> limit_image::Limiter<'a> {
    let &LimiterBuckets { wanted, offset, logged, .. } = place;
    let found = match limiter.kind {
        LimiterKind::Labels => Found::ByLabel,
        LimiterKind::Each(each) => Found::ByHash { set_bits: each::set_bits(each.size), seed },
        LimiterKind::Rate(_) | LimiterKind::Prefixes { .. } => Found::ByTicket,
    };
    limit_image::Limiter { limits: &groups[wanted].entries, slots: held.slots(wanted), offset, found, logged }
}

/// The image of a list's prefixes, whose labels are the tickets of its limiters; `None` for a slot of tables.
fn ticket_image(text: &Text, program: &Program, slot: &Slot, limits: &LimitImage) -> Result<Option<Image>, LoadError> {
    let SlotContents::Limits(list) = &slot.contents else { return Ok(None) };
    let polices = |limiter: &Limiter| {
        limiter.name == *list && matches!(limiter.kind, LimiterKind::Prefixes { family, .. } if family == slot.family)
    };
    let limiter = program.limiters.iter().position(polices).expect("a list with an image has a limiter");
    let index = text.checked.limits.iter().position(|known| known.name == *list).expect("a slot's list is declared");
    let ListOfLimits::Prefixes(table) = &text.limits[index] else {
        panic!("compiler bug: an image of a list of labels")
    };
    let built = table.build_tickets(slot.family, slot.layout, limits.tickets(limiter));
    built.map(Some).map_err(|error| LoadError::Image { object: format!("limits {list}"), error })
}
