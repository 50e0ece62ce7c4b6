//! The direction of each packet of a capture: the same for all, or by its source address (`--inside`).

use crate::cli::ChainOptions;
use crate::failure::Failure;
use std::net::IpAddr;
use std::str::FromStr;
use weir_abi::Verdict;
use weir_abi::packet::L3;
use weir_engine::{EngineError, Filter, FrameBurst};
use weir_loading::{Policy, eval};
use weir_policy::ir::Direction;
use weir_policy::ir::eval::packet::{self, Frame};

/// A prefix of the protected network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    is_ipv6: bool,
    address: u128,
    /// The bits that all addresses share.
    mask: u128,
}

impl FromStr for Inside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "a prefix such as 192.0.2.0/24 or 2001:db8::/32 is expected".to_owned();
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let (is_ipv6, address, bits) = match address.parse().map_err(|_| expected())? {
            IpAddr::V4(address) => (false, u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (true, address.to_bits(), 128),
        };
        let length: u32 = length.map_or(Ok(bits), str::parse).map_err(|_| expected())?;
        if length > bits {
            return Err(expected());
        }
        let mask = (u128::MAX >> (128 - bits)) & !(u128::MAX >> (128 - bits)).checked_shr(length).unwrap_or(0);
        if address & !mask != 0 {
            return Err(format!("bits behind the length of {length} are set"));
        }
        Ok(Inside { is_ipv6, address, mask })
    }
}

impl Inside {
    fn contains(&self, is_ipv6: bool, address: u128) -> bool {
        self.is_ipv6 == is_ipv6 && address & self.mask == self.address
    }
}

/// The chains that decide the packets of a capture.
pub struct Directions {
    /// Indices of the chains: upstream and downstream. They are equal if all packets have one direction.
    chains: [usize; 2],
    inside: Vec<Inside>,
    name: &'static str,
}

impl Directions {
    /// Finds the chains of the options, and removes all others from the policy.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn only(policy: &mut Policy, options: &ChainOptions) -> Result<Self, Failure> {
        let mut directions = Self::among_all(policy, options)?;
        if !policy.is_bundle() {
            policy.keep_chains(&directions.chains);
            // The chains of a posture are adjacent, upstream first.
            directions.chains = if options.inside.is_empty() { [0, 0] } else { [0, 1] };
        }
        Ok(directions)
    }

    /// Finds the chains of the options.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn among_all(policy: &Policy, options: &ChainOptions) -> Result<Self, Failure> {
        let (of_each, name) = match options.inside.is_empty() {
            true => ([options.direction(); 2], options.direction().name()),
            false => (Direction::BOTH, "both"),
        };
        let [upstream, downstream] = of_each;
        let posture = options.posture();
        let chains = [policy.chain(posture, upstream)?, policy.chain(posture, downstream)?];
        Ok(Directions { chains, inside: options.inside.clone(), name })
    }

    /// `upstream`, `downstream` or `both`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The chain that decides a frame. A source inside goes downstream, every other packet upstream.
    pub fn chain(&self, frame: Frame<'_>) -> usize {
        let [upstream, downstream] = self.chains;
        if self.inside.is_empty() {
            return upstream;
        }
        let packet = packet::parse(frame).0;
        let is_ip = matches!(packet.l3, L3::Ipv4 | L3::Ipv6);
        let is_inside = self.inside.iter().any(|inside| inside.contains(packet.l3 == L3::Ipv6, packet.saddr));
        if is_ip && is_inside { downstream } else { upstream }
    }

    /// Decides a burst: consecutive packets of one direction at once.
    ///
    /// # Errors
    /// The engine fails.
    pub fn decide(
        &self,
        filter: &mut dyn Filter,
        burst: &FrameBurst<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), EngineError> {
        if self.inside.is_empty() {
            return filter.decide(self.chains[0], burst, verdicts);
        }
        let mut decided = 0;
        while decided < burst.len() {
            let chain = self.chain(eval::frame(burst, decided));
            let others = (decided..burst.len()).take_while(|&index| self.chain(eval::frame(burst, index)) == chain);
            let count = others.count();
            filter.decide(chain, &burst.after(decided).first(count), &mut verdicts[decided..])?;
            decided += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Inside;

    #[test]
    fn prefixes() {
        let read = |text: &str| text.parse::<Inside>();
        assert!(read("192.0.2.0/24").unwrap().contains(false, 0xc000_02ff));
        assert!(!read("192.0.2.0/24").unwrap().contains(false, 0xc000_0300));
        assert!(!read("192.0.2.0/24").unwrap().contains(true, 0xc000_02ff));
        assert!(read("0.0.0.0/0").unwrap().contains(false, 1));
        assert!(read("::/0").unwrap().contains(true, 1 << 127));
        assert!(read("2001:db8::/32").unwrap().contains(true, 0x2001_0db8 << 96 | 1));
        assert!(read("192.0.2.1").unwrap().contains(false, 0xc000_0201));
        assert!(!read("192.0.2.1").unwrap().contains(false, 0xc000_0200));
        assert_eq!(read("192.0.2.1/24").unwrap_err(), "bits behind the length of 24 are set");
        for wrong in ["", "192.0.2.0/33", "192.0.2.0/x", "::/129", "eth0"] {
            assert_eq!(read(wrong).unwrap_err(), "a prefix such as 192.0.2.0/24 or 2001:db8::/32 is expected");
        }
    }
}
