//! How much a scenario measures.

/// How much a scenario measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// What the papers measure.
    Full,
    /// Fewer and shorter turns.
    Quick,
    /// The least that runs all code: small tables, few packets, one turn. Only its checks count.
    Smoke,
}

/// A value for each scale.
#[derive(Clone, Copy, Debug)]
pub struct Scaled<T> {
    pub full: T,
    pub quick: T,
    pub smoke: T,
}

impl<T: Copy> Scaled<T> {
    /// The value at a scale.
    pub const fn at(&self, scale: Scale) -> T {
        match scale {
            Scale::Full => self.full,
            Scale::Quick => self.quick,
            Scale::Smoke => self.smoke,
        }
    }
}
