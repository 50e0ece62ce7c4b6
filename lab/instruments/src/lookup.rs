//! Calls table lookups of compiled C outside of any policy.
//!
//! A lookup function gets a table, up to [`BURST_MAX`] keys, and an array for as many labels:
//!
//! ```c
//! void name(struct table table, const uint32_t *keys, uint32_t *labels, uint32_t count);
//! void name(struct table table, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count);
//! ```
//! The C is our own, and its compiled code is trusted: it fits the images that it gets, and its symbols have the types
//! above.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use libloading::os::unix::Library;
use weir_abi::BURST_MAX;
use weir_engine::EngineError;
use weir_engine::clang::NativeObject;
use weir_engine::native::open;
use weir_schemes::SchemeImage;
use weir_tables::Image;

/// `struct table` of datapath/core/env.h.
#[derive(Clone, Copy)]
#[repr(C)]
struct CTable {
    image: *const u8,
    mask: u32,
}

const _: () = assert!(size_of::<CTable>() == 16);

type Find4 = unsafe extern "C" fn(CTable, *const u32, *mut u32, u32);
type Find6 = unsafe extern "C" fn(CTable, *const u64, *const u64, *mut u32, u32);
type Call = unsafe extern "C" fn(*const u32, u32) -> i64;

/// The memory that a lookup searches.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// A table in one of Weir's layouts.
    Image(&'a Image),
    /// A table in a lookup scheme that Weir is compared with.
    Scheme(&'a SchemeImage),
    /// None: the code keeps its own table.
    Own,
}

impl Bytes<'_> {
    fn table(self) -> CTable {
        let image = match self {
            Bytes::Image(image) => image.as_bytes().as_ptr(),
            Bytes::Scheme(image) => image.as_bytes().as_ptr(),
            Bytes::Own => std::ptr::null(),
        };
        CTable { image, mask: u32::MAX }
    }
}

/// A loaded shared object.
#[derive(Debug)]
pub struct Code {
    name: String,
    library: Library,
    /// Keeps the number of the descriptor in use. The loader identifies libraries by it (see [`weir_engine::NativeCode`]).
    _file: OwnedFd,
}

impl Code {
    /// Loads the output of [`weir_engine::clang`]. `name` is for messages.
    pub fn load(name: &str, object: &NativeObject) -> Result<Arc<Self>, EngineError> {
        let (library, file) = open(name, object)?;
        Ok(Arc::new(Code { name: name.to_owned(), library, _file: file }))
    }

    /// The lookup function for IPv4 keys with the given symbol.
    pub fn lookup4(self: &Arc<Self>, symbol: &str) -> Result<Lookup4, EngineError> {
        // SAFETY: the symbols have the types in the module comment.
        let find = unsafe { self.library.get::<Find4>(symbol.as_bytes()) }.map(|find| *find);
        Ok(Lookup4 { find: find.map_err(|_| self.lacks(symbol))?, _code: self.clone() })
    }

    /// The lookup function for IPv6 keys with the given symbol.
    pub fn lookup6(self: &Arc<Self>, symbol: &str) -> Result<Lookup6, EngineError> {
        // SAFETY: as above.
        let find = unsafe { self.library.get::<Find6>(symbol.as_bytes()) }.map(|find| *find);
        Ok(Lookup6 { find: find.map_err(|_| self.lacks(symbol))?, _code: self.clone() })
    }

    /// Calls `int64_t symbol(const uint32_t *words, uint32_t count)`, which prepares data for lookups.
    ///
    /// # Panics
    /// If there are 2^32 words or more.
    pub fn call(&self, symbol: &str, words: &[u32]) -> Result<i64, EngineError> {
        // SAFETY: our own code defines the symbol with this type.
        let function = unsafe { self.library.get::<Call>(symbol.as_bytes()) }.map_err(|_| self.lacks(symbol))?;
        let count = u32::try_from(words.len()).expect("less than 2^32 words");
        // SAFETY: `count` words are readable.
        Ok(unsafe { function(words.as_ptr(), count) })
    }

    fn lacks(&self, symbol: &str) -> EngineError {
        EngineError::Native { object: self.name.clone(), problem: format!("has no function {symbol}") }
    }
}

/// A lookup of IPv4 keys.
#[derive(Clone, Debug)]
pub struct Lookup4 {
    find: Find4,
    /// The code that contains `find`.
    _code: Arc<Code>,
}

impl Lookup4 {
    /// Looks up keys (host byte order) in bursts and writes the label of each.
    ///
    /// # Panics
    /// If there are fewer labels than keys.
    pub fn run(&self, bytes: Bytes<'_>, keys: &[u32], labels: &mut [u32]) {
        let labels = &mut labels[..keys.len()];
        for (keys, labels) in keys.chunks(BURST_MAX).zip(labels.chunks_mut(BURST_MAX)) {
            self.burst(bytes, keys, labels);
        }
    }

    /// Looks up the keys of one burst (host byte order) and writes the label of each.
    ///
    /// # Panics
    /// If there are fewer labels than keys, or more than [`BURST_MAX`] keys.
    #[inline]
    pub fn burst(&self, bytes: Bytes<'_>, keys: &[u32], labels: &mut [u32]) {
        assert!(keys.len() <= BURST_MAX.min(labels.len()), "a burst, and room for its labels");
        // SAFETY: both slices have `keys.len()` elements, the image is valid and fits the code (module comment).
        unsafe { (self.find)(bytes.table(), keys.as_ptr(), labels.as_mut_ptr(), keys.len() as u32) };
    }
}

/// A lookup of IPv6 keys.
#[derive(Clone, Debug)]
pub struct Lookup6 {
    find: Find6,
    /// The code that contains `find`.
    _code: Arc<Code>,
}

impl Lookup6 {
    /// Looks up keys, given as 64-bit halves (host byte order), in bursts, and writes the label of each.
    ///
    /// # Panics
    /// If there are fewer low halves or labels than high halves.
    pub fn run(&self, bytes: Bytes<'_>, hi: &[u64], lo: &[u64], labels: &mut [u32]) {
        let table = bytes.table();
        let (lo, labels) = (&lo[..hi.len()], &mut labels[..hi.len()]);
        let halves = hi.chunks(BURST_MAX).zip(lo.chunks(BURST_MAX));
        for ((hi, lo), labels) in halves.zip(labels.chunks_mut(BURST_MAX)) {
            // SAFETY: all slices have `hi.len()` elements, the image is valid and fits the code (module comment).
            unsafe { (self.find)(table, hi.as_ptr(), lo.as_ptr(), labels.as_mut_ptr(), hi.len() as u32) };
        }
    }
}
