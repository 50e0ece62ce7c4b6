//! Converts written values to numbers or ranges of numbers of the field that they are compared with.

use super::constants::{a_noun, names};
use super::{Check, Checker, ELEMENTS_MAX, Reported, nearest};
use crate::catalog::Family;
use crate::diag::Diagnostic;
use crate::field::Notation;
use crate::source::Span;
use crate::syntax::tree::{Atom, AtomKind, Operand, Value, Values};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The values that a field or an address can have.
#[derive(Clone, Copy)]
pub(super) struct Domain<'n> {
    pub(super) notation: Notation,
    pub(super) bits: u8,
    /// The name in messages: `tcp dport`.
    pub(super) name: &'n str,
}

impl Domain<'_> {
    /// The largest value.
    pub(super) fn max(self) -> u128 {
        u128::MAX >> (128 - self.bits)
    }

    /// The family, if values are addresses.
    pub(super) fn family(self) -> Option<Family> {
        match self.notation {
            Notation::Ipv4Address => Some(Family::Ipv4),
            Notation::Ipv6Address => Some(Family::Ipv6),
            _ => None,
        }
    }
}

/// The values `first..=last`, and where they are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) first: u128,
    pub(super) last: u128,
    pub(super) span: Span,
}

/// An address in the notation of its family.
pub(super) fn address_text(family: Family, address: u128) -> String {
    match family {
        Family::Ipv4 => Ipv4Addr::from_bits(address as u32).to_string(),
        Family::Ipv6 => Ipv6Addr::from_bits(address).to_string(),
    }
}

impl<'a> Checker<'a> {
    /// Resolves `$NAME` to its definition. Other values are returned as they are.
    pub(super) fn follow<'v>(&mut self, mut values: &'v Values) -> Check<&'v Values>
    where
        'a: 'v,
    {
        while let Values::One(Value::Single(Operand::Variable(name))) = values {
            values = self.variable(name)?;
        }
        Ok(values)
    }

    /// Appends the ranges of a value, or of all values of the set that it names, to `ranges`. All elements are checked,
    /// even after an error. `DEFINE_DEPTH_MAX` bounds the recursion.
    pub(super) fn ranges(&mut self, value: &Value, domain: Domain, ranges: &mut Vec<Range>) -> Check<()> {
        let Some(left) = self.elements_left.checked_sub(1) else {
            let message = format!("the sets of the policy have more than {ELEMENTS_MAX} elements");
            return Err(self.report(Diagnostic::error("E0314", value.span(), message).help("use a table with a file")));
        };
        self.elements_left = left;
        let Value::Single(Operand::Variable(name)) = value else {
            ranges.push(self.range(value, domain)?);
            return Ok(());
        };
        match self.variable(name)? {
            Values::One(inner) => self.ranges(inner, domain, ranges),
            Values::Set { elements, .. } => self.all_ranges(elements, domain, ranges),
            Values::List(_) | Values::Masked { .. } => Err(self.not_one_value(name.span, &name.text, domain)),
        }
    }

    pub(super) fn all_ranges(&mut self, elements: &[Value], domain: Domain, ranges: &mut Vec<Range>) -> Check<()> {
        let mut result = Ok(());
        for element in elements {
            result = result.and(self.ranges(element, domain, ranges));
        }
        result
    }

    fn not_one_value(&mut self, span: Span, name: &str, domain: Domain) -> Reported {
        self.report(
            Diagnostic::error("E0302", span, format!("`${name}` is not one value for `{}`", domain.name))
                .help("write the set in braces: `{ a, b }`"),
        )
    }

    fn range(&mut self, value: &Value, domain: Domain) -> Check<Range> {
        let span = value.span();
        match value {
            Value::Single(operand) => {
                let value = self.operand(operand, domain)?;
                Ok(Range { first: value, last: value, span })
            }
            Value::Prefix { address, length } => self.prefix(address, length, domain),
            Value::Range { start, end } => {
                let (first, last) = (self.operand(start, domain), self.operand(end, domain));
                let (first, last) = (first?, last?);
                if first > last {
                    let text = |value| match domain.family() {
                        Some(family) => address_text(family, value),
                        None => value.to_string(),
                    };
                    return Err(self.report(
                        Diagnostic::error("E0305", span, "the range is reversed")
                            .label("its end is below its start")
                            .help(format!("write `{}-{}`", text(last), text(first))),
                    ));
                }
                Ok(Range { first, last, span })
            }
            Value::Bits(operands) => {
                let value = self.or(operands.iter(), domain)?;
                Ok(Range { first: value, last: value, span })
            }
        }
    }

    /// Checks that a value is a single number, in any notation.
    pub(super) fn one(&mut self, value: &Value, domain: Domain) -> Check<u128> {
        let range = self.range(value, domain)?;
        if range.first == range.last {
            return Ok(range.first);
        }
        Err(self.report(
            Diagnostic::error("E0310", range.span, "one value is expected here")
                .label(format!("this is {} values", if range.last - range.first > 1000 { "many" } else { "several" })),
        ))
    }

    /// The bitwise OR of operands.
    fn or<'o>(&mut self, operands: impl Iterator<Item = &'o Operand>, domain: Domain) -> Check<u128> {
        let mut bits = Ok(0);
        for operand in operands {
            let more = self.operand(operand, domain);
            bits = bits.and_then(|bits: u128| Ok(bits | more?));
        }
        bits
    }

    /// The bitwise OR of the values of a comma list.
    pub(super) fn or_values(&mut self, values: &[Value], domain: Domain) -> Check<u128> {
        let mut bits = Ok(0);
        for value in values {
            let more = self.one(value, domain);
            bits = bits.and_then(|bits: u128| Ok(bits | more?));
        }
        bits
    }

    fn operand(&mut self, operand: &Operand, domain: Domain) -> Check<u128> {
        let name = match operand {
            Operand::Atom(atom) => return self.atom(atom, domain),
            Operand::Variable(name) => name,
        };
        let values = self.variable(name)?;
        match self.follow(values)? {
            Values::One(Value::Single(Operand::Atom(atom))) => self.atom(atom, domain),
            Values::One(Value::Bits(operands)) => self.or(operands.iter(), domain),
            Values::List(values) if domain.notation == Notation::TcpFlags => self.or_values(values, domain),
            _ => Err(self.not_one_value(name.span, &name.text, domain)),
        }
    }

    fn prefix(&mut self, address: &Atom, length: &Atom, domain: Domain) -> Check<Range> {
        let span = address.span.to(length.span);
        let first = self.atom(address, domain)?;
        let Some(family) = domain.family() else {
            return Err(self.wrong_type(address, domain));
        };
        let bits = family.bits();
        let Some(length) = length.text.parse::<u8>().ok().filter(|&length| length <= bits) else {
            return Err(self.report(
                Diagnostic::error("E0315", length.span, format!("`/{}` is not a prefix length", length.text))
                    .help(format!("{} has 0 to {bits} bits", a_noun(domain.notation))),
            ));
        };
        let host = domain.max().checked_shr(u32::from(length)).unwrap_or(0);
        if first & host != 0 {
            let right = address_text(family, first & !host);
            return Err(self.report(
                Diagnostic::error("E0304", span, "the prefix has bits set after its length")
                    .label(format!("`/{length}` ends before them"))
                    .help(format!("write `{right}/{length}`, or `{}` for the one address", address.text)),
            ));
        }
        Ok(Range { first, last: first | host, span })
    }

    fn atom(&mut self, atom: &Atom, domain: Domain) -> Check<u128> {
        match (domain.notation, atom.kind) {
            (Notation::Ipv4Address, AtomKind::Ipv4) => match atom.text.parse::<Ipv4Addr>() {
                Ok(address) => Ok(u128::from(address.to_bits())),
                Err(_) => Err(self.wrong_type(atom, domain)),
            },
            (Notation::Ipv6Address, AtomKind::Ipv6) => match atom.text.parse::<Ipv6Addr>() {
                Ok(address) => Ok(address.to_bits()),
                Err(_) => Err(self.wrong_type(atom, domain)),
            },
            (Notation::Ipv4Address, AtomKind::Ipv6) | (Notation::Ipv6Address, AtomKind::Ipv4) => {
                Err(self.wrong_family(atom, domain))
            }
            (Notation::Ipv4Address | Notation::Ipv6Address, _) => Err(self.wrong_type(atom, domain)),
            (notation, AtomKind::Word | AtomKind::Number) => {
                if let Some(&(_, value)) = names(notation).iter().find(|(name, _)| *name == atom.text) {
                    return Ok(u128::from(value));
                }
                if atom.kind == AtomKind::Word {
                    return Err(self.unknown_value(atom, domain));
                }
                self.number(atom, domain)
            }
            _ => Err(self.wrong_type(atom, domain)),
        }
    }

    fn number(&mut self, atom: &Atom, domain: Domain) -> Check<u128> {
        let text = &atom.text;
        let digits = |digits: &str, radix| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
        let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(hex) if digits(hex, 16) => u128::from_str_radix(hex, 16),
            // A leading zero is refused. nftables would read the number as octal, most people as decimal.
            None if digits(text, 10) && (text.len() == 1 || !text.starts_with('0')) => text.parse(),
            _ => return Err(self.wrong_type(atom, domain)),
        };
        match parsed {
            Ok(value) if value <= domain.max() => Ok(value),
            _ => Err(self.report(
                Diagnostic::error("E0301", atom.span, format!("`{text}` is out of range for `{}`", domain.name))
                    .label(format!("at most {}", domain.max()))
                    .help(format!(
                        "`{}` has {} bit{}",
                        domain.name,
                        domain.bits,
                        if domain.bits == 1 { "" } else { "s" }
                    )),
            )),
        }
    }

    fn unknown_value(&mut self, atom: &Atom, domain: Domain) -> Reported {
        let known = names(domain.notation);
        if known.is_empty() || domain.notation == Notation::Presence {
            return self.wrong_type(atom, domain);
        }
        let message = format!("`{}` is not {} that Weir knows", atom.text, a_noun(domain.notation));
        let diagnostic = Diagnostic::error("E0209", atom.span, message);
        let is_known = |text: &str| known.iter().any(|(name, _)| *name == text) || text.parse::<u16>().is_ok();
        let range = atom.text.match_indices('-').map(|(dash, _)| (&atom.text[..dash], &atom.text[dash + 1..]));
        if let Some((start, end)) = range.into_iter().find(|(start, end)| is_known(start) && is_known(end)) {
            let help = format!("`-` can be part of a name: write the range as `{start} - {end}`");
            return self.report(diagnostic.help(help));
        }
        let diagnostic = match nearest(&atom.text, known.iter().map(|&(name, _)| name)) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None if known.len() <= 25 => {
                let all: Vec<&str> = known.iter().map(|&(name, _)| name).collect();
                diagnostic.help(format!("it is one of {}", all.join(", ")))
            }
            None => diagnostic.help("write its number"),
        };
        self.report(diagnostic)
    }

    fn wrong_type(&mut self, atom: &Atom, domain: Domain) -> Reported {
        let message = format!("`{}` is not {}", atom.text, a_noun(domain.notation));
        let is_padded = |part: &str| part.len() > 1 && part.starts_with('0');
        let help = match domain.notation {
            Notation::Ipv4Address if atom.kind == AtomKind::Ipv4 && atom.text.split('.').any(is_padded) => {
                "write the octets without leading zeros: some programs read `010` as 8, others as 10"
            }
            Notation::Ipv4Address => "write `192.0.2.1`, `192.0.2.0/24` or `192.0.2.1-192.0.2.9`",
            Notation::Ipv6Address => "write `2001:db8::1`, `2001:db8::/32` or `2001:db8::1-2001:db8::9`",
            Notation::Presence => "write `exists` or `missing`",
            _ if atom.kind == AtomKind::Number => "numbers are decimal without leading zeros, or hexadecimal with `0x`",
            _ => "write a number",
        };
        let label = format!("compared with `{}`", domain.name);
        self.report(Diagnostic::error("E0302", atom.span, message).label(label).help(help))
    }

    fn wrong_family(&mut self, atom: &Atom, domain: Domain) -> Reported {
        let (is, holds, other) = match domain.notation {
            Notation::Ipv4Address => ("IPv6", "IPv4", domain.name.replacen("ip ", "ip6 ", 1)),
            _ => ("IPv4", "IPv6", domain.name.replacen("ip6 ", "ip ", 1)),
        };
        let message = format!("`{}` is an {is} address, `{}` holds {holds} ones", atom.text, domain.name);
        let help = if other == domain.name {
            "put it into a table of its own family".to_owned()
        } else {
            format!("match it with `{other}`, in a rule of its own")
        };
        self.report(Diagnostic::error("E0303", atom.span, message).help(help))
    }
}
