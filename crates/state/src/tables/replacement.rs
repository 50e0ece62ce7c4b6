//! Replaces all entries of tables in several images: in all images, or in none.
//!
//! ```text
//!   image 1: replaced     image 2: replaced     image 3: refuses, perhaps with a part
//!   image 1: restored <── image 2: restored <── image 3: restored
//! ```

use std::sync::Arc;

use weir_tables::Table;
use weir_tables::live::LiveError;

use super::change::{Applied, NotTaken, Order, Visibility};
use super::expiry::Expiry;
use super::image::TableImage;

/// A table of an image before its entries were replaced.
struct Before {
    image: TableImage,
    position: usize,
    entries: Arc<Table>,
    expiry: Expiry,
    listed: Arc<Table>,
}

/// What is needed to undo replacements, oldest first.
#[derive(Default)]
pub(super) struct Undo(Vec<Before>);

impl Undo {
    /// Replaces all entries of a table in the images of one generation, and in the images of other generations that can
    /// hold them. Images of other generations that refuse have their previous entries again.
    ///
    /// # Errors
    /// An image of the generation refuses. [`Undo::restore`] undoes what was done, also in that image.
    pub fn replace(
        &mut self,
        own: &[(TableImage, usize)],
        others: &[(TableImage, usize)],
        order: Order<'_>,
    ) -> Result<(Applied, NotTaken), LiveError> {
        let mut applied = None;
        for (image, position) in own {
            self.0.push(Before::of(image, *position));
            let in_image = image.apply(*position, order).map_err(reason)?;
            applied.get_or_insert(in_image);
        }
        let mut not_taken = NotTaken::default();
        for (image, position) in others {
            let before = Before::of(image, *position);
            match image.apply(*position, order) {
                Ok(_) => self.0.push(before),
                Err(_) => {
                    not_taken.images += 1;
                    not_taken.partial += usize::from(before.restore(order.visibility).is_err());
                }
            }
        }
        Ok((applied.unwrap_or_default(), not_taken))
    }

    /// Number of images that were changed.
    pub fn images(&self) -> usize {
        self.0.len()
    }

    /// The lists of the tables were read again, in all images that were changed after the first `done` ones.
    pub fn set_listed(&self, done: usize, list: &Arc<Table>) {
        self.0[done..].iter().for_each(|before| before.image.set_listed(before.position, list));
    }

    /// Restores the previous entries and deadlines, latest first. `turn` waits for the turn of a table. Returns the
    /// names of the tables for which that failed: an image has at least a part of the new entries.
    pub fn restore<T>(self, visibility: Visibility, turn: impl Fn(&str) -> T) -> Vec<String> {
        let mut not_restored = Vec::new();
        for before in self.0.into_iter().rev() {
            let name = before.image.members()[before.position].name.clone();
            let _turn = turn(&name);
            if before.restore(visibility).is_err() && !not_restored.contains(&name) {
                not_restored.push(name);
            }
        }
        not_restored
    }
}

impl Before {
    /// The table as it is now.
    fn of(image: &TableImage, position: usize) -> Self {
        let (entries, expiry) = image.current(position).expect("the image was checked");
        Before { image: image.clone(), position, entries, expiry, listed: image.listed(position) }
    }

    /// Gives the table its previous entries and deadlines again.
    ///
    /// # Errors
    /// The errors of a change. A part may have been made.
    fn restore(self, visibility: Visibility) -> Result<(), LiveError> {
        let Before { image, position, entries, expiry, listed } = self;
        image.with_expiry(position, |live, current| {
            match visibility {
                Visibility::Gradual => live.replace(position, &entries),
                Visibility::AtOnce => live.at_once(|live| live.replace(position, &entries)),
            }
            .map(|_| *current = expiry)
        })?;
        image.set_listed(position, &listed);
        Ok(())
    }
}

/// The reason within an error of a batch.
fn reason(error: LiveError) -> LiveError {
    match error {
        LiveError::Stopped { error, .. } => *error,
        error => error,
    }
}
