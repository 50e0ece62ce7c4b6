//! Records the stores of a writer, for tests.

use std::cell::RefCell;

use super::shared::SharedImage;
use crate::cells::{Cells, CellsMut};

/// One store: its byte offset, and the bytes written.
pub type Stored = (usize, Vec<u8>);

/// An image that records its stores. A copy of the image would be sent the same stores.
pub struct RecordedImage<'a> {
    image: &'a SharedImage,
    stores: RefCell<Vec<Stored>>,
}

impl<'a> RecordedImage<'a> {
    pub fn new(image: &'a SharedImage) -> Self {
        RecordedImage { image, stores: RefCell::default() }
    }

    pub fn into_stores(self) -> Vec<Stored> {
        self.stores.into_inner()
    }
}

impl Cells for RecordedImage<'_> {
    fn u8(&self, at: usize) -> u8 {
        self.image.u8(at)
    }
    fn u16(&self, at: usize) -> u16 {
        self.image.u16(at)
    }
    fn u32(&self, at: usize) -> u32 {
        self.image.u32(at)
    }
    fn u64(&self, at: usize) -> u64 {
        self.image.u64(at)
    }
}

impl CellsMut for RecordedImage<'_> {
    fn set_u8(&self, at: usize, word: u8) {
        self.stores.borrow_mut().push((at, vec![word]));
        self.image.set_u8(at, word);
    }
    fn set_u16(&self, at: usize, word: u16) {
        self.stores.borrow_mut().push((at, word.to_le_bytes().into()));
        self.image.set_u16(at, word);
    }
    fn set_u32(&self, at: usize, word: u32) {
        self.stores.borrow_mut().push((at, word.to_le_bytes().into()));
        self.image.set_u32(at, word);
    }
    fn set_u64(&self, at: usize, word: u64) {
        self.stores.borrow_mut().push((at, word.to_le_bytes().into()));
        self.image.set_u64(at, word);
    }
}

/// The bytes of an image that no thread changes meanwhile.
pub fn copy(image: &SharedImage) -> Vec<u8> {
    (0..image.bytes()).map(|at| image.u8(at)).collect()
}
