//! Which lookups a burst takes on this machine: those with AVX-512, or those that compilers make of plain C.
//!
//! A bit of CPUID does not say which is faster. Gathers are slow where microcode protects the processor from *gather data
//! sampling*, and wide vectors are slow on others. So the first use in a process times both kernels of each kind, in
//! turns, on tables of its own. This takes about 25 ms. The answer stays the same until the process ends. Tests name
//! the answer in [`KERNELS_ENV`]: the same policy then compiles to the same code in every process.
//!
//! Code for this machine is compiled with the answer, and has no other kernels. It keeps them in a bundle. Code for
//! x86-64-v3 has both, and gets the answer when it is loaded. See `datapath/core/simd.h`.

use std::fmt::{self, Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use libloading::os::unix::Library;
use weir_abi::{BURST_MAX, Layout};
use weir_tables::{Entries, Image, Kind};

use crate::measure::Spread;
use crate::traffic::SplitMix;
use crate::tsc;

/// A kind of kernels: `enum simd_kind` in `datapath/core/simd.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelKind {
    /// What compilers make of plain C: parsing, and the comparisons of exact sets of IPv4.
    Plain = 1,
    /// They gather words of 32 bits: rank leaves and counted leaves of IPv4.
    Rank = 2,
    /// They also compress vectors: rank leaves of IPv6.
    Rank6 = 4,
    /// What compilers make of comparisons of whole lines: exact sets of IPv6.
    Sets6 = 8,
}

impl KernelKind {
    const ALL: [Self; 4] = [Self::Plain, Self::Rank, Self::Rank6, Self::Sets6];
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// What was timed.
    pub kind: KernelKind,
    /// TSC cycles a key of the kernel without AVX-512.
    pub plain_cycles: f64,
    /// TSC cycles a key of the kernel with AVX-512.
    pub avx512_cycles: f64,
}

/// The kinds whose AVX-512 kernels run: a bit for each [`KernelKind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernels(u32);

/// A kernel with AVX-512 is left only for one that takes less than this share of its cycles, so that a busy machine does
/// not change the answer.
const FASTER: f64 = 0.95;
/// Number of times that each kernel looks up all keys.
const ROUNDS: usize = 9;
/// Number of keys of a trial.
const KEYS: usize = 64 * BURST_MAX;
/// Prefixes of the table of a trial. Tables and keys fit the second-level cache.
const PREFIXES: usize = 12_000;

/// Environment variable with the kinds whose AVX-512 kernels run instead of the faster ones: a sum of [`KernelKind`]s.
/// A processor without AVX-512 ignores it, and any processor ignores another text. `weir check` shows what runs.
pub const KERNELS_ENV: &str = "WEIR_KERNELS";

impl Kernels {
    /// The faster kernels of this machine, or those that [`KERNELS_ENV`] names.
    pub fn of_this_machine() -> Self {
        let named = std::env::var(KERNELS_ENV).ok().and_then(|text| Self::named(&text));
        named.filter(|_| machine::has_avx512()).unwrap_or_else(|| Self::chosen(trials()))
    }

    fn named(text: &str) -> Option<Self> {
        let all = KernelKind::ALL.into_iter().fold(0, |bits, kind| bits | kind as u32);
        text.parse().ok().filter(|&sum| sum <= all).map(Kernels)
    }

    fn chosen(trials: &[Trial]) -> Self {
        let wins = |trial: &&Trial| trial.plain_cycles >= trial.avx512_cycles * FASTER;
        Kernels(trials.iter().filter(wins).fold(0, |bits, trial| bits | trial.kind as u32))
    }

    /// The flags that compile code for this machine with these kernels.
    pub fn flags(self) -> Vec<String> {
        let mut flags = vec![format!("-DWEIR_KERNELS={}", self.0)];
        if self.0 & KernelKind::Plain as u32 == 0 {
            // Kernels with AVX-512 have the attribute that allows it.
            flags.push("-mno-avx512f".to_owned());
        }
        flags
    }
}

/// Stores the choice in code that has both kernels. Other code has no place for it.
pub(crate) fn choose_in(library: &Library) {
    // SAFETY: only the address of the symbol is used here.
    let Ok(symbol) = (unsafe { library.get::<*mut u32>(b"weir_kernels") }) else { return };
    // SAFETY: code of every version defines `uint32_t weir_kernels`, and no burst has run yet.
    unsafe { symbol.into_raw().cast::<u32>().write(Kernels::of_this_machine().0) };
}

impl Display for Kernels {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let trials = trials();
        if trials.is_empty() {
            return write!(f, "without AVX-512, which this processor lacks");
        }
        let name = |kind| match kind {
            KernelKind::Plain => "sets and parsing",
            KernelKind::Rank => "IPv4 prefixes",
            KernelKind::Rank6 => "IPv6 prefixes",
            KernelKind::Sets6 => "IPv6 sets",
        };
        for (number, trial) in trials.iter().enumerate() {
            let with = if self.0 & trial.kind as u32 != 0 { "with" } else { "without" };
            let Trial { plain_cycles, avx512_cycles, .. } = trial;
            write!(f, "{}{} {with} AVX-512", if number > 0 { ", " } else { "" }, name(trial.kind))?;
            write!(f, " ({avx512_cycles:.1} cycles a key with, {plain_cycles:.1} without)")?;
        }
        Ok(())
    }
}

/// The trials on this machine. None without AVX-512, where there is no choice.
pub fn trials() -> &'static [Trial] {
    static TRIALS: OnceLock<Vec<Trial>> = OnceLock::new();
    TRIALS.get_or_init(machine::trials)
}

/// Addresses of a trial: networks of /16, and in them more and more specific prefixes.
fn addresses() -> impl Iterator<Item = (u32, u8)> {
    let mut random = SplitMix::new(42);
    (0..PREFIXES).map(move |_| {
        let network = (random.below(1 << 10) as u32 * 0x9e37) << 16;
        (network | random.below(1 << 16) as u32, 17 + random.below(8) as u8)
    })
}

/// The table of a kind.
fn image(kind: KernelKind) -> Image {
    let (family, layout) = match kind {
        KernelKind::Plain => (weir_abi::Family::Ipv4, Layout::ExactSet),
        KernelKind::Rank => (weir_abi::Family::Ipv4, Layout::RankLeaf),
        KernelKind::Rank6 => (weir_abi::Family::Ipv6, Layout::RankLeaf6),
        KernelKind::Sets6 => (weir_abi::Family::Ipv6, Layout::ExactSet6),
    };
    let is_set = matches!(kind, KernelKind::Plain | KernelKind::Sets6);
    let mut entries = Entries::new(family, if is_set { Kind::Set } else { Kind::Labels });
    for (number, (address, length)) in addresses().enumerate() {
        let label = (number % 200).to_string();
        let inserted = match kind {
            KernelKind::Plain => entries.insert_prefix(Ipv4Addr::from(address).into(), 32, None),
            KernelKind::Rank => {
                let address = address & u32::MAX << (32 - length);
                entries.insert_prefix(Ipv4Addr::from(address).into(), length, Some(&label))
            }
            KernelKind::Rank6 => {
                let address = (u128::from(key6(address)) << 64) & u128::MAX << (128 - 2 * u32::from(length));
                entries.insert_prefix(Ipv6Addr::from(address).into(), 2 * length, Some(&label))
            }
            KernelKind::Sets6 => {
                // Half of them are hosts.
                let (low, length) = if number % 2 == 0 { (key6(address), 128) } else { (0, 64) };
                let address = u128::from(key6(address)) << 64 | u128::from(low);
                entries.insert_prefix(Ipv6Addr::from(address).into(), length, None)
            }
        };
        inserted.expect("the prefix is valid");
    }
    entries.settle().build(layout).expect("the layout holds the table")
}

/// The upper half of an IPv6 address in 2000::/3 for an IPv4 address.
fn key6(address: u32) -> u64 {
    1 << 61 | u64::from(address) << 29 | u64::from(address.reverse_bits() >> 3)
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::*;

    /// `struct table` of `datapath/core/env.h`.
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct CTable {
        image: *const u8,
        mask: u32,
        base: u32,
    }

    // datapath/tables/trial.c
    unsafe extern "C" {
        fn weir_trial_exact(table: CTable, keys: *const u32, labels: *mut u32, count: u32);
        fn weir_trial_rank(table: CTable, keys: *const u32, labels: *mut u32, count: u32);
        fn weir_trial_rank6(table: CTable, hi: *const u64, lo: *const u64, labels: *mut u32, count: u32);
        fn weir_trial_exact6(table: CTable, hi: *const u64, lo: *const u64, labels: *mut u32, count: u32);
        #[link_name = "weir_kernels"]
        static mut WEIR_KERNELS: u32;
    }

    /// Whether this processor has what the kernels use.
    pub fn has_avx512() -> bool {
        let features = [
            is_x86_feature_detected!("avx512f"),
            is_x86_feature_detected!("avx512bw"),
            is_x86_feature_detected!("avx512vl"),
            is_x86_feature_detected!("avx512dq"),
            is_x86_feature_detected!("avx2"),
            is_x86_feature_detected!("bmi2"),
        ];
        !features.contains(&false)
    }

    /// Times all kinds.
    pub fn trials() -> Vec<Trial> {
        if !has_avx512() {
            return vec![];
        }
        let keys: Vec<u32> = addresses().map(|(address, _)| address).take(KEYS).collect();
        let wide: Vec<u64> = keys.iter().map(|&key| key6(key)).collect();
        KernelKind::ALL.map(|kind| trial(kind, &keys, &wide)).to_vec()
    }

    fn trial(kind: KernelKind, keys: &[u32], wide: &[u64]) -> Trial {
        let image = image(kind);
        let table = CTable { image: image.as_bytes().as_ptr(), mask: u32::MAX, base: 0 };
        let mut labels = [0_u32; BURST_MAX];
        let mut turn = |kernels: u32| {
            // SAFETY: nothing else uses this variable, and only one thread runs trials.
            unsafe { WEIR_KERNELS = kernels };
            let start = tsc::now();
            for (burst, wide) in keys.chunks_exact(BURST_MAX).zip(wide.chunks_exact(BURST_MAX)) {
                let (count, labels) = (BURST_MAX as u32, labels.as_mut_ptr());
                // SAFETY: keys and labels have `count` elements, and the image is valid and of the kind's layout.
                unsafe {
                    match kind {
                        KernelKind::Plain => weir_trial_exact(table, burst.as_ptr(), labels, count),
                        KernelKind::Rank => weir_trial_rank(table, burst.as_ptr(), labels, count),
                        KernelKind::Rank6 => {
                            weir_trial_rank6(table, wide.as_ptr(), wide.as_ptr(), labels, count);
                        }
                        KernelKind::Sets6 => {
                            weir_trial_exact6(table, wide.as_ptr(), wide.as_ptr(), labels, count);
                        }
                    }
                }
            }
            (tsc::now() - start) as f64 / keys.len() as f64
        };
        let (mut plain, mut avx512) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let (without, with) = (turn(0), turn(kind as u32));
            // The first round fills the caches.
            if round > 0 {
                plain.push(without);
                avx512.push(with);
            }
        }
        let median = |samples| Spread::of(samples).expect("there are rounds").median;
        Trial { kind, plain_cycles: median(plain), avx512_cycles: median(avx512) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod machine {
    use super::Trial;

    /// Other processors have no AVX-512.
    pub fn has_avx512() -> bool {
        false
    }

    /// Other processors have one kernel of each kind.
    pub fn trials() -> Vec<Trial> {
        vec![]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_with_avx512_is_left_only_for_a_clearly_faster_one() {
        let trial = |kind, plain_cycles, avx512_cycles| Trial { kind, plain_cycles, avx512_cycles };
        let of = |rank| Kernels::chosen(&[trial(KernelKind::Plain, 5.0, 4.0), trial(KernelKind::Rank, rank, 10.0)]);
        assert_eq!([20.0, 10.0, 9.6].map(of), [Kernels(3); 3]);
        assert_eq!([9.4, 1.0].map(of), [Kernels(1); 2]);
        assert_eq!(Kernels::chosen(&[]), Kernels(0));
        assert_eq!(Kernels(5).flags(), ["-DWEIR_KERNELS=5"]);
        assert_eq!(Kernels(2).flags(), ["-DWEIR_KERNELS=2", "-mno-avx512f"]);
    }

    #[test]
    fn a_name_is_a_sum_of_kinds() {
        assert_eq!(["0", "6", "15"].map(Kernels::named), [Some(Kernels(0)), Some(Kernels(6)), Some(Kernels(15))]);
        assert_eq!(["", "16", "-1", "all"].map(Kernels::named), [None; 4]);
    }

    #[test]
    fn the_answer_stays() {
        assert_eq!(Kernels::of_this_machine(), Kernels::of_this_machine());
        assert_eq!(Kernels::chosen(trials()), Kernels::chosen(trials()));
        let kinds: Vec<KernelKind> = trials().iter().map(|trial| trial.kind).collect();
        assert!(kinds.is_empty() || kinds == KernelKind::ALL);
        assert!(trials().iter().all(|trial| trial.plain_cycles > 0.0 && trial.avx512_cycles > 0.0));
    }
}
