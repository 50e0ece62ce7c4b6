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
        let image = |Request { declaration, earlier }: Request<'_, Self>| match earlier.first() {
            Some(&earlier) => Ok(earlier.for_declaration(declaration)),
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
        let images = requests.into_iter().map(image).collect::<Result<Vec<TableImage>, StateError>>()?;
        if let Some(lasting) = &mut self.lasting {
            images.iter().for_each(|image| lasting.bind(image));
        }
        Ok(images)
    }

    /// The last owner frees the image.
    fn release(&mut self, image: &TableImage) {
        if let Some(lasting) = &mut self.lasting {
            lasting.release(image);
        }
    }
}

impl TableImages {
    /// Makes an image. Its tables continue as loaded ones, or as those that wait for a generation.
    fn image(
        &mut self,
        declaration: ImageDeclared,
        of_loaded: impl Fn(&Member) -> Option<Continued>,
        now_ns: u64,
    ) -> Result<TableImage, StateError> {
        let names = declaration.members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>().join("+");
        let make = |declaration: ImageDeclared, continued: Vec<Option<Continued>>| {
            TableImage::new(&self.readers, self.read_by, declaration, continued, now_ns)
        };
        let waiting = |member: &Member| self.lasting.as_mut().and_then(|lasting| lasting.continued_by(member));
        let waiting: Vec<Option<Continued>> = declaration.members.iter().map(waiting).collect();
        let loaded = |declaration: &ImageDeclared| declaration.members.iter().map(&of_loaded).collect();
        let made = match waiting.iter().any(Option::is_some) {
            false => make(declaration.clone(), loaded(&declaration)),
            true => {
                let current = declaration.members.iter().zip(waiting);
                let current = current.map(|(member, waiting)| of_loaded(member).or(waiting)).collect();
                make(declaration.clone(), current).or_else(|problem| {
                    // A policy that starts alone is not refused.
                    let made = make(declaration.clone(), loaded(&declaration))?;
                    if let Some(lasting) = &mut self.lasting {
                        lasting.notices.push(format!("table {names}: the saved entries are lost: {problem}"));
                    }
                    Ok(made)
                })
            }
        };
        made.map_err(|problem| match problem {
            ImageProblem::Build(error) => StateError::Table { name: names, error },
            ImageProblem::Memory(source) => StateError::TableMemory { name: names, source },
            ImageProblem::TooLarge { bytes, max } => StateError::TableTooLarge { name: names, bytes, max },
        })
    }
}
