//! Handmade captures that follow the specifications byte for byte.
#![allow(dead_code)]

/// Byte order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Little,
    Big,
}

/// A file under construction.
pub struct Sample {
    pub bytes: Vec<u8>,
    order: Order,
}

impl Sample {
    /// Starts a pcap file with its header.
    pub fn pcap(order: Order, magic: u32, link_type: u32) -> Self {
        let mut sample = Sample { bytes: Vec::new(), order };
        sample.u32(magic).u16(2).u16(4).u32(0).u32(0).u32(65535).u32(link_type);
        sample
    }

    /// Starts a pcapng file with its first section header.
    pub fn pcapng(order: Order) -> Self {
        let mut sample = Sample { bytes: Vec::new(), order };
        sample.section(order);
        sample
    }

    pub fn u16(&mut self, field: u16) -> &mut Self {
        let bytes = if self.order == Order::Little { field.to_le_bytes() } else { field.to_be_bytes() };
        self.bytes.extend_from_slice(&bytes);
        self
    }

    pub fn u32(&mut self, field: u32) -> &mut Self {
        let bytes = if self.order == Order::Little { field.to_le_bytes() } else { field.to_be_bytes() };
        self.bytes.extend_from_slice(&bytes);
        self
    }

    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds a pcap record.
    pub fn record(&mut self, seconds: u32, fraction: u32, data: &[u8], len: u32) -> &mut Self {
        self.u32(seconds).u32(fraction).u32(data.len() as u32).u32(len).raw(data)
    }

    /// Adds a pcapng block. `body` writes the part between the two lengths.
    pub fn block(&mut self, kind: u32, body: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.u32(kind).u32(0);
        body(self);
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
        let total = (self.bytes.len() - start + 4) as u32;
        self.u32(total);
        let (field, end) = (start + 4, self.bytes.len() - 4);
        self.bytes.copy_within(end.., field);
        self
    }

    pub fn section(&mut self, order: Order) -> &mut Self {
        self.order = order;
        self.block(0x0a0d_0d0a, |s| {
            s.u32(0x1a2b_3c4d).u16(1).u16(0).u32(u32::MAX).u32(u32::MAX);
        })
    }

    /// Adds an interface with options.
    pub fn interface(&mut self, link_type: u16, snap: u32, options: &[(u16, &[u8])]) -> &mut Self {
        self.block(1, |s| {
            s.u16(link_type).u16(0).u32(snap);
            for (code, value) in options {
                s.u16(*code).u16(value.len() as u16).raw(value);
                while !s.bytes.len().is_multiple_of(4) {
                    s.bytes.push(0);
                }
            }
            if !options.is_empty() {
                s.u32(0);
            }
        })
    }

    pub fn enhanced(&mut self, interface: u32, stamp: u64, data: &[u8], len: u32) -> &mut Self {
        self.block(6, |s| {
            s.u32(interface).u32((stamp >> 32) as u32).u32(stamp as u32).u32(data.len() as u32).u32(len).raw(data);
        })
    }

    pub fn simple(&mut self, data: &[u8], len: u32) -> &mut Self {
        self.block(3, |s| {
            s.u32(len).raw(data);
        })
    }

    pub fn old_packet(&mut self, interface: u16, stamp: u64, data: &[u8], len: u32) -> &mut Self {
        self.block(2, |s| {
            s.u16(interface).u16(0xffff).u32((stamp >> 32) as u32).u32(stamp as u32);
            s.u32(data.len() as u32).u32(len).raw(data);
        })
    }
}
