//! Receive side scaling: how a card distributes packets to its receive queues (linux/ethtool.h, `ETHTOOL_GRSSH`). The
//! question is whether both directions of a flow get the same hash.
//!
//! The Toeplitz hash of a packet adds 32-bit windows of its key, one for each set bit in addresses and ports. If the
//! key repeats every 16 bits, exchanging source and destination exchanges equal windows and keeps the sum (Woo and
//! Park, "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling").

use std::io;

use crate::live::os::device::Device;

/// `ETHTOOL_GRSSH`
const GET_RSS: u32 = 0x46;
/// `ETH_RSS_HASH_TOP`
const TOEPLITZ: u8 = 1 << 0;
/// `RXH_XFRM_SYM_XOR`, `RXH_XFRM_SYM_OR_XOR`: the card mixes source and destination before it hashes (Linux 6.8).
const MIXES: u8 = 1 << 0 | 1 << 1;
/// Maximum size of table and key together. A card with more is not analysed.
const CONFIG_BYTES: usize = 16 << 10;

/// `struct ethtool_rxfh`, with room for the table (words) and the key (bytes) that follow it.
#[repr(C)]
pub(in crate::live) struct Rss {
    cmd: u32,
    context: u32,
    table_words: u32,
    key_bytes: u32,
    function: u8,
    mixing: u8,
    reserved: [u8; 2],
    reserved_too: u32,
    config: [u8; CONFIG_BYTES],
}

impl Rss {
    /// A request with room for this size of answer.
    fn ask(table_words: u32, key_bytes: u32) -> Box<Self> {
        Box::new(Rss {
            cmd: GET_RSS,
            context: 0,
            table_words,
            key_bytes,
            function: 0,
            mixing: 0,
            reserved: [0; 2],
            reserved_too: 0,
            config: [0; CONFIG_BYTES],
        })
    }

    fn key(&self) -> Option<&[u8]> {
        let start = (self.table_words as usize).checked_mul(size_of::<u32>())?;
        self.config.get(start..start.checked_add(self.key_bytes as usize)?)
    }

    /// `None` if it cannot be determined.
    fn is_symmetric(&self) -> Option<bool> {
        if self.mixing & MIXES != 0 {
            return Some(true);
        }
        let key = self.key().filter(|key| self.function == TOEPLITZ && key.len() > 2)?;
        Some(key.iter().zip(&key[2..]).all(|(byte, next)| byte == next))
    }
}

/// Whether the card gives both directions of a flow the same hash; `None` if the driver does not say.
pub(in crate::live) fn is_symmetric(device: &Device) -> Option<bool> {
    let read = |mut question: Box<Rss>| -> io::Result<Box<Rss>> {
        // SAFETY: the structure is the one of this request. Table and key have the sizes that it gives, which were
        // checked to fit, or 0.
        unsafe { device.ask_ethtool(&mut *question)? };
        Ok(question)
    };
    let sizes = read(Rss::ask(0, 0)).ok()?;
    // The kernel writes only as much as the request has room for.
    sizes.key()?;
    read(Rss::ask(sizes.table_words, sizes.key_bytes)).ok()?.is_symmetric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_key(key: &[u8]) -> Box<Rss> {
        let mut rss = Rss::ask(128, key.len() as u32);
        rss.function = TOEPLITZ;
        rss.config[512..512 + key.len()].copy_from_slice(key);
        rss
    }

    /// The hash of 96 bits: two addresses and two ports.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |at: usize| key[at / 8 % key.len()] >> (7 - at % 8) & 1;
        let window = |from: usize| (0..32).fold(0u32, |sum, at| sum << 1 | u32::from(bit(from + at)));
        let set = (0..8 * input.len()).filter(|&at| input[at / 8] >> (7 - at % 8) & 1 == 1);
        set.fold(0, |hash, at| hash ^ window(at))
    }

    #[test]
    fn a_key_of_two_bytes_again_and_again_is_symmetric() {
        let there = [10, 9, 0, 1, 192, 0, 2, 77, 0x9c, 0x40, 0, 80];
        let back = [192, 0, 2, 77, 10, 9, 0, 1, 0, 80, 0x9c, 0x40];
        let symmetric = [0x6d, 0x5a].repeat(20);
        let mut usual = symmetric.clone();
        usual[7] ^= 1;
        for (key, same) in [(symmetric, true), (usual, false)] {
            assert_eq!(with_key(&key).is_symmetric(), Some(same));
            assert_eq!(toeplitz(&key, &there) == toeplitz(&key, &back), same);
        }
    }

    #[test]
    fn what_the_driver_does_not_say_nobody_knows() {
        assert_eq!(Rss::ask(0, 0).is_symmetric(), None);
        let mut xor = with_key(&[1, 2, 3, 4]);
        xor.function = 2;
        assert_eq!(xor.is_symmetric(), None);
        xor.mixing = 1;
        assert_eq!(xor.is_symmetric(), Some(true));
        let mut lies = with_key(&[1; 4]);
        (lies.table_words, lies.key_bytes) = (u32::MAX, u32::MAX);
        assert_eq!(lies.is_symmetric(), None);
        assert_eq!(super::is_symmetric(&Device::open("lo").expect("there is one")), None);
    }
}
