//! The posture that mitigation has activated by itself, in place of the operator's: which holder may end it, and why it
//! ended (docs/guide/mitigation.md, "Automatic postures").
//!
//! It is a lease. Its holder renews it in each window, so it ends although its holder hangs. What ended the last one is
//! kept, because its holder asks in its own time.

use std::fmt::{self, Display, Formatter};
use std::time::{Duration, Instant};
use weir_control::Active;

/// A lease that is not renewed for this long ends. Rules of mitigation end after the same time.
pub const LEASE: Duration = Duration::from_secs(60);

/// The holder of an automatic posture: the number of an action of mitigation.
pub type Holder = u32;

/// A posture that is held until a time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    holder: Holder,
    posture: String,
    ends: Instant,
}

/// Why an automatic posture has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its holder needs it no more.
    Released,
    /// Its holder has not renewed it.
    Lapsed,
    /// The operator has chosen a posture.
    ByHand,
    /// The operator has rolled back.
    Rollback,
    /// A trial was not confirmed.
    TrialEnded,
    /// This generation, which is active now, has no such posture.
    NoPosture(u64),
}

impl Why {
    /// Whether the operator has ended it. Then it is not activated again automatically against this attack.
    pub fn is_operators(&self) -> bool {
        matches!(self, Why::ByHand | Why::Rollback)
    }
}

impl Display for Why {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Why::Released => f.write_str("it is not needed any more"),
            Why::Lapsed => write!(f, "it was not renewed for {} s", LEASE.as_secs()),
            Why::ByHand => f.write_str("the operator has chosen a posture"),
            Why::Rollback => f.write_str("the operator has rolled back"),
            Why::TrialEnded => f.write_str("the trial was not confirmed"),
            Why::NoPosture(generation) => write!(f, "generation {generation} has no such posture"),
        }
    }
}

/// An automatic posture that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its holder.
    pub holder: Holder,
    /// The posture.
    pub posture: String,
    /// Why it has ended.
    pub why: Why,
}

impl Display for Ended {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "the automatic posture {} ends: {}", self.posture, self.why)
    }
}

/// At most one automatic posture, and why the last one has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Automatic {
    lease: Option<Lease>,
    ended: Option<Ended>,
}

impl Automatic {
    /// The posture, if there is one.
    pub fn posture(&self) -> Option<&str> {
        self.lease.as_ref().map(|lease| lease.posture.as_str())
    }

    /// The lease, for the next program in this process: its holder, the posture, and when it ends.
    pub fn lease(&self) -> Option<(Holder, &str, Instant)> {
        self.lease.as_ref().map(|lease| (lease.holder, lease.posture.as_str(), lease.ends))
    }

    /// A lease of the program before this one in its process.
    pub fn continued(holder: Holder, posture: String, ends: Instant) -> Self {
        Automatic { lease: Some(Lease { holder, posture, ends }), ended: None }
    }

    /// Whether `holder` holds it.
    pub fn is_held_by(&self, holder: Holder) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.holder == holder)
    }

    /// What decides packets when the operator has decided for `decided`.
    pub fn in_front_of(&self, decided: &Active) -> Active {
        let posture = self.posture().map(str::to_owned).or_else(|| decided.posture.clone());
        Active { generation: decided.generation, posture }
    }

    /// Whether the lease has ended.
    pub fn has_lapsed(&self, now: Instant) -> bool {
        self.lease.as_ref().is_some_and(|lease| now >= lease.ends)
    }

    /// Begins a lease.
    pub fn take(&mut self, holder: Holder, posture: String, now: Instant) {
        self.lease = Some(Lease { holder, posture, ends: now + LEASE });
    }

    /// Extends the lease of a holder.
    ///
    /// # Errors
    /// The holder has none any more: why, if no other one has ended since.
    pub fn renew(&mut self, holder: Holder, now: Instant) -> Result<(), Option<Why>> {
        match &mut self.lease {
            Some(lease) if lease.holder == holder => lease.ends = now + LEASE,
            _ => return Err(self.ended.as_ref().filter(|ended| ended.holder == holder).map(|ended| ended.why.clone())),
        }
        Ok(())
    }

    /// Ends the lease, if there is one.
    pub fn end(&mut self, why: Why) -> Option<Ended> {
        let Lease { holder, posture, .. } = self.lease.take()?;
        self.ended = Some(Ended { holder, posture, why });
        self.ended.clone()
    }
}

#[cfg(test)]
#[path = "automatic/tests.rs"]
mod tests;
