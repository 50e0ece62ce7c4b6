//! The C lookups of the schemes against the Rust ones, compiled by every compiler here, on the same images.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../crates/tables/tests/support/mod.rs"]
mod support;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use libloading::{Library, Symbol};
use support::shim::FLAGS;
use support::*;
use weir_abi::Family;
use weir_schemes::Scheme;
use weir_tables::Kind;

const COMPILERS: [&str; 2] = ["clang-19", "cc"];

type Find = unsafe extern "C" fn(*const u8, u32) -> u32;

fn symbol(scheme: Scheme) -> String {
    format!("shim_{}", scheme.c_lookup().0)
}

/// A function for each scheme.
fn shim() -> String {
    let mut shim = String::new();
    for scheme in Scheme::ALL {
        let (find, header) = scheme.c_lookup();
        let symbol = symbol(scheme);
        writeln!(shim, "#include \"{header}\"").unwrap();
        writeln!(shim, "uint32_t {symbol}(const uint8_t *image, uint32_t addr);").unwrap();
        writeln!(shim, "uint32_t {symbol}(const uint8_t *image, uint32_t addr)").unwrap();
        writeln!(shim, "{{ return {find}((struct table){{image, UINT32_MAX, 0}}, addr); }}").unwrap();
    }
    shim
}

/// The lookups as one compiler made them.
struct Datapath {
    compiler: &'static str,
    library: Library,
}

impl Datapath {
    /// One for each compiler found, at least one.
    fn all() -> Vec<Self> {
        let found: Vec<_> = COMPILERS.into_iter().filter_map(Self::compile).collect();
        assert!(!found.is_empty(), "no C compiler: install one of {COMPILERS:?} to check the C lookups");
        found
    }

    fn compile(compiler: &'static str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (source, object) = (dir.path().join("shim.c"), dir.path().join("shim.so"));
        std::fs::write(&source, shim()).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let run = Command::new(compiler)
            .args(FLAGS)
            .arg("-march=native")
            .arg("-I")
            .arg(folder.join("../../datapath"))
            .arg("-I")
            .arg(folder.join("../schemes/c"))
            .arg("-o")
            .args([&object, &source])
            .output();
        let run = run.ok()?;
        assert!(run.status.success(), "{compiler}: {}", String::from_utf8_lossy(&run.stderr));
        // SAFETY: the library was just made from the shim, which has no constructors.
        let library = unsafe { Library::new(object) }.unwrap();
        Some(Datapath { compiler, library })
    }
}

/// Every scheme that holds the table, as every compiler has it; at least `schemes` of them.
fn check(kind: Kind, list: &[Entry<u32>], keys: &[u32], schemes: usize) {
    let settled = table(Family::Ipv4, kind, list).settle();
    let images: Vec<_> = Scheme::ALL.into_iter().filter_map(|scheme| scheme.build(&settled).ok()).collect();
    assert!(images.len() >= schemes, "{} schemes hold the table", images.len());
    for datapath in Datapath::all() {
        for image in &images {
            // SAFETY: the shim defines the symbol with this type.
            let find: Symbol<'_, Find> = unsafe { datapath.library.get(symbol(image.scheme())) }.unwrap();
            let view = image.view();
            for &key in keys {
                // SAFETY: the image was built here, so that lookups stay inside its bytes.
                let found = unsafe { find(image.as_bytes().as_ptr(), key) };
                assert_eq!(found, view.find(key), "{} {} at {key:#010x}", datapath.compiler, image.scheme());
            }
        }
    }
}

#[test]
fn schemes_in_c_find_what_rust_finds() {
    let mut random = Random(77);
    let mut list = crowd4(10_000, 3);
    list.extend((0..10_000).map(|_| {
        let word = random.next();
        ((word >> 20) as u32, (word % 33) as u8, 1 + (word >> 8) as u32 % 250)
    }));
    let mut keys = edges4(&list);
    keys.extend((0..100_000).map(|_| random.next() as u32));
    check(Kind::Labels, &list, &keys, 7);
    check(Kind::Set, &list, &keys, 7);
}

#[test]
fn dense_blocks_in_c() {
    let keys: Vec<u32> = (0x0a00_f000..0x0a01_3000).collect();
    check(Kind::Labels, &comb4(), &keys, 6);
    check(Kind::Labels, &comb4()[1..], &keys, 6);
    check(Kind::Labels, &comb4()[2049..], &keys, 7);
}

#[test]
fn labels_of_many_bits_in_c() {
    for (labels, schemes) in [(254u32, 7), (4095, 6), (32_767, 5), (65_535, 4), ((1 << 18) - 1, 3), ((1 << 20) - 1, 2)]
    {
        // Blocks of two ranges, so that labels stand in ranges and leaves too.
        let entry = |index: u32| (index << 12 | 5, if index.is_multiple_of(2) { 20 } else { 32 }, 1 + index);
        let list: Vec<_> = (0..labels).map(entry).collect();
        let keys: Vec<u32> = edges4(&list).into_iter().step_by(1 + labels as usize / 10_000).collect();
        check(Kind::Labels, &list, &keys, schemes);
    }
}

#[test]
fn edge_tables_in_c() {
    let keys = [0, 1, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    check(Kind::Set, &[], &keys, 7);
    check(Kind::Set, &[(0, 0, 1)], &keys, 7);
    check(Kind::Labels, &[(0, 0, 1), (0, 32, 2), (u32::MAX, 32, 3), (0x8000_0000, 1, 4)], &keys, 7);
}
