//! What the policy compiler is told of images before it chooses among them: those that the layouts would make are built, looked at, and let go.
//!
//! A build takes milliseconds for a hundred thousand prefixes, and a tenth of a second for three million. In return nothing is estimated: bytes are
//! those that are loaded, and a layout that cannot hold a table is not chosen.

use weir_abi::{Family, Layout};
use weir_policy::catalog::ImageFacts;
use weir_tables::{BuildError, Image, LimitTable, Reads, Table};

/// Facts of images of one table or list, of each layout that holds it.
pub type Images = Vec<ImageFacts>;

/// Of a table in every layout that holds it alone.
pub fn of_table(table: &Table) -> Images {
    let layouts =
        Layout::ALL.into_iter().filter(|&layout| layout != Layout::ExactSets && layout != Layout::CountedLeaf);
    layouts.filter_map(|layout| facts(table.build(layout), layout, |image| table.reads(image))).collect()
}

/// Of sets of addresses that share an image.
pub fn of_sets(tables: &[&Table]) -> Option<ImageFacts> {
    facts(weir_tables::exact_sets(tables), Layout::ExactSets, |image| {
        tables.first().map(|table| table.reads(image)).unwrap_or_default()
    })
}

/// Of the prefixes of a list of limits, in every layout that holds them.
pub fn of_limits(table: &LimitTable, family: Family) -> Images {
    let layouts = Layout::ALL.into_iter().filter(|_| table.len(family) > 0);
    layouts
        .filter_map(|layout| facts(table.build_new(family, layout), layout, |image| table.reads(family, image)))
        .collect()
}

fn facts(built: Result<Image, BuildError>, layout: Layout, reads: impl FnOnce(&Image) -> Reads) -> Option<ImageFacts> {
    let image = built.ok()?;
    let Reads { words, lines } = reads(&image);
    // Counted leaves may be an image of rank leaves: what is asked for has the name.
    Some(ImageFacts { layout, bytes: image.as_bytes().len(), words, lines })
}
