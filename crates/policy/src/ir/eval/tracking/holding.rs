//! What a packet means for the connections that an address holds ([`weir_abi::seats`]).

use super::{Packet, PacketState, Tracked, Tracker};
use weir_abi::flow::Arrival;
use weir_abi::packet::L4;
use weir_abi::seats::{self, Claim};

/// The connection of a packet that was tracked.
pub(in crate::ir::eval) struct Holding<'t> {
    /// Its seat.
    pub(in crate::ir::eval) seat: u64,
    /// What the packet wants.
    pub(in crate::ir::eval) claim: Claim,
    /// Whether the flow of a seat counts now.
    pub(in crate::ir::eval) is_live: Box<dyn FnMut(u64) -> bool + 't>,
}

impl Tracker {
    /// The connection of a packet from a side, which was tracked last.
    pub(in crate::ir::eval) fn holding(&self, tracked: &Tracked, packet: &Packet, arrival: Arrival) -> Holding<'_> {
        let (key, now) = (self.key(packet, arrival), self.now());
        let is_of_flow = matches!(tracked.state, PacketState::New | PacketState::Established);
        let claim = match (is_of_flow && packet.l4 == L4::Tcp, tracked.opening.is_some()) {
            (false, _) => Claim::None,
            (true, true) => Claim::Free,
            // The packet may have ended its flow.
            (true, false) => self.table.get(&key).map_or(Claim::None, |flow| Claim::of(&flow)),
        };
        let is_live = Box::new(move |seat| self.table.any_of(&seats::flow_of(seat), now, Claim::Seat));
        Holding { seat: seats::of_flow(&self.table.hash(&key)), claim, is_live }
    }
}
