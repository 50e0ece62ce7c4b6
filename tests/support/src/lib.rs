//! Packets for tests: written as text, or made up by proptest. Depends on no other crate of Weir.
#![forbid(unsafe_code)]
