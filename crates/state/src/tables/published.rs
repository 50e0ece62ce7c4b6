//! Publishes images for what reads them: threads of this process, or programs in the kernel.

use std::io;
use std::sync::Arc;

use weir_abi::Layout;
use weir_tables::live::{LiveImage, PublishedImage, Readers};
use weir_tables::{BuildError, Image};

use super::kernel::{self, KernelImage};

/// An image as the code of a generation finds it.
#[derive(Clone)]
pub enum Published {
    /// A pointer that threads of this process follow.
    Pointer(LiveImage),
    /// The map that programs in the kernel read.
    Map(Arc<KernelImage>),
    /// An image in the kernel that is too large for two halves. It cannot change.
    Constant,
}

/// What reads images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadBy {
    /// Threads of this process.
    Threads,
    /// Programs in the kernel. A half has at most this many bytes.
    Kernel {
        /// A power of two.
        half_max: usize,
    },
}

/// Why an image cannot be published.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageProblem {
    /// The layout cannot hold the entries.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The kernel refuses the memory.
    #[error(transparent)]
    Memory(io::Error),
    /// The tables change, and the kernel has no room for two images.
    #[error("its image has {bytes} bytes; a table that changes has at most {max} in the kernel")]
    TooLarge {
        /// Size of the image.
        bytes: usize,
        /// Maximum size.
        max: usize,
    },
}

/// Publishes an image for its readers. A dynamic table may get `size` entries. `changes` says whether the tables may
/// change, or have changed since they were declared: then the image in the code does not do.
pub(super) fn publish(
    readers: &Readers,
    read_by: ReadBy,
    layout: Layout,
    image: Arc<Image>,
    (size, changes): (usize, bool),
) -> Result<(Published, PublishedImage), ImageProblem> {
    let bytes = image.as_bytes().len();
    let half = match read_by {
        ReadBy::Threads => None,
        ReadBy::Kernel { half_max } => Some((kernel::half_bytes(layout, bytes, size, half_max), half_max)),
    };
    match half {
        None => {
            let image = PublishedImage::new(readers, image);
            Ok((Published::Pointer(image.handle()), image))
        }
        Some((None, max)) if changes => Err(ImageProblem::TooLarge { bytes, max }),
        Some((None, _)) => Ok((Published::Constant, PublishedImage::new(readers, image))),
        Some((Some(half), _)) => {
            let map = Arc::new(KernelImage::create(half).map_err(ImageProblem::Memory)?);
            let image = PublishedImage::in_halves(readers, &image, map.clone()).expect("the image fits");
            Ok((Published::Map(map), image))
        }
    }
}
