//! From a table to its image in a scheme.

use weir_abi::Family;
use weir_tables::image::Section;
use weir_tables::{Kind, Table};

use crate::image::Writer;
use crate::{Limit, Scheme, SchemeError, SchemeImage, Shape, dir24_8, dxr, poptrie, radix, sail};

impl Scheme {
    /// Builds the image of an IPv4 table.
    ///
    /// # Errors
    /// The table is of the other family, or exceeds a limit of the scheme.
    pub fn build(self, table: &Table) -> Result<SchemeImage, SchemeError> {
        if table.family() != Family::Ipv4 {
            return Err(SchemeError::Family { scheme: self, family: table.family() });
        }
        let limit = |Limit { what, max }| SchemeError::Limit { scheme: self, what, max };
        let labels = match table.kind() {
            Kind::Set => 1,
            Kind::Labels => table.labels().len() as u32,
        };
        let prefixes = table.prefixes4();
        let writer = Writer { scheme: self, entries: prefixes.len() as u32, labels };
        match self {
            Scheme::Dxr(shape) => write_dxr(&writer, shape, &dxr::build(prefixes, labels, shape).map_err(limit)?),
            Scheme::Poptrie18 => poptrie::build(prefixes, labels).map_err(limit)?.write(&writer),
            Scheme::SailL => sail::build(prefixes, labels).map_err(limit)?.write(&writer),
            Scheme::Dir24_8 => dir24_8::build(prefixes, labels).map_err(limit)?.write(&writer),
            Scheme::Radix => radix::build(prefixes).write(&writer),
        }
    }
}

/// The image of DXR's tables.
fn write_dxr(writer: &Writer, shape: Shape, parts: &dxr::Parts) -> Result<SchemeImage, SchemeError> {
    let (entries, ranges) = (Section::U32(&parts.extension), ("ranges", Section::U32(&parts.ranges)));
    match shape.extension_bits {
        0 => writer.write(&[("direct", entries), ranges]),
        _ => writer.write(&[("direct", Section::U16(&parts.direct)), ("extension", entries), ranges]),
    }
}
