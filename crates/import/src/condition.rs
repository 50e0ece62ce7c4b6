//! A condition of a rule: one match of the policy language, with the values for which it holds where they are known.
//!
//! Known values show that two conditions contradict each other, or that one implies the other. A condition without
//! known values does neither, so an unknown value never removes a rule.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A range of values, both ends included.
pub type Range = (u128, u128);

/// The numbers of protocols that conditions compare.
pub const PROTOCOLS: &[(&str, u128)] = &[
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("comp", 108),
    ("sctp", 132),
    ("udplite", 136),
];
/// The states of `ct state`. A packet has exactly one of them.
pub const STATES: &[&str] = &["new", "established", "related", "invalid", "untracked"];
/// The value of `meta nfproto` for each family.
pub const IPV4: u128 = 2;
/// See [`IPV4`].
pub const IPV6: u128 = 10;

/// A match of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The field as a policy names it: `tcp dport`.
    pub field: String,
    /// The whole match as a policy writes it.
    pub text: String,
    /// The values of the field for which the match holds, sorted. `None` if they are not known.
    pub values: Option<Vec<Range>>,
}

impl Condition {
    /// A match whose values are not known.
    pub fn opaque(field: &str, text: String) -> Self {
        Condition { field: field.to_owned(), text, values: None }
    }

    /// `field` has one of these values. Each value has the text that a policy shows.
    pub fn one_of(field: &str, values: &[(Range, String)]) -> Self {
        let texts: Vec<&str> = values.iter().map(|(_, text)| text.as_str()).collect();
        let text = match texts.as_slice() {
            [one] => format!("{field} {one}"),
            many => format!("{field} {{ {} }}", many.join(", ")),
        };
        Condition {
            field: field.to_owned(),
            text,
            values: Some(sorted(values.iter().map(|(range, _)| *range).collect())),
        }
    }

    /// `field` has none of these values.
    pub fn none_of(field: &str, values: &[(Range, String)]) -> Self {
        let positive = Self::one_of(field, values);
        let text = format!("{field} != {}", &positive.text[field.len() + 1..]);
        Condition { text, values: positive.values.map(|values| complement(&values)), ..positive }
    }

    /// The packet has this protocol.
    pub fn protocol(name: &str, number: u128) -> Self {
        Self::one_of("meta l4proto", &[((number, number), name.to_owned())])
    }

    /// The packet has this family: [`IPV4`] or [`IPV6`].
    pub fn family(number: u128) -> Self {
        let name = if number == IPV4 { "ipv4" } else { "ipv6" };
        Self::one_of("meta nfproto", &[((number, number), name.to_owned())])
    }

    /// The headers that the field needs, as values of other fields.
    fn guards(&self) -> Vec<(&'static str, u128)> {
        match self.field.split(' ').next().unwrap_or("") {
            "ip" => vec![("meta nfproto", IPV4)],
            "ip6" | "exthdr" => vec![("meta nfproto", IPV6)],
            "tcp" => vec![("meta l4proto", 6)],
            "udp" => vec![("meta l4proto", 17)],
            "icmp" => vec![("meta l4proto", 1), ("meta nfproto", IPV4)],
            "icmpv6" => vec![("meta l4proto", 58), ("meta nfproto", IPV6)],
            _ => Vec::new(),
        }
    }

    /// What the condition says about a field: about its own, or about one of the headers that it needs.
    fn about(&self, field: &str) -> Option<Vec<Range>> {
        if canonical(&self.field) == field {
            return self.values.clone();
        }
        self.guards().into_iter().find(|(guarded, _)| *guarded == field).map(|(_, value)| vec![(value, value)])
    }

    /// The fields about which the condition says something.
    fn subjects(&self) -> Vec<&str> {
        let own = std::iter::once(canonical(&self.field));
        own.chain(self.guards().into_iter().map(|(field, _)| field)).collect()
    }

    /// The opposite, for packets that fulfil `known`. `None` if a packet may fulfil neither, as without the field.
    pub fn opposite(&self, known: &[Condition]) -> Option<Condition> {
        let header = self.field.split(' ').next().unwrap_or("");
        let is_always_there =
            matches!(header, "ip" | "ip6") || matches!(self.field.as_str(), "meta l4proto" | "ct state");
        let is_there = self
            .guards()
            .into_iter()
            .all(|(field, value)| known.iter().any(|condition| condition.about(field) == Some(vec![(value, value)])));
        let rest = self.text.strip_prefix(self.field.as_str())?.strip_prefix(' ')?;
        if !is_always_there || !is_there || rest.starts_with(['<', '>', '&', '=']) {
            return None;
        }
        let text = match (rest.strip_prefix("!= "), rest.contains(',') && !rest.starts_with('{')) {
            (Some(rest), _) => format!("{} {rest}", self.field),
            (None, false) => format!("{} != {rest}", self.field),
            // The states of `ct state a,b`.
            (None, true) => format!("{} != {{ {} }}", self.field, rest.replace(',', ", ")),
        };
        let values = self.values.as_ref().map(|values| complement(values));
        Some(Condition { field: self.field.clone(), text, values })
    }

    /// Whether no packet fulfils both.
    pub fn contradicts(&self, other: &Condition) -> bool {
        self.subjects().into_iter().any(|field| match (self.about(field), other.about(field)) {
            (Some(ours), Some(theirs)) => !ours.iter().any(|a| theirs.iter().any(|b| a.0 <= b.1 && b.0 <= a.1)),
            _ => false,
        })
    }

    /// Whether every packet that fulfils this condition fulfils the other one.
    pub fn implies(&self, other: &Condition) -> bool {
        if self.text == other.text {
            return true;
        }
        // A field of a header says more than that the header is there.
        let field = canonical(&other.field);
        if other.guards().iter().any(|(guarded, value)| self.about(guarded) != Some(vec![(*value, *value)])) {
            return false;
        }
        match (self.about(field), &other.values) {
            (Some(ours), Some(theirs)) => {
                ours.iter().all(|ours| theirs.iter().any(|theirs| theirs.0 <= ours.0 && ours.1 <= theirs.1))
            }
            _ => false,
        }
    }
}

/// `ip protocol` says the same as `meta l4proto`.
fn canonical(field: &str) -> &str {
    if field == "ip protocol" { "meta l4proto" } else { field }
}

/// Ranges in order. Adjacent and overlapping ranges become one.
fn sorted(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.0 <= last.1.saturating_add(1) => last.1 = last.1.max(range.1),
            _ => merged.push(range),
        }
    }
    merged
}

/// All other values.
fn complement(ranges: &[Range]) -> Vec<Range> {
    let mut rest = Vec::new();
    let mut next = Some(0);
    for &(low, high) in ranges {
        if let Some(from) = next.filter(|from| *from < low) {
            rest.push((from, low - 1));
        }
        next = high.checked_add(1);
    }
    rest.extend(next.map(|from| (from, u128::MAX)));
    rest
}

/// Whether a value fulfils a condition and all others on its field.
fn is_possible(others: &[Condition], condition: &Condition) -> bool {
    let field = canonical(&condition.field);
    let Some(mut left) = condition.values.clone() else { return true };
    for values in
        others.iter().filter(|other| canonical(&other.field) == field).filter_map(|other| other.values.as_ref())
    {
        let both = |a: Range, b: Range| (a.0.max(b.0), a.1.min(b.1));
        left = left
            .iter()
            .flat_map(|a| values.iter().map(move |b| both(*a, *b)))
            .filter(|(low, high)| low <= high)
            .collect();
    }
    !left.is_empty()
}

/// All conditions of a packet's way. `None` if they contradict each other.
pub fn joined(outer: &[Condition], inner: &[Condition]) -> Option<Vec<Condition>> {
    let mut all: Vec<Condition> = outer.to_vec();
    for condition in inner {
        if all.iter().any(|known| known.contradicts(condition)) || !is_possible(&all, condition) {
            return None;
        }
        if !all.iter().any(|known| known.implies(condition)) {
            all.retain(|known| !condition.implies(known));
            all.push(condition.clone());
        }
    }
    Some(all)
}

/// Whether the conditions of a packet imply all of these.
pub fn covers(packet: &[Condition], conditions: &[Condition]) -> bool {
    conditions.iter().all(|wanted| packet.iter().any(|known| known.implies(wanted)))
}

/// An address or a prefix as a range, with the text of a policy. Bits behind the prefix are cleared, as in the kernel.
pub fn address(text: &str) -> Option<(Range, String)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    if let Ok(v4) = address.parse::<Ipv4Addr>() {
        let length = match length {
            None => 32,
            Some(mask) if mask.contains('.') => mask_length(mask.parse().ok()?)?,
            Some(length) => length.parse().ok().filter(|&length| length <= 32)?,
        };
        let host = u32::MAX.checked_shr(length).unwrap_or(0);
        let low = u32::from(v4) & !host;
        let shown =
            if length == 32 { Ipv4Addr::from(low).to_string() } else { format!("{}/{length}", Ipv4Addr::from(low)) };
        return Some(((low.into(), (low | host).into()), shown));
    }
    let v6: Ipv6Addr = address.parse().ok()?;
    let length: u32 = length.map_or(Some(128), |length| length.parse().ok()).filter(|&length| length <= 128)?;
    let host = u128::MAX.checked_shr(length).unwrap_or(0);
    let low = u128::from(v6) & !host;
    let shown =
        if length == 128 { Ipv6Addr::from(low).to_string() } else { format!("{}/{length}", Ipv6Addr::from(low)) };
    Some(((low, low | host), shown))
}

/// The length of a netmask without gaps.
fn mask_length(mask: Ipv4Addr) -> Option<u32> {
    let bits = u32::from(mask);
    (bits.leading_ones() + bits.trailing_zeros() >= 32).then(|| bits.leading_ones())
}

/// A number, decimal or hexadecimal.
pub fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(low: u128, high: u128) -> Condition {
        Condition::one_of("tcp dport", &[((low, high), format!("{low}-{high}"))])
    }

    #[test]
    fn conditions_know_what_excludes_them() {
        assert!(port(1, 5).contradicts(&port(6, 7)));
        assert!(!port(1, 6).contradicts(&port(6, 7)));
        assert!(port(1, 5).contradicts(&Condition::protocol("udp", 17)));
        assert!(Condition::protocol("udp", 17).contradicts(&port(1, 5)), "in both orders");
        let not = Condition::none_of("tcp dport", &[((22, 22), "22".into())]);
        assert!(not.contradicts(&port(22, 22)) && !not.contradicts(&port(22, 23)));
        assert_eq!(not.text, "tcp dport != 22");
        assert!(!Condition::opaque("ip saddr", "ip saddr @a".into()).contradicts(&port(1, 2)));
    }

    #[test]
    fn conditions_know_what_they_imply() {
        assert!(port(2, 3).implies(&port(1, 5)) && !port(1, 5).implies(&port(2, 3)));
        assert!(port(2, 3).implies(&Condition::protocol("tcp", 6)));
        assert!(!Condition::protocol("tcp", 6).implies(&port(0, 65535)), "a later fragment has no port");
        let not = Condition::none_of("tcp dport", &[((22, 22), "22".into())]);
        assert!(!Condition::protocol("udp", 17).implies(&not), "a match on a field that is missing never holds");
    }

    #[test]
    fn several_conditions_on_a_field_leave_a_value_or_none() {
        let not = |value: u128| Condition::none_of("tcp dport", &[((value, value), value.to_string())]);
        assert!(joined(&[port(1, 2), not(1)], &[not(3)]).is_some());
        assert!(joined(&[port(1, 2), not(1)], &[not(2)]).is_none());
    }

    #[test]
    fn opposites_are_there_only_where_the_field_is() {
        let source = |not: bool| {
            let values = [((1, 9), "0.0.0.1-0.0.0.9".to_owned())];
            if not { Condition::none_of("ip saddr", &values) } else { Condition::one_of("ip saddr", &values) }
        };
        assert_eq!(source(false).opposite(&[]), None, "an IPv6 packet fulfils neither");
        assert_eq!(source(false).opposite(&[Condition::family(IPV4)]), Some(source(true)));
        assert_eq!(source(true).opposite(&[Condition::family(IPV4)]), Some(source(false)));
        assert_eq!(port(1, 2).opposite(&[Condition::protocol("tcp", 6)]), None, "a later fragment has no port");
        let table = Condition::opaque("ip saddr", "ip saddr @bad".to_owned());
        let opposite = table.opposite(&[Condition::family(IPV4)]).expect("every packet has a source");
        assert_eq!(opposite.text, "ip saddr != @bad");
    }

    #[test]
    fn addresses_lose_the_bits_behind_their_prefix() {
        assert_eq!(address("192.0.2.77/24").map(|(_, text)| text), Some("192.0.2.0/24".into()));
        assert_eq!(address("192.0.2.0/255.255.255.0").map(|(_, text)| text), Some("192.0.2.0/24".into()));
        assert_eq!(address("10.0.0.0/255.0.255.0"), None);
        assert_eq!(address("0.0.0.0/0").map(|(range, _)| range), Some((0, u32::MAX.into())));
        assert_eq!(address("::/0").map(|(range, _)| range), Some((0, u128::MAX)));
    }
}
