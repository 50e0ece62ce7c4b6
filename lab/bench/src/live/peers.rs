//! The XDP programs in peers.c.

use std::sync::Arc;
use weir_command::failure::Failure;
use weir_engine::clang::{BpfShape, Clang, DataSizes, Hook};
use weir_engine::xdp::plain::PlainPrograms;
use weir_tables::limit_image::Logged;

/// The section with the number of packets that the programs let pass.
pub const PASSED: &str = ".bss.passed";

/// Compiles and loads peers.c. Fills its maps with the addresses.
///
/// # Errors
/// clang or the kernel rejects it.
pub fn load(clang: &Clang, addresses: &[u32]) -> Result<Arc<PlainPrograms>, Failure> {
    let sizes = DataSizes::Known { tables: vec![], limits: None };
    let shape = BpfShape { sizes, counters: 64, logged: Logged::Nothing, hook: Hook::Received };
    let programs = PlainPrograms::load("peers", &clang.bpf("peers", include_str!("peers.c"), &shape)?.object)?;
    let found = [1u8];
    programs.fill("peer_trie", addresses.iter().map(|&address| (lpm_key(address), found)))?;
    programs.fill("peer_hash", addresses.iter().map(|&address| (address.to_be_bytes(), found)))?;
    Ok(Arc::new(programs))
}

/// `struct lpm_key` of peers.c with the whole address as prefix.
pub fn lpm_key(address: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&32u32.to_ne_bytes());
    key[4..].copy_from_slice(&address.to_be_bytes());
    key
}
