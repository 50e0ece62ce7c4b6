//! Reads numbers, texts and prefixes of a payload. Each method returns `None` if the bytes are missing or invalid.

use std::net::IpAddr;

use weir_abi::Family;

/// The bytes of a payload that are left.
pub(super) struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn text(&mut self, length: usize) -> Option<&'a str> {
        std::str::from_utf8(self.take(length)?).ok()
    }

    pub fn prefix(&mut self, is_ipv6: bool) -> Option<(IpAddr, u8)> {
        let (addr, bits) = match is_ipv6 {
            true => (IpAddr::from(self.array::<16>()?), Family::Ipv6.bits()),
            false => (IpAddr::from(self.array::<4>()?), Family::Ipv4.bits()),
        };
        self.u8().filter(|&len| len <= bits).map(|len| (addr, len))
    }

    pub fn list<T>(&mut self, one: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| one(self)).collect()
    }
}
