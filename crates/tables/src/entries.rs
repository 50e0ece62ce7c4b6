//! The entries of one table: what it is given, in order, and what it holds in the end.
//!
//! [`Entries`] collects the elements of a policy and of list files. [`Entries::settle`] sorts them into a [`Table`],
//! which knows its counts. `build.rs` makes its images. Nothing here opens a file.

use std::collections::HashMap;
use std::net::IpAddr;

use weir_abi::Family;

use crate::overlap::{Crossings, Span, Spans, resolve};
use crate::prefix::{Address, Element, Prefix, Prefix4, Prefix6};
use crate::problem::{LABEL_BYTES_MAX, Problem};
use crate::reference::Reference;

/// What the entries of a table carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No data: a table of this kind is a set.
    Set,
    /// A label for each entry.
    Labels,
}

/// Prefixes of one family.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Prefixes {
    V4(Vec<Prefix4>),
    V6(Vec<Prefix6>),
}

impl Prefixes {
    fn new(family: Family) -> Self {
        match family {
            Family::Ipv4 => Prefixes::V4(Vec::new()),
            Family::Ipv6 => Prefixes::V6(Vec::new()),
        }
    }

    pub fn family(&self) -> Family {
        match self {
            Prefixes::V4(_) => Family::Ipv4,
            Prefixes::V6(_) => Family::Ipv6,
        }
    }

    pub fn reference(&self) -> Reference {
        match self {
            Prefixes::V4(prefixes) => Reference::new4(prefixes),
            Prefixes::V6(prefixes) => Reference::new6(prefixes),
        }
    }

    fn len(&self) -> usize {
        match self {
            Prefixes::V4(prefixes) => prefixes.len(),
            Prefixes::V6(prefixes) => prefixes.len(),
        }
    }
}

/// An address type of table prefixes.
pub(crate) trait TableAddress: Address {
    /// The prefixes, if they are of this family.
    fn of(prefixes: &mut Prefixes) -> Option<&mut Vec<Prefix<Self>>>;
    /// The spans, if they are of this family.
    fn spans(spans: &mut Spans) -> Option<&mut Vec<Span<Self>>>;
}

impl TableAddress for u32 {
    fn of(prefixes: &mut Prefixes) -> Option<&mut Vec<Prefix4>> {
        match prefixes {
            Prefixes::V4(prefixes) => Some(prefixes),
            Prefixes::V6(_) => None,
        }
    }

    fn spans(spans: &mut Spans) -> Option<&mut Vec<Span<u32>>> {
        match spans {
            Spans::V4(spans) => Some(spans),
            Spans::V6(_) => None,
        }
    }
}

impl TableAddress for u128 {
    fn of(prefixes: &mut Prefixes) -> Option<&mut Vec<Prefix6>> {
        match prefixes {
            Prefixes::V4(_) => None,
            Prefixes::V6(prefixes) => Some(prefixes),
        }
    }

    fn spans(spans: &mut Spans) -> Option<&mut Vec<Span<u128>>> {
        match spans {
            Spans::V4(_) => None,
            Spans::V6(spans) => Some(spans),
        }
    }
}

/// Interned labels: label id `i + 1` is `names[i]`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    names: Vec<Box<str>>,
    ids: HashMap<Box<str>, u32>,
}

impl Labels {
    /// The label of an id.
    pub fn name(&self, id: u32) -> Option<&str> {
        self.names.get((id as usize).checked_sub(1)?).map(|name| &**name)
    }

    /// The id of a label, if it is known.
    pub fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    /// Labels by id, the first is 1.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Labels by id, the first is 1.
    pub fn into_names(self) -> Vec<Box<str>> {
        self.names
    }

    /// The highest label in use, for tables of a kind.
    pub fn count(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Set => 1,
            Kind::Labels => self.names.len() as u32,
        }
    }

    /// Interns like [`Labels::intern`]. Returns `None` if the label is new and its id would not be below `max`.
    pub fn intern_below(&mut self, name: &str, max: u32) -> Option<u32> {
        match self.ids.get(name) {
            Some(&id) => Some(id),
            None => (self.names.len() as u32 + 1 < max).then(|| self.intern(name)),
        }
    }

    /// The id of a label, new or known.
    pub fn intern(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        self.names.push(name.into());
        let id = self.names.len() as u32;
        self.ids.insert(name.into(), id);
        id
    }
}

/// The entries that a table was given so far, in order of insertion.
#[derive(Clone, Debug)]
pub struct Entries {
    kind: Kind,
    pub(crate) prefixes: Prefixes,
    /// Ranges of a labelled table that are not one prefix. Their sizes decide which of them wins. A set stores their
    /// prefixes instead.
    spans: Spans,
    /// Number of prefixes that cover the spans, each span on its own.
    span_prefixes: usize,
    pub(crate) labels: Labels,
}

impl Entries {
    /// A table without entries.
    pub fn new(family: Family, kind: Kind) -> Self {
        let spans = match family {
            Family::Ipv4 => Spans::V4(Vec::new()),
            Family::Ipv6 => Spans::V6(Vec::new()),
        };
        Entries { kind, prefixes: Prefixes::new(family), spans, span_prefixes: 0, labels: Labels::default() }
    }

    /// A table without entries, whose labels have the ids of another table: label id `i + 1` is `labels[i]`.
    pub fn with_labels(family: Family, kind: Kind, labels: &[Box<str>]) -> Self {
        let mut entries = Entries::new(family, kind);
        labels.iter().for_each(|label| _ = entries.labels.intern(label));
        entries
    }

    /// Address family of the prefixes.
    pub fn family(&self) -> Family {
        self.prefixes.family()
    }

    /// Whether the table is a set or has labels.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Number of prefixes so far, including duplicates.
    pub fn len(&self) -> usize {
        self.prefixes.len() + self.span_prefixes
    }

    /// Whether nothing has been inserted yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts the prefix of `len` bits around `addr`; host bits are cleared. A set ignores the label.
    ///
    /// # Errors
    /// The address is of the other family, `len` too long for it, or a label is missing, empty or too long.
    pub fn insert_prefix(&mut self, addr: IpAddr, len: u8, label: Option<&str>) -> Result<(), Problem> {
        if len > self.family().bits() {
            return Err(Problem::LongLength(self.family()));
        }
        match addr {
            IpAddr::V4(addr) => self.insert(Element::<u32>::Prefix { addr: addr.into(), len }, label),
            IpAddr::V6(addr) => self.insert(Element::<u128>::Prefix { addr: addr.into(), len }, label),
        }
    }

    /// Inserts the fewest prefixes that cover `first..=last`. A set ignores the label.
    ///
    /// # Errors
    /// An address is of the other family, the range runs backwards, or a label is missing, empty or too long.
    pub fn insert_range(&mut self, first: IpAddr, last: IpAddr, label: Option<&str>) -> Result<(), Problem> {
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                self.insert(Element::<u32>::range(first.into(), last.into())?, label)
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                self.insert(Element::<u128>::range(first.into(), last.into())?, label)
            }
            _ => Err(Problem::OtherFamily(self.family())),
        }
    }

    /// Inserts the entries of a table of the same family. A set ignores their labels.
    ///
    /// # Panics
    /// The table is of the other family, or it is a set and this one has labels.
    pub fn insert_table(&mut self, table: &Table) {
        let names = table.labels();
        let label = |id: u32| names.get(id as usize - 1).map(|name| &**name);
        let fits = "the table is of the same family and has the labels";
        for prefix in table.prefixes4() {
            self.insert_prefix(IpAddr::V4(prefix.addr.into()), prefix.len, label(prefix.label)).expect(fits);
        }
        for prefix in table.prefixes6() {
            self.insert_prefix(IpAddr::V6(prefix.addr.into()), prefix.len, label(prefix.label)).expect(fits);
        }
    }

    /// Inserts an address, CIDR or `a-b` range in text form. A set ignores the label.
    ///
    /// # Errors
    /// As for [`Entries::insert_prefix`], and if the text is none of the three.
    pub fn insert_text(&mut self, text: &str, label: Option<&str>) -> Result<(), Problem> {
        fn whole<A: Address>(text: &str) -> Result<Element<A>, Problem> {
            match Element::take(text.as_bytes())? {
                (element, taken) if taken == text.len() => Ok(element),
                _ => Err(Problem::NotAnAddress(A::FAMILY)),
            }
        }
        match self.family() {
            Family::Ipv4 => self.insert(whole::<u32>(text)?, label),
            Family::Ipv6 => self.insert(whole::<u128>(text)?, label),
        }
    }

    fn insert<A: TableAddress>(&mut self, element: Element<A>, label: Option<&str>) -> Result<(), Problem> {
        let family = self.family();
        let label = self.label_id(label)?;
        let prefixes = A::of(&mut self.prefixes).ok_or(Problem::OtherFamily(family))?;
        match Span::of_element(&element, label).filter(|_| self.kind == Kind::Labels) {
            Some((span, count)) => {
                A::spans(&mut self.spans).ok_or(Problem::OtherFamily(family))?.push(span);
                self.span_prefixes += count;
            }
            None => element.prefixes(label, |prefix| prefixes.push(prefix)),
        }
        Ok(())
    }

    fn label_id(&mut self, label: Option<&str>) -> Result<u32, Problem> {
        match (self.kind, label) {
            (Kind::Set, _) => Ok(1),
            (Kind::Labels, None | Some("")) => Err(Problem::NoLabel),
            (Kind::Labels, Some(label)) if label.len() > LABEL_BYTES_MAX => Err(Problem::LongLabel),
            (Kind::Labels, Some(label)) => Ok(self.labels.intern(label)),
        }
    }

    /// Appends the entries of one part of a list, whose labels have ids of their own.
    pub(crate) fn absorb<A: TableAddress>(&mut self, part: Vec<Prefix<A>>, spans: Vec<Span<A>>, labels: &Labels) {
        let ids: Vec<u32> = labels.names.iter().map(|name| self.labels.intern(name)).collect();
        let relabelled = |prefix: Prefix<A>| Prefix { label: ids[prefix.label as usize - 1], ..prefix };
        let relabelled_span = |span: Span<A>| Span { label: ids[span.label as usize - 1], ..span };
        self.span_prefixes += spans.iter().map(|span| span.element().prefix_count()).sum::<usize>();
        if let Some(own) = A::spans(&mut self.spans) {
            own.extend(spans.into_iter().map(relabelled_span));
        }
        let Some(prefixes) = A::of(&mut self.prefixes) else { return };
        match self.kind {
            Kind::Set if prefixes.is_empty() => *prefixes = part,
            Kind::Set => prefixes.extend(part),
            Kind::Labels => prefixes.extend(part.into_iter().map(relabelled)),
        }
    }

    /// The reference for checks of images. Of two equal prefixes the later wins.
    pub fn reference(&self) -> Reference {
        if self.span_prefixes > 0 { self.clone().settle().reference() } else { self.prefixes.reference() }
    }

    /// Sorts the entries into a table. Of equal prefixes and ranges the later wins; of others that overlap the smaller
    /// wins.
    pub fn settle(mut self) -> Table {
        let mut repeats = Repeats::default();
        match &mut self.prefixes {
            Prefixes::V4(prefixes) => repeats.remove(prefixes),
            Prefixes::V6(prefixes) => repeats.remove(prefixes),
        }
        let crossings = match (&mut self.prefixes, self.spans) {
            (Prefixes::V4(prefixes), Spans::V4(spans)) => repeats.resolve(prefixes, spans),
            (Prefixes::V6(prefixes), Spans::V6(spans)) => repeats.resolve(prefixes, spans),
            _ => unreachable!("spans are of the family of the prefixes"),
        };
        let table = Table::settled(self.kind, self.prefixes, self.labels.names);
        let facts = Facts { repeated: repeats.same, relabelled: repeats.relabelled, crossings, ..table.facts };
        Table { facts, ..table }
    }
}

/// Prefixes and ranges given more than once.
#[derive(Default)]
struct Repeats {
    same: usize,
    relabelled: usize,
}

impl Repeats {
    /// Counts an entry that was given before, with the same label or another.
    fn count(&mut self, is_same: bool) {
        match is_same {
            true => self.same += 1,
            false => self.relabelled += 1,
        }
    }

    fn remove<A: Address>(&mut self, prefixes: &mut Vec<Prefix<A>>) {
        // The sort is stable, so the later of two equal prefixes stays later. It is fast on sorted input, which lists
        // often are.
        prefixes.sort_by_key(|prefix| prefix.addr.order(prefix.len));
        prefixes.dedup_by(|later, kept| {
            if (later.addr, later.len) != (kept.addr, kept.len) {
                return false;
            }
            self.count(later.label == kept.label);
            kept.label = later.label;
            true
        });
    }

    /// Resolves sorted spans and prefixes into prefixes alone.
    fn resolve<A: Address>(&mut self, prefixes: &mut Vec<Prefix<A>>, mut spans: Vec<Span<A>>) -> Crossings {
        if spans.is_empty() {
            return Crossings::default();
        }
        spans.sort_by_key(|span| (span.first, span.last));
        spans.dedup_by(|later, kept| {
            if (later.first, later.last) != (kept.first, kept.last) {
                return false;
            }
            self.count(later.label == kept.label);
            kept.label = later.label;
            true
        });
        resolve(prefixes, spans)
    }
}

pub(crate) fn count_lengths<A: Address>(prefixes: &[Prefix<A>]) -> Vec<usize> {
    let mut by_length = vec![0; usize::from(A::FAMILY.bits()) + 1];
    for prefix in prefixes {
        by_length[usize::from(prefix.len)] += 1;
    }
    by_length
}

/// Counts of a settled table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Distinct prefixes.
    pub entries: usize,
    /// Prefixes of each length, index 0 to the family's bits.
    pub by_length: Vec<usize>,
    /// Dropped prefixes that were given again with the same label.
    pub repeated: usize,
    /// Prefixes and ranges that were given again with another label, which won.
    pub relabelled: usize,
    /// Labelled ranges that cross (each reaches over an end of the other). The smaller one decides.
    pub crossings: Crossings,
}

/// The contents of a table: distinct prefixes, sorted by address and from short to long. Two tables are equal if they
/// have the same entries and labels, however often these were given.
#[derive(Clone, Debug)]
pub struct Table {
    kind: Kind,
    pub(crate) prefixes: Prefixes,
    labels: Vec<Box<str>>,
    facts: Facts,
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.labels == other.labels && self.prefixes == other.prefixes
    }
}

impl Table {
    /// A table of prefixes that are distinct and sorted.
    pub(crate) fn settled(kind: Kind, prefixes: Prefixes, labels: Vec<Box<str>>) -> Self {
        let by_length = match &prefixes {
            Prefixes::V4(prefixes) => count_lengths(prefixes),
            Prefixes::V6(prefixes) => count_lengths(prefixes),
        };
        let (entries, crossings) = (prefixes.len(), Crossings::default());
        Table { kind, prefixes, labels, facts: Facts { entries, by_length, repeated: 0, relabelled: 0, crossings } }
    }

    /// Address family of the prefixes.
    pub fn family(&self) -> Family {
        self.prefixes.family()
    }

    /// Whether the table is a set or has labels.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Counts of the table.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Label id `i + 1` is `labels()[i]`. Empty for a set.
    pub fn labels(&self) -> &[Box<str>] {
        &self.labels
    }

    /// The label id of each prefix, in their order.
    pub fn label_ids(&self) -> impl Iterator<Item = u32> {
        let ids4 = self.prefixes4().iter().map(|prefix| prefix.label);
        ids4.chain(self.prefixes6().iter().map(|prefix| prefix.label))
    }

    /// The IPv4 prefixes, sorted; none in a table of the other family.
    pub fn prefixes4(&self) -> &[Prefix4] {
        match &self.prefixes {
            Prefixes::V4(prefixes) => prefixes,
            Prefixes::V6(_) => &[],
        }
    }

    /// The IPv6 prefixes, sorted; none in a table of the other family.
    pub fn prefixes6(&self) -> &[Prefix6] {
        match &self.prefixes {
            Prefixes::V4(_) => &[],
            Prefixes::V6(prefixes) => prefixes,
        }
    }

    /// The reference for checks of images.
    pub fn reference(&self) -> Reference {
        self.prefixes.reference()
    }
}
