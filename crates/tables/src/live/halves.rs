//! Publishes images in two halves of one memory ([`TwoHalves`]).

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::image::Image;
use crate::live::change::LiveError;
use crate::live::epochs::Quiescence;
use crate::live::readers::Readers;
use crate::live::shared::SharedImage;
use crate::live::two_halves::TwoHalves;

/// How long a swap waits for readers of the half that it writes, and how often it looks.
const WAIT_MAX: Duration = Duration::from_secs(2);
const WAIT_STEP: Duration = Duration::from_micros(200);

/// Publishes images in two halves.
pub(super) struct HalvesPublisher {
    halves: Arc<dyn TwoHalves>,
    half: usize,
    image: SharedImage,
    readers: Readers,
    /// The epoch after which no reader uses the other half.
    other_is_free: Option<u64>,
}

impl HalvesPublisher {
    /// Publishes a constant image in half 0, which no reader uses yet.
    ///
    /// # Errors
    /// The image is too large.
    pub fn new(readers: &Readers, image: &Image, halves: Arc<dyn TwoHalves>) -> Result<Self, LiveError> {
        fits(image, &*halves)?;
        let image = SharedImage::copied(image, &halves, 0);
        halves.select(0);
        Ok(HalvesPublisher { halves, half: 0, image, readers: readers.clone(), other_is_free: None })
    }

    /// The registry of the readers.
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// The published image.
    pub fn image(&self) -> &SharedImage {
        &self.image
    }

    /// Waits until no reader uses the other half.
    ///
    /// # Errors
    /// Readers took too long.
    pub fn wait(&mut self) -> Result<(), LiveError> {
        let Some(epoch) = self.other_is_free else { return Ok(()) };
        let started = Instant::now();
        while !self.readers.passed(epoch) {
            if started.elapsed() > WAIT_MAX {
                return Err(LiveError::ReadersBehind { images: 1 });
            }
            thread::sleep(WAIT_STEP);
        }
        self.other_is_free = None;
        Ok(())
    }

    /// Whether readers may still use the other half.
    pub fn is_waiting(&self) -> bool {
        self.other_is_free.is_some_and(|epoch| !self.readers.passed(epoch))
    }

    /// Publishes another image in the other half.
    ///
    /// # Errors
    /// The image is too large, or readers took too long. Then nothing has changed.
    pub fn swap(&mut self, image: &Image) -> Result<(), LiveError> {
        fits(image, &*self.halves)?;
        self.wait()?;
        let other = 1 - self.half;
        self.image = SharedImage::copied(image, &self.halves, other);
        self.half = other;
        self.halves.select(other);
        self.other_is_free = Some(self.readers.unlinked());
        Ok(())
    }
}

fn fits(image: &Image, halves: &dyn TwoHalves) -> Result<(), LiveError> {
    let (bytes, room) = (image.as_bytes().len(), halves.capacity());
    if bytes > room { Err(LiveError::NoRoom { bytes, room }) } else { Ok(()) }
}
