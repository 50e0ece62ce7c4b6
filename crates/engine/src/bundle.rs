//! A compiled policy in one file, for a box without a compiler.
//!
//! The file is a tar archive (`tar tf` lists it) that starts with two small members and then holds the rest:
//!
//! ```text
//! manifest.json     what the artifact is, and each member's size and SHA-256
//! manifest.sha256   SHA-256 of manifest.json, in hexadecimal
//! native.c bpf.c native.so bpf.o table0.image table1.image ...
//! ```
//! Digests find damage, not forgery: whoever can write the file can write its digests. The same artifact gives the same
//! bytes. Nothing is unpacked to disk.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use weir_abi::ABI_VERSION;

use crate::artifact::{Artifact, TABLES_MAX, TableSlot};
use crate::clang::{BpfObject, NativeObject};
use crate::cpu::{self, Cpu};
use crate::image::{IMAGE_BYTES_MAX, Image};
use crate::{EngineError, Program};

const FORMAT: &str = "weir-bundle";
const NOT_A_BUNDLE: &str = "not a weir bundle";
const MANIFEST: &str = "manifest.json";
const MANIFEST_DIGEST: &str = "manifest.sha256";
const NATIVE_C: &str = "native.c";
const BPF_C: &str = "bpf.c";
const NATIVE_SO: &str = "native.so";
const BPF_O: &str = "bpf.o";

/// The most bytes of the manifest; rule citations make up most of it.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Where a tar header says that it is one.
const TAR_MAGIC_AT: usize = 257;

/// Bytes of a tar header, from which [`is_bundle`] can tell.
pub const HEAD_BYTES: usize = 512;

/// Everything that an engine needs.
#[derive(Clone)]
pub struct Bundle {
    /// What was compiled.
    pub artifact: Artifact,
    /// Its tables, in slot order.
    pub images: Vec<Arc<Image>>,
    /// Code for user space.
    pub native: NativeObject,
    /// Code for the kernel.
    pub bpf: BpfObject,
    /// The processor that `native` was compiled for.
    pub cpu: Cpu,
}

/// manifest.json.
#[derive(Serialize, Deserialize)]
struct Manifest {
    format: String,
    abi_version: u32,
    name: String,
    chains: Vec<String>,
    rules: usize,
    tables: Vec<TableSlot>,
    cpu: Cpu,
    cpu_features: Vec<String>,
    report: serde_json::Value,
    members: Vec<Member>,
}

/// What is read of any manifest before the rest, so that a bundle of another version is called that and not damaged.
#[derive(Deserialize)]
struct ManifestHead {
    format: String,
    abi_version: u32,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Member {
    name: String,
    bytes: u64,
    sha256: String,
}

impl Member {
    fn of(name: &str, content: &[u8]) -> Self {
        Member { name: name.to_owned(), bytes: content.len() as u64, sha256: hex_digest(content) }
    }
}

impl Bundle {
    /// The program's shape.
    pub fn program(&self) -> Program {
        self.artifact.program()
    }

    /// Writes the bundle; a file appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), EngineError> {
        let io = |source| EngineError::Io { path: path.to_owned(), source };
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            // A device or a pipe takes the bytes; renaming a file onto it would be its end.
            return File::create(path).and_then(|mut file| self.write_to(&mut file)).map_err(io);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".weir-").tempfile_in(folder).map_err(io)?;
        self.write_to(file.as_file_mut()).map_err(io)?;
        fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).map_err(io)?;
        file.persist(path).map_err(|error| io(error.error))?;
        Ok(())
    }

    fn write_to(&self, file: &mut File) -> io::Result<()> {
        let members = self.members();
        let artifact = &self.artifact;
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            abi_version: artifact.abi_version,
            name: artifact.name.clone(),
            chains: artifact.chains.clone(),
            rules: artifact.rules,
            tables: artifact.tables.clone(),
            cpu: self.cpu,
            cpu_features: cpu::features(self.cpu),
            report: artifact.report.clone(),
            members: members.iter().map(|(name, content)| Member::of(name, content)).collect(),
        };
        let manifest = serde_json::to_vec_pretty(&manifest)?;
        let mut archive = tar::Builder::new(BufWriter::new(file));
        append(&mut archive, MANIFEST, &manifest)?;
        append(&mut archive, MANIFEST_DIGEST, hex_digest(&manifest).as_bytes())?;
        for (name, content) in members {
            append(&mut archive, &name, content)?;
        }
        archive.into_inner()?.flush()
    }

    /// Name and content of every member besides the manifest, in order.
    fn members(&self) -> Vec<(String, &[u8])> {
        let mut members: Vec<(String, &[u8])> = vec![
            (NATIVE_C.to_owned(), self.artifact.native_c.as_bytes()),
            (BPF_C.to_owned(), self.artifact.bpf_c.as_bytes()),
            (NATIVE_SO.to_owned(), self.native.bytes()),
            (BPF_O.to_owned(), self.bpf.bytes()),
        ];
        members.extend(self.images.iter().enumerate().map(|(slot, image)| (image_name(slot), image.as_bytes())));
        members
    }

    /// Reads a bundle and checks it: every member's digest, the abi version, the tables' images and that this machine
    /// can run the native code.
    pub fn read(path: &Path) -> Result<Self, EngineError> {
        read(path)
    }
}

/// Whether a file that starts like this is a bundle, whole or damaged; [`HEAD_BYTES`] of it are enough.
pub fn is_bundle(start: &[u8]) -> bool {
    let named = start.strip_prefix(MANIFEST.as_bytes()).is_some_and(|rest| rest.first() == Some(&0));
    named && start.get(TAR_MAGIC_AT..).is_some_and(|rest| rest.starts_with(b"ustar"))
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, content)
}

fn image_name(slot: usize) -> String {
    format!("table{slot}.image")
}

fn hex_digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The members of a bundle that is being read, in order.
struct Members<'a> {
    path: &'a Path,
    entries: tar::Entries<'a, BufReader<File>>,
    /// No member can be longer than the file.
    file_bytes: u64,
}

fn read(path: &Path) -> Result<Bundle, EngineError> {
    let io = |source| EngineError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let file_bytes = file.metadata().map_err(io)?.len();
    let mut archive = tar::Archive::new(BufReader::new(file));
    let entries = archive.entries().map_err(io)?;
    let mut members = Members { path, entries, file_bytes };
    let manifest = members.manifest()?;
    let mut listed = manifest.members.iter();
    let mut next = |name: &str| members.listed(listed.next(), name);
    let (native_c, bpf_c) = (next(NATIVE_C)?, next(BPF_C)?);
    let (native, bpf) = (NativeObject(next(NATIVE_SO)?), BpfObject(next(BPF_O)?));
    let images = (0..manifest.tables.len()).map(|slot| next(&image_name(slot))).collect::<Result<Vec<_>, _>>()?;
    members.end()?;
    let refuse = |problem: String| EngineError::Bundle { path: path.to_owned(), problem };
    let text = |bytes| String::from_utf8(bytes).map_err(|_| refuse("its C is not UTF-8".to_owned()));
    let artifact = Artifact {
        name: manifest.name,
        abi_version: manifest.abi_version,
        chains: manifest.chains,
        rules: manifest.rules,
        tables: manifest.tables,
        // Bundles carry no lists of limits.
        limiters: 0,
        limited: 0,
        native_c: text(native_c)?,
        bpf_c: text(bpf_c)?,
        report: manifest.report,
    };
    artifact.check().map_err(refuse)?;
    cpu::check(&manifest.cpu_features, &path.display().to_string())?;
    let images = artifact.tables.iter().zip(images).map(|(slot, bytes)| {
        let image = Image::from_bytes(&bytes).map_err(|error| refuse(format!("table {}: {error}", slot.name)))?;
        Ok(Arc::new(image))
    });
    let images = images.collect::<Result<Vec<_>, EngineError>>()?;
    artifact.program().check_images(&images)?;
    Ok(Bundle { artifact, images, native, bpf, cpu: manifest.cpu })
}

impl Members<'_> {
    /// Reads and checks the manifest, from which all else follows.
    fn manifest(&mut self) -> Result<Manifest, EngineError> {
        let bytes = self.next(MANIFEST, MANIFEST_BYTES_MAX).map_err(|_| self.refuse(NOT_A_BUNDLE))?;
        let head: Option<ManifestHead> = serde_json::from_slice(&bytes).ok();
        let Some(head) = head.filter(|head| head.format == FORMAT) else {
            return Err(self.refuse(NOT_A_BUNDLE));
        };
        let digest = self.next(MANIFEST_DIGEST, MANIFEST_BYTES_MAX)?;
        if digest != hex_digest(&bytes).as_bytes() {
            return Err(
                self.refuse(&format!("{MANIFEST} was altered: it does not have the digest in {MANIFEST_DIGEST}"))
            );
        }
        if head.abi_version != ABI_VERSION {
            let object = self.path.display().to_string();
            return Err(EngineError::AbiVersion { object, found: head.abi_version, expected: ABI_VERSION });
        }
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|error| self.refuse(&format!("{MANIFEST}: {error}")))?;
        if manifest.tables.len() > TABLES_MAX {
            return Err(self.refuse(&format!("{} tables, at most {TABLES_MAX} are possible", manifest.tables.len())));
        }
        Ok(manifest)
    }

    /// The next member, which must be the one that the manifest lists next, with the size and digest that it gives.
    fn listed(&mut self, listed: Option<&Member>, name: &str) -> Result<Vec<u8>, EngineError> {
        let Some(listed) = listed.filter(|listed| listed.name == name) else {
            return Err(self.refuse(&format!("{MANIFEST} does not list {name} in its place")));
        };
        let bytes = self.next(name, IMAGE_BYTES_MAX as u64)?;
        if Member::of(name, &bytes) != *listed {
            return Err(self.refuse(&format!("{name} was altered: it does not have the digest in {MANIFEST}")));
        }
        Ok(bytes)
    }

    /// The content of the next member, which must be called `name` and have at most `limit` bytes.
    fn next(&mut self, name: &str, limit: u64) -> Result<Vec<u8>, EngineError> {
        let Some(entry) = self.entries.next() else {
            return Err(self.refuse(&format!("truncated: it ends before {name}")));
        };
        let mut entry = entry.map_err(|error| self.refuse(&format!("truncated or damaged before {name}: {error}")))?;
        if entry.path_bytes() != name.as_bytes() {
            let found = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            return Err(self.refuse(&format!("has {found} where {name} should be")));
        }
        let bytes = entry.size();
        if bytes > limit {
            return Err(self.refuse(&format!("{name} of {bytes} bytes is over the limit of {limit} bytes")));
        }
        if bytes > self.file_bytes {
            return Err(self.refuse(&format!("truncated inside {name}")));
        }
        let mut content = Vec::with_capacity(bytes as usize);
        let read = entry.read_to_end(&mut content);
        match read {
            Ok(read) if read as u64 == bytes => Ok(content),
            Ok(_) => Err(self.refuse(&format!("truncated inside {name}"))),
            Err(error) => Err(self.refuse(&format!("truncated or damaged inside {name}: {error}"))),
        }
    }

    /// Nothing may follow the last member.
    fn end(&mut self) -> Result<(), EngineError> {
        match self.entries.next() {
            None => Ok(()),
            Some(Err(error)) => Err(self.refuse(&format!("truncated or damaged at its end: {error}"))),
            Some(Ok(_)) => Err(self.refuse("has more members than its manifest lists")),
        }
    }

    fn refuse(&self, problem: &str) -> EngineError {
        EngineError::Bundle { path: self.path.to_owned(), problem: problem.to_owned() }
    }
}
