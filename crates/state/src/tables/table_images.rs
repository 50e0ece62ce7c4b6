//! Images of tables as a kind of shared state: what a new generation takes over, and what it gets anew.

use super::image::{Continued, ImageDeclared, Member, TableImage};
use super::lasting::Lasting;
use super::published::{ImageProblem, ReadBy};
use crate::StateError;
use crate::store::{Binding, Request, StateKind};
use weir_tables::live::Readers;

/// Images of tables as a kind of shared state.
pub struct TableImages {
    pub(super) readers: Readers,
    pub(super) read_by: ReadBy,
    /// What lasts when this process ends, if anything does.
    pub(super) lasting: Option<Lasting>,
}

/// The images that a generation uses.
pub type TableBinding = Binding<TableImages>;

impl StateKind for TableImages {
    type Declaration = ImageDeclared;
    type Object = TableImage;

    fn fits(declaration: &ImageDeclared, object: &TableImage) -> bool {
        object.fits(declaration)
    }

    fn bind(
        &mut self,
        requests: Vec<Request<'_, Self>>,
        loaded: &mut dyn Iterator<Item = &TableImage>,
        now_ns: u64,
    ) -> Result<Vec<TableImage>, StateError> {
        let loaded: Vec<&TableImage> = loaded.collect();
        let image = |Request { declaration, earlier, .. }: Request<'_, Self>| match earlier.first() {
            Some(&earlier) => Ok((earlier.for_declaration(declaration), Vec::new())),
            None => {
                // Tables continue also if the rules put them into other images than before.
                let of_loaded = |member: &Member| {
                    let newest_first = loaded.iter().rev();
                    let mut of = newest_first.filter_map(|image| Some((image, image.continued_by(member)?)));
                    of.next().and_then(|(image, position)| image.continued(position, member))
                };
                self.image(declaration, of_loaded, now_ns)
            }
        };
        let images = requests.into_iter().map(image).collect::<Result<Vec<_>, StateError>>()?;
        let note = |(image, left_out): (TableImage, Vec<String>)| {
            if let Some(lasting) = &mut self.lasting {
                lasting.bind(&image, left_out);
            }
            image
        };
        Ok(images.into_iter().map(note).collect())
    }

    fn take_effect(&mut self, image: &TableImage) {
        if let Some(lasting) = &mut self.lasting {
            lasting.take_effect(image);
        }
    }

    /// The last owner frees the image.
    fn release(&mut self, image: &TableImage) {
        if let Some(lasting) = &mut self.lasting {
            lasting.release(image);
        }
    }
}

impl TableImages {
    /// Makes an image. Its tables continue as loaded ones, or as those that wait for a generation. Also says what is
    /// left out of the latter.
    fn image(
        &self,
        declaration: ImageDeclared,
        of_loaded: impl Fn(&Member) -> Option<Continued>,
        now_ns: u64,
    ) -> Result<(TableImage, Vec<String>), StateError> {
        let names = declaration.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join("+");
        let make = |declaration: ImageDeclared, continued: Vec<Option<Continued>>| {
            TableImage::new(&self.readers, self.read_by, declaration, continued, now_ns)
        };
        let mut left_out = Vec::new();
        let mut has_saved = false;
        let mut current = |member: &Member| match self.lasting.as_ref().and_then(|one| one.continued_by(member)) {
            Some((saved, notice)) => {
                has_saved = true;
                left_out.extend(notice);
                Some(saved)
            }
            None => of_loaded(member),
        };
        let current = declaration.members.iter().map(&mut current).collect();
        let made = match make(declaration.clone(), current) {
            Err(problem) if has_saved => {
                // A policy that starts alone is not refused.
                left_out = vec![format!("table {names}: the saved entries are lost: {problem}")];
                let loaded = declaration.members.iter().map(&of_loaded).collect();
                make(declaration, loaded)
            }
            made => made,
        };
        let made = made.map(|image| (image, left_out));
        made.map_err(|problem| match problem {
            ImageProblem::Build(error) => StateError::Table { name: names, error },
            ImageProblem::Memory(source) => StateError::TableMemory { name: names, source },
            ImageProblem::TooLarge { bytes, max } => StateError::TableTooLarge { name: names, bytes, max },
        })
    }
}
