//! Loads the main file and the files that it includes.

use super::cursor::Cursor;
use super::tree::{File, Include, Item, Parsed};
use super::{FILES_MAX, INCLUDE_DEPTH_MAX, TEXT_BYTES_MAX, item};
use crate::diag::Diagnostic;
use crate::source::{FileId, Source, SourceMap, Span};
use std::collections::HashMap;

/// Reads included files.
pub trait Includes {
    /// The text of a file. The path is absolute, or relative to the same directory as the name of the main file. The
    /// error is one line for the user.
    fn read(&self, path: &str) -> Result<String, String>;
}

impl<F: Fn(&str) -> Result<String, String>> Includes for F {
    fn read(&self, path: &str) -> Result<String, String> {
        self(path)
    }
}

/// Refuses every include.
pub struct NoIncludes;

impl Includes for NoIncludes {
    fn read(&self, _: &str) -> Result<String, String> {
        Err("no files can be included here".to_owned())
    }
}

/// Parses a policy. Syntax errors are in [`Parsed::diagnostics`]; [`crate::check::check`] reports them together with
/// its own.
pub fn parse(main: Source, includes: &dyn Includes) -> (SourceMap, Parsed) {
    let mut loader = Loader {
        includes,
        sources: SourceMap::default(),
        parsed: Parsed::default(),
        by_path: HashMap::new(),
        open: Vec::new(),
        bytes: 0,
    };
    if main.text.len() > TEXT_BYTES_MAX {
        let file = loader.sources.add(main.name, "");
        loader.parsed.files.push(File { id: file, items: Vec::new() });
        let span = Span { file, start: 0, end: 0 };
        loader.parsed.diagnostics.push(too_long(span));
    } else {
        loader.file(main.name, main.text);
    }
    (loader.sources, loader.parsed)
}

fn too_long(span: Span) -> Diagnostic {
    Diagnostic::error("E0112", span, format!("the policy is longer than {} MiB", TEXT_BYTES_MAX >> 20))
        .help("put long lists of addresses into files and name them with `file` in a table")
}

struct Loader<'a> {
    includes: &'a dyn Includes,
    sources: SourceMap,
    parsed: Parsed,
    /// Files by their normalised path.
    by_path: HashMap<String, FileId>,
    /// The files being loaded: the main file, then each included one.
    open: Vec<FileId>,
    bytes: usize,
}

impl Loader<'_> {
    /// Loads a file. The recursion is bounded by [`INCLUDE_DEPTH_MAX`].
    fn file(&mut self, name: String, text: String) -> FileId {
        self.bytes += text.len();
        let id = self.sources.add(name.clone(), text);
        self.by_path.insert(normalised(&name), id);
        self.parsed.files.push(File { id, items: Vec::new() });
        let mut cursor = Cursor::new(id, &self.sources.file(id).text);
        let mut items = item::items(&mut cursor);
        self.parsed.diagnostics.append(&mut cursor.into_diagnostics());
        self.open.push(id);
        for item in &mut items {
            if let Item::Include(include) = item {
                match self.include(&name, include) {
                    Ok(file) => include.file = file,
                    Err(diagnostic) => {
                        self.parsed.incomplete = true;
                        self.parsed.diagnostics.push(*diagnostic);
                    }
                }
            }
        }
        self.open.pop();
        self.parsed.files[id.0 as usize].items = items;
        id
    }

    fn include(&mut self, includer: &str, include: &Include) -> Result<Option<FileId>, Box<Diagnostic>> {
        let span = include.path.span;
        let path = resolve(includer, &include.path.text);
        if let Some(id) = self.by_path.get(&normalised(&path)) {
            return if self.open.contains(id) {
                Err(Box::new(
                    Diagnostic::error("E0110", span, format!("`{}` includes itself", self.sources.file(*id).name))
                        .label("this file is still being read")
                        .help("remove one `include` of the cycle"),
                ))
            } else {
                Ok(None)
            };
        }
        if self.open.len() >= INCLUDE_DEPTH_MAX {
            return Err(Box::new(
                Diagnostic::error("E0111", span, format!("includes nest deeper than {INCLUDE_DEPTH_MAX}"))
                    .help("include the file from the main policy"),
            ));
        }
        if self.parsed.files.len() >= FILES_MAX {
            return Err(Box::new(
                Diagnostic::error("E0112", span, format!("the policy has more than {FILES_MAX} files"))
                    .help("join some of them"),
            ));
        }
        let text = self.includes.read(&path).map_err(|error| {
            Box::new(
                Diagnostic::error("E0109", span, format!("cannot include `{path}`: {error}"))
                    .help("paths are relative to the file that includes them"),
            )
        })?;
        if self.bytes + text.len() > TEXT_BYTES_MAX {
            return Err(Box::new(too_long(span)));
        }
        Ok(Some(self.file(path, text)))
    }
}

/// Joins a path to the directory of the file `from`.
pub(crate) fn resolve(from: &str, path: &str) -> String {
    match from.rfind('/') {
        Some(slash) if !path.starts_with('/') => format!("{}{path}", &from[..=slash]),
        _ => path.to_owned(),
    }
}

/// Normalises a path: removes `.` and `a/..`. Symbolic links are not resolved.
fn normalised(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", Some(&last)) if last != ".." => _ = parts.pop(),
            _ => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::{normalised, resolve};

    #[test]
    fn paths() {
        assert_eq!(resolve("etc/edge.weir", "lists/a.txt"), "etc/lists/a.txt");
        assert_eq!(resolve("edge.weir", "lists/a.txt"), "lists/a.txt");
        assert_eq!(resolve("etc/edge.weir", "/a.txt"), "/a.txt");
        assert_eq!(normalised("./a/../b//c"), "b/c");
        assert_eq!(normalised("../a"), "../a");
        assert_eq!(normalised("/a/./b"), "/a/b");
    }
}
