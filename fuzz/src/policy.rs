//! Fuzz targets for policies and their intermediate representation.

use weir_abi::Layout;
use weir_abi::Target;
use weir_policy::backend::emit;
use weir_policy::capability::{Engine, unsupported};
use weir_policy::catalog::{Catalog, Family, ImageFacts, LimitsFacts, PrefixCounts, TableFacts};
use weir_policy::diag::render::{Style, render};
use weir_policy::pass::choose_layouts::CostModel;
use weir_policy::source::{Source, SourceMap};
use weir_policy::{ir, pipeline};

/// A file that policies can include.
const INCLUDED: &str = "define web = { 80, 443 }\ntable more { type ipv4; elements = { 192.0.2.1 } }\n";

/// One set of facts for every table and list that a policy names.
struct AnyTable(TableFacts, LimitsFacts);

impl Catalog for AnyTable {
    fn table(&self, _: &str) -> Option<&TableFacts> {
        Some(&self.0)
    }

    fn limits(&self, _: &str) -> Option<&LimitsFacts> {
        Some(&self.1)
    }

    fn image(&self, _: &[&str], layout: Layout) -> Option<ImageFacts> {
        Some(ImageFacts { layout, bytes: 1 << 20, words: 4.0, lines: 4.0 })
    }

    fn limits_image(&self, _: &str, _: Family, layout: Layout) -> Option<ImageFacts> {
        Some(ImageFacts { layout, bytes: 1 << 20, words: 4.0, lines: 4.0 })
    }
}

/// Compiles the text of a policy to C. Diagnostics must render. A policy without errors must compile, and its IR must
/// print and parse back to itself.
pub(crate) fn policy_parser(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let includes = |path: &str| match path {
        "missing" => Err("no such file".to_owned()),
        _ => Ok(INCLUDED.to_owned()),
    };
    let main = Source::new("fuzz.weir", text);
    let (sources, parsed) = pipeline::parse(main, &includes);
    let labels = ["HR", "SI", "AT"].map(str::to_owned).to_vec();
    let counts = PrefixCounts { entries: 3, by_length: vec![0, 0, 0, 0, 0, 0, 0, 0, 3] };
    let limits = LimitsFacts { v4: counts.clone(), v6: counts.clone(), labels: 1, rates: 3 };
    let catalog = AnyTable(TableFacts { entries: 3, by_length: counts.by_length, labels }, limits);
    match pipeline::check(&parsed, &sources, &catalog) {
        Ok(policy) => {
            let _ = render(&policy.warnings, &sources, Style::Plain);
            compile(&pipeline::lower(&policy, &sources, &catalog, &CostModel::default()), &sources);
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "a refusal says why");
            assert!(!render(&mistakes, &sources, Style::Plain).is_empty(), "mistakes can be shown");
        }
    }
}

fn compile(lowered: &ir::lower::Lowered, sources: &SourceMap) {
    let program = &lowered.program;
    ir::verify::verify(program).expect("lowering keeps the invariants");
    let printed = program.to_string();
    assert_eq!(ir::parse::parse(&printed).as_ref(), Ok(program), "{printed}");
    let refused = pipeline::unsupported(lowered, &Engine::ALL);
    if refused.is_empty() {
        let _ = Target::ALL.map(|target| pipeline::emit(lowered, target));
    } else {
        let _ = render(&refused, sources, Style::Coloured);
    }
}

/// The parser of printed IR: parsed IR prints and parses back to itself, and every backend accepts it.
pub(crate) fn ir_parser(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(program) = ir::parse::parse(text) else { return };
    let printed = program.to_string();
    assert_eq!(ir::parse::parse(&printed).as_ref(), Ok(&program), "{printed}");
    if unsupported(&program, &Engine::ALL).is_empty() {
        let _ = Target::ALL.map(|target| emit(&program, target));
    }
}
