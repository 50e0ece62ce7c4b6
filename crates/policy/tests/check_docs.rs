//! Every example of docs/reference/language.md is a policy without errors or warnings. Its printed form parses to the
//! same tree.

mod check_support;

use check_support::{front, root};
use weir_policy::diag::render::{Style, render};
use weir_policy::syntax::NoIncludes;

#[test]
fn examples_of_the_manual_are_right() {
    let manual =
        std::fs::read_to_string(root().join("docs/reference/language.md")).expect("docs/reference/language.md exists");
    let mut blocks = 0;
    let mut rest = manual.as_str();
    while let Some((_, after)) = rest.split_once("\n```weir") {
        let (block, after) = after.split_once("\n```\n").expect("a block ends");
        let (kind, text) = block.split_once('\n').expect("a block has lines");
        let policy = match kind {
            ",rules" => format!("upstream {{\n{text}\naccept\n}}\ndownstream {{ accept }}\n"),
            _ => text.to_owned(),
        };
        let (sources, _, checked) = front("language.md", &policy, &NoIncludes);
        let mut diagnostics = checked.map_or_else(|errors| errors, |checked| checked.warnings);
        // Fragments are wrapped with a verdict, which some of them already have.
        diagnostics.retain(|d| d.code != "W0402" || kind.is_empty());
        assert!(diagnostics.is_empty(), "{policy}\n{}", render(&diagnostics, &sources, Style::Plain));
        blocks += 1;
        rest = after;
    }
    assert!(blocks >= 12, "only {blocks} examples");
}
