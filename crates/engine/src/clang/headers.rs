//! The headers of the datapath, which are part of this program.
//!
//! A compilation gets only the headers that its source includes, directly or through others: less than half of them.
//! Creating and removing all of them would take as long as parsing those that are used.

mod all {
    include!(concat!(env!("OUT_DIR"), "/headers.rs"));
}

/// The path in `#include`, and the text.
type Header = (&'static str, &'static str);

/// What precedes the path of a header of the datapath.
const INCLUDE: &str = "#include \"";

/// The headers that `source` or one of `others` includes, directly or through other headers. A condition around an
/// `#include` is not evaluated, so there may be headers that the compiler does not read.
pub(super) fn of(source: &str, others: &[(&str, &str)]) -> Vec<Header> {
    let mut found: Vec<Header> = Vec::new();
    let mut texts: Vec<&str> = others.iter().map(|(_, text)| *text).chain([source]).collect();
    while let Some(text) = texts.pop() {
        for header in included(text) {
            if found.iter().all(|(name, _)| *name != header.0) {
                found.push(header);
                texts.push(header.1);
            }
        }
    }
    found
}

/// The headers that a text includes itself.
fn included(text: &str) -> impl Iterator<Item = Header> + '_ {
    let paths = text.lines().filter_map(|line| line.trim_start().strip_prefix(INCLUDE)?.split('"').next());
    // All headers of the datapath lie in one folder. Others may name it from a folder below it.
    let names = paths.filter_map(|path| path.rsplit('/').next());
    names.filter_map(|name| all::HEADERS.iter().find(|(header, _)| *header == name).copied())
}

#[cfg(test)]
mod tests {
    use super::{all, of};

    fn names(source: &str, others: &[(&str, &str)]) -> Vec<&'static str> {
        let mut names: Vec<&str> = of(source, others).iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn headers_are_found_through_headers_and_each_is_there_once() {
        let env = ["env.h", "env_bpf.h", "env_native.h"];
        assert_eq!(names("#include <stdint.h>\n\t#include \"env.h\"\n#include \"env.h\"\n", &[]), env);
        assert_eq!(names("#include \"scheme/a.h\"\n", &[("scheme/a.h", "#include \"../env.h\"\n")]), env);
        assert!(names("int a; /* env.h */\n", &[]).is_empty());
        let hook = names("#include \"hook.h\"\n", &[]);
        assert!(hook.contains(&"packet.h") && hook.len() < all::HEADERS.len(), "{hook:?}");
    }
}
