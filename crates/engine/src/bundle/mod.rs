//! A compiled policy in one file, for a machine without a compiler.
//!
//! The file is a tar archive (`tar tf` lists it). Small members come first:
//!
//! ```text
//! manifest.json     what the artifact is, and each member's size and SHA-256
//! manifest.sha256   SHA-256 of manifest.json, in hexadecimal
//! manifest.sig      Ed25519 signature of manifest.json, 64 bytes; only if the bundle is signed
//! native.c bpf.c native.so bpf.o host.o table0.csv table1.csv ... limits0.csv limits1.csv ...
//! ```
//! Tables are lists of their entries. Their images are built when the bundle is loaded, because tables continue with
//! what they have become. So no other member can say something else about them.
//!
//! Digests detect damage but not forgery, because an attacker who can write the file can write its digests. Signatures
//! detect both ([`trust`]). The manifest determines every other byte of the file, and any other byte is refused. A
//! signature of the manifest therefore covers the whole file. The same artifact gives the same bytes. Nothing is
//! unpacked to disk, and reading an archive runs none of its code.

mod archive;
mod features;
pub mod key;
pub mod trust;

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use weir_abi::{ABI_VERSION, Target};
use weir_state::StateShape;

use features::BundledFeatures;

use crate::artifact::{Artifact, LISTS_MAX, Source};
use crate::clang::{BpfObject, NativeObject};
use crate::cpu::{self, Cpu};
use crate::program_shape::TableSlot;
use crate::{EngineError, ProgramShape, elf};
use archive::Reader;
use key::{SIGNATURE_BYTES, Signer};
use trust::{Standing, Trust};

const FORMAT: &str = "weir-bundle";
const NOT_A_BUNDLE: &str = "not a weir bundle";
const MANIFEST: &str = "manifest.json";
const MANIFEST_DIGEST: &str = "manifest.sha256";
const MANIFEST_SIGNATURE: &str = "manifest.sig";
const NATIVE_SO: &str = "native.so";
const BPF_O: &str = "bpf.o";
const HOST_O: &str = "host.o";

/// Maximum size of the manifest. Most of its bytes are rule citations.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Length of a SHA-256 in hexadecimal.
const DIGEST_BYTES: u64 = 64;
/// Maximum size of a source or an object.
const CODE_BYTES_MAX: u64 = 256 << 20;
/// Maximum size of a list: the entries of a table, or limits.
const LIST_BYTES_MAX: u64 = 1 << 30;
/// Maximum size of an archive: a few of the largest tables.
const BUNDLE_BYTES_MAX: u64 = 4 << 30;

/// Number of bytes that [`is_bundle`] needs.
pub const HEAD_BYTES: usize = archive::BLOCK_BYTES;

/// Everything that an engine needs to run a policy.
#[derive(Clone)]
pub struct Bundle {
    /// The description of the compiled policy.
    pub artifact: Artifact,
    /// The entries of its tables, as lists. The report says to which tables they belong.
    pub tables: Vec<Arc<[u8]>>,
    /// The prefixes of lists of limits, as CSV. The report says to which lists they belong.
    pub lists: Vec<Arc<[u8]>>,
    /// The processor that the native code was compiled for.
    pub cpu: Cpu,
    /// The instruction set extensions that the native code may use.
    cpu_features: Vec<String>,
    /// Code for user space. It is only available through [`Bundle::native`], which checks that it may be run.
    native: NativeObject,
    /// Code for the kernel.
    bpf: BpfObject,
    /// Code for what a host sends, if the policy supports hosts.
    sent: Option<BpfObject>,
    /// The file that it was read from, for messages.
    path: PathBuf,
    standing: Standing,
    /// Whether it has a signature that was not verified.
    unverified: bool,
}

/// manifest.json.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: String,
    abi_version: u32,
    name: String,
    chains: Vec<String>,
    rules: usize,
    tables: Vec<TableSlot>,
    limiters: usize,
    adders: usize,
    additions: usize,
    limited: usize,
    /// Number of flows that its table holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flows: Option<u32>,
    /// Whether chains change packets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    rewrites: bool,
    /// Number of slots of rules.
    #[serde(default, skip_serializing_if = "is_zero")]
    slots: usize,
    /// What is counted of the packets that pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    features: Option<BundledFeatures>,
    /// Number of tables with entries.
    entries: usize,
    /// Number of lists of limits.
    lists: usize,
    cpu: Cpu,
    cpu_features: Vec<String>,
    report: serde_json::Value,
    members: Vec<Member>,
}

/// Whether a count is 0, which a manifest leaves out.
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The fields that any manifest has. They are parsed first, so that an archive of another version is reported as such
/// and not as damaged.
#[derive(Deserialize)]
struct ManifestHead {
    format: String,
    abi_version: u32,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// The result of a compilation for `cpu`. Its code may be run.
    ///
    /// # Errors
    /// The compiler or its linker made an object that Weir would refuse to load from an archive.
    pub fn new(
        artifact: Artifact,
        tables: Vec<Arc<[u8]>>,
        lists: Vec<Arc<[u8]>>,
        native: NativeObject,
        bpf: BpfObject,
        sent: Option<BpfObject>,
        cpu: Cpu,
    ) -> Result<Self, EngineError> {
        let path = PathBuf::from(&artifact.name);
        let (cpu_features, standing, unverified) = (cpu::features(cpu), Standing::Trusted, false);
        let bundle =
            Bundle { artifact, tables, lists, cpu, cpu_features, native, bpf, sent, path, standing, unverified };
        bundle.check_native()?;
        bundle.check_bpf()?;
        bundle.check_sent()?;
        Ok(bundle)
    }

    /// The shape of the program.
    pub fn shape(&self) -> &ProgramShape {
        &self.artifact.shape
    }

    /// The code for user space, if it may be run here.
    ///
    /// # Errors
    /// The code is not trusted, the compiler does not make such code, or this processor lacks instructions that it
    /// needs.
    pub fn native(&self) -> Result<&NativeObject, EngineError> {
        self.check_standing()?;
        cpu::check(&self.cpu_features, &self.path.display().to_string())?;
        self.check_native()?;
        Ok(&self.native)
    }

    /// The code for the kernel, if it may be run here.
    ///
    /// # Errors
    /// The code is not trusted, or the compiler does not make such code.
    pub fn bpf(&self) -> Result<&BpfObject, EngineError> {
        self.check_standing()?;
        self.check_bpf()?;
        Ok(&self.bpf)
    }

    /// The code for what a host sends, if it may be run here; `None` if the policy does not support hosts.
    ///
    /// # Errors
    /// As for [`Bundle::bpf`].
    pub fn sent(&self) -> Result<Option<&BpfObject>, EngineError> {
        self.check_standing()?;
        self.check_sent()?;
        Ok(self.sent.as_ref())
    }

    /// Whether it has a signature that was not verified, because no key was given.
    pub fn is_unverified(&self) -> bool {
        self.unverified
    }

    fn check_standing(&self) -> Result<(), EngineError> {
        match &self.standing {
            Standing::Trusted => Ok(()),
            Standing::Distrusted(why) => Err(EngineError::Untrusted { path: self.path.clone(), why: why.clone() }),
        }
    }

    fn check_native(&self) -> Result<(), EngineError> {
        let checked = elf::check_native(self.native.bytes(), &self.artifact.shape.chains);
        checked.map_err(|problem| self.refuse(NATIVE_SO, problem))
    }

    fn check_bpf(&self) -> Result<(), EngineError> {
        elf::check_bpf(self.bpf.bytes()).map_err(|problem| self.refuse(BPF_O, problem))
    }

    fn check_sent(&self) -> Result<(), EngineError> {
        let checked = self.sent.as_ref().map_or(Ok(()), |sent| elf::check_bpf(sent.bytes()));
        checked.map_err(|problem| self.refuse(HOST_O, problem))
    }

    fn refuse(&self, member: &str, problem: String) -> EngineError {
        EngineError::Bundle { path: self.path.clone(), problem: format!("{member} {problem}") }
    }

    /// Writes the archive, signed if there is a signer. A file appears whole or not at all.
    pub fn write(&self, path: &Path, signer: Option<&Signer>) -> Result<(), EngineError> {
        let io = |source| EngineError::Io { path: path.to_owned(), source };
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            // A device or a pipe is written directly, because renaming a file onto it would replace it.
            return File::create(path).and_then(|mut file| self.write_to(&mut file, signer)).map_err(io);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".weir-").tempfile_in(folder).map_err(io)?;
        self.write_to(file.as_file_mut(), signer).map_err(io)?;
        fs::set_permissions(file.path(), std::os::unix::fs::PermissionsExt::from_mode(0o644)).map_err(io)?;
        file.persist(path).map_err(|error| io(error.error))?;
        Ok(())
    }

    fn write_to(&self, file: &mut File, signer: Option<&Signer>) -> io::Result<()> {
        let members = self.members();
        let Artifact { name, abi_version, shape, report, .. } = &self.artifact;
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            abi_version: *abi_version,
            name: name.clone(),
            chains: shape.chains.clone(),
            rules: shape.rules,
            tables: shape.tables.clone(),
            limiters: shape.state.limiters,
            adders: shape.state.adders,
            additions: shape.additions,
            limited: shape.limited,
            flows: shape.state.flows,
            rewrites: shape.rewrites,
            slots: shape.state.slots,
            features: shape.state.features.as_ref().map(BundledFeatures::of),
            entries: self.tables.len(),
            lists: self.lists.len(),
            cpu: self.cpu,
            cpu_features: self.cpu_features.clone(),
            report: report.clone(),
            members: members.iter().map(|(name, content)| Member::of(name, content)).collect(),
        };
        let manifest = serde_json::to_vec_pretty(&manifest)?;
        let digest = hex_digest(&manifest);
        let signature = signer.map(|signer| signer.sign(&manifest));
        let head = [(MANIFEST, manifest.as_slice()), (MANIFEST_DIGEST, digest.as_bytes())].into_iter();
        let signed = signature.iter().map(|signature| (MANIFEST_SIGNATURE, signature.as_slice()));
        let rest = members.iter().map(|(name, content)| (name.as_str(), *content));
        archive::write(BufWriter::new(file), head.chain(signed).chain(rest))
    }

    /// Name and content of every member after the manifest, in order.
    fn members(&self) -> Vec<(String, &[u8])> {
        let sources =
            Target::ALL.map(|target| (target.file_name().to_owned(), self.artifact.source(target).as_bytes()));
        let mut members: Vec<(String, &[u8])> = sources.into();
        members.extend([(NATIVE_SO.to_owned(), self.native.bytes()), (BPF_O.to_owned(), self.bpf.bytes())]);
        members.push((HOST_O.to_owned(), self.sent.as_ref().map_or(&[], BpfObject::bytes)));
        members.extend(self.tables.iter().enumerate().map(|(index, table)| (table_name(index), &**table)));
        members.extend(self.lists.iter().enumerate().map(|(index, list)| (list_name(index), &**list)));
        members
    }

    /// Reads an archive and checks the signature, every member's digest and the ABI version. Its lists are not
    /// interpreted here. Its code is checked and run only on request.
    pub fn read(path: &Path, trust: &Trust) -> Result<Self, EngineError> {
        let file = File::open(path).map_err(|source| EngineError::Io { path: path.to_owned(), source })?;
        Self::read_file(path, file, trust)
    }

    /// Reads like [`Bundle::read`], from the file that was opened at `path`, so that the checked file is the one that
    /// is read.
    pub fn read_file(path: &Path, mut file: File, trust: &Trust) -> Result<Self, EngineError> {
        let io = |source| EngineError::Io { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            let problem = "not a regular file, which a bundle must be".to_owned();
            return Err(EngineError::Bundle { path: path.to_owned(), problem });
        }
        file.rewind().map_err(io)?;
        let mut bundle = read(path, BufReader::new(&file), metadata.len(), trust)?;
        bundle.standing = trust.standing(path, &file);
        Ok(bundle)
    }

    /// Reads like [`Bundle::read`], from bytes without a file. Their code is run only if they are signed.
    pub fn read_bytes(path: &Path, bytes: &[u8], trust: &Trust) -> Result<Self, EngineError> {
        read(path, bytes, bytes.len() as u64, trust)
    }
}

/// Whether a file with this start is an archive of Weir, whole or damaged. [`HEAD_BYTES`] of it are enough.
pub fn is_bundle(start: &[u8]) -> bool {
    archive::starts_with(start, MANIFEST)
}

fn table_name(index: usize) -> String {
    format!("table{index}.csv")
}

fn list_name(index: usize) -> String {
    format!("limits{index}.csv")
}

fn hex_digest(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads an archive of `bytes` bytes. Only a signature can make its code trusted here.
fn read(path: &Path, input: impl Read, bytes: u64, trust: &Trust) -> Result<Bundle, EngineError> {
    let mut archive = Reader::new(path, input, bytes);
    if bytes > BUNDLE_BYTES_MAX {
        return Err(archive.refuse(format!("{bytes} bytes are over the limit of {BUNDLE_BYTES_MAX} bytes")));
    }
    let (manifest, unverified) = read_manifest(&mut archive, trust)?;
    let mut listed = manifest.members.iter();
    let mut next = |name: &str, limit: u64| read_listed(&mut archive, listed.next(), name, limit);
    let refuse = |problem: String| EngineError::Bundle { path: path.to_owned(), problem };
    let text = |bytes| String::from_utf8(bytes).map_err(|_| refuse("its C is not UTF-8".to_owned()));
    let sources =
        Target::ALL.map(|target| Ok(Source { target, text: text(next(target.file_name(), CODE_BYTES_MAX)?)? }));
    let mut state = StateShape::default();
    state.limiters = manifest.limiters;
    state.adders = manifest.adders;
    state.flows = manifest.flows;
    state.proxied = manifest.rewrites;
    state.slots = manifest.slots;
    state.features = manifest.features.map(|features| features.shape()).transpose().map_err(refuse)?;
    let artifact = Artifact {
        name: manifest.name,
        abi_version: manifest.abi_version,
        shape: ProgramShape {
            chains: manifest.chains,
            rules: manifest.rules,
            tables: manifest.tables,
            additions: manifest.additions,
            limited: manifest.limited,
            rewrites: manifest.rewrites,
            state,
            answered: None,
        },
        sources: sources.into_iter().collect::<Result<_, EngineError>>()?,
        report: manifest.report,
    };
    artifact.check().map_err(refuse)?;
    let shown =
        artifact.shape.tables.iter().map(|slot| &slot.name).chain(&manifest.cpu_features).chain([&artifact.name]);
    if let Some(name) = shown.into_iter().find(|name| name.chars().any(char::is_control)) {
        return Err(refuse(format!("the name {} is not printable", printable(name))));
    }
    let native = NativeObject(next(NATIVE_SO, CODE_BYTES_MAX)?);
    let bpf = BpfObject(next(BPF_O, CODE_BYTES_MAX)?);
    let sent = Some(next(HOST_O, CODE_BYTES_MAX)?).filter(|sent| !sent.is_empty()).map(BpfObject);
    let mut read = |count: usize, name: fn(usize) -> String| {
        (0..count).map(|index| Ok(Arc::from(next(&name(index), LIST_BYTES_MAX)?))).collect::<Result<_, EngineError>>()
    };
    let (tables, lists) = (read(manifest.entries, table_name)?, read(manifest.lists, list_name)?);
    if listed.next().is_some() {
        return Err(refuse(format!("{MANIFEST} lists more members than a bundle has")));
    }
    archive.end()?;
    let standing = match trust.wants_signatures() {
        true => Standing::Trusted,
        false => Standing::Distrusted("nobody signed it".to_owned()),
    };
    let (cpu, cpu_features, path) = (manifest.cpu, manifest.cpu_features, path.to_owned());
    Ok(Bundle { artifact, tables, lists, cpu, cpu_features, native, bpf, sent, path, standing, unverified })
}

/// Reads and checks the manifest. Returns whether it has an unverified signature. Nothing in the manifest is
/// interpreted before the signature is verified.
fn read_manifest(archive: &mut Reader<'_, impl Read>, trust: &Trust) -> Result<(Manifest, bool), EngineError> {
    if !archive.comes(MANIFEST) {
        return Err(archive.refuse(NOT_A_BUNDLE.to_owned()));
    }
    let bytes = archive.next(MANIFEST, MANIFEST_BYTES_MAX)?;
    let digest = archive.next(MANIFEST_DIGEST, DIGEST_BYTES)?;
    let signed = archive.comes(MANIFEST_SIGNATURE);
    let signature = signed.then(|| archive.next(MANIFEST_SIGNATURE, SIGNATURE_BYTES as u64)).transpose()?;
    trust.verify(&bytes, signature.as_deref()).map_err(|problem| archive.refuse(problem))?;
    let unverified = signature.is_some() && !trust.wants_signatures();
    let head: Option<ManifestHead> = serde_json::from_slice(&bytes).ok();
    let Some(head) = head.filter(|head| head.format == FORMAT) else {
        return Err(archive.refuse(NOT_A_BUNDLE.to_owned()));
    };
    if digest != hex_digest(&bytes).as_bytes() {
        let problem = format!("{MANIFEST} was altered: it does not have the digest in {MANIFEST_DIGEST}");
        return Err(archive.refuse(problem));
    }
    if head.abi_version != ABI_VERSION {
        let object = archive.path().display().to_string();
        return Err(EngineError::AbiVersion { object, found: head.abi_version, expected: ABI_VERSION });
    }
    let manifest = serde_json::from_slice::<Manifest>(&bytes);
    let manifest =
        manifest.map_err(|error| archive.refuse(format!("{MANIFEST}: {}", printable(&error.to_string()))))?;
    if manifest.lists > LISTS_MAX {
        return Err(archive.refuse(format!("{} lists of limits, at most {LISTS_MAX} are possible", manifest.lists)));
    }
    if manifest.entries > LISTS_MAX {
        return Err(archive.refuse(format!("{} tables, at most {LISTS_MAX} are possible", manifest.entries)));
    }
    Ok((manifest, unverified))
}

/// Reads the next member, which must be the next one in the manifest, with the listed size and digest.
fn read_listed(
    archive: &mut Reader<'_, impl Read>,
    listed: Option<&Member>,
    name: &str,
    limit: u64,
) -> Result<Vec<u8>, EngineError> {
    let Some(listed) = listed.filter(|listed| listed.name == name) else {
        return Err(archive.refuse(format!("{MANIFEST} does not list {name} in its place")));
    };
    let bytes = archive.next(name, limit)?;
    if Member::of(name, &bytes) != *listed {
        return Err(archive.refuse(format!("{name} was altered: it does not have the digest in {MANIFEST}")));
    }
    Ok(bytes)
}

/// Escapes control characters of text from a file.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}
