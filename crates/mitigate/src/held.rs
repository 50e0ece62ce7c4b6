//! What is held back before it is measured: a SYN proxy answers SYNs, and rules in front of the samples drop packets.
//!
//! A posture that stops an attack hides it, so only counters of the datapath say that the attack goes on. They count
//! packets to all destinations together.

use crate::baseline::{Baselines, FACTOR};
use crate::learned::{Pace, UsualRate};
use crate::prefix::{Level, Prefix};
use serde::{Deserialize, Serialize};
use weir_abi::PacketClass;

/// A lower rate is no attack: the floor of a host.
const LEAST_PPS: f64 = 100.0;

/// Packets from outside that the datapath has held back in a window, whichever rule did it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// SYNs that were answered with a cookie.
    pub cookies: u64,
    /// Packets that were dropped, apart from those that rules of slots drop.
    pub dropped: u64,
}

/// What is held back in peace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UsuallyHeld {
    cookies: UsualRate,
    dropped: UsualRate,
}

/// What a posture holds back beyond what its victims' customers and the base policy explain, packets a second; 0 if
/// they may explain all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Excess {
    /// SYNs that were answered with a cookie.
    pub cookies_pps: f64,
    /// Packets that were dropped.
    pub dropped_pps: f64,
}

impl Excess {
    /// What belongs to an attack that consists of a class. Cookies answer SYNs.
    pub fn of(&self, class: PacketClass) -> f64 {
        self.dropped_pps + if class == PacketClass::Syn { self.cookies_pps } else { 0.0 }
    }
}

impl UsuallyHeld {
    /// Learns from a window of peace.
    pub fn learn(&mut self, held: &HeldBack, seconds: f64, pace: Pace) {
        let free_pps = LEAST_PPS / FACTOR;
        self.cookies.learn(held.cookies as f64 / seconds, seconds, pace, free_pps);
        self.dropped.learn(held.dropped as f64 / seconds, seconds, pace, free_pps);
    }

    /// Nothing is known any more.
    pub fn reset(&mut self) {
        *self = UsuallyHeld::default();
    }

    /// What is held back in a window beyond three times the usual. A posture may hold back all that is usual without
    /// it: its proxy answers SYNs of customers too, and a closed posture drops their packets. Such a posture would
    /// never end if their packets counted.
    pub fn excess(&self, held: &HeldBack, seconds: f64, baselines: &Baselines) -> Excess {
        let pps = |packets: u64| packets as f64 / seconds;
        let (cookies_pps, dropped_pps) = (pps(held.cookies), pps(held.dropped));
        if cookies_pps.max(dropped_pps) <= LEAST_PPS {
            return Excess::default();
        }
        let (mut syns_pps, mut all_pps) = (0.0, 0.0);
        let is_wide = |prefix: &Prefix| prefix.length() == Level::Wide.length(prefix.is_ipv6());
        for (_, usual) in baselines.prefixes().iter().filter(|(prefix, _)| is_wide(prefix)) {
            syns_pps += usual.packets_pps(PacketClass::Syn);
            all_pps += usual.total_pps();
        }
        let beyond = |pps: f64, usual_pps: f64| if pps > LEAST_PPS.max(usual_pps * FACTOR) { pps } else { 0.0 };
        Excess {
            cookies_pps: beyond(cookies_pps, syns_pps + self.cookies.pps()),
            dropped_pps: beyond(dropped_pps, all_pps + self.dropped.pps()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HeldBack, UsuallyHeld};
    use crate::baseline::{Baselines, Rate};
    use crate::learned::Pace;
    use crate::prefix::Prefix;
    use weir_abi::PacketClass;

    #[test]
    fn what_customers_and_the_base_policy_explain_is_no_excess() {
        let (mut usual, mut baselines) = (UsuallyHeld::default(), Baselines::default());
        usual.learn(&HeldBack { cookies: 0, dropped: 500 }, 1.0, Pace::Follow);
        baselines.set(Prefix::of(false, 0xc000_0000, 16), Rate::Packets(PacketClass::Syn), 100.0);
        baselines.set(Prefix::of(false, 0xc000_0000, 16), Rate::Packets(PacketClass::Tcp), 900.0);
        // Hosts are parts of it.
        baselines.set(Prefix::of(false, 0xc000_0001, 32), Rate::Packets(PacketClass::Syn), 100.0);
        let excess = |cookies, dropped| {
            let excess = usual.excess(&HeldBack { cookies, dropped }, 1.0, &baselines);
            [PacketClass::Syn, PacketClass::Udp].map(|class| excess.of(class))
        };
        assert_eq!(excess(300, 4500), [0.0, 0.0]);
        assert_eq!(excess(301, 0), [301.0, 0.0]);
        assert_eq!(excess(0, 4501), [4501.0, 4501.0]);
    }
}
