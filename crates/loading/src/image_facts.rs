//! Facts about images. The policy compiler chooses layouts by them. The images of all possible layouts are built,
//! measured and freed.
//!
//! A build takes milliseconds for a hundred thousand prefixes and a tenth of a second for three million. The facts are
//! therefore exact: the sizes are the sizes of the loaded images, and an impossible layout is not chosen.

use weir_abi::{Family, Layout};
use weir_policy::catalog::ImageFacts;
use weir_tables::{BuildError, Image, LimitTable, Reads, Table};

/// Facts about the images of one table or list: one for each possible layout.
pub type Images = Vec<ImageFacts>;

/// Facts about a table in every layout, except for layouts of dynamic sets.
pub fn of_table(table: &Table) -> Images {
    let layouts =
        [Layout::Dxr16x4, Layout::ExactSet, Layout::Range6, Layout::RankLeaf, Layout::RankLeaf6, Layout::ExactSet6];
    layouts.into_iter().filter_map(|layout| in_layout(table, layout)).collect()
}

/// Facts about a table in a layout.
pub fn in_layout(table: &Table, layout: Layout) -> Option<ImageFacts> {
    facts(table.build(layout), layout, |image| table.reads(image))
}

/// Facts about the shared image of exact sets of one family.
pub fn of_sets(tables: &[&Table]) -> Option<ImageFacts> {
    let first = *tables.first()?;
    facts(weir_tables::fused(tables), Layout::fused(first.family()), |image| first.reads(image))
}

/// Facts about the prefixes of a list of limits, in every possible layout.
pub fn of_limits(table: &LimitTable, family: Family) -> Images {
    let layouts = Layout::ALL.into_iter().filter(|_| table.len(family) > 0);
    layouts
        .filter_map(|layout| facts(table.build_new(family, layout), layout, |image| table.reads(family, image)))
        .collect()
}

fn facts(built: Result<Image, BuildError>, layout: Layout, reads: impl FnOnce(&Image) -> Reads) -> Option<ImageFacts> {
    let image = built.ok()?;
    let Reads { words, lines } = reads(&image);
    // The image for counted leaves may use rank leaves. The fact keeps the requested layout.
    Some(ImageFacts { layout, bytes: image.as_bytes().len(), words, lines })
}
