//! Checks `observe { ... }`.

use super::settings::Settings;
use super::table::domain_of;
use super::value::{Domain, Range};
use super::{Check, Checker};
use crate::catalog::Family;
use crate::checked::{Observe, ValueSet};
use crate::diag::Diagnostic;
use crate::source::Span;
use crate::syntax::tree::{Atom, AtomKind, Item, Name, ObserveSetting, Operand, Value, Values};
use weir_abi::features::{RANGES_MAX, SIZE_MAX, SIZE_MIN};

/// The ranges of protected addresses, of IPv4 and of IPv6.
pub(super) type Ranges = [Vec<Range>; 2];

impl Checker<'_> {
    /// Reads `observe`, which may have several blocks, and the place of the first one.
    pub(super) fn observe(&mut self) -> Option<(Observe, Span)> {
        let mut observe = Observe::default();
        let mut settings = Settings::default();
        for item in self.items.clone() {
            let Item::Observe(block) = item else { continue };
            settings.block(block.span);
            for setting in &block.settings {
                if settings.is_first(self, setting.name(), setting.span()) {
                    // It has been reported.
                    let _reported = self.observe_setting(&mut observe, setting);
                }
            }
        }
        settings.place().map(|span| (observe, span))
    }

    fn observe_setting(&mut self, observe: &mut Observe, setting: &ObserveSetting) -> Check<()> {
        match setting {
            ObserveSetting::Size(size) => {
                let Some(entries) = number(size, SIZE_MIN, SIZE_MAX) else {
                    let message = format!("`{size}` is not a number of observed addresses");
                    let help = format!("write {SIZE_MIN} to {SIZE_MAX}; addresses beyond it are counted together");
                    return Err(self.report(Diagnostic::error("E0329", size.span, message).help(help)));
                };
                observe.size = entries.next_power_of_two();
            }
            ObserveSetting::Each(of, length) => self.observe_each(observe, of, length.as_ref())?,
            ObserveSetting::Inside(values, span) => observe.inside = self.observe_inside(values, *span)?,
        }
        Ok(())
    }

    fn observe_each(&mut self, observe: &mut Observe, of: &Name, length: Option<&Atom>) -> Check<()> {
        let families = [("ip", 32), ("ip6", 128)];
        let family = families.iter().position(|(name, _)| *name == of.text);
        match (family, length) {
            (None, None) if of.text == "address" => Ok(()),
            (Some(family), Some(length)) => match number(length, 0, families[family].1) {
                Some(bits) => {
                    observe.lengths[family] = bits as u8;
                    Ok(())
                }
                None => {
                    let message = format!("`{length}` is not a length of prefixes of `{}`", of.text);
                    let help = format!("write 0 to {}", families[family].1);
                    Err(self.report(Diagnostic::error("E0329", length.span, message).help(help)))
                }
            },
            _ => {
                let span = length.map_or(of.span, |length| of.span.to(length.span));
                let help = "write `each address`, or prefixes such as `each ip/24` and `each ip6/64`";
                Err(self.report(Diagnostic::error("E0329", span, "this cannot be observed").help(help)))
            }
        }
    }

    fn observe_inside(&mut self, values: &[Value], span: Span) -> Check<[ValueSet; 2]> {
        let mut ranges = Ranges::default();
        let mut result = Ok(());
        for value in values {
            result = result.and(self.inside_ranges(value, &mut ranges));
        }
        result?;
        let sets = ranges.map(|ranges| ValueSet::new(ranges.iter().map(|range| (range.first, range.last))));
        if sets.iter().any(|set| set.ranges().len() > RANGES_MAX) {
            let message = format!("more than {} ranges of addresses are inside", RANGES_MAX);
            return Err(self.report(Diagnostic::error("E0329", span, message).help("write shorter prefixes")));
        }
        if sets.iter().all(|set| set.ranges().is_empty()) {
            let help = "without `inside`, every address is observed";
            return Err(self.report(Diagnostic::error("E0329", span, "no address is inside").help(help)));
        }
        Ok(sets)
    }

    /// The ranges of a value, by its family. The depth of definitions is bounded.
    pub(super) fn inside_ranges(&mut self, value: &Value, ranges: &mut Ranges) -> Check<()> {
        if let Value::Single(Operand::Variable(name)) = value {
            let elements = match self.variable(name)? {
                Values::One(value) => std::slice::from_ref(value),
                Values::Set { elements, .. } => elements,
                Values::List(_) | Values::Masked { .. } => &[],
            };
            if !elements.is_empty() {
                let mut result = Ok(());
                for element in elements {
                    result = result.and(self.inside_ranges(element, ranges));
                }
                return result;
            }
        }
        let kind = match value {
            Value::Single(Operand::Atom(atom)) | Value::Range { start: Operand::Atom(atom), .. } => Some(atom.kind),
            Value::Prefix { address, .. } => Some(address.kind),
            Value::Single(_) | Value::Range { .. } | Value::Bits(_) => None,
        };
        let family = if kind == Some(AtomKind::Ipv6) { Family::Ipv6 } else { Family::Ipv4 };
        let domain = Domain { name: "inside", ..domain_of(family) };
        self.ranges(value, domain, &mut ranges[usize::from(family == Family::Ipv6)])
    }
}

fn number(atom: &Atom, min: u32, max: u32) -> Option<u32> {
    atom.text.parse().ok().filter(|number| (min..=max).contains(number))
}
