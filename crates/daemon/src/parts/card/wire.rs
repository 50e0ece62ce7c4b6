//! The places of the wire-side card, as mitigation knows cards.

use std::net::IpAddr;
use weir_abi::wire_card::CardCount;
use weir_engine::live::card::{CardTable, Refused};
use weir_mitigate::offload::{Hits, OffloadTable, TableError};

/// A place of the wire-side card.
pub struct WirePlace(pub CardTable);

/// What a card has counted.
pub fn hits(count: CardCount) -> Hits {
    Hits { packets: count.packets, bytes: count.bytes, last_ns: count.last_ns }
}

/// Why a card refuses. Reports what failed.
pub fn refused(refused: Refused) -> TableError {
    match refused {
        Refused::Full => TableError::Full,
        Refused::Failed(error) => {
            warning!("weir: card: {error}");
            TableError::Failed
        }
    }
}

impl OffloadTable<IpAddr> for WirePlace {
    fn capacity(&self) -> usize {
        self.0.capacity()
    }

    fn add(&mut self, key: IpAddr) -> Result<(), TableError> {
        self.0.add(key).map_err(refused)
    }

    fn delete(&mut self, key: IpAddr) -> Result<Hits, TableError> {
        Ok(hits(self.0.delete(key).map_err(refused)?.unwrap_or_default()))
    }

    fn clear(&mut self) -> Result<Vec<(IpAddr, Hits)>, TableError> {
        let gone = self.0.clear().map_err(refused)?;
        Ok(gone.into_iter().map(|entry| (entry.source, hits(entry.count))).collect())
    }

    fn counters(&mut self) -> Vec<(IpAddr, Hits)> {
        self.0.entries().map(|entry| (entry.source, hits(entry.count))).collect()
    }

    fn update_ns(&self) -> u64 {
        self.0.update().as_nanos() as u64
    }
}
