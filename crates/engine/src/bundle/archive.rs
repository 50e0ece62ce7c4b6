//! The framing of the archive: members in a fixed order, each after a header. Anything that differs by a byte from what
//! Weir writes is refused.
//!
//! A tar archive can contain more than Weir needs: long names, links, sparse files, owners, extensions that override
//! the next header. None of these is understood here. The name and size of a member determine the only valid header.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::EngineError;

/// Size of a header. Contents are padded to a multiple of it.
pub(super) const BLOCK_BYTES: usize = 512;

/// The two zero blocks at the end of an archive.
const END_BYTES: usize = 2 * BLOCK_BYTES;

/// Offset of the tar magic in a header.
const MAGIC_AT: usize = 257;

/// Maximum length of a member's name, which starts at offset 0 of the header.
const NAME_BYTES: usize = 100;

/// Whether a file with this start has a first member called `name`.
pub(super) fn starts_with(start: &[u8], name: &str) -> bool {
    let named = start.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0));
    named && start.get(MAGIC_AT..).is_some_and(|rest| rest.starts_with(b"ustar"))
}

/// Writes the members in order.
pub(super) fn write<'a>(
    mut file: impl Write,
    members: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> io::Result<()> {
    for (name, content) in members {
        file.write_all(&header(name, content.len() as u64)?)?;
        file.write_all(content)?;
        file.write_all(&[0; BLOCK_BYTES][..padding(content.len() as u64)])?;
    }
    file.write_all(&[0; END_BYTES])?;
    file.flush()
}

/// The header of a member.
fn header(name: &str, bytes: u64) -> io::Result<[u8; BLOCK_BYTES]> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name)?;
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_cksum();
    Ok(*header.as_bytes())
}

/// Number of padding bytes after `bytes` bytes of content.
fn padding(bytes: u64) -> usize {
    (bytes.next_multiple_of(BLOCK_BYTES as u64) - bytes) as usize
}

/// Reads an archive.
pub(super) struct Reader<'a, R> {
    path: &'a Path,
    input: R,
    /// Number of bytes left in the file.
    left: u64,
    /// The next header, if it was already read.
    seen: Option<[u8; BLOCK_BYTES]>,
}

impl<'a, R: Read> Reader<'a, R> {
    /// An archive of `bytes` bytes; `path` is for messages.
    pub fn new(path: &'a Path, input: R, bytes: u64) -> Self {
        Reader { path, input, left: bytes, seen: None }
    }

    /// The content of the next member. It must be called `name` and have at most `limit` bytes.
    pub fn next(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, EngineError> {
        let bytes = self.header_of(name)?;
        if bytes > limit {
            return Err(self.refuse(format!("{name} of {bytes} bytes is over the limit of {limit} bytes")));
        }
        if bytes + padding(bytes) as u64 > self.left {
            return Err(self.refuse(format!("truncated inside {name}")));
        }
        let mut content = vec![0; bytes as usize];
        self.fill(&mut content, name)?;
        let mut zeros = [0; BLOCK_BYTES];
        let zeros = &mut zeros[..padding(bytes)];
        self.fill(zeros, name)?;
        if zeros.iter().any(|&byte| byte != 0) {
            return Err(self.refuse(format!("damaged after {name}: the padding of its last block is not zero")));
        }
        Ok(content)
    }

    /// Whether the next member is called `name`.
    pub fn comes(&mut self, name: &str) -> bool {
        if self.seen.is_none() {
            self.seen = self.header(name).ok();
        }
        self.seen.as_ref().is_some_and(|header| member_name(header) == name.as_bytes())
    }

    /// Checks that only the end of the archive follows.
    pub fn end(&mut self) -> Result<(), EngineError> {
        if self.left < END_BYTES as u64 {
            return Err(self.refuse("truncated at its end".to_owned()));
        }
        let mut end = [0; END_BYTES];
        self.fill(&mut end, "the end")?;
        if end.iter().any(|&byte| byte != 0) {
            return Err(self.refuse("has more members than its manifest lists".to_owned()));
        }
        if self.left > 0 {
            return Err(self.refuse(format!("has {} bytes after its end", self.left)));
        }
        Ok(())
    }

    /// Reads the header of the member `name`. Returns the size of its content.
    fn header_of(&mut self, name: &str) -> Result<u64, EngineError> {
        let header = match self.seen.take() {
            Some(header) => header,
            None => self.header(name)?,
        };
        let found = member_name(&header);
        if found != name.as_bytes() {
            return Err(self.refuse(format!("has {} where {name} should be", found.escape_ascii())));
        }
        let size = tar::Header::from_byte_slice(&header).entry_size();
        let size = size.ok().filter(|&size| self::header(name, size).is_ok_and(|expected| expected == header));
        size.ok_or_else(|| self.refuse(format!("{name} has a header that weir does not write")))
    }

    /// Reads the next header. The archive must not end before it.
    fn header(&mut self, name: &str) -> Result<[u8; BLOCK_BYTES], EngineError> {
        let mut header = [0; BLOCK_BYTES];
        let ends = self.left < BLOCK_BYTES as u64;
        if !ends {
            self.fill(&mut header, name)?;
        }
        if header == [0; BLOCK_BYTES] {
            return Err(self.refuse(format!("truncated: it ends before {name}")));
        }
        Ok(header)
    }

    fn fill(&mut self, bytes: &mut [u8], name: &str) -> Result<(), EngineError> {
        self.input.read_exact(bytes).map_err(|error| self.refuse(format!("truncated inside {name}: {error}")))?;
        self.left -= bytes.len() as u64;
        Ok(())
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        self.path
    }

    /// An error that names the file.
    pub fn refuse(&self, problem: String) -> EngineError {
        EngineError::Bundle { path: PathBuf::from(self.path), problem }
    }
}

fn member_name(header: &[u8; BLOCK_BYTES]) -> &[u8] {
    let name = &header[..NAME_BYTES];
    &name[..name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES)]
}
