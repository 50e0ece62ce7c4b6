//! The C lookups against the Rust ones: `datapath/include/lookup.h`, compiled by every compiler here, on the same images.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use libloading::{Library, Symbol};
use support::*;
use weir_abi::{BURST_MAX, Family, Layout};
use weir_tables::{Entries, Image, ImageView, Kind};

const SHIM: &str = r#"
#include "lookup.h"

WEIR_INLINE struct table table_of(const uint8_t *image)
{
	return (struct table){image, UINT32_MAX};
}

uint32_t shim_d16x4r(const uint8_t *image, uint32_t addr);
uint32_t shim_exact_set(const uint8_t *image, uint32_t addr);
uint32_t shim_range6(const uint8_t *image, uint64_t hi, uint64_t lo);
uint32_t shim_rank_leaf(const uint8_t *image, uint32_t addr);
uint32_t shim_rank_leaf6(const uint8_t *image, uint64_t hi, uint64_t lo);

uint32_t shim_d16x4r(const uint8_t *image, uint32_t addr)
{
	return dxr16x4_find(table_of(image), addr);
}

uint32_t shim_exact_set(const uint8_t *image, uint32_t addr)
{
	return exact_set_find(table_of(image), addr);
}

uint32_t shim_range6(const uint8_t *image, uint64_t hi, uint64_t lo)
{
	return range6_find(table_of(image), hi, lo);
}

uint32_t shim_rank_leaf(const uint8_t *image, uint32_t addr)
{
	return rank_leaf_find(table_of(image), addr);
}

uint32_t shim_rank_leaf6(const uint8_t *image, uint64_t hi, uint64_t lo)
{
	return rank_leaf6_find(table_of(image), hi, lo);
}

#ifdef WEIR_BURSTS
void shim_exact_set_burst(const uint8_t *image, const uint32_t *addrs, uint32_t *labels, uint32_t count);
void shim_rank_leaf_burst(const uint8_t *image, const uint32_t *addrs, uint32_t *labels, uint32_t count);
void shim_rank_leaf6_burst(const uint8_t *image, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count);

void shim_exact_set_burst(const uint8_t *image, const uint32_t *addrs, uint32_t *labels, uint32_t count)
{
	exact_set_find_burst(table_of(image), addrs, labels, count);
}

void shim_rank_leaf_burst(const uint8_t *image, const uint32_t *addrs, uint32_t *labels, uint32_t count)
{
	rank_leaf_find_burst(table_of(image), addrs, labels, count);
}

void shim_rank_leaf6_burst(const uint8_t *image, const uint64_t *hi, const uint64_t *lo, uint32_t *labels, uint32_t count)
{
	rank_leaf6_find_burst(table_of(image), hi, lo, labels, count);
}
#endif
"#;

/// Compilers, each for this machine, for the one that bundles are compiled for (with the kernels that are chosen when the
/// code runs, and without), and for one without AVX2.
const COMPILERS: [(&str, &[&str]); 6] = [
    ("clang-19", &["-march=native"]),
    ("clang-19", &["-march=x86-64-v3"]),
    ("clang-19", &["-march=x86-64-v3", "-DWEIR_NO_AVX512"]),
    ("clang-19", &["-march=x86-64", "-DWEIR_NO_AVX512"]),
    ("cc", &["-march=native"]),
    ("cc", &["-march=x86-64-v3", "-DWEIR_NO_AVX512"]),
];
const FLAGS: [&str; 7] = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"];

type Find4 = unsafe extern "C" fn(*const u8, u32) -> u32;
type Find6 = unsafe extern "C" fn(*const u8, u64, u64) -> u32;
type FindBurst4 = unsafe extern "C" fn(*const u8, *const u32, *mut u32, u32);
type FindBurst6 = unsafe extern "C" fn(*const u8, *const u64, *const u64, *mut u32, u32);

/// The lookups as one compiler made them.
struct Datapath {
    compiler: String,
    library: Library,
}

impl Datapath {
    /// One for each compiler found, at least one.
    fn all() -> &'static [Self] {
        static ALL: OnceLock<Vec<Datapath>> = OnceLock::new();
        let all = ALL.get_or_init(|| COMPILERS.into_iter().filter_map(Self::compile).collect());
        assert!(!all.is_empty(), "no C compiler: install one of {COMPILERS:?} to check the C lookups");
        all
    }

    fn compile((compiler, machine): (&str, &[&str])) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let (source, object) = (dir.path().join("shim.c"), dir.path().join("shim.so"));
        std::fs::write(&source, SHIM).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datapath/include");
        let mut command = Command::new(compiler);
        command.args(FLAGS).args(machine).arg("-I").arg(include).arg("-o").args([&object, &source]);
        let run = command.output().ok()?;
        let compiler = format!("{compiler} {}", machine.join(" "));
        assert!(run.status.success(), "{compiler}: {}", String::from_utf8_lossy(&run.stderr));
        // SAFETY: the library was just made from SHIM, which has no constructors.
        let library = unsafe { Library::new(object) }.unwrap();
        Some(Datapath { compiler, library })
    }

    fn find4(&self, image: &Image, addr: u32) -> u32 {
        let name = match image.layout() {
            Layout::Dxr16x4 => c"shim_d16x4r",
            Layout::ExactSet => c"shim_exact_set",
            Layout::RankLeaf => c"shim_rank_leaf",
            Layout::Range6 | Layout::RankLeaf6 => panic!("an IPv6 layout"),
        };
        // SAFETY: SHIM defines both symbols with this type.
        let find: Symbol<'_, Find4> = unsafe { self.library.get(name) }.unwrap();
        // SAFETY: the image was checked, so that lookups stay inside its bytes.
        unsafe { find(image.as_bytes().as_ptr(), addr) }
    }

    fn find6(&self, image: &Image, addr: u128) -> u32 {
        let name = if image.layout() == Layout::RankLeaf6 { c"shim_rank_leaf6" } else { c"shim_range6" };
        // SAFETY: SHIM defines both symbols with this type.
        let find: Symbol<'_, Find6> = unsafe { self.library.get(name) }.unwrap();
        // SAFETY: the image was checked, so that lookups stay inside its bytes.
        unsafe { find(image.as_bytes().as_ptr(), (addr >> 64) as u64, addr as u64) }
    }

    /// Bursts of all lengths, if the layout has them.
    fn check_bursts4(&self, image: &Image, keys: &[u32]) {
        let name = match image.layout() {
            Layout::ExactSet => c"shim_exact_set_burst",
            Layout::RankLeaf => c"shim_rank_leaf_burst",
            _ => return,
        };
        // SAFETY: SHIM defines the symbols with this type.
        let find: Symbol<'_, FindBurst4> = unsafe { self.library.get(name) }.unwrap();
        let (view, mut rest, mut count) = (image.view(), keys, 0);
        while !rest.is_empty() {
            count = count % BURST_MAX + 1;
            let (burst, after) = rest.split_at(count.min(rest.len()));
            let mut labels = [u32::MAX; BURST_MAX];
            // SAFETY: the image was checked, and as many keys and labels are there.
            unsafe { find(image.as_bytes().as_ptr(), burst.as_ptr(), labels.as_mut_ptr(), burst.len() as u32) };
            let found = burst.iter().map(|&key| view.find4(key));
            assert!(found.eq(labels[..burst.len()].iter().copied()), "{}: {burst:x?}", self.compiler);
            assert!(labels[burst.len()..].iter().all(|&label| label == u32::MAX), "written beyond the burst");
            rest = after;
        }
    }

    /// Bursts of all lengths.
    fn check_bursts6(&self, image: &Image, keys: &[u128]) {
        // SAFETY: SHIM defines the symbol with this type.
        let find: Symbol<'_, FindBurst6> = unsafe { self.library.get(c"shim_rank_leaf6_burst") }.unwrap();
        let (view, mut rest, mut count) = (image.view(), keys, 0);
        while !rest.is_empty() {
            count = count % BURST_MAX + 1;
            let (burst, after) = rest.split_at(count.min(rest.len()));
            let mut labels = [u32::MAX; BURST_MAX];
            let hi: Vec<u64> = burst.iter().map(|key| (key >> 64) as u64).collect();
            let lo: Vec<u64> = burst.iter().map(|&key| key as u64).collect();
            let image = image.as_bytes().as_ptr();
            // SAFETY: the image was checked, and as many keys and labels are there.
            unsafe { find(image, hi.as_ptr(), lo.as_ptr(), labels.as_mut_ptr(), burst.len() as u32) };
            let found = burst.iter().map(|&key| view.find6(key));
            assert!(found.eq(labels[..burst.len()].iter().copied()), "{}: {burst:x?}", self.compiler);
            rest = after;
        }
    }

    fn check4(&self, image: &Image, keys: impl IntoIterator<Item = u32>) {
        let keys: Vec<u32> = keys.into_iter().collect();
        self.check_bursts4(image, &keys);
        let view = image.view();
        for key in keys {
            let (c, rust) = (self.find4(image, key), view.find4(key));
            assert_eq!(c, rust, "{} {} at {key:#010x}", self.compiler, image.layout().name());
        }
    }

    fn check6(&self, image: &Image, keys: impl IntoIterator<Item = u128>) {
        let keys: Vec<u128> = keys.into_iter().collect();
        if image.layout() == Layout::RankLeaf6 {
            self.check_bursts6(image, &keys);
        }
        let view = image.view();
        for key in keys {
            assert_eq!(self.find6(image, key), view.find6(key), "{} at {key:#034x}", self.compiler);
        }
    }
}

fn build(entries: Entries, layout: Layout) -> Image {
    entries.settle().build(layout).unwrap()
}

#[test]
fn prefixes_in_c_are_what_they_are_in_rust() {
    let mut list = comb4();
    list.extend(crowd4(50_000, 3));
    list.extend([(0x0a00_0000, 8, 2), (0xc000_0000, 3, 4), (0, 0, 5), (u32::MAX, 32, 1)]);
    for layout in [Layout::Dxr16x4, Layout::RankLeaf] {
        let image = build(table(Family::Ipv4, Kind::Labels, &list), layout);
        let empty = build(Entries::new(Family::Ipv4, Kind::Labels), layout);
        for datapath in Datapath::all() {
            datapath.check4(&image, edges4(&list));
            datapath.check4(&image, 0x0a00_f000..0x0a01_3000);
            datapath.check4(&empty, edges4(&list[..100]));
        }
    }
}

#[test]
fn rank_leaf_values_of_every_width_in_c() {
    for labels in [255, 256, 0xffff, 0x1_0000, (1 << 20) - 1] {
        let list: Vec<_> = (1..=labels).map(|index| (index << 12, 20, index)).collect();
        let image = build(table(Family::Ipv4, Kind::Labels, &list), Layout::RankLeaf);
        for datapath in Datapath::all() {
            datapath.check4(&image, edges4(&list[list.len() - 2000.min(list.len())..]));
        }
    }
}

#[test]
fn exact_sets_in_c_hold_what_rust_ones_hold() {
    let tail: Vec<_> = (0..100).map(|index| (0xfffe_0000 + index * 1000, 32, 1)).collect();
    for count in [0, 10_000, 150_000, 400_000, 1_000_000] {
        let mut list = crowd4(count, 11);
        list.truncate(count);
        list.extend(&tail);
        let image = build(table(Family::Ipv4, Kind::Set, &list), Layout::ExactSet);
        let sample: Vec<_> = list.iter().copied().step_by(1 + count / 20_000).chain(tail.iter().copied()).collect();
        for datapath in Datapath::all() {
            datapath.check4(&image, edges4(&sample));
        }
    }
}

#[test]
fn ipv6_prefixes_in_c_are_what_they_are_in_rust() {
    let list = crowd6();
    for layout in [Layout::Range6, Layout::RankLeaf6] {
        let image = build(table(Family::Ipv6, Kind::Labels, &list), layout);
        let empty = build(Entries::new(Family::Ipv6, Kind::Set), layout);
        for datapath in Datapath::all() {
            datapath.check6(&image, edges6(&list));
            datapath.check6(&empty, edges6(&list[..100]));
            // Both halves decide: starts that differ in the low one only, and keys around every carry.
            let hosts = 0x2001_0db8_0001u128 << 80;
            datapath.check6(&image, (0..4000).map(|index| hosts + index));
            datapath.check6(&image, [hosts | u128::from(u64::MAX), (hosts | u128::from(u64::MAX)) + 1]);
        }
    }
}

#[test]
fn mutated_images_that_are_accepted_answer_alike() {
    let images = [
        build(table(Family::Ipv4, Kind::Labels, &comb4()), Layout::Dxr16x4),
        build(table(Family::Ipv4, Kind::Set, &crowd4(3000, 5)), Layout::ExactSet),
        build(table(Family::Ipv6, Kind::Labels, &crowd6()), Layout::Range6),
        build(table(Family::Ipv4, Kind::Labels, &comb4()), Layout::RankLeaf),
        build(table(Family::Ipv6, Kind::Labels, &crowd6()), Layout::RankLeaf6),
    ];
    let datapaths = Datapath::all();
    let mut random = Random(99);
    let mut accepted = 0;
    for _ in 0..150 {
        let image = &images[random.below(images.len())];
        let mut bytes = image.as_bytes().to_vec();
        mutate(&mut bytes, &mut random);
        let Ok(image) = Image::from_bytes(&bytes) else { continue };
        accepted += 1;
        for datapath in datapaths {
            let keys = (0..500).map(|_| random.next());
            match image.layout() {
                Layout::Range6 | Layout::RankLeaf6 => {
                    datapath.check6(&image, keys.map(|key| 0x2001_0db8_0001 << 80 | u128::from(key % 4000)))
                }
                _ => datapath.check4(&image, keys.map(|key| 0x0a01_0000 | key as u32 & 0x2fff)),
            }
        }
        assert!(ImageView::new(image.as_bytes()).is_ok());
    }
    assert!(accepted > 20, "mutations that change labels and starts only are accepted: {accepted}");
}

#[test]
fn the_same_lookups_compile_for_bpf() {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("shim.c"), dir.path().join("shim.o"));
    std::fs::write(&source, SHIM).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datapath/include");
    let flags = ["-std=c11", "--target=bpf", "-mcpu=v3", "-O2", "-ffreestanding", "-Wall", "-Wextra", "-Werror", "-c"];
    let mut clang = Command::new("clang-19");
    clang.args(flags).args(["-DWEIR_COUNTERS=64", "-I"]).arg(include).arg("-o").args([&object, &source]);
    let run = clang.output().expect("clang-19 is installed: only it compiles for BPF");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
