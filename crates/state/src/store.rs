//! The state of one kind, and the generations that are bound to it.
//!
//! ```text
//!   Store ──owns──> state of a kind              Binding of generation 2: "customers", "suspects"
//!     └──knows──> bindings, oldest first   <───  Binding of generation 1: "customers"
//! ```
//! A store knows bindings by weak references. A binding that is dropped releases its objects.
//!
//! Two locks, in this order: `kind` is held while a generation is bound or released, which may take long. `bindings` is
//! held only to read or extend the list, so [`Store::with_objects`] never waits for a generation that is bound.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::StateError;

/// A kind of shared state.
pub trait StateKind: Sized {
    /// What a policy says about state besides its name.
    type Declaration;
    /// State of one name as one generation uses it. Objects of several generations may share parts or everything.
    type Object;

    /// Whether a declaration of the same name can take over this state.
    fn fits(declaration: &Self::Declaration, object: &Self::Object) -> bool;

    /// Makes the objects of a generation, one for each request and in their order. `loaded` are the objects of all
    /// loaded generations, oldest first. New state begins at `now_ns`.
    ///
    /// # Errors
    /// There is no room for all of them. Nothing has changed then.
    fn bind(
        &mut self,
        requests: Vec<Request<'_, Self>>,
        loaded: &mut dyn Iterator<Item = &Self::Object>,
        now_ns: u64,
    ) -> Result<Vec<Self::Object>, StateError>;

    /// A generation with this object decides packets from now on.
    fn take_effect(&mut self, _object: &Self::Object) {}

    /// Takes back what no other object shares with this one. Its generation is gone.
    fn release(&mut self, _object: &Self::Object) {}
}

/// State that a policy declares.
#[derive(Clone, Debug)]
pub struct Declared<D> {
    /// The name, the same in every generation.
    pub name: String,
    /// Everything else.
    pub declaration: D,
}

/// A request for one object.
pub struct Request<'a, K: StateKind> {
    /// The name of the state.
    pub name: String,
    /// What the policy declares.
    pub declaration: K::Declaration,
    /// Objects of the same name that fit, of loaded generations, newest first.
    pub earlier: Vec<&'a K::Object>,
}

/// An object with its name.
struct Named<O> {
    name: String,
    object: O,
}

/// The state that one generation uses. Dropping it releases the state.
pub struct Binding<K: StateKind> {
    objects: Vec<Named<K::Object>>,
    store: Weak<Contents<K>>,
}

/// A binding without state.
impl<K: StateKind> Default for Binding<K> {
    fn default() -> Self {
        Binding { objects: Vec::new(), store: Weak::new() }
    }
}

impl<K: StateKind> Binding<K> {
    /// Binds one program to an object that no store knows.
    pub fn alone(object: K::Object) -> Arc<Self> {
        let objects = vec![Named { name: String::new(), object }];
        Arc::new(Binding { objects, store: Weak::new() })
    }

    /// The object of a declaration, by its position among them.
    pub fn object(&self, index: usize) -> &K::Object {
        &self.objects[index].object
    }

    /// All objects with their names, in the order of their declarations.
    pub fn named(&self) -> impl Iterator<Item = (&str, &K::Object)> {
        self.objects.iter().map(|named| (named.name.as_str(), &named.object))
    }

    /// Notes that the generation decides packets from now on. State that outlives the process is only then its own.
    pub fn take_effect(&self) {
        let Some(contents) = self.store.upgrade() else { return };
        let mut kind = lock(&contents.kind);
        self.objects().for_each(|object| kind.take_effect(object));
    }

    /// All objects, in the order of their declarations.
    pub fn objects(&self) -> impl Iterator<Item = &K::Object> {
        self.objects.iter().map(|named| &named.object)
    }
}

impl<K: StateKind> Drop for Binding<K> {
    fn drop(&mut self) {
        let Some(contents) = self.store.upgrade() else { return };
        let mut kind = lock(&contents.kind);
        self.objects().for_each(|object| kind.release(object));
    }
}

/// State of one kind, with the generations that are bound to it.
pub struct Store<K: StateKind>(Arc<Contents<K>>);

struct Contents<K: StateKind> {
    kind: Mutex<K>,
    /// Oldest first. To be locked after `kind`.
    bindings: Mutex<Vec<Weak<Binding<K>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: StateKind> Store<K> {
    /// A store without a bound generation.
    pub fn new(kind: K) -> Self {
        Store(Arc::new(Contents { kind: Mutex::new(kind), bindings: Mutex::default() }))
    }

    /// Binds a generation to the state that it declares.
    ///
    /// # Errors
    /// There is no room for its new state. Nothing has changed then.
    pub fn bind(&self, declared: Vec<Declared<K::Declaration>>, now_ns: u64) -> Result<Arc<Binding<K>>, StateError> {
        self.with_kind(|kind, loaded| {
            let mut names = Vec::with_capacity(declared.len());
            let requests = declared.into_iter().map(|Declared { name, declaration }| {
                let fits = |named: &&Named<K::Object>| named.name == name && K::fits(&declaration, &named.object);
                let newest_first = loaded.iter().rev();
                let earlier = newest_first.filter_map(|binding| binding.objects.iter().find(fits));
                let earlier = earlier.map(|named| &named.object).collect();
                names.push(name.clone());
                Request { name, declaration, earlier }
            });
            let requests = requests.collect();
            let objects = kind.bind(requests, &mut loaded.iter().flat_map(|binding| binding.objects()), now_ns)?;
            let objects = names.into_iter().zip(objects).map(|(name, object)| Named { name, object }).collect();
            let binding = Arc::new(Binding { objects, store: Arc::downgrade(&self.0) });
            lock(&self.0.bindings).push(Arc::downgrade(&binding));
            Ok(binding)
        })
    }

    /// Runs `work` on the state and on the objects of all loaded generations. No generation is bound or released
    /// meanwhile.
    pub fn maintain<R>(&self, work: impl FnOnce(&mut K, &mut dyn Iterator<Item = &K::Object>) -> R) -> R {
        self.with_kind(|kind, loaded| work(kind, &mut loaded.iter().flat_map(|binding| binding.objects())))
    }

    /// Runs `work` on the objects of all loaded generations, oldest first. Generations may be bound and released
    /// meanwhile, which this does not wait for.
    pub fn with_objects<R>(&self, work: impl FnOnce(&mut dyn Iterator<Item = &K::Object>) -> R) -> R {
        let loaded = self.all_loaded();
        work(&mut loaded.iter().flat_map(|binding| binding.objects()))
    }

    /// The bindings of all loaded generations, newest first. They stay bound while the result lives.
    pub fn loaded(&self) -> Vec<Arc<Binding<K>>> {
        self.all_loaded().into_iter().rev().collect()
    }

    fn all_loaded(&self) -> Vec<Arc<Binding<K>>> {
        let mut bindings = lock(&self.0.bindings);
        bindings.retain(|binding| binding.strong_count() > 0);
        bindings.iter().filter_map(Weak::upgrade).collect()
    }

    fn with_kind<R>(&self, work: impl FnOnce(&mut K, &[Arc<Binding<K>>]) -> R) -> R {
        let mut kind = lock(&self.0.kind);
        let loaded = self.all_loaded();
        let result = work(&mut kind, &loaded);
        // If these are the last owners of bindings, they release objects, which takes the lock.
        drop(kind);
        drop(loaded);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Sets that grow while packets pass: declared by their element type, shared whole between generations.
    struct Sets {
        room: usize,
    }

    struct Set {
        element: &'static str,
        entries: Arc<AtomicUsize>,
    }

    impl StateKind for Sets {
        type Declaration = &'static str;
        type Object = Set;

        fn fits(element: &&'static str, set: &Set) -> bool {
            set.element == *element
        }

        fn bind(
            &mut self,
            requests: Vec<Request<'_, Self>>,
            _loaded: &mut dyn Iterator<Item = &Set>,
            now_ns: u64,
        ) -> Result<Vec<Set>, StateError> {
            let new = requests.iter().filter(|request| request.earlier.is_empty()).count();
            let problem = || StateError::Buckets { count: self.room, problem: format!("{new} more are needed") };
            self.room = self.room.checked_sub(new).ok_or_else(problem)?;
            let begun = || Arc::new(AtomicUsize::new(now_ns as usize));
            let set = |Request { declaration: element, earlier, .. }: Request<'_, Self>| Set {
                element,
                entries: earlier.first().map_or_else(begun, |set| set.entries.clone()),
            };
            Ok(requests.into_iter().map(set).collect())
        }

        fn release(&mut self, set: &Set) {
            self.room += usize::from(Arc::strong_count(&set.entries) == 1);
        }
    }

    fn declared(sets: &[(&str, &'static str)]) -> Vec<Declared<&'static str>> {
        sets.iter().map(|&(name, declaration)| Declared { name: name.to_owned(), declaration }).collect()
    }

    fn add(binding: &Binding<Sets>, set: usize) -> usize {
        binding.object(set).entries.fetch_add(1, Ordering::Relaxed) + 1
    }

    #[test]
    fn generations_that_name_the_same_state_share_it_as_long_as_one_is_loaded() {
        let store = Store::new(Sets { room: 2 });
        let active = store.bind(declared(&[("suspects", "ipv4"), ("seen", "ipv6")]), 0).expect("there is room");
        assert_eq!((add(&active, 0), add(&active, 0)), (1, 2));
        let prepared = store.bind(declared(&[("seen", "ipv6"), ("suspects", "ipv4")]), 90).expect("all is shared");
        assert_eq!((add(&prepared, 1), add(&active, 0)), (3, 4), "both see every change");
        drop(active);
        let next = store.bind(declared(&[("suspects", "ipv4")]), 90).expect("it is shared");
        assert_eq!(add(&next, 0), 5);
        drop((prepared, next));
        let later = store.bind(declared(&[("suspects", "ipv4")]), 90).expect("there is room");
        assert_eq!(add(&later, 0), 91, "state that no generation names is gone");
    }

    #[test]
    fn state_that_does_not_fit_begins_anew() {
        let store = Store::new(Sets { room: 9 });
        let active = store.bind(declared(&[("suspects", "ipv4")]), 0).expect("there is room");
        add(&active, 0);
        let other = store.bind(declared(&[("suspects", "ipv6"), ("others", "ipv4")]), 50).expect("there is room");
        assert_eq!((add(&other, 0), add(&other, 1), add(&active, 0)), (51, 51, 2));
        let rollback = store.bind(declared(&[("suspects", "ipv4")]), 90).expect("it is shared");
        assert_eq!(add(&rollback, 0), 3, "an older generation still has what fits");
    }

    #[test]
    fn a_refused_generation_changes_nothing() {
        let store = Store::new(Sets { room: 2 });
        let active = store.bind(declared(&[("a", "ipv4")]), 0).expect("there is room");
        let refused = store.bind(declared(&[("a", "ipv4"), ("b", "ipv4"), ("c", "ipv4")]), 0).err();
        assert_eq!(refused.map(|error| error.to_string()).as_deref(), Some("1 buckets: 2 more are needed"));
        let names = store.maintain(|sets, loaded| (sets.room, loaded.count()));
        assert_eq!((names, add(&active, 0)), ((1, 1), 1));
    }
}
