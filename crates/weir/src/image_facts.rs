//! What the policy compiler is told of images before it chooses among them: those that the layouts would make are built, looked at, and let go.
//!
//! A build takes milliseconds for a hundred thousand prefixes, and a tenth of a second for three million. In return nothing is estimated: bytes are
//! those that are loaded, and a layout that cannot hold a table is not chosen.

use weir_abi::{Family, Layout};
use weir_policy::catalog::ImageFacts;
use weir_tables::{BuildError, Image, LimitTable, Reads, Table};

/// Facts of images of one table or list, of each layout that holds it.
pub type Images = Vec<ImageFacts>;

/// Of a table in every layout that holds it alone.
pub fn of_table(table: &Table) -> Images {
    let layouts =
        Layout::ALL.into_iter().filter(|&layout| layout != Layout::ExactSets && layout != Layout::CountedLeaf);
    layouts.filter_map(|layout| facts(table.build(layout), layout, |image| table.reads(image))).collect()
}

/// Of sets of addresses that share an image.
pub fn of_sets(tables: &[&Table]) -> Option<ImageFacts> {
    facts(weir_tables::exact_sets(tables), Layout::ExactSets, |image| {
        tables.first().map(|table| table.reads(image)).unwrap_or_default()
    })
}

/// Of the prefixes of a list of limits, in every layout that holds them.
pub fn of_limits(table: &LimitTable, family: Family) -> Images {
    let layouts = Layout::ALL.into_iter().filter(|_| table.len(family) > 0);
    layouts
        .filter_map(|layout| facts(table.build_new(family, layout), layout, |image| table.reads(family, image)))
        .collect()
}

fn facts(built: Result<Image, BuildError>, layout: Layout, reads: impl FnOnce(&Image) -> Reads) -> Option<ImageFacts> {
    let image = built.ok()?;
    let Reads { words, lines } = reads(&image);
    // Counted leaves may be an image of rank leaves: what is asked for has the name.
    Some(ImageFacts { layout, bytes: image.as_bytes().len(), words, lines })
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use std::fmt::Write;
    use std::fs;
    use weir_policy::pass::choose_layouts::{CostModel, Reason};

    /// Bytes that the compiler expected of each image of a policy, and those that are loaded.
    fn expected_and_loaded(policy: &str, lists: &[(&str, String)]) -> Vec<(String, usize, usize)> {
        let directory = tempfile::tempdir().unwrap();
        lists.iter().for_each(|(name, text)| fs::write(directory.path().join(name), text).unwrap());
        let path = directory.path().join("test.weir");
        fs::write(&path, policy).unwrap();
        let policy = Policy::from_text(&path, &CostModel::default()).ok().and_then(Result::ok).expect("it is right");
        let images = policy.data(None).expect("its images can be built").images;
        let plan = &policy.text().expect("it is text").lowered.plan;
        let expected = plan.images.iter().map(|planned| match &planned.reason {
            Reason::Cheapest(estimates) | Reason::Forced(estimates) => {
                let chosen = estimates.iter().find(|estimate| estimate.layout == planned.layout);
                chosen.map_or(0, |estimate| estimate.bytes)
            }
            Reason::Fused { together, .. } => together.bytes,
        });
        let layouts = plan.images.iter().map(|planned| planned.layout.name().to_owned());
        layouts.zip(expected).zip(images).map(|((name, bytes), image)| (name, bytes, image.as_bytes().len())).collect()
    }

    #[test]
    fn images_of_a_policy_are_as_large_as_was_expected() {
        let addresses = |count: u32, step: u32| {
            (0..count).fold(String::new(), |mut text, index| {
                let _ = writeln!(text, "{}", std::net::Ipv4Addr::from(index.wrapping_mul(step)));
                text
            })
        };
        let limits = |rates: u32| {
            (0..40_000u32).fold(String::new(), |mut text, index| {
                let _ = writeln!(text, "{}/24,{}", std::net::Ipv4Addr::from(index << 8), 10 + index % rates);
                text
            })
        };
        let policy = "table one { type ipv4; file \"one.txt\" }\ntable two { type ipv4; file \"two.txt\" }\n\
            table nets { type ipv6; elements = { 2001:db8::/32, 2a00::/24 } }\n\
            limits alike { file \"alike.csv\" }\nlimits many { file \"many.csv\" }\n\
            upstream {\n  ip saddr @one drop\n  ip saddr @two drop\n  ip6 saddr @nets drop\n\
            \x20 ip saddr limit @alike\n  ip daddr limit @many\n  accept\n}\ndownstream { accept }\n";
        let lists = [
            ("one.txt", addresses(90_000, 0x9e37_79b1)),
            ("two.txt", addresses(30_000, 0x0101_0107)),
            ("alike.csv", limits(1)),
            ("many.csv", limits(7)),
        ];
        let found = expected_and_loaded(policy, &lists);
        assert_eq!(found.len(), 4, "{found:?}");
        for (layout, expected, loaded) in &found {
            let ratio = *expected as f64 / *loaded as f64;
            assert!((0.9..=1.1).contains(&ratio), "{layout}: {expected} expected, {loaded} loaded");
        }
        assert!(found.iter().any(|(layout, ..)| layout == "exact-sets"), "{found:?}");
    }
}
