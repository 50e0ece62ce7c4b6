//! Changes for which there is no room.

use std::net::IpAddr;

use super::*;
use crate::entries::{Entries as Contents, Kind};
use crate::image::ImageView;
use crate::live::recorded::copy;
use crate::live::{LiveTable, LiveWriter, Readers};
use weir_abi::{Family, Layout};

impl RankWriter {
    /// Checks the writer's state against a new scan of the image, if nothing waits.
    pub fn assert_surveyed(&self, cells: &impl CellsMut) {
        let found = Survey::of(cells, self.offsets);
        assert_eq!(self.pools.lanes.taken(), found.taken, "lanes");
        assert_eq!(self.pools.entries.taken(), found.seen.iter().filter(|&&seen| seen).count(), "entries");
        assert_eq!(self.pools.uniform, found.uniform, "leaves of one run");
        assert_eq!(self.pools.leaves, found.leaves, "parents of leaves");
        assert_eq!(self.pools.blocks, found.blocks, "parents of blocks");
    }
}

/// Prefixes all over the address space, of many lengths.
fn net(family: Family, number: u32) -> Net {
    let mixed = number.wrapping_mul(0x9e37_79b1);
    match family {
        Family::Ipv4 => Net::of4(mixed, [32, 32, 28, 9, 17, 24][number as usize % 6]),
        // Up to three chunks below another.
        Family::Ipv6 => {
            let addr = 0x2001 << 112 | u128::from(mixed >> 16) << 96 | u128::from(mixed & 0xff) << 72 | 1;
            Net::new(addr, [64, 128, 48, 33, 80, 64][number as usize % 6])
        }
    }
}

/// Sets the label of a prefix in place. Returns whether there was room.
fn set(live: &mut LiveTable, net: Net, label: u32) -> bool {
    let old = live.rib.set(net, label);
    let LiveWriter::RankLeaf(writer) = &mut live.writer else { panic!("it is made of rank leaves") };
    let done = writer.change(live.published.image(), &live.readers, &live.rib, net, 9).is_ok();
    writer.reclaim(live.published.image(), &live.readers);
    if !done {
        live.rib.set(net, old);
    }
    writer.assert_surveyed(live.published.image());
    done
}

#[test]
fn changes_that_fail_midway_lose_nothing() {
    for (family, layout) in [(Family::Ipv4, Layout::RankLeaf), (Family::Ipv6, Layout::RankLeaf6)] {
        let mut entries = Contents::new(family, Kind::Labels);
        for number in 0..60 {
            let net = net(family, number);
            let addr = match family {
                Family::Ipv4 => IpAddr::V4(net.addr4().into()),
                Family::Ipv6 => IpAddr::V6(net.first.into()),
            };
            entries.insert_prefix(addr, net.len, Some(&format!("L{}", number % 9))).expect("it is a prefix");
        }
        let mut live = LiveTable::new(&Readers::new(), &entries.settle(), layout).expect("there are few");
        let (mut made, mut failed, mut number) = (0, 0, 60);
        while failed < 300 {
            number += 1;
            match set(&mut live, net(family, number), 1 + number % 9) {
                true => made += 1,
                false => failed += 1,
            }
            assert!(number < 100_000, "{layout:?}: {made} made, {failed} failed");
        }
        assert!(made > 300, "{layout:?}: {made}");
        let image = copy(live.published.image());
        let view = ImageView::new(&image).expect("the image is valid");
        for net in (0..=number).map(|number| net(family, number)) {
            let found = match family {
                Family::Ipv4 => view.find4(net.addr4()),
                Family::Ipv6 => view.find6(net.first),
            };
            assert_eq!(found, live.rib.cover(Net { len: family.bits(), ..net }), "{layout:?}");
        }
    }
}
