//! Definitions, and the variables in their values.

use crate::syntax::tree::{Name, Operand, Value, Values};

/// A definition and the state of its check.
pub(super) struct Definition<'a> {
    /// `None` after a syntax error.
    pub values: Option<&'a Values>,
    pub state: State,
}

/// The known nesting depth of a definition.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// Not measured yet.
    New,
    /// Being measured. A reference to it is a cycle.
    Open,
    /// Valid, with this nesting depth. A definition without variables has 1.
    Height(usize),
    /// Part of a cycle, or nested too deep.
    Bad,
}

impl<'a> Definition<'a> {
    /// A definition that is not measured yet.
    pub fn new(values: Option<&'a Values>) -> Self {
        Definition { values, state: State::New }
    }
}

/// The variables in values.
pub(super) fn variables(values: &Values) -> Vec<&Name> {
    let lists: [&[Value]; 2] = match values {
        Values::One(value) => [std::slice::from_ref(value), &[]],
        Values::List(values) | Values::Set { elements: values, .. } => [values, &[]],
        Values::Masked { value, mask } => [value, mask],
    };
    let operands = lists.into_iter().flatten().flat_map(|value| match value {
        Value::Single(operand) => vec![operand],
        Value::Prefix { .. } => Vec::new(),
        Value::Range { start, end } => vec![start, end],
        Value::Bits(operands) => operands.iter().collect(),
    });
    operands
        .filter_map(|operand| match operand {
            Operand::Variable(name) => Some(name),
            Operand::Atom(_) => None,
        })
        .collect()
}
