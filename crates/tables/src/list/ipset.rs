//! What `ipset save` prints: `create NAME TYPE OPTIONS` and `add NAME ELEMENT OPTIONS`. All sets of a file become one table.

use super::Problem;
use super::error::shown;
use super::lines::Sink;
use crate::entries::TableAddress;
use crate::prefix::Element;
use weir_abi::Family;

/// Reads a line.
pub(crate) fn line<A: TableAddress>(text: &[u8], sink: &mut Sink<A>) -> Result<(), Problem> {
    let mut words = text.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    match (words.next(), words.next(), words.next()) {
        (Some(b"create"), Some(_name), Some(set_type)) => create(set_type, words, A::FAMILY),
        (Some(b"add"), Some(_name), Some(element)) => {
            if has_option(text, b"nomatch") {
                return Err(Problem::Nomatch);
            }
            match Element::take(element)? {
                (parsed, taken) if taken == element.len() => sink.push(parsed),
                _ => Err(Problem::NotAnAddress(A::FAMILY)),
            }
        }
        _ => Err(Problem::NotIpset),
    }
}

fn create<'a>(set_type: &[u8], options: impl Iterator<Item = &'a [u8]>, family: Family) -> Result<(), Problem> {
    if !matches!(set_type, b"hash:ip" | b"hash:net" | b"bitmap:ip") {
        return Err(Problem::SetType(shown(set_type)));
    }
    let created = match options.skip_while(|option| option != b"family").nth(1) {
        Some(b"inet6") => Family::Ipv6,
        _ => Family::Ipv4,
    };
    if created == family { Ok(()) } else { Err(Problem::OtherFamily(family)) }
}

/// Whether a word stands in the line, quoted comments left out.
fn has_option(text: &[u8], option: &[u8]) -> bool {
    let outside = text.split(|&byte| byte == b'"').step_by(2);
    outside.flat_map(|part| part.split(|byte| matches!(byte, b' ' | b'\t'))).any(|word| word == option)
}
