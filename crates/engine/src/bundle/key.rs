//! Ed25519 keys for signatures of archives, in the file formats of OpenSSL.
//!
//! ```text
//! openssl genpkey -algorithm ed25519 -out weir.key        # signs: PKCS #8 in PEM (RFC 8410, section 7)
//! openssl pkey -in weir.key -pubout -out weir.pub         # verifies: SubjectPublicKeyInfo in PEM (RFC 8410, section 4)
//! ```

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey};
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rustix::fs::OFlags;
use weir_state::owner;

use crate::EngineError;

/// Size of a signature.
pub(super) const SIGNATURE_BYTES: usize = Signature::BYTE_SIZE;

/// Maximum size of a key file. Keys of other kinds have a few thousand bytes and are refused by name.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// The permissions of users other than the file's owner.
const OTHERS: u32 = 0o077;

/// How to make keys, for messages.
const MAKE_PRIVATE: &str = "`openssl genpkey -algorithm ed25519 -out KEY` makes one";
const MAKE_PUBLIC: &str = "`openssl pkey -in KEY -pubout` makes it from the private one";

/// A private key, which signs archives.
pub struct Signer {
    key: SigningKey,
    notice: Option<String>,
}

impl Signer {
    /// Reads a private key.
    ///
    /// # Errors
    /// The file cannot be read, or is not a private Ed25519 key.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let file = KeyFile::read(path, "PRIVATE KEY", MAKE_PRIVATE)?;
        let key = SigningKey::from_pkcs8_pem(&file.pem)
            .map_err(|_| file.refuse(format!("is not a private Ed25519 key; {MAKE_PRIVATE}")))?;
        let notice = (file.mode & OTHERS != 0).then(|| {
            format!(
                "{}: this private key can be read or changed by others than its owner (mode {:04o}); `chmod 600` it",
                path.display(),
                file.mode
            )
        });
        Ok(Signer { key, notice })
    }

    /// A warning about the permissions of the key file.
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.key.sign(message).to_bytes()
    }
}

/// A public key, whose signatures are accepted.
#[derive(Clone, Debug)]
pub(super) struct TrustedKey {
    /// Its file, for messages.
    pub path: PathBuf,
    key: VerifyingKey,
}

impl TrustedKey {
    /// Reads a public key from a file that no other user can change.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        let file = KeyFile::read(path, "PUBLIC KEY", MAKE_PUBLIC)?;
        let key = VerifyingKey::from_public_key_pem(&file.pem).ok().filter(|key| !key.is_weak());
        let key = key.ok_or_else(|| file.refuse(format!("is not a public Ed25519 key; {MAKE_PUBLIC}")))?;
        Ok(TrustedKey { path: path.to_owned(), key })
    }

    /// Whether this key signed the message. A `signature` of other than [`SIGNATURE_BYTES`] bytes is invalid.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }
}

/// A file with one key.
struct KeyFile<'a> {
    path: &'a Path,
    pem: String,
    mode: u32,
}

impl<'a> KeyFile<'a> {
    /// Reads a file with one PEM key with this label. A key that other users can change is refused.
    fn read(path: &'a Path, label: &str, make: &str) -> Result<Self, EngineError> {
        let io = |source| EngineError::Io { path: path.to_owned(), source };
        let mut file = KeyFile { path, pem: String::new(), mode: 0 };
        // A pipe without a writer would block.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(io)?;
        let metadata = opened.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(file.refuse("is not a regular file, as a key is".to_owned()));
        }
        file.mode = metadata.mode() & 0o7777;
        let mut bytes = Vec::new();
        (&opened).take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
        let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= FILE_BYTES_MAX);
        let Some(text) = text.filter(|text| text.contains("-----BEGIN ")) else {
            return Err(file.refuse(format!("is not a key in PEM; {make}")));
        };
        let labels: Vec<&str> = text.lines().filter_map(|line| line.trim_end().strip_prefix("-----BEGIN ")).collect();
        let [found] = labels.as_slice() else {
            return Err(file.refuse(format!("has {} keys, one is expected", labels.len())));
        };
        let found = found.trim_end_matches('-');
        if found != label {
            let found = found.escape_debug();
            return Err(file.refuse(format!("is a {found}, an Ed25519 {label} in PEM is expected; {make}")));
        }
        if label == "PUBLIC KEY" {
            owner::check(path, &opened).map_err(|problem| file.refuse(format!("cannot be trusted: {problem}")))?;
        }
        file.pem = text;
        Ok(file)
    }

    fn refuse(&self, problem: String) -> EngineError {
        EngineError::Key { path: self.path.to_owned(), problem }
    }
}
