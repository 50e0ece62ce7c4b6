//! A card in front of the software: what it can do, which rules it takes, and what it leaves in the packet.
//!
//! The way of a policy: [`profile`] says what a card can do. [`classify`] gives each rule its [`category`]. [`split`]
//! makes two programs of one: a [`program`] for the card, and a chain for the software that uses the card's answers.
//! [`distributor`] chooses which rules are worth it. [`image`] is the card's program as words for its memories.
//!
//! The way of a packet: [`eval`] does what a card does with it, and [`receive`] reads what the card has appended
//! ([`body`]).
//!
//! The crate has no clock, no input or output and no tables: the caller does the lookups ([`Lookups`]). The paper is
//! "Enhancing Mitigation of Volumetric DDoS Attacks: A Hybrid FPGA/Software Filtering Datapath" (Salopek and Mikuc,
//! 2023); its tables are in `category`. `docs/reference/card-layout.md` has the layouts.
#![forbid(unsafe_code)]

pub mod body;
pub mod category;
pub mod classify;
pub mod control;
pub mod device;
pub mod distributor;
pub mod eval;
pub mod field;
pub mod image;
pub mod memories;
mod pattern;
pub mod profile;
pub mod program;
pub mod receive;
mod room;
pub mod session;
pub mod split;

pub use category::Category;
pub use profile::Profile;

/// The IPv4 lookups of a card and of the software behind it, over the same tables: an image `d16x4r` of each.
pub trait Lookups {
    /// The entry that the D16 and X4 stages of a lookup find for an address: 32 bits.
    fn begin(&self, lookup: usize, address: u32) -> u32;

    /// The label that the R stage finds from an entry and the low 12 bits of the address.
    fn finish(&self, lookup: usize, entry: u32, low: u16) -> u32;
}

/// What the compiler must know about a table to place it on a card.
pub trait TableSizes {
    /// Number of extension blocks of the table's image `d16x4r`; `None` if there is no such image.
    fn blocks(&self, table: &str) -> Option<usize>;
}

impl<L: Lookups> Lookups for &L {
    fn begin(&self, lookup: usize, address: u32) -> u32 {
        (**self).begin(lookup, address)
    }

    fn finish(&self, lookup: usize, entry: u32, low: u16) -> u32 {
        (**self).finish(lookup, entry, low)
    }
}

impl<F: Fn(&str) -> Option<usize>> TableSizes for F {
    fn blocks(&self, table: &str) -> Option<usize> {
        self(table)
    }
}
