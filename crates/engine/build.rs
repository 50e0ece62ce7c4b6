//! Lists the datapath's headers, so that the binary carries them all and a new one needs no mention anywhere.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Folders below `datapath/` whose headers generated code includes.
const FOLDERS: [&str; 2] = ["include", "engine"];

fn main() {
    let manifest_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let datapath = manifest_dir.join("../../datapath").canonicalize().expect("datapath/ stands beside crates/");
    let mut headers: Vec<PathBuf> = FOLDERS.iter().flat_map(|folder| headers_in(&datapath.join(folder))).collect();
    headers.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    let rows: String = headers
        .iter()
        .map(|path| {
            let name = path.file_name().expect("read_dir yields names").to_string_lossy();
            format!("    ({name:?}, include_str!({:?})),\n", path.display().to_string())
        })
        .collect();
    let table = format!("pub(super) const HEADERS: &[(&str, &str)] = &[\n{rows}];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("headers.rs");
    fs::write(&out, table).expect("OUT_DIR is writable");
}

fn headers_in(folder: &Path) -> Vec<PathBuf> {
    println!("cargo::rerun-if-changed={}", folder.display());
    fs::read_dir(folder)
        .expect("the datapath's folders exist")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "h"))
        .collect()
}
