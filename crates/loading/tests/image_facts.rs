//! The sizes of images that the compiler expects match those that are loaded.

use std::fmt::Write;
use std::fs;
use weir_loading::load;
use weir_policy::pass::choose_layouts::Reason;

/// Layout, expected size and loaded size in bytes of each image of a policy.
fn expected_and_loaded(policy: &str, lists: &[(&str, String)]) -> Vec<(String, usize, usize)> {
    let directory = tempfile::tempdir().expect("a folder");
    lists
        .iter()
        .for_each(|(name, text)| fs::write(directory.path().join(name), text).expect("the folder can be written to"));
    let path = directory.path().join("test.weir");
    fs::write(&path, policy).expect("the folder can be written to");
    let policy = load(&path).expect("it is right");
    let images = policy.bind(None).expect("its images can be built").images;
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
    let networks = |count: u128, len: u8| {
        (0..count).fold(String::new(), |mut text, index| {
            let _ = writeln!(text, "{}/{len}", std::net::Ipv6Addr::from(0x2001_0db8 << 96 | index << 64));
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
        table six { type ipv6; file \"six.txt\" }\ntable sixes { type ipv6; file \"sixes.txt\" }\n\
        table nets { type ipv6; elements = { 2001:db8::/32, 2a00::/24 } }\n\
        limits alike { file \"alike.csv\" }\nlimits many { file \"many.csv\" }\n\
        upstream {\n  ip saddr @one drop\n  ip saddr @two drop\n  ip6 saddr @nets drop\n  ip6 saddr @six drop\n  ip6 saddr @sixes drop\n\
        \x20 ip saddr limit @alike\n  ip daddr limit @many\n  accept\n}\ndownstream { accept }\n";
    let lists = [
        ("one.txt", addresses(90_000, 0x9e37_79b1)),
        ("two.txt", addresses(30_000, 0x0101_0107)),
        ("six.txt", networks(30_000, 64)),
        ("sixes.txt", networks(20_000, 128)),
        ("alike.csv", limits(1)),
        ("many.csv", limits(7)),
    ];
    let found = expected_and_loaded(policy, &lists);
    assert_eq!(found.len(), 5, "{found:?}");
    for (layout, expected, loaded) in &found {
        let ratio = *expected as f64 / *loaded as f64;
        assert!((0.9..=1.1).contains(&ratio), "{layout}: {expected} expected, {loaded} loaded");
    }
    for fused in ["exact-sets", "exact-sets6"] {
        assert!(found.iter().any(|(layout, ..)| layout == fused), "{found:?}");
    }
}
