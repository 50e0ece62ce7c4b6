//! Longest prefix match by its definition: the reference for tests of every layout. It is slow on purpose.

use std::collections::HashMap;

use crate::prefix::{Address, Prefix};

/// A map from prefix to label for each prefix length.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    v4: Vec<HashMap<u32, u32>>,
    v6: Vec<HashMap<u128, u32>>,
}

impl Reference {
    pub(crate) fn new4(prefixes: &[Prefix<u32>]) -> Self {
        Reference { v4: by_length(prefixes), v6: Vec::new() }
    }

    pub(crate) fn new6(prefixes: &[Prefix<u128>]) -> Self {
        Reference { v4: Vec::new(), v6: by_length(prefixes) }
    }

    /// The label of the longest prefix that holds `addr`. 0 if no prefix holds it, or if the table is of the other
    /// family.
    pub fn find4(&self, addr: u32) -> u32 {
        find(&self.v4, addr)
    }

    /// The label of the longest prefix that holds `addr`. 0 if no prefix holds it, or if the table is of the other
    /// family.
    pub fn find6(&self, addr: u128) -> u32 {
        find(&self.v6, addr)
    }
}

/// Of two equal prefixes the later wins.
fn by_length<A: Address>(prefixes: &[Prefix<A>]) -> Vec<HashMap<A, u32>> {
    let mut maps = vec![HashMap::new(); usize::from(A::FAMILY.bits()) + 1];
    for prefix in prefixes {
        maps[usize::from(prefix.len)].insert(prefix.addr, prefix.label);
    }
    maps
}

fn find<A: Address>(maps: &[HashMap<A, u32>], addr: A) -> u32 {
    for (len, map) in maps.iter().enumerate().rev() {
        if let Some(&label) = map.get(&addr.without(A::host_mask(len as u8))) {
            return label;
        }
    }
    0
}
