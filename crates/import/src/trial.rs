//! Has the compiler check text: a match before it becomes a part of a policy, and the whole policy at the end.

use std::collections::HashMap;
use weir_abi::{Family, Layout};
use weir_policy::catalog::{Catalog, ImageFacts, LimitsFacts, TableFacts};
use weir_policy::diag::Severity;
use weir_policy::diag::render::{Style, render};
use weir_policy::pipeline;
use weir_policy::source::Source;
use weir_policy::syntax::NoIncludes;

/// Tables and lists whose content does not matter.
struct AnyContent(TableFacts, LimitsFacts);

impl Catalog for AnyContent {
    fn table(&self, _: &str) -> Option<&TableFacts> {
        Some(&self.0)
    }

    fn limits(&self, _: &str) -> Option<&LimitsFacts> {
        Some(&self.1)
    }

    fn image(&self, _: &[&str], layout: Layout) -> Option<ImageFacts> {
        Some(ImageFacts { layout, bytes: 1 << 20, words: 1.0, lines: 1.0 })
    }

    fn limits_image(&self, _: &str, _: Family, layout: Layout) -> Option<ImageFacts> {
        Some(ImageFacts { layout, bytes: 1 << 20, words: 1.0, lines: 1.0 })
    }
}

/// The errors of a policy, rendered. `None` if there are none.
pub fn errors(policy: &str) -> Option<String> {
    let (sources, parsed) = pipeline::parse(Source::new("imported.weir", policy), &NoIncludes);
    let catalog = AnyContent(TableFacts::default(), LimitsFacts::default());
    let mistakes = pipeline::check(&parsed, &sources, &catalog).err()?;
    Some(render(&mistakes, &sources, Style::Plain))
}

/// Checks matches and statements. Remembers them, because rulesets repeat them.
#[derive(Default)]
pub struct Trial {
    /// Declarations of tables without their entries.
    pub tables: String,
    known: HashMap<String, Option<String>>,
}

impl Trial {
    /// Why the compiler refuses the text of a rule. `None` if it takes it.
    pub fn refuses(&mut self, rule: &str) -> Option<String> {
        if let Some(known) = self.known.get(rule) {
            return known.clone();
        }
        let text = format!("{}\nupstream {{ {rule} }}\ndownstream {{ accept }}\n", self.tables);
        let (sources, parsed) = pipeline::parse(Source::new("rule", text), &NoIncludes);
        let catalog = AnyContent(TableFacts::default(), LimitsFacts::default());
        let refused = pipeline::check(&parsed, &sources, &catalog).err().map(|mistakes| {
            let error = mistakes.iter().find(|mistake| mistake.severity == Severity::Error).unwrap_or(&mistakes[0]);
            match &error.help {
                Some(help) => format!("{}; {help}", error.message),
                None => error.message.clone(),
            }
        });
        self.known.insert(rule.to_owned(), refused.clone());
        refused
    }
}
