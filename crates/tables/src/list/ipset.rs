//! The output of `ipset save` for one set: `create NAME TYPE OPTIONS` and `add NAME ELEMENT OPTIONS`.

use super::error::shown;
use super::part::Sink;
use super::stray::names_address;
use crate::entries::TableAddress;
use crate::prefix::Element;
use crate::problem::Problem;
use weir_abi::Family;

/// Options of `create` with a value.
const CREATE_VALUES: &[&[u8]] = &[b"family", b"hashsize", b"maxelem", b"timeout", b"bucketsize", b"initval"];
/// Options of `create` without a value.
const CREATE_FLAGS: &[&[u8]] = &[b"counters", b"comment", b"forceadd", b"skbinfo", b"-exist", b"-!"];
/// Options of `add` with a value.
const ADD_VALUES: &[&[u8]] = &[b"timeout", b"packets", b"bytes", b"comment", b"skbmark", b"skbprio", b"skbqueue"];
/// Options of `add` without a value.
const ADD_FLAGS: &[&[u8]] = &[b"-exist", b"-!"];

/// Parses a line.
pub(crate) fn line<A: TableAddress>(text: &[u8], sink: &mut Sink<A>) -> Result<(), Problem> {
    if text.iter().filter(|byte| **byte == b'"').count() % 2 == 1 {
        return Err(Problem::Quotes);
    }
    let mut words = Words(text);
    match (words.next(), words.next(), words.next()) {
        (Some(b"create"), Some(name), Some(set_type)) => {
            create(set_type, words, A::FAMILY)?;
            sink.set(name);
            Ok(())
        }
        (Some(b"add"), Some(name), Some(element)) => {
            let has_timeout = add_options(words)?;
            match sink.element(element)? {
                (parsed, taken) if taken == element.len() => sink.push(parsed)?,
                _ => return Err(Problem::NotAnAddress(A::FAMILY)),
            }
            if has_timeout {
                sink.timeout();
            }
            sink.set(name);
            Ok(())
        }
        _ => Err(Problem::NotIpset),
    }
}

fn create(set_type: &[u8], mut options: Words, family: Family) -> Result<(), Problem> {
    if !matches!(set_type, b"hash:ip" | b"hash:net" | b"bitmap:ip") {
        return Err(Problem::SetType(shown(set_type)));
    }
    let mut created = Family::Ipv4;
    while let Some(option) = options.next() {
        match option {
            b"family" if options.next() == Some(b"inet6") => created = Family::Ipv6,
            b"family" => {}
            // Every address of such a set is a network.
            b"netmask" | b"bitmask" => return Err(Problem::SetMask),
            b"range" => value(options.next(), |value| {
                !names_address(value) || Element::<u32>::take(value).is_ok_and(|(_, taken)| taken == value.len())
            })?,
            option if CREATE_VALUES.contains(&option) => value(options.next(), |value| !names_address(value))?,
            option if CREATE_FLAGS.contains(&option) => {}
            option => return Err(Problem::SetOption(shown(option))),
        }
    }
    if created == family { Ok(()) } else { Err(Problem::OtherFamily(family)) }
}

/// Checks the options of an entry. Returns whether it has a timeout.
fn add_options(mut options: Words) -> Result<bool, Problem> {
    let mut has_timeout = false;
    while let Some(option) = options.next() {
        match option {
            b"nomatch" => return Err(Problem::Nomatch),
            option if ADD_VALUES.contains(&option) => {
                has_timeout |= option == b"timeout";
                value(options.next(), |value| option == b"comment" || !names_address(value))?;
            }
            option if ADD_FLAGS.contains(&option) => {}
            option => return Err(Problem::SetOption(shown(option))),
        }
    }
    Ok(has_timeout)
}

/// Refuses the value of an option if it is missing or invalid.
fn value(value: Option<&[u8]>, is_value: impl Fn(&[u8]) -> bool) -> Result<(), Problem> {
    match value {
        Some(value) if is_value(value) => Ok(()),
        other => Err(Problem::SetOption(shown(other.unwrap_or_default()))),
    }
}

/// The words of a line. A quoted word may contain blanks.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0.trim_ascii_start();
        let length = match text {
            [] => return None,
            [b'"', quoted @ ..] => quoted.iter().position(|byte| *byte == b'"').map(|end| end + 2),
            _ => text.iter().position(|byte| matches!(byte, b' ' | b'\t')),
        };
        let (word, rest) = text.split_at(length.unwrap_or(text.len()));
        self.0 = rest;
        Some(word)
    }
}
