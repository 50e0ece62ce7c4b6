//! Rules of slots: text that is checked as a rule of the language (`read`), the tests that define what it means, and
//! the record that engines interpret ([`weir_abi::slot`]).

mod fields;
mod print;
mod read;
mod record;
mod rule;

pub use print::text;
pub use read::Refused;
pub use rule::{Act, SlotRule};

#[cfg(test)]
mod tests;
