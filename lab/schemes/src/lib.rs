//! The lookup schemes that RFPF's authors compared, and their reference. Benchmarks compare Weir's layouts with them.
//!
//! Zec et al., "RFPF: surgical DDoS filtering with fast LPM", section II and Table 1. Each scheme has one file: bit
//! diagrams, worked example, builder, and the same lookup that [`HEADERS`] have in C. A policy cannot
//! choose them, because they are no [`weir_abi::Layout`]. Their images are never read from outside, and none runs in
//! the kernel.
//!
//! Schemes are for IPv4 only. A table that exceeds a scheme is refused with the limit, which the paper shows as (NC).
//!
//! Sizes in MiB ([`Characteristics::bytes`]) of uniformly random addresses, and of a country list of 493,630 prefixes
//! with 250 labels:
//!
//! ```text
//!               d20r  d16x2r  d16x4r  poptrie   sail  dir24-8  radix
//! 178k          4.31    2.04    4.11    13.52  45.26    32.60   5.43
//! 1.1M          (NC)   10.54   10.83    64.90   (NC)    42.89  33.97
//! country       5.15    1.51    1.81     2.90  10.20    38.88  15.05
//! ```

#![forbid(unsafe_code)]

mod build;
mod characteristics;
mod dir24_8;
mod dxr;
mod image;
mod leaf_block;
mod limit;
mod poptrie;
mod radix;
mod sail;
mod view;

use std::fmt;

use weir_abi::Family;
use weir_tables::problem::family_name;

pub use characteristics::Characteristics;
pub use dxr::Shape;
pub use image::SchemeImage;
pub(crate) use limit::Limit;
pub use view::SchemeView;

/// The C lookups: the path of each header in `#include`, and its text. They include headers of the datapath. The files
/// are in `lab/schemes/c`.
pub const HEADERS: [(&str, &str); 5] = [
    ("scheme/dxr_shapes.h", include_str!("../c/scheme/dxr_shapes.h")),
    ("scheme/poptrie.h", include_str!("../c/scheme/poptrie.h")),
    ("scheme/sail.h", include_str!("../c/scheme/sail.h")),
    ("scheme/dir24_8.h", include_str!("../c/scheme/dir24_8.h")),
    ("scheme/radix.h", include_str!("../c/scheme/radix.h")),
];

/// A lookup scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Direct tables and ranges: [`Scheme::D20R`], [`Scheme::D16X2R`], [`Scheme::D16X4R`].
    Dxr(Shape),
    /// Direct pointing with 18 bits, then a compressed 64-way trie.
    Poptrie18,
    /// Arrays at /16, /24 and /32.
    SailL,
    /// Arrays at /24 and /32.
    Dir24_8,
    /// Path-compressed binary trie, the reference.
    Radix,
}

impl Scheme {
    /// The original DXR.
    pub const D20R: Scheme = Scheme::Dxr(dxr::D20R);
    /// The smaller enhanced DXR.
    pub const D16X2R: Scheme = Scheme::Dxr(dxr::D16X2R);
    /// The faster enhanced DXR, with the same tables as [`weir_abi::Layout::Dxr16x4`].
    pub const D16X4R: Scheme = Scheme::Dxr(dxr::D16X4R);

    /// All schemes, in the order of the paper's figures.
    pub const ALL: [Scheme; 7] = [
        Scheme::D20R,
        Scheme::D16X2R,
        Scheme::D16X4R,
        Scheme::Poptrie18,
        Scheme::SailL,
        Scheme::Dir24_8,
        Scheme::Radix,
    ];

    /// The name that benchmarks use.
    pub const fn name(self) -> &'static str {
        match self {
            Scheme::Dxr(shape) => shape.name(),
            Scheme::Poptrie18 => "poptrie",
            Scheme::SailL => "sail",
            Scheme::Dir24_8 => "dir24-8",
            Scheme::Radix => "radix",
        }
    }

    /// The scheme with the given name.
    pub fn from_name(name: &str) -> Option<Self> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name)
    }

    /// The C lookup function of its images, `uint32_t find(struct table table, uint32_t addr)`, and its header in
    /// [`HEADERS`].
    pub const fn c_lookup(self) -> (&'static str, &'static str) {
        match self {
            Scheme::Dxr(shape) => (shape.c_function(), "scheme/dxr_shapes.h"),
            Scheme::Poptrie18 => ("poptrie_find", "scheme/poptrie.h"),
            Scheme::SailL => ("sail_find", "scheme/sail.h"),
            Scheme::Dir24_8 => ("dir24_8_find", "scheme/dir24_8.h"),
            Scheme::Radix => ("radix_find", "scheme/radix.h"),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a scheme cannot hold a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// The table is of the other family; all schemes are for IPv4.
    #[error("scheme {scheme} does not hold {} prefixes", family_name(*family))]
    Family {
        /// The scheme.
        scheme: Scheme,
        /// The table's family.
        family: Family,
    },
    /// The table exceeds a limit of the scheme; (NC) in the paper.
    #[error("scheme {scheme} holds at most {max} {what}")]
    Limit {
        /// The scheme.
        scheme: Scheme,
        /// What exceeds the limit.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The image would be larger than 4 GiB.
    #[error("the image in scheme {scheme} would exceed 4 GiB")]
    TooBig {
        /// The scheme.
        scheme: Scheme,
    },
}
