//! The policy of the scenario, and its lists.

use crate::data::{Dataset, list};
use crate::plan::Plan;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use weir_command::failure::Failure;
use weir_engine::traffic::SplitMix;

/// The tables, which are named after their layouts.
pub const LAYOUTS: [&str; 3] = ["exact-set", "rank-leaf", "d16x4r"];

/// The addresses of tables, and lists with them.
pub struct Lists {
    /// The folder of all files.
    pub folder: PathBuf,
    /// The addresses of the smaller tables, in order.
    pub addresses: Vec<u32>,
    /// The policy.
    pub policy: PathBuf,
    /// Two lists of 1.1 million addresses, which replace each other.
    pub large: [PathBuf; 2],
}

impl Lists {
    /// Writes the policy and its lists.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(folder: &Path, plan: &Plan<'_>) -> Result<Self, Failure> {
        let addresses = plan.load(Dataset::BLOCK_178K)?.addresses();
        let many = plan.load(Dataset::BLOCK_1_1M)?.addresses();
        let put = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
            Ok::<_, Failure>(path)
        };
        put("block.txt", &list(&addresses))?;
        let tables = LAYOUTS.map(|layout| {
            let declared =
                |name: &str, file: &str| format!("table {name} {{ type ipv4; layout {layout}; file \"{file}\" }}\n");
            declared(&name_of(layout), "block.txt") + &declared(&large(layout), "large.txt")
        });
        let rules =
            LAYOUTS.map(|layout| format!("ip saddr @{} drop; ip daddr @{} drop; ", name_of(layout), large(layout)));
        let policy = format!("{}upstream {{ {}accept }}\ndownstream {{ accept }}\n", tables.concat(), rules.concat());
        let other: Vec<u32> = many.iter().map(|address| address ^ 0x0000_0101).collect();
        Ok(Lists {
            folder: folder.to_owned(),
            policy: put("tables.weir", &policy)?,
            large: [put("large.txt", &list(&many))?, put("other.txt", &list(&other))?],
            addresses,
        })
    }

    /// Addresses that are in no table, in random order.
    pub fn absent(&self, count: usize) -> Vec<u32> {
        let mut random = SplitMix::new(17);
        let (mut absent, mut drawn) = (Vec::with_capacity(count), HashSet::with_capacity(count));
        while absent.len() < count {
            let address = random.draw() as u32;
            // 10.0.0.0/8 and multicast are for others.
            let ours = (11 << 24..224 << 24).contains(&address);
            if ours && self.addresses.binary_search(&address).is_err() && drawn.insert(address) {
                absent.push(address);
            }
        }
        absent
    }
}

/// The name of the table with a layout.
pub fn name_of(layout: &str) -> String {
    layout.replace('-', "_")
}

/// The name of the table with a layout and 1.1 million addresses.
pub fn large(layout: &str) -> String {
    format!("large_{}", name_of(layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_after_layouts() {
        assert_eq!((name_of("exact-set"), large("d16x4r")), ("exact_set".to_owned(), "large_d16x4r".to_owned()));
    }
}
