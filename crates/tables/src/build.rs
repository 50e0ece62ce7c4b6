//! From a table to its image: picks the builder of a layout and refuses what the layout cannot hold.

use weir_abi::Layout;

use crate::entries::{Kind, Prefixes, Table};
use crate::image::{BuildError, Image};
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
        | (Layout::ExactSet6 | Layout::ExactLeaf6, Prefixes::V6(_))
            if kind == Kind::Labels =>
        {
            Err(BuildError::Labelled { layout })
        }
        (Layout::Dxr16x4, Prefixes::V4(prefixes)) => dxr::build(prefixes, labels),
        (Layout::ExactSet, Prefixes::V4(prefixes)) => exact_set::build(prefixes, room),
        (Layout::ExactSets, Prefixes::V4(prefixes)) => exact_sets::build(&[prefixes], room),
        (Layout::ExactSet6, Prefixes::V6(prefixes)) => exact_set6::build(prefixes, room),
        (Layout::Range6, Prefixes::V6(prefixes)) => range6::build(prefixes, labels),
        (Layout::RankLeaf, Prefixes::V4(prefixes)) => rank_leaf::build4(prefixes, labels, room),
        (Layout::CountedLeaf, Prefixes::V4(prefixes)) => counted_leaf::build4(prefixes, labels, room),
        (Layout::ExactLeaf, Prefixes::V4(prefixes)) => exact_leaf::build4(prefixes, room),
        (Layout::ExactLeaf6, Prefixes::V6(prefixes)) => exact_leaf::build6(prefixes, room),
        (Layout::RankLeaf6, Prefixes::V6(prefixes)) => rank_leaf::build6(prefixes, labels, room),
        _ => Err(BuildError::Family { layout, family: prefixes.family() }),
    }
}
