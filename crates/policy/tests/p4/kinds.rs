//! Types of expressions and what operators make of them.

use std::collections::BTreeMap;

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bits(u64),
    /// A number without a width. It takes the width of the other side.
    Number,
    Bool,
}

pub fn declare<T>(names: &mut BTreeMap<String, T>, name: String, what: T) -> Result<(), String> {
    match names.contains_key(&name) {
        true => Err(format!("{name} is declared twice")),
        false => {
            names.insert(name, what);
            Ok(())
        }
    }
}

pub fn fits(number: u64, bits: u64) -> Result<(), String> {
    let highest = u64::MAX >> 64u64.saturating_sub(bits);
    if number <= highest { Ok(()) } else { Err(format!("{number} needs more than {bits} bits")) }
}

/// The type of `left operator right`; `None` if there is none.
pub fn combine(operator: &str, left: Kind, right: Kind) -> Option<Kind> {
    let same = match (left, right) {
        (Kind::Number, kind @ (Kind::Bits(_) | Kind::Number)) | (kind @ Kind::Bits(_), Kind::Number) => Some(kind),
        (Kind::Bits(left), Kind::Bits(right)) if left == right => Some(Kind::Bits(left)),
        _ => None,
    };
    match operator {
        "&&" | "||" => (left == Kind::Bool && right == Kind::Bool).then_some(Kind::Bool),
        "<<" | ">>" => (left != Kind::Bool && right == Kind::Number).then_some(left),
        "|" | "&" | "+" | "-" => same,
        _ => same.map(|_| Kind::Bool),
    }
}
