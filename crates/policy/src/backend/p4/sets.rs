//! Large sets in P4, which become tables with constant entries instead of long conditions.

use super::model::{Step, Term, Value};
use crate::ir::ValueSet;

/// Most ranges that are compared in a condition.
const COMPARED_MAX: usize = 8;

/// The large sets of a control, each with the value that is compared.
#[derive(Default)]
pub(super) struct Sets<'a>(Vec<(&'a Value, &'a ValueSet)>);

impl<'a> Sets<'a> {
    /// The large sets among some steps.
    pub(super) fn of(steps: &'a [Step]) -> Self {
        let mut sets = Sets::default();
        sets.add(steps);
        sets
    }

    fn add(&mut self, steps: &'a [Step]) {
        for step in steps {
            let Step::If { terms, body } = step else { continue };
            for term in terms {
                if let Term::In { value, set, .. } = term
                    && set.ranges().len() > COMPARED_MAX
                    && self.name(value, set).is_none()
                {
                    self.0.push((value, set));
                }
            }
            self.add(body);
        }
    }

    /// The table of a set, if it is large.
    pub(super) fn name(&self, value: &Value, set: &ValueSet) -> Option<String> {
        let place = self.0.iter().position(|known| *known == (value, set));
        place.map(|place| format!("set_{place}"))
    }

    /// All of them, in the order of their numbers.
    pub(super) fn all(&self) -> &[(&'a Value, &'a ValueSet)] {
        &self.0
    }
}
