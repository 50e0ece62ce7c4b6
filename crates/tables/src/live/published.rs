//! The published image: a pointer in one word, through which readers find the image.

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::image::Image;
use crate::live::change::LiveError;
use crate::live::epochs::Unlinked;
use crate::live::halves::HalvesPublisher;
use crate::live::readers::{Burst, Readers};
use crate::live::shared::SharedImage;
use crate::live::two_halves::TwoHalves;

/// Limit on replaced images that readers may still hold.
pub const IMAGES_WAITING_MAX: usize = 8;

/// The pointer, and the images that it replaced.
struct Published {
    /// From `Box::into_raw`, and owned. Only the one [`Publisher`] writes it.
    image: AtomicPtr<SharedImage>,
    readers: Readers,
    /// Replaced images that readers may still hold. They are here and not in the publisher, because a reader with an
    /// open view may outlive the publisher.
    old: Mutex<Unlinked<Box<SharedImage>>>,
}

impl Drop for Published {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::into_raw`. Views borrow the value that is dropped here, so none exists.
        drop(unsafe { Box::from_raw(*self.image.get_mut()) });
    }
}

/// The writer's side of the pointer.
pub(super) struct PointerPublisher(Arc<Published>);

impl PointerPublisher {
    pub fn new(readers: &Readers, image: SharedImage) -> Self {
        PointerPublisher(Arc::new(Published {
            image: AtomicPtr::new(Box::into_raw(Box::new(image))),
            readers: readers.clone(),
            old: Mutex::default(),
        }))
    }

    /// The handle that readers use.
    pub fn handle(&self) -> LiveImage {
        LiveImage(self.0.clone())
    }

    /// The registry of the readers.
    pub fn readers(&self) -> &Readers {
        &self.0.readers
    }

    /// The published image.
    pub fn image(&self) -> &SharedImage {
        // SAFETY: the image is swapped out and later freed only through `&mut self`.
        unsafe { &*self.0.image.load(Ordering::Relaxed) }
    }

    /// Publishes another image. The old one is freed when no reader holds it.
    fn swap(&mut self, image: SharedImage) {
        let old = self.0.image.swap(Box::into_raw(Box::new(image)), Ordering::AcqRel);
        // SAFETY: the pointer came from `Box::into_raw`, and after the swap no thread can load it.
        let old = unsafe { Box::from_raw(old) };
        self.0.old.lock().unwrap_or_else(PoisonError::into_inner).push(&self.0.readers, old);
    }

    /// Frees the images that no reader holds. Returns how many are left.
    fn free(&mut self) -> usize {
        let mut old = self.0.old.lock().unwrap_or_else(PoisonError::into_inner);
        while old.pop(&self.0.readers).is_some() {}
        old.len()
    }
}

/// How the image of a table reaches its readers.
pub(super) enum Publisher {
    /// Threads of this process follow a pointer.
    Pointer(PointerPublisher),
    /// Programs in the kernel read one of two halves.
    Halves(HalvesPublisher),
}

impl Publisher {
    /// Publishes an image for threads of this process.
    pub fn new(readers: &Readers, image: SharedImage) -> Self {
        Publisher::Pointer(PointerPublisher::new(readers, image))
    }

    /// The handle that threads use.
    ///
    /// # Panics
    /// Panics if programs in the kernel read the table.
    pub fn handle(&self) -> LiveImage {
        match self {
            Publisher::Pointer(pointer) => pointer.handle(),
            Publisher::Halves(_) => panic!("only programs in the kernel read this table"),
        }
    }

    /// The registry of the readers.
    pub fn readers(&self) -> &Readers {
        match self {
            Publisher::Pointer(pointer) => pointer.readers(),
            Publisher::Halves(halves) => halves.readers(),
        }
    }

    /// The published image.
    pub fn image(&self) -> &SharedImage {
        match self {
            Publisher::Pointer(pointer) => pointer.image(),
            Publisher::Halves(halves) => halves.image(),
        }
    }

    /// Frees replaced images that no reader holds. Returns whether some are left.
    pub fn free(&mut self) -> bool {
        match self {
            Publisher::Pointer(pointer) => pointer.free() > 0,
            Publisher::Halves(halves) => halves.is_waiting(),
        }
    }

    /// Whether [`Publisher::prepare`] would wait.
    pub fn is_waiting(&self) -> bool {
        match self {
            Publisher::Pointer(_) => false,
            Publisher::Halves(halves) => halves.is_waiting(),
        }
    }

    /// Makes sure that another image can be published.
    ///
    /// # Errors
    /// Readers hold too much, and go on too slowly.
    pub fn prepare(&mut self) -> Result<(), LiveError> {
        match self {
            Publisher::Pointer(pointer) => match pointer.free() {
                images @ IMAGES_WAITING_MAX.. => Err(LiveError::ReadersBehind { images }),
                _ => Ok(()),
            },
            Publisher::Halves(halves) => halves.wait(),
        }
    }

    /// Publishes another image.
    ///
    /// # Errors
    /// There is no room for it. Then nothing has changed.
    pub fn swap(&mut self, image: Image) -> Result<(), LiveError> {
        match self {
            Publisher::Pointer(pointer) => pointer.swap(SharedImage::new(image)),
            Publisher::Halves(halves) => halves.swap(&image)?,
        }
        Ok(())
    }
}

/// The image of a table that has not changed yet. [`super::LiveTable::take_over`] makes it live.
pub struct PublishedImage(pub(super) Publisher);

impl PublishedImage {
    /// Publishes a constant image for threads of this process.
    pub fn new(readers: &Readers, image: Arc<Image>) -> Self {
        PublishedImage(Publisher::new(readers, SharedImage::constant(image)))
    }

    /// Publishes an image for programs in the kernel.
    ///
    /// # Errors
    /// The image is larger than a half.
    pub fn in_halves(readers: &Readers, image: &Image, halves: Arc<dyn TwoHalves>) -> Result<Self, LiveError> {
        Ok(PublishedImage(Publisher::Halves(HalvesPublisher::new(readers, image, halves)?)))
    }

    /// The handle that threads use. It stays the same when the table becomes live.
    ///
    /// # Panics
    /// Panics if programs in the kernel read the table.
    pub fn handle(&self) -> LiveImage {
        self.0.handle()
    }
}

/// A live table's image for readers on any thread. Clones refer to the same image.
#[derive(Clone)]
pub struct LiveImage(Arc<Published>);

impl LiveImage {
    /// A view of the image for the rest of the burst.
    ///
    /// # Panics
    /// Panics if the reader of the burst belongs to another registry than the table.
    pub fn open<'b>(&'b self, burst: &'b Burst<'_>) -> LiveView<'b> {
        assert!(burst.readers().is(&self.0.readers), "the reader is registered where the table's writer looks");
        // SAFETY: the pointer was loaded in a burst that the view does not outlive. The image is freed only after all
        // registered readers have begun another burst.
        LiveView(unsafe { &*self.0.image.load(Ordering::Acquire) })
    }
}

impl fmt::Debug for LiveImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveImage").finish_non_exhaustive()
    }
}

/// A live table within one burst. Two lookups of the same key may differ if a change comes between them.
#[derive(Clone, Copy)]
pub struct LiveView<'b>(&'b SharedImage);

impl LiveView<'_> {
    /// The label of the longest prefix that holds `addr`. 0 if no prefix holds it, or if the table is of the other
    /// family.
    pub fn find4(&self, addr: u32) -> u32 {
        self.0.find4(addr)
    }

    /// The label of the longest prefix that holds `addr`. 0 if no prefix holds it, or if the table is of the other
    /// family.
    pub fn find6(&self, addr: u128) -> u32 {
        self.0.find6(addr)
    }

    /// The start of the image for C lookups within the burst. The bytes change meanwhile, so Rust must not read them
    /// through this pointer.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.start()
    }

    /// Size of the image in bytes, including the room for changes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

impl fmt::Debug for LiveView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveView").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
