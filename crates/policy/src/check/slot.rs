//! Checks slots, and the statements that ask them.

use super::{Check, Checker, Declared};
use crate::checked::{Effect, Posture, Rule, RuleSlot, RuleSlotId};
use crate::diag::Diagnostic;
use crate::syntax::tree::{Item, Name, Slot, SlotSetting};
use std::collections::HashMap;
use weir_abi::slot::{RULES_MAX, SLOTS_MAX};

impl<'a> Checker<'a> {
    /// Reads the slots. An invalid one is kept, so that rules may refer to it.
    pub(super) fn rule_slots(&mut self) -> Vec<RuleSlot> {
        let mut slots = Vec::new();
        for item in self.items.clone() {
            let Item::Slot(slot) = item else { continue };
            let name = &slot.name;
            if let Some(first) = self.rule_slots.get(name.text.as_str()) {
                let diagnostic =
                    Diagnostic::error("E0206", name.span, format!("the slot `{}` is declared twice", name.text));
                let diagnostic = diagnostic.note(first.span, "first here").help("use another name");
                self.report(diagnostic);
                continue;
            }
            if slots.len() == SLOTS_MAX {
                let message = format!("the policy has more than {SLOTS_MAX} slots");
                self.report(Diagnostic::error("E0314", name.span, message));
                continue;
            }
            let target = RuleSlotId(slots.len() as u16);
            self.rule_slots.insert(&name.text, Declared { span: name.span, used: false, target });
            slots.push(RuleSlot { name: name.text.clone(), size: self.slot_size(slot).unwrap_or(1) });
        }
        slots
    }

    fn slot_size(&mut self, slot: &Slot) -> Check<u16> {
        let mut sizes = slot.settings.iter().map(|SlotSetting::Size(size, span)| (size, *span));
        let Some((size, first)) = sizes.next() else {
            let message = format!("the slot `{}` has no size", slot.name.text);
            let help = format!("write `size N`: the number of rules that it can have, 1 to {RULES_MAX}");
            return Err(self.report(Diagnostic::error("E0326", slot.name.span, message).help(help)));
        };
        if let Some((_, again)) = sizes.next() {
            return Err(self.report(Diagnostic::error("E0210", again, "`size` is set twice").note(first, "first here")));
        }
        match size.text.parse::<u16>() {
            Ok(size) if (1..=RULES_MAX).contains(&usize::from(size)) => Ok(size),
            _ => {
                let message = format!("`{size}` is not a number of rules");
                let help = format!("a slot has room for 1 to {RULES_MAX} rules");
                Err(self.report(Diagnostic::error("E0326", size.span, message).help(help)))
            }
        }
    }

    pub(super) fn slot_effect(&mut self, name: &Name) -> Check<Effect> {
        let Some(declared) = self.rule_slots.get_mut(name.text.as_str()) else {
            let known: Vec<&str> = self.rule_slots.keys().copied().collect();
            let diagnostic = Diagnostic::error("E0201", name.span, format!("there is no slot `{}`", name.text))
                .help(format!("declare it: `slot {} {{ size 16 }}`", name.text));
            return Err(self.unknown(diagnostic, &name.text, "", known.into_iter()));
        };
        declared.used = true;
        Ok(Effect::Slot(declared.target))
    }

    /// Refuses a second statement for the same slot in a direction. Limits of its rules would be charged twice, in an
    /// order that engines do not keep.
    pub(super) fn slots_once(&mut self, postures: &[Posture]) {
        let chains = postures.iter().flat_map(|posture| [&posture.upstream, &posture.downstream]);
        for rules in chains.flatten() {
            let mut seen: HashMap<RuleSlotId, &Rule> = HashMap::new();
            for rule in rules {
                for effect in &rule.effects {
                    let Effect::Slot(id) = effect else { continue };
                    if let Some(first) = seen.insert(*id, rule) {
                        let note = (first.span, "first here");
                        let diagnostic = Diagnostic::error("E0327", rule.span, "a direction asks a slot once");
                        let help = "declare another slot, or put the statement where both rules would be";
                        self.report(diagnostic.note(note.0, note.1).help(help));
                    }
                }
            }
        }
    }
}
