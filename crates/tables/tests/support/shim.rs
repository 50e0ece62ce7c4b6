//! The C lookups, compiled by every compiler here and loaded.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use libloading::{Library, Symbol};
use weir_abi::Layout;

/// The C lookup of a layout, and whether there is one for bursts.
pub fn lookup(layout: Layout) -> (&'static str, bool) {
    match layout {
        Layout::Dxr16x4 => ("dxr16x4_find", false),
        Layout::ExactSet => ("exact_set_find", true),
        Layout::ExactSets => ("exact_sets_find", true),
        Layout::ExactSet6 => ("exact_set6_find", true),
        Layout::ExactSets6 => ("exact_sets6_find", true),
        Layout::Range6 => ("range6_find", false),
        Layout::RankLeaf => ("rank_leaf_find", true),
        Layout::RankLeaf6 => ("rank_leaf6_find", true),
        Layout::CountedLeaf => ("counted_leaf_find", true),
        Layout::ExactLeaf => ("exact_leaf_find", true),
        Layout::ExactLeaf6 => ("exact_leaf6_find", true),
    }
}

pub fn is_ipv6(layout: Layout) -> bool {
    matches!(layout, Layout::Range6 | Layout::RankLeaf6 | Layout::ExactSet6 | Layout::ExactSets6 | Layout::ExactLeaf6)
}

/// Functions that a loader finds: `shim_` and the name of the lookup.
pub fn shim() -> String {
    let mut text =
        "#include \"tables/lookup.h\"\n#define TABLE(image) ((struct table){image, UINT32_MAX, 0})\n".to_owned();
    let mut define = |head: String, body: String| text.push_str(&format!("{head};\n{head}\n{{\n\t{body};\n}}\n"));
    for layout in Layout::ALL {
        let (name, _) = lookup(layout);
        let (types, keys) = match is_ipv6(layout) {
            true => ("uint64_t hi, uint64_t lo", "hi, lo"),
            false => ("uint32_t addr", "addr"),
        };
        define(
            format!("uint32_t shim_{name}(const uint8_t *image, {types})"),
            format!("return {name}(TABLE(image), {keys})"),
        );
    }
    text.push_str("#ifdef WEIR_BURSTS\n");
    let mut define = |head: String, body: String| text.push_str(&format!("{head};\n{head}\n{{\n\t{body};\n}}\n"));
    for layout in Layout::ALL.into_iter().filter(|&layout| lookup(layout).1) {
        let (name, _) = lookup(layout);
        let (types, keys) = match is_ipv6(layout) {
            true => ("const uint64_t *hi, const uint64_t *lo", "hi, lo"),
            false => ("const uint32_t *addrs", "addrs"),
        };
        define(
            format!("void shim_{name}_burst(const uint8_t *image, {types}, uint32_t *labels, uint32_t count)"),
            format!("{name}_burst(TABLE(image), {keys}, labels, count)"),
        );
    }
    text + "#endif\n"
}

/// Compilers, with their flags and the kinds of kernels that run with AVX-512 (`enum simd_kind`): for this machine, for
/// the one that bundles are compiled for, and for one without AVX2.
const COMPILERS: [(&str, &[&str], u32); 8] = [
    ("clang-19", &["-march=native"], 7),
    ("clang-19", &["-march=native", "-mno-avx512f"], 4),
    ("clang-19", &["-march=x86-64-v3"], 7),
    ("clang-19", &["-march=x86-64-v3"], 2),
    ("clang-19", &["-march=x86-64-v3"], 0),
    ("clang-19", &["-march=x86-64"], 0),
    ("cc", &["-march=native"], 7),
    ("cc", &["-march=x86-64-v3"], 0),
];
/// clang 19 warns of processors that it only half knows, and not every compiler knows that warning.
pub const FLAGS: [&str; 9] = [
    "-std=c11",
    "-O3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unknown-warning-option",
    "-Wno-invalid-feature-combination",
    "-shared",
    "-fPIC",
];

pub type Find4 = unsafe extern "C" fn(*const u8, u32) -> u32;
pub type Find6 = unsafe extern "C" fn(*const u8, u64, u64) -> u32;
pub type FindBurst4 = unsafe extern "C" fn(*const u8, *const u32, *mut u32, u32);
pub type FindBurst6 = unsafe extern "C" fn(*const u8, *const u64, *const u64, *mut u32, u32);

/// The lookups as one compiler made them.
pub struct Datapath {
    pub compiler: String,
    library: Library,
}

/// The kinds of kernels, if the processor has AVX-512.
fn possible(kernels: u32) -> u32 {
    let has = is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq");
    if has { kernels } else { 0 }
}

impl Datapath {
    /// One for each compiler found, at least one.
    pub fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Datapath>> = OnceLock::new();
        let all = ALL.get_or_init(|| COMPILERS.into_iter().filter_map(Self::compile).collect());
        assert!(!all.is_empty(), "no C compiler: install one of {COMPILERS:?} to check the C lookups");
        all
    }

    fn compile((compiler, machine, kernels): (&str, &[&str], u32)) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (source, object) = (dir.path().join("shim.c"), dir.path().join("shim.so"));
        std::fs::write(&source, shim()).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datapath");
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(machine).arg("-I").arg(include).arg("-o").args([&object, &source]);
        let run = command.output().ok()?;
        let compiler = format!("{compiler} {}, kernels {kernels}", machine.join(" "));
        assert!(run.status.success(), "{compiler}: {}", String::from_utf8_lossy(&run.stderr));
        // SAFETY: the library was just made from shim(), which has no constructors.
        let library = unsafe { Library::new(object) }.unwrap();
        // SAFETY: the code defines `uint32_t weir_kernels`, and none of it has run yet.
        unsafe {
            library
                .get::<*mut u32>(b"weir_kernels")
                .unwrap()
                .into_raw()
                .into_raw()
                .cast::<u32>()
                .write(possible(kernels))
        };
        Some(Datapath { compiler, library })
    }

    /// A function of the given type for the layout of the image.
    ///
    /// # Safety
    /// `T` is the function's type: as [`shim`] defines it for the layout's family, `suffix` empty or `_burst`.
    pub unsafe fn symbol<T>(&self, layout: Layout, suffix: &str) -> Symbol<'_, T> {
        let name = format!("shim_{}{suffix}", lookup(layout).0);
        // SAFETY: the caller says so.
        unsafe { self.library.get(name.as_bytes()) }.unwrap()
    }
}
