//! The layouts that are compared, and the C that calls their lookups.

use crate::scale::Scale;
use crate::tables::chosen;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;
use weir_abi::{BURST_MAX, Family, Layout};
use weir_command::failure::Failure;
use weir_engine::clang::{Clang, Extras};
use weir_engine::cpu::Cpu;
use weir_instruments::lookup::{Bytes, Code, Lookup4, Lookup6};
use weir_schemes::{HEADERS, Scheme, SchemeImage};
use weir_tables::{Image, Table};

use crate::data::keys::Keys;

/// A layout with a stable name.
#[derive(Debug)]
pub struct Contender {
    /// Its name in rows.
    pub name: &'static str,
    /// Address family of its tables.
    pub family: Family,
    /// The builder of its tables.
    pub builder: Builder,
    /// Its lookups, the best one last.
    pub ways: &'static [Way],
}

/// The builder of a contender's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builder {
    /// A layout of Weir.
    Layout(Layout),
    /// A scheme that Weir is compared with.
    Scheme(Scheme),
    /// The layout that the policy compiler chooses.
    Chosen,
    /// DPDK, if installed.
    RteFib,
}

/// A lookup function in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// `single`: a function of one key, called in a loop. `burst`: a function of a whole burst.
    pub mode: &'static str,
    header: &'static str,
    function: &'static str,
}

impl Way {
    const fn single(header: &'static str, function: &'static str) -> Self {
        Way { mode: "single", header, function }
    }

    const fn burst(header: &'static str, function: &'static str) -> Self {
        Way { mode: "burst", header, function }
    }

    const fn of(scheme: Scheme) -> Self {
        let (function, header) = scheme.c_lookup();
        Way::single(header, function)
    }

    fn symbol(&self) -> String {
        format!("bench_{}_{}", self.function, self.mode)
    }
}

/// All contenders. A new layout needs a line here.
#[rustfmt::skip]
pub const CONTENDERS: &[Contender] = &[
    scheme(Scheme::D20R, &[Way::of(Scheme::D20R)]),
    scheme(Scheme::D16X2R, &[Way::of(Scheme::D16X2R)]),
    scheme(Scheme::D16X4R, &[Way::of(Scheme::D16X4R)]),
    scheme(Scheme::Poptrie18, &[Way::of(Scheme::Poptrie18)]),
    scheme(Scheme::SailL, &[Way::of(Scheme::SailL)]),
    scheme(Scheme::Dir24_8, &[Way::of(Scheme::Dir24_8)]),
    scheme(Scheme::Radix, &[Way::of(Scheme::Radix)]),
    layout(Layout::ExactSet, Family::Ipv4, &[Way::single("tables/exact_set.h", "exact_set_find"), Way::burst("tables/exact_set.h", "exact_set_find_burst")]),
    layout(Layout::ExactSets, Family::Ipv4, &[Way::single("tables/exact_sets.h", "exact_sets_find"), Way::burst("tables/exact_sets.h", "exact_sets_find_burst")]),
    layout(Layout::RankLeaf, Family::Ipv4, &[Way::single("tables/rank_leaf.h", "rank_leaf_find"), Way::burst("tables/rank_leaf_burst.h", "rank_leaf_find_burst")]),
    layout(Layout::CountedLeaf, Family::Ipv4, &[Way::single("tables/counted_leaf.h", "counted_leaf_find"), Way::burst("tables/counted_leaf.h", "counted_leaf_find_burst")]),
    layout(Layout::Range6, Family::Ipv6, &[Way::single("tables/range6.h", "range6_find")]),
    layout(Layout::RankLeaf6, Family::Ipv6, &[Way::single("tables/rank_leaf.h", "rank_leaf6_find"), Way::burst("tables/rank_leaf_burst.h", "rank_leaf6_find_burst")]),
    layout(Layout::ExactSet6, Family::Ipv6, &[Way::single("tables/exact_set6.h", "exact_set6_find"), Way::burst("tables/exact_set6.h", "exact_set6_find_burst")]),
    layout(Layout::ExactSets6, Family::Ipv6, &[Way::single("tables/exact_sets6.h", "exact_sets6_find"), Way::burst("tables/exact_sets6.h", "exact_sets6_find_burst")]),
    layout(Layout::ExactLeaf, Family::Ipv4, &[Way::single("tables/exact_leaf.h", "exact_leaf_find"), Way::burst("tables/exact_leaf.h", "exact_leaf_find_burst")]),
    layout(Layout::ExactLeaf6, Family::Ipv6, &[Way::single("tables/exact_leaf.h", "exact_leaf6_find"), Way::burst("tables/exact_leaf.h", "exact_leaf6_find_burst")]),
    Contender { name: "rte-fib", family: Family::Ipv4, builder: Builder::RteFib, ways: &[] },
    Contender { name: "chosen", family: Family::Ipv4, builder: Builder::Chosen, ways: &[] },
    Contender { name: "chosen", family: Family::Ipv6, builder: Builder::Chosen, ways: &[] },
];

const fn scheme(scheme: Scheme, ways: &'static [Way]) -> Contender {
    Contender { name: scheme.name(), family: Family::Ipv4, builder: Builder::Scheme(scheme), ways }
}

const fn layout(layout: Layout, family: Family, ways: &'static [Way]) -> Contender {
    Contender { name: layout.name(), family, builder: Builder::Layout(layout), ways }
}

/// The best lookup of a layout. A scheme of the same name has the same tables.
pub fn best_way(layout: Layout) -> &'static Way {
    let contender = CONTENDERS.iter().find(|contender| contender.name == layout.name());
    contender.and_then(|contender| contender.ways.last()).expect("all our layouts are contenders")
}

/// A table in a layout.
#[derive(Debug)]
pub enum Built {
    /// In a layout of Weir.
    Image(Image),
    /// In a scheme that Weir is compared with.
    Scheme(SchemeImage),
}

impl Built {
    /// The memory that lookups search.
    pub fn bytes(&self) -> Bytes<'_> {
        match self {
            Built::Image(image) => Bytes::Image(image),
            Built::Scheme(image) => Bytes::Scheme(image),
        }
    }

    /// Size of all sections in bytes, without the image's header: M in the paper's Table 1.
    pub fn size(&self) -> usize {
        match self {
            Built::Image(image) => image.sections().iter().skip(1).map(|&(_, bytes)| bytes).sum(),
            Built::Scheme(image) => image.sections().iter().map(|&(_, bytes)| bytes).sum(),
        }
    }
}

impl Contender {
    /// The layout to build and its lookups. The contender names them, or the policy compiler chooses them for the
    /// table.
    pub fn resolve(&self, table: &Table, scale: Scale) -> Result<(Builder, Vec<Way>), Failure> {
        match self.builder {
            Builder::Chosen => {
                let layout = chosen::images(&[table], chosen::model(scale))?[0].layout;
                Ok((Builder::Layout(layout), vec![*best_way(layout)]))
            }
            builder => Ok((builder, self.ways.to_vec())),
        }
    }
}

impl Builder {
    /// Builds the table.
    ///
    /// # Errors
    /// The layout cannot contain the table. The text gives the reason.
    pub fn build(self, table: &Table) -> Result<Built, String> {
        match self {
            Builder::Layout(layout) => table.build(layout).map(Built::Image).map_err(|error| error.to_string()),
            Builder::Scheme(scheme) => scheme.build(table).map(Built::Scheme).map_err(|error| error.to_string()),
            Builder::Chosen | Builder::RteFib => unreachable!("compiler bug: not built here"),
        }
    }

    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Builder::Layout(layout) => layout.name(),
            Builder::Scheme(scheme) => scheme.name(),
            Builder::Chosen => "chosen",
            Builder::RteFib => "rte-fib",
        }
    }
}

/// A compiled lookup.
#[derive(Debug)]
pub enum Find {
    /// For IPv4 keys.
    V4(Lookup4),
    /// For IPv6 keys.
    V6(Lookup6),
}

impl Find {
    /// Looks up all keys and writes their labels.
    ///
    /// # Panics
    /// If the keys are of the other family.
    pub fn run(&self, bytes: Bytes<'_>, keys: &Keys, labels: &mut [u32]) {
        match (self, keys) {
            (Find::V4(find), Keys::V4(keys)) => find.run(bytes, keys, labels),
            (Find::V6(find), Keys::V6 { hi, lo }) => find.run(bytes, hi, lo, labels),
            _ => panic!("compiler bug: keys of the other family"),
        }
    }

    /// Looks up one burst of keys.
    ///
    /// # Panics
    /// If the keys are of the other family, or there are more of them than in a burst.
    #[inline]
    pub fn burst(&self, bytes: Bytes<'_>, keys: &Keys, burst: Range<usize>, labels: &mut [u32]) {
        match (self, keys) {
            (Find::V4(find), Keys::V4(keys)) => find.burst(bytes, &keys[burst], labels),
            (Find::V6(find), Keys::V6 { hi, lo }) => {
                let count = burst.len();
                find.run(bytes, &hi[burst.clone()], &lo[burst], &mut labels[..count]);
            }
            _ => panic!("compiler bug: keys of the other family"),
        }
    }

    /// Looks up all keys in bursts and keeps only the labels of the last burst, because a filter uses labels only once.
    ///
    /// # Panics
    /// If the keys are of the other family.
    pub fn run_bursts(&self, bytes: Bytes<'_>, keys: &Keys, labels: &mut [u32; BURST_MAX]) {
        for from in (0..keys.len()).step_by(BURST_MAX) {
            self.burst(bytes, keys, from..keys.len().min(from + BURST_MAX), labels);
        }
    }
}

/// The lookups of all layouts, compiled in the same way as policies.
pub struct Lookups {
    /// For this machine.
    native: Arc<Code>,
    /// For a machine that has no AVX-512. `None` if this machine has none either.
    narrow: Option<Arc<Code>>,
}

/// What the mode of a lookup without AVX-512 ends with.
pub const NARROW: &str = ", AVX2";

impl Lookups {
    /// Compiles all lookups.
    ///
    /// # Errors
    /// There is no clang.
    pub fn compile() -> Result<Self, Failure> {
        let clang = Clang::find()?;
        let compile = |cpu, flags: &[String]| -> Result<Arc<Code>, Failure> {
            let object = clang.native_with("tables", &source(), cpu, Extras { headers: &HEADERS, flags })?.object;
            Ok(Code::load("tables", &object)?)
        };
        let is_wide = std::arch::is_x86_feature_detected!("avx512bw");
        let narrow = is_wide.then(|| compile(Cpu::X86_64V3, &["-DWEIR_KERNELS=0".to_owned()])).transpose()?;
        Ok(Lookups { native: compile(Cpu::Native, &[])?, narrow })
    }

    /// The compiled lookup.
    ///
    /// # Errors
    /// There is no such function.
    pub fn find(&self, way: &Way, family: Family) -> Result<Find, Failure> {
        find(&self.native, way, family)
    }

    /// The lookup with the name of its mode; a burst also without AVX-512.
    ///
    /// # Errors
    /// There is no such function.
    pub fn modes(&self, way: &Way, family: Family) -> Result<Vec<(String, Find)>, Failure> {
        let mut modes = vec![(way.mode.to_owned(), self.find(way, family)?)];
        if let Some(narrow) = self.narrow.as_ref().filter(|_| way.mode == "burst") {
            modes.push((format!("{}{NARROW}", way.mode), find(narrow, way, family)?));
        }
        Ok(modes)
    }
}

fn find(code: &Arc<Code>, way: &Way, family: Family) -> Result<Find, Failure> {
    Ok(match family {
        Family::Ipv4 => Find::V4(code.lookup4(&way.symbol())?),
        Family::Ipv6 => Find::V6(code.lookup6(&way.symbol())?),
    })
}

/// The C of all lookups, as functions of the same type.
fn source() -> String {
    let mut c = String::new();
    for contender in CONTENDERS {
        let (parameters, arguments) = match contender.family {
            Family::Ipv4 => ("const uint32_t *keys", "keys"),
            Family::Ipv6 => ("const uint64_t *hi, const uint64_t *lo", "hi, lo"),
        };
        for way in contender.ways {
            let Way { header, function, .. } = way;
            let head =
                format!("void {}(struct table table, {parameters}, uint32_t *labels, uint32_t count)", way.symbol());
            let body = match way.mode {
                "burst" => format!("\t{function}(table, {arguments}, labels, count);\n"),
                _ => {
                    let one: Vec<String> = arguments.split(", ").map(|argument| format!("{argument}[i]")).collect();
                    let one = one.join(", ");
                    format!("\tfor (uint32_t i = 0; i < count; i++)\n\t\tlabels[i] = {function}(table, {one});\n")
                }
            };
            let _ = writeln!(c, "#include \"{header}\"\n\n{head};\n{head}\n{{\n{body}}}\n");
        }
    }
    c
}
