//! From a table to its image: picks the builder of a layout and refuses what the layout cannot hold.

use weir_abi::{Family, Layout};

use crate::entries::{Kind, Prefixes, Table};
use crate::image::{BuildError, Image};
use crate::layout::exact_sets::MEMBERS_MAX;
use crate::layout::{Room, counted_leaf, dxr, exact_leaf, exact_set, exact_set6, exact_sets, range6, rank_leaf};
use crate::prefix::Prefix;

impl Table {
    /// Builds the table's image.
    ///
    /// # Errors
    /// The layout does not suit the table (family, labels, prefix lengths), or one of its limits is exceeded.
    pub fn build(&self, layout: Layout) -> Result<Image, BuildError> {
        let labels = match self.kind() {
            Kind::Set => 1,
            Kind::Labels => self.labels().len() as u32,
        };
        build(self.kind(), labels, &self.prefixes, layout, Room::None)
    }
}

impl Table {
    /// Builds an image in which every prefix has its own label: its index in the order of prefixes, from 1 on.
    ///
    /// # Errors
    /// As for [`Table::build`]. Exact sets have no labels.
    pub fn build_numbered(&self, layout: Layout) -> Result<Image, BuildError> {
        fn numbered<A: Copy>(prefixes: &[Prefix<A>]) -> Vec<Prefix<A>> {
            (1..).zip(prefixes).map(|(label, prefix)| Prefix { label, ..*prefix }).collect()
        }
        let prefixes = match &self.prefixes {
            Prefixes::V4(prefixes) => Prefixes::V4(numbered(prefixes)),
            Prefixes::V6(prefixes) => Prefixes::V6(numbered(prefixes)),
        };
        build(Kind::Labels, self.facts().entries as u32, &prefixes, layout, Room::None)
    }
}

/// Builds one image for all the tables, in the layout [`Layout::fused`] of their family. A lookup sets bit `m` if
/// `tables[m]` holds the address.
///
/// # Errors
/// There are no tables or more than [`MEMBERS_MAX`], or one of them is not a set of single addresses (IPv6: or of
/// networks of 64 bits) of the same family.
pub fn fused(tables: &[&Table]) -> Result<Image, BuildError> {
    match check_fused(tables)? {
        Family::Ipv4 => {
            exact_sets::build(&tables.iter().map(|table| table.prefixes4()).collect::<Vec<_>>(), Room::None)
        }
        Family::Ipv6 => {
            exact_set6::build_fused(&tables.iter().map(|table| table.prefixes6()).collect::<Vec<_>>(), Room::None)
        }
    }
}

/// Returns the family of tables that may share buckets. Refuses tables with labels or of two families, none, or too
/// many.
pub(crate) fn check_fused(tables: &[&Table]) -> Result<Family, BuildError> {
    let family = tables.first().map_or(Family::Ipv4, |table| table.family());
    let layout = Layout::fused(family);
    if tables.is_empty() || tables.len() > MEMBERS_MAX {
        return Err(BuildError::Limit { layout, what: "sets, and at least one", max: MEMBERS_MAX });
    }
    for table in tables {
        if table.family() != family {
            return Err(BuildError::Family { layout, family: table.family() });
        }
        if table.kind() == Kind::Labels {
            return Err(BuildError::Labelled { layout });
        }
    }
    Ok(family)
}

/// Builds the image of sorted, distinct prefixes with labels `1..=labels`.
pub(crate) fn build(
    kind: Kind,
    labels: u32,
    prefixes: &Prefixes,
    layout: Layout,
    room: Room,
) -> Result<Image, BuildError> {
    match (layout, prefixes) {
        (Layout::ExactSet | Layout::ExactSets | Layout::ExactLeaf, Prefixes::V4(_))
        | (Layout::ExactSet6 | Layout::ExactSets6 | Layout::ExactLeaf6, Prefixes::V6(_))
            if kind == Kind::Labels =>
        {
            Err(BuildError::Labelled { layout })
        }
        (Layout::Dxr16x4, Prefixes::V4(prefixes)) => dxr::build(prefixes, labels),
        (Layout::ExactSet, Prefixes::V4(prefixes)) => exact_set::build(prefixes, room),
        (Layout::ExactSets, Prefixes::V4(prefixes)) => exact_sets::build(&[prefixes], room),
        (Layout::ExactSet6, Prefixes::V6(prefixes)) => exact_set6::build(prefixes, room),
        (Layout::ExactSets6, Prefixes::V6(prefixes)) => exact_set6::build_fused(&[prefixes], room),
        (Layout::Range6, Prefixes::V6(prefixes)) => range6::build(prefixes, labels),
        (Layout::RankLeaf, Prefixes::V4(prefixes)) => rank_leaf::build4(prefixes, labels, room),
        (Layout::CountedLeaf, Prefixes::V4(prefixes)) => counted_leaf::build4(prefixes, labels, room),
        (Layout::ExactLeaf, Prefixes::V4(prefixes)) => exact_leaf::build4(prefixes, room),
        (Layout::ExactLeaf6, Prefixes::V6(prefixes)) => exact_leaf::build6(prefixes, room),
        (Layout::RankLeaf6, Prefixes::V6(prefixes)) => rank_leaf::build6(prefixes, labels, room),
        _ => Err(BuildError::Family { layout, family: prefixes.family() }),
    }
}
