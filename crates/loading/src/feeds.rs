//! Reads the list files of a loaded policy again, and checks the policy again with what they contain.
//!
//! The text of the policy is the one that was loaded, not the one that is on disk now. The policy is checked again
//! because labels, layouts and limits depend on the lists.

use crate::error::LoadError;
use crate::lists::{self, ListOfLimits, Lists, Loaded};
use crate::policy::Policy;
use crate::stamp::Stamps;
use crate::text::{Text, Timing};
use std::path::PathBuf;
use std::sync::Arc;
use weir_policy::check::ListSource;
use weir_policy::pass::choose_layouts::CostModel;
use weir_policy::pipeline;
use weir_policy::source::{FileId, SourceMap};
use weir_policy::syntax::Parsed;
use weir_tables::Table;

/// A list of a policy: a table or a list of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListId {
    /// Index into [`Text::tables`].
    Table(usize),
    /// Index into [`Text::limits`].
    Limits(usize),
}

/// The contents of a list.
#[derive(Clone, Debug, PartialEq)]
pub enum ListContents {
    /// Entries of a table.
    Table(Arc<Table>),
    /// Limits.
    Limits(ListOfLimits),
}

/// A list whose files were read again.
#[derive(Debug)]
pub struct ListRead {
    /// The list.
    pub id: ListId,
    /// Its elements in the policy together with its files, or all errors. Each error names its file and line.
    pub contents: Result<ListContents, Vec<String>>,
    /// Its files, in the order of the policy.
    pub files: Vec<PathBuf>,
    /// The files that could be opened.
    pub stamps: Stamps,
    /// Notices about the files.
    pub notices: Vec<String>,
}

impl ListRead {
    /// The file that an error is about.
    pub fn file_of(&self, error: &str) -> Option<&PathBuf> {
        let names = |file: &&PathBuf| error.starts_with(&format!("{}:", file.display()));
        self.files.iter().find(names).or(self.files.first())
    }
}

impl Text {
    /// The lists that follow files, with their files. Dynamic tables only begin with theirs. The text is parsed again.
    pub fn file_backed(&self) -> Vec<(ListId, Vec<PathBuf>)> {
        let (sources, parsed) = self.parse_again();
        let paths = |files: &[ListSource]| files.iter().map(|file| PathBuf::from(&file.path)).collect();
        let tables = parsed.tables(&sources).into_iter().filter(|table| !table.files.is_empty() && !table.dynamic);
        let tables = tables.filter_map(|source| Some((self.table_id(&source.name)?, paths(&source.files))));
        let limits = parsed.limits(&sources).into_iter().filter(|list| !list.files.is_empty());
        let limits = limits.filter_map(|source| Some((self.limits_id(&source.name)?, paths(&source.files))));
        tables.chain(limits).collect()
    }

    /// Names of the tables that follow their files. The text is parsed again.
    pub fn tables_with_files(&self) -> Vec<String> {
        let name = |(id, _)| match id {
            ListId::Table(index) => Some(self.checked.tables[index].name.clone()),
            ListId::Limits(_) => None,
        };
        self.file_backed().into_iter().filter_map(name).collect()
    }

    /// Reads the files of lists again, in parallel. Lists without files and dynamic tables are left out.
    ///
    /// # Errors
    /// This process may not have more files open. Errors of the files are in the result.
    pub fn read_again(&self, wanted: impl Fn(ListId) -> bool) -> Result<Vec<ListRead>, LoadError> {
        let (sources, parsed) = self.parse_again();
        let tables = parsed.tables(&sources).into_iter().filter(|table| !table.files.is_empty() && !table.dynamic);
        let tables = tables.filter_map(|source| Some((self.table_id(&source.name)?, source)));
        let tables: Vec<_> = tables.filter(|(id, _)| wanted(*id)).collect();
        let limits = parsed.limits(&sources).into_iter().filter(|list| !list.files.is_empty());
        let limits = limits.filter_map(|source| Some((self.limits_id(&source.name)?, source)));
        let limits: Vec<_> = limits.filter(|(id, _)| wanted(*id)).collect();
        std::thread::scope(|scope| {
            let tables: Vec<_> = tables
                .iter()
                .map(|(id, source)| (*id, &source.files, scope.spawn(move || lists::read_source(source))))
                .collect();
            let limits: Vec<_> = limits
                .iter()
                .map(|(id, source)| (*id, &source.files, scope.spawn(move || lists::read_limits_source(source))))
                .collect();
            let tables = tables.into_iter().map(|(id, files, thread)| {
                let loaded = thread.join().expect("reading a list does not panic");
                list_read(id, files, loaded, |table| ListContents::Table(Arc::new(table)))
            });
            let limits = limits.into_iter().map(|(id, files, thread)| {
                let loaded = thread.join().expect("reading a list does not panic");
                list_read(id, files, loaded, ListContents::Limits)
            });
            tables.chain(limits).collect()
        })
    }

    /// This text with other contents of some lists. `stamps` are the stamps of their files.
    ///
    /// # Errors
    /// All errors in the policy with these contents.
    pub(crate) fn with_lists(&self, new: &[(ListId, ListContents)], stamps: Stamps) -> Result<Text, LoadError> {
        let (sources, parsed) = self.parse_again();
        let (mut tables, mut limits) = (self.tables.clone(), self.limits.clone());
        for (id, contents) in new {
            match (*id, contents) {
                (ListId::Table(index), ListContents::Table(table)) => tables[index] = table.clone(),
                (ListId::Limits(index), ListContents::Limits(list)) => limits[index] = list.clone(),
                _ => panic!("the contents are those of the list"),
            }
        }
        let names = self.checked.tables.iter().map(|table| table.name.clone());
        let tables = names.zip(tables).collect();
        let names = self.checked.limits.iter().map(|list| list.name.clone());
        let limits = names.zip(limits).collect();
        let mut lists = Lists::default();
        lists.stamps.extend(self.stamps.clone());
        lists.stamps.extend(stamps);
        lists.insert(tables, limits);
        Text::of(sources, &parsed, (lists, self.files.clone()), &CostModel::default(), Timing::default())
    }

    /// Parses the text that was loaded.
    fn parse_again(&self) -> (SourceMap, Parsed) {
        let known = |path: &str| {
            let file = (0u32..).zip(self.sources.names()).find(|(_, name)| *name == path).map(|(at, _)| FileId(at));
            let text = file.map(|id| self.sources.file(id).text.clone());
            text.ok_or_else(|| format!("{path}: was not read when the policy was loaded"))
        };
        pipeline::parse(self.sources.file(FileId(0)).clone(), &known)
    }

    fn table_id(&self, name: &str) -> Option<ListId> {
        self.checked.tables.iter().position(|table| table.name == name).map(ListId::Table)
    }

    fn limits_id(&self, name: &str) -> Option<ListId> {
        self.checked.limits.iter().position(|list| list.name == name).map(ListId::Limits)
    }
}

impl Policy {
    /// This policy with other contents of some lists. `stamps` are the stamps of their files.
    ///
    /// # Errors
    /// All errors in the policy with these contents, or it is a bundle, whose tables have no files.
    pub fn with_lists(&self, new: &[(ListId, ListContents)], stamps: Stamps) -> Result<Policy, LoadError> {
        let text = self.text().ok_or(LoadError::UnsupportedBundle)?;
        Ok(Policy::of_text(text.with_lists(new, stamps)?).verified_like(self))
    }
}

fn list_read<T>(
    id: ListId,
    files: &[ListSource],
    loaded: Loaded<T>,
    contents: impl FnOnce(T) -> ListContents,
) -> Result<ListRead, LoadError> {
    let Loaded { held, errors, notices, stamps, no_descriptors } = loaded;
    if let Some(error) = no_descriptors {
        return Err(error);
    }
    let files = files.iter().map(|file| PathBuf::from(&file.path)).collect();
    Ok(ListRead { id, contents: held.map(contents).ok_or(errors), files, stamps, notices })
}
