//! Prefix tables and sets, from lists to the flat images in which packets are looked up.
//!
//! ```text
//! list bytes --list--> Entries --settle--> Table --build--> Image --view--> ImageView (Rust) or tables/lookup.h (C, BPF)
//!                         |                  |
//!                         +----reference-----+--> Reference, which every lookup is checked against
//! ```
//! Overlapping prefixes resolve by longest match, overlapping ranges by the smallest. Label 0 means "no entry"; members
//! of a set have label 1. The crate opens no file and knows no policy. Its input and output are bytes.
//!
//! Builders of layouts share [`flatten`], [`blocks`] and [`unique`]. So do the schemes of papers in `lab/schemes`, which
//! layouts are compared with.

pub mod blocks;
mod build;
mod cells;
mod coverage;
pub mod difference;
pub mod entries;
pub mod flatten;
pub mod image;
pub mod image_memory;
mod layout;
pub mod limits;
pub mod list;
pub mod live;
mod merge;
mod overlap;
mod padded;
pub mod prefix;
pub mod problem;
pub mod reads;
pub mod reference;
mod split_mix;
mod trace;
pub mod unique;

pub use build::fused;
pub use coverage::Coverage;
pub use difference::{Difference, Overlap};
pub use entries::{Entries, Facts, Kind, Table};
pub use image::{BuildError, Image, ImageError, ImageView};
pub use layout::dxr::Stages;
pub use layout::exact_leaf::host_lengths;
pub use layout::exact_sets::{MEMBERS_MAX, fused_bytes};
pub use limits::image::{self as limit_image, LimitImage, Limiter};
pub use limits::{BadLines, LabelLimits, LimitTable, Nesting, PrefixLimits, RateOfLabel};
pub use list::{BadLine, Format, ListError, ReadOptions, ReadReport, Remark};
pub use live::{LiveError, LiveImage, LiveTable, Readers};
pub use overlap::Crossings;
pub use prefix::{Prefix4, Prefix6};
pub use problem::Problem;
pub use reads::Reads;
pub use reference::Reference;
pub use split_mix::SplitMix;
