//! Reads list files again and applies what has changed, or refuses it.
//!
//! All lists are read and checked before anything changes. Tables are changed in place. Lists of limits, labels that
//! rules do not know yet, entries that a layout cannot hold, and lists for which an image has no room need a new
//! generation: the text of the active one is checked and compiled again with the new lists. It replaces the active
//! generation in the same posture.

use crate::generations::controller::Controller;
use crate::generations::generation::{Generation, Loader};
use crate::generations::preparation;
use crate::parts::feeds::checks::{Force, GuardRails};
use crate::parts::feeds::contents::Contents;
use crate::parts::feeds::updates::{Cause, Updates};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_command::report;
use weir_control::{ListChanged, ListName, Reloaded};
use weir_engine::live::Datapath;
use weir_loading::{ListContents, ListId, ListRead, Stamps, Text};
use weir_policy::ir::RuleId;
use weir_state::tables::{NotReplaced, NotTaken, TableChange};
use weir_tables::{Difference, Table};

/// Maximum number of errors in an answer.
const ERRORS_MAX: usize = 20;

/// Why lists were not updated. Nothing has changed, unless the failure says so.
#[derive(Debug)]
pub struct NotUpdated {
    /// The failure, for the operator.
    pub failure: Failure,
    /// Whether the same files may be accepted later: a trial was pending, or the system failed.
    pub may_succeed_later: bool,
}

impl From<Failure> for NotUpdated {
    /// A failure of the system, not of the lists.
    fn from(failure: Failure) -> Self {
        NotUpdated { failure, may_succeed_later: true }
    }
}

/// What is needed to update lists.
pub struct Updater<'a, L: Loader> {
    /// The generations.
    pub controller: &'a Controller<L::Datapath>,
    /// Loads a new generation where one is needed.
    pub loader: &'a L,
    /// Records what was applied and refused.
    pub updates: &'a Updates,
}

/// A list with new contents.
struct Changed {
    id: ListId,
    name: ListName,
    file: PathBuf,
    new: ListContents,
    /// Number of entries before and after.
    entries: [usize; 2],
    /// `None` for limits.
    difference: Option<Difference>,
}

impl Changed {
    fn table(&self) -> Option<&Arc<Table>> {
        match &self.new {
            ListContents::Table(table) => Some(table),
            ListContents::Limits(_) => None,
        }
    }

    fn summary(&self) -> ListChanged {
        let [entries_before, entries] = self.entries;
        ListChanged { list: self.name.clone(), entries_before, entries }
    }
}

/// Why tables were not changed in place. They have their previous entries, unless the reason says otherwise.
enum NotInPlace {
    /// A new generation can have the lists.
    NeedsGeneration(String),
    /// Only time can help.
    Refused(NotReplaced),
}

/// The name of a list.
pub fn name_of(text: &Text, id: ListId) -> ListName {
    match id {
        ListId::Table(index) => ListName::Table(text.checked.tables[index].name.clone()),
        ListId::Limits(index) => ListName::Limits(text.checked.limits[index].name.clone()),
    }
}

type Active<L> = Generation<<<L as Loader>::Datapath as Datapath>::Code>;

impl<L: Loader> Updater<'_, L> {
    /// Reads the files of the wanted lists of the active generation again, and applies what has changed: everything or
    /// nothing.
    ///
    /// # Errors
    /// A list has an error, an update is refused, or the system failed.
    pub fn update(
        &self,
        wanted: impl Fn(&ListName) -> bool,
        force: Force,
        cause: Cause,
    ) -> Result<Reloaded, NotUpdated> {
        let _one_at_a_time = self.updates.update();
        let active = self.controller.active();
        let text = text_of(&active)?;
        let read = text.read_again(|id| wanted(&name_of(text, id))).map_err(Failure::from)?;
        self.refuse_errors(text, &read, cause)?;
        let changing = self.updates.change();
        let changed = self.compare(text, &active, &read)?;
        self.refuse_unsafe(&active, (&read, &changed), force, cause)?;
        let mut reloaded = Reloaded {
            generation: None,
            lists: changed.iter().map(Changed::summary).collect(),
            notices: read.iter().flat_map(|list| list.notices.clone()).collect(),
        };
        if !changed.is_empty() {
            let in_place = match self.needs_generation(&active, &changed) {
                None => self.change_tables(&active, &changed),
                Some(why) => Err(NotInPlace::NeedsGeneration(why)),
            };
            match in_place {
                Ok(notices) => reloaded.notices.extend(notices),
                Err(NotInPlace::Refused(refused)) => return Err(self.not_replaced(&changed, &refused, cause)),
                Err(NotInPlace::NeedsGeneration(why)) => {
                    drop(changing);
                    let generation = self.load_again(&active, (&read, &changed), &why, cause)?;
                    reloaded.notices.push(format!("{why}: the policy was loaded again as generation {generation}"));
                    reloaded.generation = Some(generation);
                    reloaded.notices.extend(self.undo_changes_by_hand(&read, &changed, generation, cause)?);
                }
            }
        }
        self.set_listed(text, &read);
        for list in &read {
            self.updates.resolve(&name_of(text, list.id));
        }
        for list in &changed {
            self.updates.applied(list.summary(), cause);
        }
        if cause != Cause::Reload {
            reloaded.notices.iter().for_each(|notice| report::say(&format!("weir: {notice}")));
        }
        Ok(reloaded)
    }

    /// Loads the text of the active generation with the lists that it has, and another choice of rules that a card has,
    /// and activates it in the same posture. Returns the number of the new generation.
    ///
    /// # Errors
    /// A policy is on trial, another generation is active, or the system failed. Nothing has changed.
    pub fn choose(&self, active: &Arc<Active<L>>, choice: &BTreeSet<RuleId>) -> Result<u64, Failure> {
        let _one_at_a_time = self.updates.update();
        self.controller.may_succeed(active.id)?;
        let (lists, stamps) = self.lists(active, &[])?;
        let prepare = || active.with_choice(&lists, stamps.clone(), Some(choice.clone()), self.loader);
        let generation = self.controller.add(preparation::prepare(self.controller, prepare)?);
        let succeeded = self.controller.succeed(active.id, generation);
        if succeeded.is_err() {
            self.controller.remove(generation);
        }
        succeeded.map(|()| generation)
    }

    /// Whether a list has the contents of its files.
    ///
    /// # Errors
    /// A list has an error, or the system failed.
    pub fn is_as_in_files(&self, list: &ListName) -> Result<bool, Failure> {
        let _one_at_a_time = self.updates.update();
        let active = self.controller.active();
        let text = text_of(&active)?;
        let read = text.read_again(|id| name_of(text, id) == *list).map_err(Failure::from)?;
        let is_good = read.iter().all(|list| list.contents.is_ok());
        Ok(is_good && self.compare(text, &active, &read)?.is_empty())
    }

    /// Refuses lists with errors.
    fn refuse_errors(&self, text: &Text, read: &[ListRead], cause: Cause) -> Result<(), NotUpdated> {
        let mut all = Vec::new();
        for list in read {
            let Err(errors) = &list.contents else { continue };
            let first = errors.first().map(String::as_str).unwrap_or_default();
            let file = list.file_of(first).cloned().unwrap_or_default();
            let more = errors.len().saturating_sub(1);
            let reason = if more > 0 { format!("{first} (and {more} more)") } else { first.to_owned() };
            self.updates.refused(&name_of(text, list.id), &file, &reason, cause);
            all.extend(errors.iter().cloned());
        }
        refused(all)
    }

    /// The lists whose contents differ from the contents in the active generation.
    fn compare(&self, text: &Text, active: &Active<L>, read: &[ListRead]) -> Result<Vec<Changed>, Failure> {
        let contents = self.contents(active);
        let mut changed = Vec::new();
        for list in read {
            let Ok(new) = &list.contents else { continue };
            let (entries, difference) = match (list.id, new) {
                (ListId::Table(index), ListContents::Table(new)) => {
                    let current = contents.table(index)?;
                    let difference = current.difference(new);
                    if difference.is_empty() {
                        continue;
                    }
                    ([&current, new].map(|table| table.facts().entries), Some(difference))
                }
                (ListId::Limits(index), ListContents::Limits(new)) => {
                    let current = &text.limits[index];
                    if current == new {
                        continue;
                    }
                    ([current, new].map(|list| list.len()), None)
                }
                _ => continue,
            };
            let file = list.files.first().cloned().unwrap_or_default();
            let name = name_of(text, list.id);
            changed.push(Changed { id: list.id, name, file, new: new.clone(), entries, difference });
        }
        Ok(changed)
    }

    /// Refuses changes that the guard rails forbid.
    fn refuse_unsafe(
        &self,
        active: &Active<L>,
        (read, changed): (&[ListRead], &[Changed]),
        force: Force,
        cause: Cause,
    ) -> Result<(), NotUpdated> {
        let contents = self.contents(active);
        // A protected table may be updated too.
        let afterwards = |index: usize| match read.iter().find(|list| list.id == ListId::Table(index)) {
            Some(ListRead { contents: Ok(ListContents::Table(table)), .. }) => Ok(table.clone()),
            _ => contents.table(index),
        };
        let mut all = Vec::new();
        for list in changed {
            let (ListId::Table(index), Some(difference)) = (list.id, &list.difference) else { continue };
            let rails = GuardRails::of(active.declared(), index);
            let reasons = rails.check_update(difference, list.entries, force, afterwards)?;
            if let Some(first) = reasons.first() {
                self.updates.refused(&list.name, &list.file, &first.to_string(), cause);
            }
            all.extend(reasons.iter().map(|reason| format!("{}: {reason}", list.file.display())));
        }
        refused(all)
    }

    /// Why lists cannot be changed in place; `None` if they can.
    fn needs_generation(&self, active: &Active<L>, changed: &[Changed]) -> Option<String> {
        let live = self.contents(active).live();
        // A card has a table as it was when the policy was loaded.
        let is_on_card = |list: &&Changed| matches!(&list.name, ListName::Table(name) if active.is_on_card(name));
        if let Some(list) = changed.iter().find(is_on_card) {
            return Some(format!("{} is on the card", list.name));
        }
        changed.iter().find_map(|list| match (list.table(), &list.name, live) {
            (Some(table), ListName::Table(name), Some((store, binding))) => {
                store.check(binding, name, TableChange::Replace(table)).err().map(|error| error.to_string())
            }
            _ => Some(format!("{} cannot be changed in place", list.name)),
        })
    }

    /// Changes tables in place: all, or none. Returns notices.
    fn change_tables<'c>(
        &self,
        active: &Active<L>,
        changed: impl IntoIterator<Item = &'c Changed>,
    ) -> Result<Vec<String>, NotInPlace> {
        let Some((store, binding)) = self.contents(active).live() else { return Ok(Vec::new()) };
        let table = |list: &'c Changed| match (&list.name, list.table()) {
            (ListName::Table(name), Some(table)) => Some((name.as_str(), table)),
            _ => None,
        };
        let lists: Vec<(&str, &Arc<Table>)> = changed.into_iter().filter_map(table).collect();
        let done = store.replace_lists(binding, &lists, weir_state::now_ns()).map_err(|refused| {
            match refused.may_succeed_later() {
                true => NotInPlace::Refused(refused),
                false => NotInPlace::NeedsGeneration(refused.to_string()),
            }
        })?;
        let notice = |(&(name, _), others): (&(&str, _), NotTaken)| Some(format!("table {name}: {}", others.notice()?));
        Ok(lists.iter().zip(done).filter_map(notice).collect())
    }

    /// Records that tables were not changed in place.
    fn not_replaced(&self, changed: &[Changed], refused: &NotReplaced, cause: Cause) -> NotUpdated {
        let is_refused = |list: &&Changed| list.name == ListName::Table(refused.name.clone());
        let reason = refused.to_string();
        changed.iter().filter(is_refused).for_each(|list| self.updates.refused(&list.name, &list.file, &reason, cause));
        NotUpdated::from(Failure::Runtime(reason))
    }

    /// Loads the text of the active generation with the new lists, and activates it in the same posture. Returns the
    /// number of the new generation.
    fn load_again(
        &self,
        active: &Arc<Active<L>>,
        (read, changed): (&[ListRead], &[Changed]),
        why: &str,
        cause: Cause,
    ) -> Result<u64, NotUpdated> {
        let load = || {
            self.controller.may_succeed(active.id)?;
            let (lists, stamps) = self.lists(active, read)?;
            let prepare = || active.with_lists(&lists, stamps.clone(), self.loader);
            let generation = self.controller.add(preparation::prepare(self.controller, prepare)?);
            self.controller.succeed(active.id, generation)?;
            Ok(generation)
        };
        let generation = load().map_err(|failure: Failure| {
            let reason = format!("{why}, and the policy cannot be loaded again: {}", failure.message());
            changed.iter().for_each(|list| self.updates.refused(&list.name, &list.file, &reason, cause));
            let may_succeed_later = !matches!(failure, Failure::Mistakes { .. });
            let failure = match failure {
                Failure::Rejected(_) | Failure::Mistakes { .. } => Failure::Rejected(format!("weir: {reason}")),
                _ => Failure::Runtime(reason),
            };
            NotUpdated { failure, may_succeed_later }
        })?;
        Ok(generation)
    }

    /// Undoes changes by hand. Without it, tables of a generation with new lists would continue with them. Returns
    /// notices.
    ///
    /// # Errors
    /// A table keeps them. It is recorded as refused, and the other lists as applied.
    fn undo_changes_by_hand(
        &self,
        read: &[ListRead],
        changed: &[Changed],
        generation: u64,
        cause: Cause,
    ) -> Result<Vec<String>, NotUpdated> {
        let active = self.controller.active();
        if active.id != generation {
            return Ok(Vec::new());
        }
        let text = text_of(&active)?;
        let (_changing, contents) = (self.updates.change(), self.contents(&active));
        let (mut as_listed, mut by_hand) = (Vec::new(), Vec::new());
        for list in changed {
            match (list.id, list.table()) {
                (ListId::Table(index), Some(table)) if !contents.table(index)?.difference(table).is_empty() => {
                    by_hand.push(list);
                }
                _ => as_listed.push(list),
            }
        }
        let (reason, may_succeed_later) = match self.change_tables(&active, by_hand.iter().copied()) {
            Ok(notices) => return Ok(notices),
            Err(NotInPlace::Refused(refused)) => (refused.to_string(), true),
            Err(NotInPlace::NeedsGeneration(why)) => (why, false),
        };
        self.set_listed(text, read);
        for list in as_listed {
            self.updates.applied(list.summary(), cause);
        }
        let names = by_hand.iter().map(|list| list.name.to_string()).collect::<Vec<_>>().join(", ");
        let reason = format!(
            "generation {generation} is active with the new lists, but changes by hand stay in {names}: {reason}"
        );
        by_hand.iter().for_each(|list| self.updates.refused(&list.name, &list.file, &reason, cause));
        Err(NotUpdated { failure: Failure::Runtime(reason), may_succeed_later })
    }

    /// The lists that were read, and the others as they were read before, with the stamps of the files.
    fn lists(&self, active: &Active<L>, read: &[ListRead]) -> Result<(Vec<(ListId, ListContents)>, Stamps), Failure> {
        let text = text_of(active)?;
        let mut lists = Vec::new();
        if let Some((store, binding)) = self.contents(active).live() {
            for (index, table) in text.checked.tables.iter().enumerate() {
                // A table that no rule looks up has not changed.
                if let Ok(listed) = store.listed(binding, &table.name) {
                    lists.push((ListId::Table(index), ListContents::Table(listed)));
                }
            }
        }
        lists.extend(read.iter().filter_map(|list| Some((list.id, list.contents.as_ref().ok()?.clone()))));
        Ok((lists, read.iter().flat_map(|list| list.stamps.clone()).collect()))
    }

    /// Keeps the contents of the lists that were read, so that policies that are loaded later are compared with them.
    fn set_listed(&self, text: &Text, read: &[ListRead]) {
        let active = self.controller.active();
        let Some(binding) = active.tables() else { return };
        for list in read {
            if let (ListName::Table(name), Ok(ListContents::Table(table))) = (name_of(text, list.id), &list.contents) {
                self.loader.shared().tables().set_listed(binding, &name, table);
            }
        }
    }

    fn contents<'t>(&'t self, active: &'t Active<L>) -> Contents<'t> {
        Contents::new(active.declared(), active.tables().map(|binding| (&**self.loader.shared().tables(), binding)))
    }
}

fn text_of<C>(active: &Generation<C>) -> Result<&Text, Failure> {
    active.text().ok_or_else(|| {
        let id = active.id;
        Failure::Rejected(format!(
            "weir: generation {id} is a bundle, which has no list files; load a new bundle instead"
        ))
    })
}

/// A failure with all reasons, if there are any.
fn refused(mut reasons: Vec<String>) -> Result<(), NotUpdated> {
    let more = reasons.len().saturating_sub(ERRORS_MAX);
    reasons.truncate(ERRORS_MAX);
    if more > 0 {
        reasons.push(format!("{more} more errors are not shown"));
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(NotUpdated {
            failure: Failure::Rejected(format!("weir: {}", reasons.join("\n"))),
            may_succeed_later: false,
        }),
    }
}
