//! The files of the repository.

use std::path::{Path, PathBuf};

/// A file. Its path is relative to the root, with `/` between folders.
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    pub fn extension(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files with one of the extensions, sorted, without build output and snapshots of generated code.
pub fn files(extensions: &[&str]) -> Vec<File> {
    let mut found = Vec::new();
    for path in paths() {
        let wanted = path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension));
        if wanted && !path.starts_with("tests/policies/") && !path.starts_with("tests/errors/") {
            let text = std::fs::read_to_string(root().join(&path)).expect("source files are UTF-8");
            found.push(File { path, text });
        }
    }
    assert!(!found.is_empty(), "no file ends in any of {extensions:?}: the walk is broken");
    found
}

/// All files and folders, sorted, without `target`, `.git` and hidden folders except `.ci` and `.cargo`.
pub fn paths() -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder that was just listed") {
            let entry = entry.expect("a readable folder");
            let name = entry.file_name().into_string().expect("names are UTF-8");
            if name == "target" || (name.starts_with('.') && name != ".ci" && name != ".cargo") {
                continue;
            }
            let path = folder.join(&name);
            found.push(path.to_str().expect("names are UTF-8").to_owned());
            if entry.file_type().expect("a listed file").is_dir() {
                folders.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The words of a text: sequences of letters, digits and `_`.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
