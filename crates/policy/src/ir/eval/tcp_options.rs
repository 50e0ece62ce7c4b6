//! The options of a TCP header (RFC 9293, section 3.2).

/// Kinds of options: RFC 9293, section 3.2; RFC 7323, section 2.2; RFC 2018, sections 2 and 3; RFC 7323, section 3.2.
pub(super) mod kind {
    pub(in crate::ir::eval) const MSS: u8 = 2;
    pub(in crate::ir::eval) const WINDOW_SCALE: u8 = 3;
    pub(in crate::ir::eval) const SACK_PERMITTED: u8 = 4;
    pub(in crate::ir::eval) const SACK: u8 = 5;
    pub(in crate::ir::eval) const TIMESTAMPS: u8 = 8;
}

/// An option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TcpOption<'a> {
    pub(super) kind: u8,
    /// Where its data begins among the options.
    pub(super) at: usize,
    pub(super) data: &'a [u8],
}

/// The options up to the first that is cut off.
pub(super) fn each(options: &[u8]) -> impl Iterator<Item = TcpOption<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while options.get(at) == Some(&1) {
            at += 1;
        }
        let &kind = options.get(at).filter(|&&kind| kind != 0)?;
        let length = usize::from(*options.get(at + 1)?);
        let data = options.get(at + 2..at + length)?;
        let option = TcpOption { kind, at: at + 2, data };
        at += length;
        Some(option)
    })
}

/// The value and the echo of the timestamps option.
pub(super) fn timestamps(options: &[u8]) -> Option<[u32; 2]> {
    let found = each(options).find(|option| option.kind == kind::TIMESTAMPS && option.data.len() == 8)?;
    Some([0, 4].map(|at| be32(&found.data[at..])))
}

/// The largest segment that a SYN names.
pub(super) fn mss(options: &[u8]) -> Option<u16> {
    let found = each(options).find(|option| option.kind == kind::MSS && option.data.len() == 2)?;
    Some(u16::from_be_bytes([found.data[0], found.data[1]]))
}

pub(super) fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
