//! The image that readers see: one word that points to it.

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::live::epochs::Unlinked;
use crate::live::readers::{Burst, Readers};
use crate::live::shared::SharedImage;

/// The word, and what was in it before.
struct Published {
    /// From `Box::into_raw`; owned. Only the one [`Publisher`] writes it.
    image: AtomicPtr<SharedImage>,
    readers: Readers,
    /// Images that were swapped out, until nobody holds them. They are here and not with the publisher because a reader
    /// who looks into one may outlive it.
    old: Mutex<Unlinked<Box<SharedImage>>>,
}

impl Drop for Published {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw`, and views borrow what is dropped here: there is none.
        drop(unsafe { Box::from_raw(*self.image.get_mut()) });
    }
}

/// The writer's end of the word.
pub(super) struct Publisher(Arc<Published>);

impl Publisher {
    pub fn new(readers: &Readers, image: SharedImage) -> Self {
        Publisher(Arc::new(Published {
            image: AtomicPtr::new(Box::into_raw(Box::new(image))),
            readers: readers.clone(),
            old: Mutex::default(),
        }))
    }

    /// What readers are given.
    pub fn handle(&self) -> LiveImage {
        LiveImage(self.0.clone())
    }

    /// The image that is published.
    pub fn image(&self) -> &SharedImage {
        // SAFETY: it is swapped out, and freed later, through `&mut self` only.
        unsafe { &*self.0.image.load(Ordering::Relaxed) }
    }

    /// Publishes another image. The old one is freed when readers have let it go.
    pub fn swap(&mut self, image: SharedImage) {
        let old = self.0.image.swap(Box::into_raw(Box::new(image)), Ordering::AcqRel);
        // SAFETY: from `Box::into_raw`, and nobody comes by it any more.
        let old = unsafe { Box::from_raw(old) };
        self.0.old.lock().unwrap_or_else(PoisonError::into_inner).push(&self.0.readers, old);
    }

    /// Frees images that nobody holds; how many are left.
    pub fn free(&mut self) -> usize {
        let mut old = self.0.old.lock().unwrap_or_else(PoisonError::into_inner);
        while old.pop(&self.0.readers).is_some() {}
        old.len()
    }
}

/// A live table's image as readers come by it, from any thread. Clones are the same.
#[derive(Clone)]
pub struct LiveImage(Arc<Published>);

impl LiveImage {
    /// The image to be looked into for the rest of the burst.
    ///
    /// # Panics
    /// If the burst is of readers that the table does not know.
    pub fn open<'b>(&'b self, burst: &'b Burst<'_>) -> LiveView<'b> {
        assert!(burst.readers().is(&self.0.readers), "the reader is registered where the table's writer looks");
        // SAFETY: the pointer was loaded in a burst that the view does not outlive; what it points to is freed when all
        // readers that the writer looks at have begun another one.
        LiveView(unsafe { &*self.0.image.load(Ordering::Acquire) })
    }
}

impl fmt::Debug for LiveImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveImage").finish_non_exhaustive()
    }
}

/// A live table in one burst. Two lookups of the same key may differ, if a change came between.
#[derive(Clone, Copy)]
pub struct LiveView<'b>(&'b SharedImage);

impl LiveView<'_> {
    /// The label of the longest prefix that holds `addr`; 0 if none does, or if the table is of the other family.
    pub fn find4(&self, addr: u32) -> u32 {
        self.0.find4(addr)
    }

    /// The label of the longest prefix that holds `addr`; 0 if none does, or if the table is of the other family.
    pub fn find6(&self, addr: u128) -> u32 {
        self.0.find6(addr)
    }

    /// What C lookups are given, for the burst. The bytes change meanwhile: Rust must not read them through this.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.start()
    }

    /// Bytes of the image, the room for changes included.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl fmt::Debug for LiveView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveView").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
