//! Binds the tables of a policy to shared state, so that they can change while packets pass.

use crate::text::Text;
use std::sync::Arc;
use weir_policy::checked::Dynamic;
use weir_policy::pass::choose_layouts::Planned;
use weir_state::tables::{DynamicBounds, ImageDeclared, LiveTables, Member, TableImage, TableStore};
use weir_state::{Declared, StateError};
use weir_tables::Image;

/// Binds the images of tables. `images` are those of the policy, in slot order; `None` for lists of limits.
///
/// # Errors
/// A layout cannot hold the entries that a table continues with.
pub fn bind(text: &Text, images: &[Option<Arc<Image>>], store: &TableStore) -> Result<LiveTables, StateError> {
    let planned = &text.lowered.plan.images;
    let declared = planned.iter().zip(images).filter_map(|(planned, image)| Some((planned, image.as_ref()?)));
    let declared = declared.map(|(planned, image)| declaration(text, planned, image)).collect();
    let binding = store.bind(declared, weir_state::now_ns())?;
    let mut bound = binding.objects().map(TableImage::published);
    let of_slot = |planned: &Planned| match planned.tables() {
        [] => None,
        _ => bound.next(),
    };
    let images = planned.iter().map(of_slot).collect();
    drop(bound);
    Ok(LiveTables { readers: store.readers().clone(), images, binding })
}

fn declaration(text: &Text, planned: &Planned, image: &Arc<Image>) -> Declared<ImageDeclared> {
    let member = |index: usize| {
        let checked = &text.checked.tables[index];
        let bounds = |Dynamic { size, timeout_ms }: Dynamic| DynamicBounds { size: size as usize, timeout_ms };
        Member { name: checked.name.clone(), table: text.tables[index].clone(), dynamic: checked.dynamic.map(bounds) }
    };
    let members: Vec<Member> = planned.tables().iter().map(|id| member(usize::from(id.0))).collect();
    let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let name = names.join("+");
    Declared { name, declaration: ImageDeclared { members, layout: planned.layout, image: image.clone() } }
}
