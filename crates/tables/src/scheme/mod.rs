//! The lookup schemes that RFPF's authors compared, and their reference. Benchmarks compare Weir's layouts with them.
//!
//! Zec et al., "RFPF: surgical DDoS filtering with fast LPM", section II and Table 1. Each file holds one scheme: bit
//! diagrams, worked example, builder, and the same lookup that `datapath/include/scheme` has in C. A policy cannot
//! choose them, because they are no [`weir_abi::Layout`]. Their images are never read from outside, and none runs in
//! the kernel.
//!
//! They are for IPv4 only. A table that exceeds a scheme is refused with the limit, which the paper shows as (NC).
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

pub(crate) mod blocks;
mod dir24_8;
pub(crate) mod dxr;
mod image;
mod poptrie;
mod radix;
mod sail;
pub(crate) mod unique;

use std::collections::HashSet;
use std::fmt;

use weir_abi::Family;

pub use dxr::Shape;
pub use image::{SchemeImage, SchemeView};

use crate::entries::{Kind, Table};
use crate::problem::family_name;

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

    /// The C lookup function of its images, `uint32_t find(struct table table, uint32_t addr)`, and its header below
    /// `datapath/include`.
    pub const fn c_lookup(self) -> (&'static str, &'static str) {
        match self {
            Scheme::Dxr(shape) => (shape.c_function(), "scheme/dxr_shapes.h"),
            Scheme::Poptrie18 => ("poptrie_find", "scheme/poptrie.h"),
            Scheme::SailL => ("sail_find", "scheme/sail.h"),
            Scheme::Dir24_8 => ("dir24_8_find", "scheme/dir24_8.h"),
            Scheme::Radix => ("radix_find", "scheme/radix.h"),
        }
    }

    /// Builds the image of an IPv4 table.
    ///
    /// # Errors
    /// The table is of the other family, or exceeds a limit of the scheme.
    pub fn build(self, table: &Table) -> Result<SchemeImage, SchemeError> {
        if table.family() != Family::Ipv4 {
            return Err(SchemeError::Family { scheme: self, family: table.family() });
        }
        let limit = |Limit { what, max }| SchemeError::Limit { scheme: self, what, max };
        let labels = match table.kind() {
            Kind::Set => 1,
            Kind::Labels => table.labels().len() as u32,
        };
        let prefixes = table.prefixes4();
        let writer = image::Writer { scheme: self, entries: prefixes.len() as u32, labels };
        match self {
            Scheme::Dxr(shape) => {
                image::write_dxr(&writer, shape, &dxr::build(prefixes, labels, shape).map_err(limit)?)
            }
            Scheme::Poptrie18 => poptrie::build(prefixes, labels).map_err(limit)?.write(&writer),
            Scheme::SailL => sail::build(prefixes, labels).map_err(limit)?.write(&writer),
            Scheme::Dir24_8 => dir24_8::build(prefixes, labels).map_err(limit)?.write(&writer),
            Scheme::Radix => radix::build(prefixes).write(&writer),
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A limit of a scheme that a table exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// What exceeds the limit.
    pub what: &'static str,
    /// The limit.
    pub max: usize,
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

/// The characteristics of a table in a scheme, as in the paper's Table 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Characteristics {
    /// N: prefixes.
    pub prefixes: usize,
    /// L: mean prefix length in bits; 0 for an empty table.
    pub mean_length_bits: f64,
    /// delta: distinct labels in use.
    pub labels: usize,
    /// mu: the share of random keys that the direct and extension tables answer. DXR only.
    pub hit_ratio: Option<f64>,
    /// phi: bytes of the direct and extension tables, divided by 4 bytes for each value of the bits that they index.
    /// DXR only.
    pub footprint_ratio: Option<f64>,
    /// rho: 32-bit words of the range table. DXR only.
    pub ranges: Option<usize>,
    /// M: bytes of all sections, without the image's header.
    pub bytes: usize,
}

impl Characteristics {
    /// The characteristics of an image and of the table that it was built from.
    pub fn of(table: &Table, image: &SchemeImage) -> Self {
        let prefixes = table.prefixes4();
        let length: u64 = prefixes.iter().map(|prefix| u64::from(prefix.len)).sum();
        let labels: HashSet<u32> = prefixes.iter().map(|prefix| prefix.label).collect();
        let dxr = image.dxr();
        Characteristics {
            prefixes: prefixes.len(),
            mean_length_bits: if prefixes.is_empty() { 0.0 } else { length as f64 / prefixes.len() as f64 },
            labels: labels.len(),
            hit_ratio: dxr.map(|(shape, view)| view.hit_ratio(shape)),
            footprint_ratio: dxr.map(|(shape, view)| view.footprint_ratio(shape)),
            ranges: dxr.map(|(_, view)| view.ranges.len()),
            bytes: image.sections().iter().map(|&(_, bytes)| bytes).sum(),
        }
    }
}
