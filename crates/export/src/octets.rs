//! Numbers in network byte order.

/// Bytes that are being written. Numbers are big-endian, as in XDR (RFC 4506) and IPFIX (RFC 7011).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Octets(pub Vec<u8>);

impl Octets {
    /// Appends a byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) {
        self.0.extend(value.to_be_bytes());
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_be_bytes());
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_be_bytes());
    }

    /// Appends bytes.
    pub fn bytes(&mut self, values: &[u8]) {
        self.0.extend(values);
    }

    /// Appends numbers of two bytes.
    pub fn u16s(&mut self, values: &[u16]) {
        values.iter().for_each(|value| self.u16(*value));
    }

    /// Appends numbers of four bytes.
    pub fn u32s(&mut self, values: &[u32]) {
        values.iter().for_each(|value| self.u32(*value));
    }

    /// Appends numbers of eight bytes.
    pub fn u64s(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.u64(*value));
    }

    /// Appends zeros up to a multiple of four bytes.
    pub fn pad(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Appends the number of bytes, the bytes and the padding: XDR's `opaque<>` and `string<>` (RFC 4506, 4.10).
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes(bytes);
        self.pad();
    }

    /// Appends a structure behind its format and its length in bytes: an opaque structure of sFlow.
    pub fn structure(&mut self, format: u32, write: impl FnOnce(&mut Octets)) {
        self.u32(format);
        let at = self.0.len();
        self.u32(0);
        write(self);
        self.pad();
        let length = (self.0.len() - at - 4) as u32;
        self.0[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
}
