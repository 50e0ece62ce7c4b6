//! XDP programs that policies are measured against.

use std::sync::Arc;
use weir::failure::Failure;
use weir_engine::clang::{BpfShape, Clang};
use weir_engine::xdp::plain::PlainPrograms;
use weir_tables::limit_image::Logged;

/// Where the programs count what they let pass.
pub const PASSED: &str = ".bss.passed";

/// Compiles and loads peers.c, with the addresses in its maps.
///
/// # Errors
/// clang or the kernel refuses it.
pub fn load(clang: &Clang, addresses: &[u32]) -> Result<Arc<PlainPrograms>, Failure> {
    let shape = BpfShape { table_bytes: vec![], counters: 64, limits: (0, 0), logged: Logged::Nothing };
    let programs = PlainPrograms::load("peers", &clang.bpf("peers", include_str!("peers.c"), &shape)?.object)?;
    let found = [1u8];
    programs.fill("peer_trie", addresses.iter().map(|&address| (lpm_key(address), found)))?;
    programs.fill("peer_hash", addresses.iter().map(|&address| (address.to_be_bytes(), found)))?;
    Ok(Arc::new(programs))
}

/// `struct lpm_key` of peers.c: all 32 bits of the address.
fn lpm_key(address: u32) -> [u8; 8] {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&32u32.to_ne_bytes());
    key[4..].copy_from_slice(&address.to_be_bytes());
    key
}
