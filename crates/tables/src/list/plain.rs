//! One address, CIDR or `a-b` range per line. Text after a blank, `#` or `;` is ignored (FireHOL netset, Spamhaus DROP,
//! ipsum).
//!
//! Any text may follow `#`. Text before it must not contain another address, which would look like an entry without
//! being one.

use super::part::Sink;
use super::stray::check_characters;
use crate::entries::TableAddress;
use crate::prefix::Element;
use crate::problem::Problem;

/// Parses a line.
#[inline]
pub(crate) fn line<A: TableAddress>(text: &[u8], sink: &mut Sink<A>) -> Result<(), Problem> {
    let (element, taken) = sink.element(text)?;
    let rest = &text[taken..];
    if rest.is_empty() {
        return sink.push(element);
    }
    if rest.starts_with(b",") {
        return Err(Problem::NotAnAddress(A::FAMILY));
    }
    check_characters(rest)?;
    let (element, rest) = spaced_range(element, rest, sink)?;
    if matches!(rest.trim_ascii_start(), [b'/', b'0'..=b'9', ..]) {
        return Err(Problem::BlankInPrefix);
    }
    sink.ignore(rest, &element)?;
    sink.push(element)
}

/// Parses the rest of a range written `a - b`. Returns the element and the remaining text. Taking only `a` would
/// silently leave a hole.
fn spaced_range<'t, A: TableAddress>(
    element: Element<A>,
    rest: &'t [u8],
    sink: &mut Sink<A>,
) -> Result<(Element<A>, &'t [u8]), Problem> {
    let Element::Prefix { addr, len } = element else { return Ok((element, rest)) };
    let Some(end) = rest.trim_ascii_start().strip_prefix(b"-") else { return Ok((element, rest)) };
    let end = end.trim_ascii_start();
    match sink.element(end) {
        Ok((Element::Prefix { addr: last, len: last_len }, taken)) if len == last_len && len == A::FAMILY.bits() => {
            Ok((Element::range(addr, last)?, &end[taken..]))
        }
        Err(problem @ Problem::PaddedOctet(_)) => Err(problem),
        _ => Ok((element, rest)),
    }
}
