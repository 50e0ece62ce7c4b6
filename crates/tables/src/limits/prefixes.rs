//! Limits for prefixes of both families.

use std::fmt::{Display, Write};
use std::net::IpAddr;

use weir_abi::{Family, Layout, Limit, LimitEntries, LimitEntry};

use super::image::TICKET_BITS;
use super::read::{self, BadLines};
use super::{Conflicts, Nesting, Origin, Origins, Profiles};
use crate::build::build;
use crate::entries::{Kind, Prefixes, count_lengths};
use crate::image::{BuildError, Image};
use crate::layout::Room;
use crate::list::reading::Reading;
use crate::list::{ListError, ReadReport};
use crate::padded::Octets;
use crate::prefix::{Address, Element, Prefix};
use crate::problem::{PREFIXES_MAX, Problem};
use crate::reads::Reads;
use crate::reference::Reference;

/// The entries that a list was given so far, in order.
#[derive(Clone, Debug, Default)]
pub struct PrefixLimits {
    origins: Origins,
    profiles: Profiles,
    v4: Vec<Given<u32>>,
    v6: Vec<Given<u128>>,
}

/// A given prefix. Its label is the number of its limit.
#[derive(Clone, Copy, Debug)]
struct Given<A> {
    prefix: Prefix<A>,
    origin: Origin,
}

impl PrefixLimits {
    /// Adds the limit of a prefix, written at `place`.
    ///
    /// # Errors
    /// `len` is too long for the family.
    pub fn insert(&mut self, addr: IpAddr, len: u8, limit: Limit, place: &str) -> Result<(), Problem> {
        let origin = Origin { source: self.origins.add(place), line: 0 };
        let label = self.profiles.intern(limit);
        match addr {
            IpAddr::V4(addr) if len <= 32 => {
                self.v4.push(Given { prefix: Prefix::new(addr.into(), len, label), origin })
            }
            IpAddr::V6(addr) if len <= 128 => {
                self.v6.push(Given { prefix: Prefix::new(addr.into(), len, label), origin })
            }
            IpAddr::V4(_) => return Err(Problem::LongLength(Family::Ipv4)),
            IpAddr::V6(_) => return Err(Problem::LongLength(Family::Ipv6)),
        }
        Ok(())
    }

    /// Adds a list of `prefix,rate[,burst]`. `name` is for messages.
    ///
    /// # Errors
    /// A line is bad (unless bad lines are skipped), or there are too many prefixes. The list is then unchanged.
    pub fn read(&mut self, name: &str, bytes: &[u8], bad_lines: BadLines) -> Result<ReadReport, ListError> {
        let source = self.origins.add(name);
        let mut part = self.part(name, bytes, (bad_lines, source), Octets::OneReading);
        if part.reading.is_ambiguous {
            // Only the whole list shows what its octets mean.
            let decimal = self.part(name, bytes, (bad_lines, source), Octets::Decimal);
            if decimal.reading.padding.is_decimal() {
                part = decimal;
            }
        }
        let report = part.outcome?;
        let read = part.v4.len() + part.v6.len();
        if self.v4.len() + self.v6.len() + read > PREFIXES_MAX {
            return Err(ListError::TooMany { name: name.to_owned() });
        }
        self.v4.append(&mut part.v4);
        self.v6.append(&mut part.v6);
        Ok(ReadReport { prefixes: read as u64, padded: part.reading.padded, ..report })
    }

    fn part(&mut self, name: &str, bytes: &[u8], (bad_lines, source): (BadLines, u32), octets: Octets) -> Part {
        let (mut v4, mut v6, mut reading) = (Vec::new(), Vec::new(), Reading::new(octets));
        let outcome = read::read(name, bytes, bad_lines, &mut self.profiles, |line, what, label| {
            let origin = Origin { source, line: u32::try_from(line).unwrap_or(u32::MAX) };
            match what.contains(&b':') {
                true => take(&mut v6, what, &mut reading, (label, origin)),
                false => take(&mut v4, what, &mut reading, (label, origin)),
            }
        });
        Part { outcome, v4, v6, reading }
    }

    /// Number of entries so far, duplicates included.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sorts the entries. Exact duplicates have no effect.
    pub fn settle(self) -> Result<LimitTable, ListError> {
        let mut settling =
            Settling { origins: &self.origins, profiles: &self.profiles, conflicts: Conflicts::default() };
        let (v4, v6) = (settling.sorted(self.v4), settling.sorted(self.v6));
        settling.conflicts.into_result()?;
        let families = [Labelled::new(v4, Prefixes::V4), Labelled::new(v6, Prefixes::V6)];
        Ok(LimitTable { profiles: self.profiles, families })
    }
}

/// What was read of a list.
struct Part {
    outcome: Result<ReadReport, ListError>,
    v4: Vec<Given<u32>>,
    v6: Vec<Given<u128>>,
    reading: Reading,
}

/// Parses a prefix that fills `what`.
fn take<A: Address>(
    into: &mut Vec<Given<A>>,
    what: &[u8],
    reading: &mut Reading,
    (label, origin): (u32, Origin),
) -> Result<(), Problem> {
    let (element, taken) = reading.element::<A>(what, u64::from(origin.line))?;
    if taken != what.len() {
        return Err(Problem::NotAnAddress(A::FAMILY));
    }
    let Element::Prefix { addr, len } = element else { return Err(Problem::RangeLimited) };
    into.push(Given { prefix: Prefix::new(addr, len, label), origin });
    Ok(())
}

struct Settling<'a> {
    origins: &'a Origins,
    profiles: &'a Profiles,
    conflicts: Conflicts,
}

impl Settling<'_> {
    /// Sorts by address and length, and keeps each prefix once.
    fn sorted<A: Address>(&mut self, mut given: Vec<Given<A>>) -> Vec<Prefix<A>>
    where
        Prefix<A>: std::fmt::Display,
    {
        // The sort is stable, so a conflict reports the earlier entry as the earlier.
        given.sort_by_key(|given| given.prefix.addr.order(given.prefix.len));
        given.dedup_by(|later, kept| {
            let same = (later.prefix.addr, later.prefix.len) == (kept.prefix.addr, kept.prefix.len);
            if same && later.prefix.label != kept.prefix.label {
                let side =
                    |given: &Given<A>| (self.origins.text(given.origin), self.profiles.limit(given.prefix.label));
                self.conflicts.add(&later.prefix, side(later), side(kept));
            }
            same
        });
        given.into_iter().map(|given| given.prefix).collect()
    }
}

/// The prefixes of one family. The label of a prefix is its position, from 1.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Labelled {
    pub(super) prefixes: Prefixes,
    /// The number of the limit of each prefix.
    pub(super) limits: Vec<u32>,
    by_length: Vec<usize>,
}

impl Labelled {
    fn new<A: Address>(mut prefixes: Vec<Prefix<A>>, of_family: impl Fn(Vec<Prefix<A>>) -> Prefixes) -> Self {
        let limits = prefixes.iter().map(|prefix| prefix.label).collect();
        for (prefix, label) in prefixes.iter_mut().zip(1..) {
            prefix.label = label;
        }
        Labelled { by_length: count_lengths(&prefixes), prefixes: of_family(prefixes), limits }
    }

    fn parents(&self) -> Vec<u32> {
        match &self.prefixes {
            Prefixes::V4(prefixes) => parents(prefixes),
            Prefixes::V6(prefixes) => parents(prefixes),
        }
    }
}

/// Calls `same` with the positions of prefixes that are in both sorted lists.
fn shared<A: Address>(own: &[Prefix<A>], others: &[Prefix<A>], same: &mut impl FnMut(u32, u32)) {
    let mut others = others.iter().peekable();
    for prefix in own {
        let at = prefix.addr.order(prefix.len);
        while others.next_if(|other| other.addr.order(other.len) < at).is_some() {}
        if let Some(other) = others.peek().filter(|other| other.addr.order(other.len) == at) {
            same(prefix.label, other.label);
        }
    }
}

/// The label of the next enclosing prefix of each prefix, 0 for none. The prefixes are sorted.
fn parents<A: Address>(prefixes: &[Prefix<A>]) -> Vec<u32> {
    // The prefixes around the current one, innermost last. There is at most one per length.
    let mut open: Vec<&Prefix<A>> = Vec::with_capacity(usize::from(A::FAMILY.bits()) + 1);
    let mut parents = Vec::with_capacity(prefixes.len());
    for prefix in prefixes {
        while open.last().is_some_and(|outer| outer.last() < prefix.addr) {
            open.pop();
        }
        parents.push(open.last().map_or(0, |outer| outer.label));
        open.push(prefix);
    }
    parents
}

/// The contents of a list: distinct prefixes, each with its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitTable {
    pub(super) profiles: Profiles,
    /// IPv4, then IPv6.
    pub(super) families: [Labelled; 2],
}

impl LimitTable {
    pub(super) fn family(&self, family: Family) -> &Labelled {
        match family {
            Family::Ipv4 => &self.families[0],
            Family::Ipv6 => &self.families[1],
        }
    }

    /// Number of prefixes of a family. This is also the highest label in its image.
    pub fn len(&self, family: Family) -> usize {
        self.family(family).limits.len()
    }

    /// Number of prefixes of each length, index 0 to the family's bits.
    pub fn by_length(&self, family: Family) -> &[usize] {
        &self.family(family).by_length
    }

    /// Number of distinct limits over both families.
    pub fn rates(&self) -> usize {
        self.profiles.limits.len()
    }

    /// The prefix of a label (from 1) and its limit as first written.
    ///
    /// # Panics
    /// Panics if there is no such label.
    pub fn limit(&self, family: Family, label: u32) -> (Box<dyn Display>, Limit) {
        let (labelled, index) = (self.family(family), label as usize - 1);
        let prefix: Box<dyn Display> = match &labelled.prefixes {
            Prefixes::V4(prefixes) => Box::new(prefixes[index]),
            Prefixes::V6(prefixes) => Box::new(prefixes[index]),
        };
        (prefix, self.profiles.limit(labelled.limits[index]))
    }

    /// The list as CSV, `prefix,rate,burst`, which [`PrefixLimits::read`] reads.
    pub fn to_csv(&self) -> String {
        let mut text = "# prefix,rate,burst\n".to_owned();
        for Labelled { prefixes, limits, .. } in &self.families {
            let mut line = |prefix: &dyn Display, &number: &u32| {
                let (rate, burst) = self.profiles.limit(number).parts();
                let _ = writeln!(text, "{prefix},{rate},{burst}");
            };
            match prefixes {
                Prefixes::V4(prefixes) => prefixes.iter().zip(limits).for_each(|(prefix, limit)| line(prefix, limit)),
                Prefixes::V6(prefixes) => prefixes.iter().zip(limits).for_each(|(prefix, limit)| line(prefix, limit)),
            }
        }
        text
    }

    /// The entries for limiters of this family's addresses.
    pub fn entries(&self, family: Family, nesting: Nesting, default: Option<Limit>) -> LimitEntries {
        let labelled = self.family(family);
        let parents = match nesting {
            Nesting::Flat => vec![0; labelled.limits.len()],
            Nesting::Nested => labelled.parents(),
        };
        let entries = labelled.limits.iter().zip(parents);
        self.profiles.entries(default, entries.map(|(&profile, parent)| LimitEntry { profile, parent }))
    }

    /// Depth of nesting: the largest number of prefixes of a family that enclose each other.
    pub fn depth(&self, family: Family) -> usize {
        let parents = self.family(family).parents();
        // A prefix comes after the prefixes around it.
        let mut depths: Vec<usize> = Vec::with_capacity(parents.len() + 1);
        depths.push(0);
        parents.iter().for_each(|&parent| depths.push(depths[parent as usize] + 1));
        depths.into_iter().max().unwrap_or(0)
    }

    /// The prefixes of a family with their labels: label, lowest address, length.
    pub fn prefixes(&self, family: Family) -> impl Iterator<Item = (u32, IpAddr, u8)> {
        let (v4, v6): (&[Prefix<u32>], &[Prefix<u128>]) = match &self.family(family).prefixes {
            Prefixes::V4(prefixes) => (prefixes, &[]),
            Prefixes::V6(prefixes) => (&[], prefixes),
        };
        let v4 = v4.iter().map(|prefix| (prefix.label, IpAddr::V4(prefix.addr.into()), prefix.len));
        v4.chain(v6.iter().map(|prefix| (prefix.label, IpAddr::V6(prefix.addr.into()), prefix.len)))
    }

    /// Calls `same` with each pair of labels, of this list and of another, for the same prefix.
    pub fn shared(&self, other: &LimitTable, family: Family, mut same: impl FnMut(u32, u32)) {
        match (&self.family(family).prefixes, &other.family(family).prefixes) {
            (Prefixes::V4(own), Prefixes::V4(others)) => shared(own, others, &mut same),
            (Prefixes::V6(own), Prefixes::V6(others)) => shared(own, others, &mut same),
            _ => unreachable!("a family has prefixes of its own"),
        }
    }

    /// The reference for checks of images.
    pub fn reference(&self, family: Family) -> Reference {
        self.family(family).prefixes.reference()
    }

    /// Builds the image that finds the label of an address.
    ///
    /// # Errors
    /// The layout does not suit the family, holds no labels, or one of its limits is exceeded.
    pub fn build(&self, family: Family, layout: Layout) -> Result<Image, BuildError> {
        let labelled = self.family(family);
        build(Kind::Labels, labelled.limits.len() as u32, &labelled.prefixes, layout, Room::None)
    }

    /// Builds like [`LimitTable::build`], with the labels of a list whose buckets are all new. Buckets are consecutive.
    /// If there are several rates, the number of the rate is in the bits above the bucket.
    ///
    /// # Errors
    /// As for [`LimitTable::build`].
    pub fn build_new(&self, family: Family, layout: Layout) -> Result<Image, BuildError> {
        let limits = &self.family(family).limits;
        let bits = (limits.len() + 1).next_power_of_two().ilog2();
        if self.rates() < 2 || bits + self.rates().next_power_of_two().ilog2() >= TICKET_BITS {
            return self.build(family, layout);
        }
        let tickets = limits.iter().zip(1..).map(|(&rate, slot)| rate << bits | slot);
        let tickets: Vec<u32> = std::iter::once(0).chain(tickets).collect();
        self.build_tickets(family, layout, &tickets)
    }

    /// Measures what lookups of the list's addresses read of `image`, an image of the family.
    pub fn reads(&self, family: Family, image: &Image) -> Reads {
        Reads::of(&self.family(family).prefixes, image)
    }

    /// Builds like [`LimitTable::build`], with `tickets[label]` instead of each label.
    ///
    /// # Errors
    /// As for [`LimitTable::build`].
    ///
    /// # Panics
    /// Panics if there is no ticket for a label.
    pub fn build_tickets(&self, family: Family, layout: Layout, tickets: &[u32]) -> Result<Image, BuildError> {
        let mut prefixes = self.family(family).prefixes.clone();
        match &mut prefixes {
            Prefixes::V4(prefixes) => {
                prefixes.iter_mut().for_each(|prefix| prefix.label = tickets[prefix.label as usize])
            }
            Prefixes::V6(prefixes) => {
                prefixes.iter_mut().for_each(|prefix| prefix.label = tickets[prefix.label as usize])
            }
        }
        let highest = tickets.iter().copied().max().unwrap_or(0);
        build(Kind::Labels, highest, &prefixes, layout, Room::None)
    }
}
