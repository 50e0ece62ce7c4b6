//! Parses slots and the statement that asks one.

use super::cursor::{Cursor, Parse};
use super::tree::{Slot, SlotSetting, Statement};
use super::value;
use crate::diag::Diagnostic;

/// Parses `slot NAME { size 16 }`.
pub(super) fn slot(cursor: &mut Cursor) -> Parse<Slot> {
    let keyword = cursor.bump();
    let name = cursor.name("a name after `slot`")?;
    let open = cursor.open_block("the slot's name")?;
    let settings = cursor.settings(open, &[], setting);
    Ok(Slot { span: keyword.to(cursor.last_span()), name, settings })
}

fn setting(cursor: &mut Cursor) -> Parse<SlotSetting> {
    match cursor.word() {
        Some("size") => {
            let keyword = cursor.bump();
            let size = value::number(cursor, "a number of rules after `size`")?;
            let span = keyword.to(size.span);
            Ok(SlotSetting::Size(size, span))
        }
        Some(word) => Err(cursor.report(
            Diagnostic::error("E0113", cursor.span(), format!("a slot has no setting `{word}`"))
                .help("its only setting is `size`; rules are put in with `weir ctl slot NAME add`"),
        )),
        None => Err(cursor.unexpected("a setting of the slot")),
    }
}

/// Parses `slot NAME` in a rule.
pub(super) fn of_rule(cursor: &mut Cursor) -> Parse<Statement> {
    let keyword = cursor.bump();
    let slot = cursor.name("the name of a slot after `slot`")?;
    let span = keyword.to(slot.span);
    Ok(Statement::Slot { slot, span })
}
