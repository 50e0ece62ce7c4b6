//! Fuzz targets for bundles and the objects in them.

use sha2::{Digest, Sha256};
use std::path::Path;
use weir_abi::ABI_VERSION;
use weir_engine::bundle::Bundle;
use weir_engine::bundle::trust::Trust;
use weir_engine::elf;

/// The first byte of an input, which selects the target.
const WHOLE: u8 = b'b';
const NATIVE: u8 = b'n';
const KERNEL: u8 = b'k';
const MANIFEST: u8 = b'm';

/// The first byte selects the target of the rest: a whole file, an object for user space, one for the kernel, or a
/// manifest. The archive and digest of a manifest are computed, since a fuzzer cannot guess a SHA-256.
pub(crate) fn bundle(data: &[u8]) {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let chains = ["upstream".to_owned(), "downstream".to_owned()];
    match kind {
        NATIVE => _ = elf::check_native(bytes, &chains),
        KERNEL => _ = elf::check_bpf(bytes),
        MANIFEST => read(&with_manifest(bytes)),
        WHOLE => read(bytes),
        _ => {}
    }
}

/// If an archive is refused, the message names the file and is printable. If it is accepted, its code needs a signature
/// to run.
fn read(bytes: &[u8]) {
    match Bundle::read_bytes(Path::new("fuzzed.weirb"), bytes, &Trust::default()) {
        Ok(bundle) => {
            assert!(bundle.native().is_err() && bundle.bpf().is_err(), "code without a signature is not trusted");
            assert_eq!(bundle.artifact.abi_version, ABI_VERSION);
            assert_eq!(bundle.images.len(), bundle.shape().tables.len());
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{message:?}");
        }
    }
}

/// An archive with this manifest, its digest, and empty members.
fn with_manifest(manifest: &[u8]) -> Vec<u8> {
    let digest: String = Sha256::digest(manifest).iter().map(|byte| format!("{byte:02x}")).collect();
    let members = [("manifest.json", manifest), ("manifest.sha256", digest.as_bytes())];
    let empty = ["native.c", "bpf.c", "native.so", "bpf.o"].map(|name| (name, &[][..]));
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in members.into_iter().chain(empty) {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content).expect("memory can be written to");
    }
    archive.into_inner().expect("memory can be written to")
}
