//! Assigns buckets to limiters.
//!
//! A generation declares the buckets of its limiters before its images are built. The name of a declaration consists of
//! the list, the direction and the position among statements. An entry of the list keeps the bucket that a loaded
//! generation has for the same prefix or label. Other buckets are new and full. A bucket is free again when no
//! generation uses it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_abi::each;
use weir_abi::limit::ticks;

use super::buckets::Buckets;
use super::counts::Counts;
use super::debt_by_name::SavedDebts;
use super::entry_names::EntryNames;
use super::handed::{HandedAssignment, HandedBuckets};
use crate::StateError;
use crate::store::{Binding, Declared, Request, StateKind, Store};

/// The format of the words of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordFormat {
    /// Each word is a bucket ([`weir_abi::limit`]).
    Buckets,
    /// The words are a table of addresses ([`weir_abi::each`]), with ticks of 2^`coarse` usual ticks.
    AddressTable {
        /// See [`weir_abi::LimitProfile::coarse`].
        coarse: u64,
    },
    /// The words are a table of the connections of addresses ([`weir_abi::seats`]), each with this many seats.
    Seats(u16),
}

impl WordFormat {
    /// The word of a full bucket.
    fn full(self, now_ns: u64) -> u64 {
        match self {
            WordFormat::Buckets => ticks(now_ns),
            WordFormat::AddressTable { coarse } => each::empty(each::ticks(now_ns, coarse)),
            WordFormat::Seats(_) => 0,
        }
    }

    /// Alignment of the first word, in words: sets are cache lines.
    fn alignment(self) -> usize {
        match self {
            WordFormat::Buckets => 1,
            WordFormat::AddressTable { .. } | WordFormat::Seats(_) => each::WAYS,
        }
    }
}

/// The buckets of all limiters of one list, as a policy declares them.
#[derive(Clone, Debug)]
pub struct BucketsDeclared {
    /// The names of the list's entries.
    pub entries: EntryNames,
    /// Number of limiters: each entry has this many neighbouring buckets. For a table of addresses, its number of
    /// words.
    pub width: u32,
    /// The format of the words.
    pub format: WordFormat,
}

impl BucketsDeclared {
    /// The width and the format as numbers, for the next program in this process.
    fn shape(&self) -> (u32, (u8, u64)) {
        let format = match self.format {
            WordFormat::Buckets => (0, 0),
            WordFormat::AddressTable { coarse } => (1, coarse),
            WordFormat::Seats(seats) => (2, seats.into()),
        };
        (self.width, format)
    }

    /// Number of buckets needed, including unused ones for alignment.
    pub fn buckets(&self) -> usize {
        self.entries.len() * self.width as usize + self.format.alignment() - 1
    }
}

/// The buckets of a list in one generation.
#[derive(Debug)]
pub struct AssignedBuckets {
    declared: BucketsDeclared,
    slots: Vec<u32>,
}

impl AssignedBuckets {
    /// The first bucket of each entry.
    pub fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// Number of neighbouring buckets of each entry, or of words of a table of addresses.
    pub(super) fn width(&self) -> u32 {
        self.declared.width
    }

    /// The format of the words.
    pub(super) fn format(&self) -> WordFormat {
        self.declared.format
    }

    /// The names of the entries.
    pub(super) fn names(&self) -> &EntryNames {
        &self.declared.entries
    }

    /// Takes over the buckets of entries with the same names, from the newest generation that has them. The slot of
    /// another entry is 0.
    fn inherit(request: Request<'_, LimitBuckets>, handed: &[HandedBuckets]) -> Self {
        let Request { name, declaration: declared, earlier } = request;
        let mut slots = vec![0; declared.entries.len()];
        for earlier in earlier {
            declared.entries.shared(&earlier.declared.entries, |own, other| {
                if slots[own] == 0 {
                    slots[own] = earlier.slots[other];
                }
            });
        }
        if slots.iter().all(|&slot| slot == 0)
            && let Some(handed) = handed.iter().find(|handed| handed.is_of(&name, declared.shape(), &declared.entries))
        {
            slots.clone_from(&handed.slots);
        }
        AssignedBuckets { declared, slots }
    }
}

/// The buckets that a generation uses.
pub type LimitBinding = Binding<LimitBuckets>;

impl LimitBinding {
    /// Fills all buckets of the generation among `buckets`. No program charges them meanwhile.
    pub fn fill(&self, buckets: &Buckets, now_ns: u64) {
        for AssignedBuckets { declared, slots } in self.objects() {
            let full = declared.format.full(now_ns);
            let all = slots.iter().flat_map(|&first| first..first + declared.width);
            all.for_each(|slot| buckets.set(slot, full));
        }
    }
}

/// Buckets as a kind of shared state: which words are assigned to how many generations.
pub struct LimitBuckets {
    buckets: Arc<Buckets>,
    counts: Arc<Counts>,
    /// Number of generations that use each run of neighbouring buckets, by its first slot. The length is the number of
    /// slots ever assigned.
    users: Vec<u16>,
    /// Free runs of neighbouring buckets: their first slots, by width.
    free: BTreeMap<u32, Vec<u32>>,
    /// Buckets of the program before this one in its process, until generations are bound to them.
    handed: Vec<HandedBuckets>,
}

impl LimitBuckets {
    /// Takes a free run of neighbouring buckets. Returns the first.
    fn take(&mut self, BucketsDeclared { width, format, .. }: &BucketsDeclared) -> u32 {
        let free = self.free.get_mut(width).and_then(|free| {
            let fits = free.iter().rposition(|first| first.is_multiple_of(format.alignment() as u32))?;
            Some(free.swap_remove(fits))
        });
        free.unwrap_or_else(|| {
            let first = self.users.len().next_multiple_of(format.alignment());
            self.users.resize(first + *width as usize, 0);
            first as u32
        })
    }

    /// Number of buckets needed beyond the free ones of their width and alignment.
    fn missing(&self, wanted: &[AssignedBuckets]) -> usize {
        let mut new: BTreeMap<(u32, u32), usize> = BTreeMap::new();
        for AssignedBuckets { declared, slots } in wanted {
            let key = (declared.width, declared.format.alignment() as u32);
            *new.entry(key).or_default() += slots.iter().filter(|&&slot| slot == 0).count();
        }
        let beyond = |((width, alignment), count): ((u32, u32), usize)| {
            let fits = |free: &Vec<u32>| free.iter().filter(|first| first.is_multiple_of(alignment)).count();
            let more = count.saturating_sub(self.free.get(&width).map_or(0, fits));
            // Includes the buckets that alignment may leave unused before each run.
            more * (width as usize + alignment as usize - 1)
        };
        new.into_iter().map(beyond).sum()
    }
}

impl StateKind for LimitBuckets {
    type Declaration = BucketsDeclared;
    type Object = AssignedBuckets;

    fn fits(declaration: &BucketsDeclared, object: &AssignedBuckets) -> bool {
        object.declared.width == declaration.width && object.declared.format == declaration.format
    }

    fn bind(
        &mut self,
        requests: Vec<Request<'_, Self>>,
        _loaded: &mut dyn Iterator<Item = &AssignedBuckets>,
        now_ns: u64,
    ) -> Result<Vec<AssignedBuckets>, StateError> {
        let mut assigned: Vec<AssignedBuckets> =
            requests.into_iter().map(|request| AssignedBuckets::inherit(request, &self.handed)).collect();
        let missing = self.missing(&assigned);
        let left = self.buckets.count().saturating_sub(self.users.len());
        if missing > left {
            let advice = if self.buckets.map().is_some() { "; start Weir with a larger --limits-room" } else { "" };
            let problem = format!("{left} are left, {missing} more are needed{advice}");
            return Err(StateError::Buckets { count: self.buckets.count(), problem });
        }
        for AssignedBuckets { declared, slots } in &mut assigned {
            let full = declared.format.full(now_ns);
            for slot in slots {
                if *slot == 0 {
                    *slot = self.take(declared);
                    (*slot..*slot + declared.width).for_each(|slot| {
                        self.buckets.set(slot, full);
                        self.counts.clear(slot);
                    });
                }
                self.users[*slot as usize] += 1;
            }
        }
        Ok(assigned)
    }

    fn release(&mut self, AssignedBuckets { declared, slots }: &AssignedBuckets) {
        for &slot in slots {
            let users = &mut self.users[slot as usize];
            *users -= 1;
            if *users == 0 {
                self.free.entry(declared.width).or_default().push(slot);
            }
        }
    }
}

/// The buckets of all generations.
pub struct LimitStore {
    seed: u32,
    buckets: Arc<Buckets>,
    counts: Arc<Counts>,
    store: Store<LimitBuckets>,
    /// Debts of declarations that no generation has had yet, by name.
    saved: Mutex<HashMap<String, SavedDebts>>,
}

impl LimitStore {
    /// A store of these buckets, all but the first. `seed` is the hash seed of addresses, which must be unpredictable.
    pub fn new(seed: u32, buckets: Buckets) -> Self {
        Self::counting(seed, buckets, Counts::default())
    }

    /// A store whose counts go on.
    pub(crate) fn counting(seed: u32, buckets: Buckets, counts: Counts) -> Self {
        let (buckets, counts) = (Arc::new(buckets), Arc::new(counts));
        let (users, handed) = (vec![1], Vec::new());
        let (assigned, counted, free) = (buckets.clone(), counts.clone(), BTreeMap::new());
        let kind = LimitBuckets { buckets: assigned, counts: counted, users, free, handed };
        LimitStore { seed, buckets, counts, store: Store::new(kind), saved: Mutex::default() }
    }

    /// How the buckets are assigned, for the next program in this process.
    pub(crate) fn assignment(&self) -> HandedAssignment {
        let mut lists: Vec<HandedBuckets> = Vec::new();
        for binding in self.loaded() {
            let new = |lists: &[HandedBuckets], one: &HandedBuckets| !lists.iter().any(|known| known == one);
            for (name, assigned) in binding.named() {
                let handed =
                    HandedBuckets::of(name, assigned.declared.shape(), &assigned.declared.entries, &assigned.slots);
                if new(&lists, &handed) {
                    lists.push(handed);
                }
            }
        }
        self.store.maintain(|kind, _| {
            let free = kind.free.iter().map(|(&width, slots)| (width, slots.clone())).collect();
            HandedAssignment { lists, free, used: kind.users.len() }
        })
    }

    /// Lets the first generations have the buckets that they had in the program before this one.
    pub(crate) fn continue_with(&self, assignment: HandedAssignment) {
        self.store.maintain(|kind, _| {
            kind.users.resize(assignment.used, 0);
            kind.free = assignment.free.into_iter().collect();
            kind.handed = assignment.lists;
        });
    }

    /// Frees the buckets that were handed over and that no generation has taken.
    pub(crate) fn end_handover(&self) {
        self.store.maintain(|kind, _| {
            for HandedBuckets { width, slots, .. } in std::mem::take(&mut kind.handed) {
                for first in slots.into_iter().filter(|&first| kind.users[first as usize] == 0) {
                    let free = kind.free.entry(width).or_default();
                    if !free.contains(&first) {
                        free.push(first);
                    }
                }
            }
        });
    }

    /// The hash seed of addresses.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// The buckets.
    pub fn buckets(&self) -> &Arc<Buckets> {
        &self.buckets
    }

    /// Number of buckets that limits of loaded generations have.
    pub fn assigned(&self) -> usize {
        self.store.maintain(|LimitBuckets { users, free, .. }, _| {
            let free: usize = free.iter().map(|(&width, runs)| width as usize * runs.len()).sum();
            // The first word is no bucket.
            (users.len() - 1).saturating_sub(free)
        })
    }

    /// Addresses in debt at the rates of `limit each` of loaded generations, and addresses for which these have room.
    /// `None` without such limits. Reads all words of their tables.
    pub fn addresses(&self, now_ns: u64) -> Option<[usize; 2]> {
        self.store.maintain(|LimitBuckets { buckets, .. }, loaded| {
            let mut sums = None;
            for (slots, format) in address_tables(loaded) {
                if let WordFormat::AddressTable { coarse } = format {
                    let [in_debt, room] = sums.get_or_insert([0; 2]);
                    *room += slots.len();
                    *in_debt += buckets.addresses_in_debt(slots, now_ns, coarse);
                }
            }
            sums
        })
    }

    /// The counts of all buckets.
    pub(crate) fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    /// Assigns buckets to the limiters of a generation. New buckets are full at `now_ns`.
    ///
    /// # Errors
    /// Not enough buckets are left. Nothing is assigned then.
    pub(super) fn assign(
        &self,
        declared: Vec<Declared<BucketsDeclared>>,
        now_ns: u64,
    ) -> Result<Arc<LimitBinding>, StateError> {
        self.store.bind(declared, now_ns)
    }

    /// The buckets of all loaded generations, newest first.
    pub(super) fn loaded(&self) -> Vec<Arc<LimitBinding>> {
        self.store.loaded()
    }

    /// Saved debts of limits that no generation has declared yet.
    pub(super) fn saved(&self) -> MutexGuard<'_, HashMap<String, SavedDebts>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets words in the past to the present, before they wrap around. No bucket is assigned meanwhile: assignment
    /// fills buckets, and decides the format of their words.
    pub fn refresh(&self, now_ns: u64) {
        self.store.maintain(|LimitBuckets { buckets, users, .. }, loaded| {
            let mut begin = 0;
            for (addresses, format) in address_tables(loaded) {
                buckets.refresh(begin..addresses.start, now_ns);
                if let WordFormat::AddressTable { coarse } = format {
                    buckets.refresh_addresses(addresses.clone(), now_ns, coarse);
                }
                begin = addresses.end;
            }
            buckets.refresh(begin..users.len() as u32, now_ns);
        });
    }
}

/// The tables of addresses of loaded generations, in the order of their buckets, with the format of their words.
fn address_tables(loaded: &mut dyn Iterator<Item = &AssignedBuckets>) -> Vec<(Range<u32>, WordFormat)> {
    let mut tables = Vec::new();
    for AssignedBuckets { declared, slots } in loaded {
        if declared.format != WordFormat::Buckets {
            tables.extend(slots.iter().map(|&first| (first..first + declared.width, declared.format)));
        }
    }
    tables.sort_unstable_by_key(|(slots, _)| slots.start);
    tables.dedup();
    tables
}
