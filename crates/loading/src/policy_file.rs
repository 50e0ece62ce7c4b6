//! The first stage: a file that contains a policy's text or a bundle.

use crate::error::LoadError;
use crate::policy::Policy;
use crate::regular_file;
use crate::text::Text;
use std::cell::Cell;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use weir_engine::bundle::trust::Trust;
use weir_engine::bundle::{self, Bundle};
use weir_policy::pass::choose_layouts::CostModel;
use weir_policy::source::Source;

/// Number of bytes that distinguish a bundle from a policy's text.
const HEAD_BYTES: u64 = 512;

/// An opened policy file.
#[derive(Debug)]
pub struct PolicyFile {
    path: PathBuf,
    content: Content,
}

/// The content of a policy file.
#[derive(Debug)]
enum Content {
    Text(String),
    /// The open file, so that the checked file is the one that is loaded.
    Bundle(fs::File),
}

impl PolicyFile {
    /// Opens a policy or a bundle. Text is read completely. The path may lead to a pipe.
    ///
    /// # Errors
    /// The file cannot be read, or is neither a bundle nor UTF-8 text.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let unread = |error| unread(path, error);
        let mut file = fs::File::open(path).map_err(unread)?;
        let mut head = Vec::with_capacity(HEAD_BYTES as usize);
        (&mut file).take(HEAD_BYTES).read_to_end(&mut head).map_err(unread)?;
        let content = match bundle::is_bundle(&head) {
            true => Content::Bundle(file),
            // A pipe cannot be rewound, so the bytes that were read are prepended.
            false => Content::Text(text_from(path, head.as_slice().chain(file))?),
        };
        Ok(PolicyFile { path: path.to_owned(), content })
    }

    /// Checks a policy's text, with its lists and included files. Layouts are chosen for the machine in `model`.
    ///
    /// # Errors
    /// The policy has errors, or the file is a bundle.
    pub fn check(self, model: &CostModel) -> Result<Policy, LoadError> {
        match self.content {
            Content::Text(text) => Ok(Policy::of_text(check(&self.path, text, model)?)),
            Content::Bundle(_) => Err(LoadError::IsBundle { path: self.path }),
        }
    }

    /// Checks a policy's text, or reads a bundle. A bundle must be signed if `trust` contains keys.
    ///
    /// # Errors
    /// The policy has errors, or the bundle is damaged, not signed by a trusted key, or of another version.
    pub fn read(self, trust: &Trust) -> Result<Policy, LoadError> {
        match self.content {
            Content::Text(text) => {
                let policy = Policy::of_text(check(&self.path, text, &CostModel::default())?);
                Ok(if trust.wants_signatures() { policy.unsigned(self.path) } else { policy })
            }
            Content::Bundle(file) => Policy::of_bundle(&self.path, Bundle::read_file(&self.path, file, trust)?),
        }
    }
}

/// Loads a policy or a bundle without verification of signatures.
///
/// # Errors
/// The errors of [`PolicyFile::open`] and [`PolicyFile::read`].
pub fn load(path: &Path) -> Result<Policy, LoadError> {
    PolicyFile::open(path)?.read(&Trust::default())
}

fn check(path: &Path, text: String, model: &CostModel) -> Result<Text, LoadError> {
    let main = Source::new(path.display().to_string(), text);
    // A diagnostic quotes this error in the form in which the command prints it.
    let no_descriptors = Cell::new(None);
    let included = |path: &str| {
        read_text(Path::new(path)).map_err(|error| {
            let text = format!("weir: {error}");
            if error.is_descriptor_limit() {
                no_descriptors.set(Some(error));
            }
            text
        })
    };
    let checked = Text::check(main, &included, model);
    // This is not an error of the policy.
    no_descriptors.into_inner().map_or(checked, Err)
}

fn unread(path: &Path, error: io::Error) -> LoadError {
    LoadError::Unread { path: path.to_owned(), error }
}

/// The text of an included file.
fn read_text(path: &Path) -> Result<String, LoadError> {
    text_from(path, regular_file::open(path).map_err(|error| unread(path, error))?)
}

/// Reads text from `reader`. `path` is for messages.
fn text_from(path: &Path, reader: impl Read) -> Result<String, LoadError> {
    let mut bytes = Vec::new();
    let limit = weir_policy::syntax::TEXT_BYTES_MAX as u64 + 1;
    reader.take(limit).read_to_end(&mut bytes).map_err(|error| unread(path, error))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        LoadError::NotText { path: path.to_owned(), line }
    })
}

#[cfg(test)]
mod tests {
    use super::load;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::Path;

    #[test]
    fn a_pipe_is_read_from_its_start() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"upstream { tcp drop; accept }\ndownstream { accept }\n").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let policy = load(Path::new(&path)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(policy.program.rules.len(), 3);
    }
}
