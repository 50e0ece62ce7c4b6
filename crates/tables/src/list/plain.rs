//! One address, CIDR or `a-b` range a line; what follows a blank, `#` or `;` is comment (FireHOL netset, Spamhaus DROP, ipsum).

use super::Problem;
use super::lines::Sink;
use crate::entries::TableAddress;
use crate::prefix::Element;

/// Reads a line.
#[inline]
pub(crate) fn line<A: TableAddress>(text: &[u8], sink: &mut Sink<A>) -> Result<(), Problem> {
    let (element, taken) = Element::take(text)?;
    let rest = &text[taken..];
    if rest.is_empty() {
        return sink.push(element);
    }
    if rest.starts_with(b",") {
        return Err(Problem::NotAnAddress(A::FAMILY));
    }
    sink.push(spaced_range(element, rest)?.unwrap_or(element))
}

/// The range, if `a - b` is what the line says. Taking only `a` would leave a hole that nobody notices.
fn spaced_range<A: TableAddress>(element: Element<A>, rest: &[u8]) -> Result<Option<Element<A>>, Problem> {
    let Element::Prefix { addr, len } = element else { return Ok(None) };
    let Some(end) = rest.trim_ascii_start().strip_prefix(b"-") else { return Ok(None) };
    match Element::take(end.trim_ascii_start()) {
        Ok((Element::Prefix { addr: last, len: last_len }, _)) if len == last_len && len == A::FAMILY.bits() => {
            Element::range(addr, last).map(Some)
        }
        _ => Ok(None),
    }
}
