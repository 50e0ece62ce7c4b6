//! What a scenario is: its name, the paper's figure, what it needs, what it measures, and how long that takes.
//!
//! Each scenario declares itself in its own module, next to its settings for each scale. [`crate::plan`] compares the
//! declaration with the command line and with the machine.
//!
//! One idea with `plan.rs`: a plan refers to its scenario, and a scenario runs with a plan.

use crate::need::Need;
use crate::plan::Plan;
use crate::plot::Drawing;
use crate::row::Row;
use crate::scale::Scaled;
use weir_command::failure::Failure;

/// A named experiment.
pub struct Scenario {
    pub name: &'static str,
    /// The corresponding figure of a paper.
    pub paper: &'static str,
    /// What all of it needs.
    pub needs: &'static [Need],
    /// What it measures, in each dimension.
    pub axes: &'static [Axis],
    /// Names as for `--only`, to which [`crate::scale::Scale::Smoke`] is limited unless the command line has others.
    pub smoke_only: &'static [&'static str],
    /// What the command line can select.
    pub picks: Picks,
    /// About how long all of it takes.
    pub seconds: Scaled<u32>,
    pub run: fn(&Plan<'_>) -> Result<Vec<Row>, Failure>,
    /// Draws the rows for `--plot` and `--figures`, with the scenario's name as title.
    pub plot: fn(&str, &[Row]) -> Drawing,
}

/// A dimension of what a scenario measures, such as its parts or its contenders. A name in `--only` excludes the others
/// of its axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// The word for one of its members.
    pub name: &'static str,
    pub members: &'static [Member],
}

/// Something that can be measured alone, and left out if the machine does not have what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub name: &'static str,
    pub needs: &'static [Need],
}

impl Member {
    /// A member that needs nothing more than its scenario.
    pub const fn plain(name: &'static str) -> Self {
        Member { name, needs: &[] }
    }

    /// A member with needs of its own.
    pub const fn with(name: &'static str, needs: &'static [Need]) -> Self {
        Member { name, needs }
    }
}

/// What the command line can select in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picks {
    /// Nothing: the scenario runs completely.
    Nothing,
    /// Cells of the result, with `--table`, `--layout` and `--keys`.
    Cells,
    /// Members of its axes, with `--only`.
    Members,
}
