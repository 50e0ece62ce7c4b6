//! What decides bursts.

use std::sync::Arc;

use weir_abi::{Counter, Reason, Verdict};

use crate::image::{IMAGE_BYTES_MAX, Image};
use crate::limits::Limits;
use crate::limits::counts::LimitCount;
use crate::{EngineError, FrameBurst, TableSlot};

/// Decides bursts and counts what it decided. One worker owns it.
pub trait Filter {
    /// What reports call it: `native`, `xdp`, ...
    fn name(&self) -> &str;

    /// Decides a burst on one of the program's chains and fills the first `burst.len()` of `verdicts`.
    ///
    /// # Panics
    /// If `chain` is not a chain of the program, or `verdicts` is shorter than the burst.
    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError>;

    /// Packets and bytes since it was loaded, indexed by [`Reason`]: the built-in ones, then one a rule.
    fn counters(&self) -> Vec<Counter>;

    /// Calls with each entry of a limiter for which something was counted since the first burst, in their order; with none if it does not log.
    ///
    /// # Panics
    /// If the program logs and has no such limiter.
    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(usize, LimitCount));
}

/// The most rules that a program can have.
pub const RULES_MAX: usize = Reason::RULES_MAX;

/// What a loader must know of a compiled program, whichever machine it runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Chain names: suffixes of the compiled functions, and of the indices that [`Filter::decide`] takes.
    pub chains: Vec<String>,
    /// Number of rules, at most [`RULES_MAX`].
    pub rules: usize,
    /// Its tables, in slot order.
    pub tables: Vec<TableSlot>,
    /// Number of limiters.
    pub limiters: usize,
    /// Counters of what the limits of rules ended.
    pub limited: usize,
}

impl Program {
    /// Counters that the program needs: the built-in reasons, then one a rule, then those of what limits ended.
    pub fn counters(&self) -> usize {
        usize::from(Reason::RULE_BASE) + self.rules + self.limited
    }

    /// Refuses limits of another program.
    pub(crate) fn check_limits(&self, limits: Option<&Limits>) -> Result<(), EngineError> {
        let found = limits.map_or(0, |limits| limits.image.limiters());
        match found == self.limiters {
            true => Ok(()),
            false => Err(EngineError::Image {
                table: "limits".to_owned(),
                problem: format!("of {found} limiters, the program has {}", self.limiters),
            }),
        }
    }

    /// Refuses images that are not what the slots expect: one each, laid out alike, within [`IMAGE_BYTES_MAX`].
    pub(crate) fn check_images(&self, images: &[Arc<Image>]) -> Result<(), EngineError> {
        let refuse = |table: &str, problem| EngineError::Image { table: table.to_owned(), problem };
        for (index, slot) in self.tables.iter().enumerate() {
            let Some(image) = images.get(index) else {
                return Err(refuse(&slot.name, "its image is missing".to_owned()));
            };
            let (found, bytes) = (image.layout(), image.as_bytes().len());
            if !slot.layout.reads(found) {
                let expected = slot.layout.name();
                return Err(refuse(
                    &slot.name,
                    format!("laid out as {}, the program expects {expected}", found.name()),
                ));
            }
            if bytes > IMAGE_BYTES_MAX {
                return Err(refuse(&slot.name, format!("{bytes} bytes, an image has at most {IMAGE_BYTES_MAX}")));
            }
        }
        Ok(())
    }
}
