//! Windows in eight bits.

/// The size of a window: a number with a mantissa of four bits, rounded up.
///
/// ```text
///   7        3 2      0
///  +----------+--------+     exponent 0: the mantissa itself, 0 to 7
///  | exponent |mantissa|     else: (8 + mantissa) << (exponent - 1)
///  +----------+--------+
/// ```
/// Rounding adds at most one eighth. 65535 becomes 65536, and 2^30, the largest window (RFC 7323), is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window(pub u8);

impl Window {
    /// No window was offered yet.
    pub const NONE: Window = Window(0);

    /// The smallest window that is not less than a number of bytes. The largest is 2^30.
    pub const fn of(bytes: u32) -> Self {
        let bytes = if bytes > 1 << 30 { 1 << 30 } else { bytes };
        if bytes < 8 {
            return Window(bytes as u8);
        }
        let shift = bytes.ilog2() - 3;
        let rounded = (bytes + (1 << shift) - 1) >> shift;
        // 15.x is rounded up to 16: the next exponent with mantissa 0.
        Window((((shift + 1) << 3) + (rounded - 8)) as u8)
    }

    /// Its size in bytes.
    pub const fn bytes(self) -> u32 {
        match self.0 >> 3 {
            0 => self.0 as u32,
            exponent => (8 + (self.0 & 7) as u32) << (exponent - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn windows_are_rounded_up_by_an_eighth_at_most() {
        let near_powers = (0..=30).flat_map(|bit| [(1u32 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for bytes in (0..70_000).chain(near_powers) {
            let rounded = Window::of(bytes).bytes();
            let bytes = bytes.min(1 << 30);
            assert!(rounded >= bytes && rounded - bytes <= bytes / 8, "{bytes} became {rounded}");
        }
        assert_eq!(Window::of(65535).bytes(), 65536);
        assert_eq!(Window::of(65535 << 14).bytes(), 1 << 30);
        assert_eq!(Window::of(u32::MAX).bytes(), 1 << 30);
    }

    #[test]
    fn larger_windows_have_larger_codes() {
        let last = Window::of(1 << 30).0;
        assert!((0..last).all(|code| Window(code).bytes() < Window(code + 1).bytes()));
        assert!((0..=last).all(|code| Window::of(Window(code).bytes()) == Window(code)));
    }
}
