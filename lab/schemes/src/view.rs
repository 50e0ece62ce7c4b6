//! Views of schemes' images: the lookups of all schemes behind one type.

use crate::image::section;
use crate::{Scheme, SchemeImage, Shape, dir24_8, dxr, poptrie, radix, sail};

impl SchemeImage {
    /// A view for lookups.
    pub fn view(&self) -> SchemeView<'_> {
        let bytes = self.as_bytes();
        SchemeView(match self.scheme() {
            Scheme::Dxr(shape) => Lookup::Dxr(shape, dxr_sections(bytes, shape)),
            Scheme::Poptrie18 => Lookup::Poptrie(poptrie::View {
                direct: section(bytes, 0),
                nodes: section(bytes, 1),
                leaves: section(bytes, 2),
            }),
            Scheme::SailL => Lookup::Sail(sail::View {
                bcn16: section(bytes, 0),
                bn24: section(bytes, 1),
                c24: section(bytes, 2),
                n32: section(bytes, 3),
            }),
            Scheme::Dir24_8 => Lookup::Dir24x8(dir24_8::View { tbl24: section(bytes, 0), tbl8: section(bytes, 1) }),
            Scheme::Radix => Lookup::Radix(radix::View { nodes: section(bytes, 0) }),
        })
    }

    pub(super) fn dxr(&self) -> Option<(Shape, dxr::View<'_>)> {
        match self.scheme() {
            Scheme::Dxr(shape) => Some((shape, dxr_sections(self.as_bytes(), shape))),
            _ => None,
        }
    }
}

/// The sections of a scheme's image.
#[derive(Clone, Copy)]
pub struct SchemeView<'a>(Lookup<'a>);

#[derive(Clone, Copy)]
enum Lookup<'a> {
    Dxr(Shape, dxr::View<'a>),
    Poptrie(poptrie::View<'a>),
    Sail(sail::View<'a>),
    Dir24x8(dir24_8::View<'a>),
    Radix(radix::View<'a>),
}

impl SchemeView<'_> {
    /// The label of the longest prefix that holds `addr`; 0 if none does.
    pub fn find(&self, addr: u32) -> u32 {
        match &self.0 {
            Lookup::Dxr(shape, view) => view.find(*shape, addr),
            Lookup::Poptrie(view) => view.find(addr),
            Lookup::Sail(view) => view.find(addr),
            Lookup::Dir24x8(view) => view.find(addr),
            Lookup::Radix(view) => view.find(addr),
        }
    }
}

fn dxr_sections(bytes: &[u8], shape: Shape) -> dxr::View<'_> {
    match shape.extension_bits {
        0 => dxr::View { direct: &[], extension: section(bytes, 0), ranges: section(bytes, 1) },
        _ => dxr::View { direct: section(bytes, 0), extension: section(bytes, 1), ranges: section(bytes, 2) },
    }
}
