//! Reads the elements of a list, and keeps what they show about octets with leading zeros.

use super::report::Remark;
use crate::padded::{Octets, Padding};
use crate::prefix::{Address, Element};
use crate::problem::Problem;

/// How the elements of a list are read, and what was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    octets: Octets,
    /// Whether an octet has two readings, and `octets` does not say which of them holds.
    pub is_ambiguous: bool,
    /// What the elements show about leading zeros. Only with [`Octets::Decimal`].
    pub padding: Padding,
    /// Lines with leading zeros in an octet.
    pub padded: Remark,
    /// The last of them. A range has two addresses.
    last_padded: u64,
}

impl Reading {
    pub fn new(octets: Octets) -> Self {
        Reading { octets, ..Reading::default() }
    }

    /// Parses an element at the start of `text`. Returns it and the number of bytes that it takes.
    ///
    /// # Errors
    /// As for [`Element::take`], except for octets with leading zeros that have one reading here.
    #[inline]
    pub fn element<A: Address>(&mut self, text: &[u8], line: u64) -> Result<(Element<A>, usize), Problem> {
        let result = match Element::take(text) {
            Err(Problem::PaddedOctet(_)) => self.padded_element(text, line),
            result => result,
        };
        if self.octets == Octets::Decimal
            && let Ok((_, taken)) = result
        {
            self.padding.note(&text[..taken]);
        }
        result
    }

    #[cold]
    fn padded_element<A: Address>(&mut self, text: &[u8], line: u64) -> Result<(Element<A>, usize), Problem> {
        let result = Element::take_padded(text, self.octets);
        match &result {
            Ok(_) if self.last_padded == line => {}
            Ok(_) => {
                self.last_padded = line;
                self.padded.note(line);
            }
            Err(Problem::PaddedOctet(octet)) => self.is_ambiguous |= octet.octal.is_some(),
            Err(_) => {}
        }
        result
    }
}
