//! No import cycles between the files of a crate.
//!
//! A file depends on another one if its code names an item that the other one defines, directly or through a re-export.
//! A parent's `mod x;` and `pub use x::Y` do not count as dependencies on its child. A child that names an item of its
//! parent depends on the parent. If code of the parent also names an item of the child, the two files are a cycle.
//!
//! Two files may be one idea. One of them says so in a line that names the other one: ``//! One idea with `x.rs`:
//! why``.

use crate::assert_none;
use crate::modules::Module;
use crate::tree::{File, files};
use std::collections::{BTreeMap, BTreeSet};

/// The start of the line that says that a file is one idea with others.
const ONE_IDEA: &str = "//! One idea with ";

/// The files of a crate by path, and its tree of modules.
struct Crate {
    root: String,
    files: BTreeMap<String, (File, Module)>,
}

/// The target of a path of names.
#[derive(Clone, Debug, PartialEq)]
enum Target {
    /// A file as a module.
    Module(String),
    /// An item that a file defines.
    Item(String),
}

/// Maximum number of re-exports on a path.
const REEXPORTS_MAX: usize = 16;

impl Crate {
    /// The crates of the repository, each with its root file.
    fn all() -> Vec<Self> {
        let sources: Vec<File> = files(&["rs"]).into_iter().filter(|file| file.path.contains("/src/")).collect();
        let is_root = |path: &str| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
        let roots = sources.iter().map(|file| file.path.clone()).filter(|path| is_root(path));
        let ours = roots.filter(|root| ["crates/", "lab/", "xtask/"].iter().any(|folder| root.starts_with(folder)));
        ours.map(|root| Self::new(root, &sources)).collect()
    }

    /// The files that are reachable from the root through `mod`, without test modules.
    fn new(root: String, sources: &[File]) -> Self {
        let mut all = Crate { root: root.clone(), files: BTreeMap::new() };
        let mut open = vec![root];
        while let Some(path) = open.pop() {
            let Some(file) = sources.iter().find(|file| file.path == path) else { continue };
            let module = Module::of(file);
            open.extend(module.children.iter().flat_map(|child| {
                let folder = folder_of(&path);
                [format!("{folder}/{child}.rs"), format!("{folder}/{child}/mod.rs")]
            }));
            all.files.insert(path.clone(), (File { path, text: file.text.clone() }, module));
        }
        all
    }

    fn module(&self, path: &str) -> &Module {
        &self.files[path].1
    }

    fn child(&self, parent: &str, name: &str) -> Option<String> {
        let folder = folder_of(parent);
        let places = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
        let is_declared = self.module(parent).children.contains(name);
        places.into_iter().find(|place| is_declared && self.files.contains_key(place))
    }

    fn parent(&self, path: &str) -> Option<String> {
        self.files.iter().find_map(|(parent, (_, module))| {
            let is_child = |name: &String| self.child(parent, name).as_deref() == Some(path);
            module.children.iter().any(is_child).then(|| parent.clone())
        })
    }

    /// The target of a path in a file, or `None` if it leads out of the crate or is unknown.
    fn resolve(&self, file: &str, path: &[String], reexports: usize) -> Option<Target> {
        let (mut at, mut rest, mut is_inside) = (file.to_owned(), path, false);
        while let [first, others @ ..] = rest {
            match first.as_str() {
                "crate" => at = self.root.clone(),
                "super" => at = self.parent(&at)?,
                "self" => {}
                _ => break,
            }
            (rest, is_inside) = (others, true);
        }
        loop {
            let [name, others @ ..] = rest else { return Some(Target::Module(at)) };
            if let Some(child) = self.child(&at, name) {
                (at, rest, is_inside) = (child, others, true);
                continue;
            }
            if self.module(&at).defines.contains(name) {
                return Some(Target::Item(at));
            }
            return match self.imported(&at, name, reexports) {
                Some(Target::Module(module)) => {
                    self.resolve(&module, &[&["self".to_owned()], others].concat(), reexports)
                }
                // The item comes from a macro or from an inline module.
                None if is_inside && at != file => Some(Target::Item(at)),
                found => found,
            };
        }
    }

    /// The target of a name that the `use` statements of a file import.
    fn imported(&self, file: &str, name: &str, reexports: usize) -> Option<Target> {
        let reexports = reexports.checked_sub(1)?;
        let imports = &self.module(file).imports;
        let by_name = imports.iter().find(|import| import.name == name);
        // `use parser::parser;` does not refer to itself.
        if let Some(import) = by_name.filter(|import| import.path.first().is_some_and(|first| first != name)) {
            return self.resolve(file, &import.path, reexports);
        }
        if let Some(import) = by_name {
            return self.child(file, name).and_then(|_| self.resolve(file, &import.path, reexports));
        }
        imports.iter().filter(|import| import.name == "*").find_map(|glob| {
            let Some(Target::Module(module)) = self.resolve(file, &glob.path, reexports) else { return None };
            if let Some(child) = self.child(&module, name) {
                return Some(Target::Module(child));
            }
            let is_own = self.module(&module).defines.contains(name);
            if is_own { Some(Target::Item(module)) } else { self.imported(&module, name, reexports) }
        })
    }

    /// The dependencies of each file, with the first line of each.
    fn dependencies(&self) -> BTreeMap<&str, BTreeMap<String, usize>> {
        let of = |path: &String| {
            let mut found = BTreeMap::new();
            let mut add = |target: Option<Target>, line: usize| {
                if let Some(Target::Item(to)) = target
                    && to != *path
                {
                    let first = found.entry(to).or_insert(line);
                    *first = line.min(*first);
                }
            };
            let module = self.module(path);
            for import in module.imports.iter().filter(|import| import.name != "*") {
                let target = self.resolve(path, &import.path, REEXPORTS_MAX);
                let is_below = |to: &str| to.starts_with(&format!("{}/", folder_of(path)));
                let shows = import.is_public && matches!(&target, Some(Target::Item(to)) if is_below(to));
                add(target.filter(|_| !shows), import.line);
            }
            for mention in module.mentions.iter().filter(|mention| mention.is_item) {
                add(self.resolve(path, &mention.path, REEXPORTS_MAX), mention.line);
            }
            found
        };
        self.files.keys().map(|path| (path.as_str(), of(path))).collect()
    }
}

/// The folder that contains the child modules of a file.
fn folder_of(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').expect("sources lie in folders");
    let is_folders_own = ["lib.rs", "main.rs", "mod.rs"].contains(&name);
    if is_folders_own { folder.to_owned() } else { path.trim_end_matches(".rs").to_owned() }
}

/// Pairs of files that are one idea, and errors for lines that name no file of the crate.
fn ideas(all: &Crate) -> (BTreeSet<(String, String)>, Vec<String>) {
    let (mut pairs, mut wrong) = (BTreeSet::new(), Vec::new());
    for (path, (file, _)) in &all.files {
        for (at, line) in file.text.lines().enumerate() {
            let Some(claim) = line.strip_prefix(ONE_IDEA) else { continue };
            let (names, why) = claim.split_once(": ").unwrap_or((claim, ""));
            for name in names.split('`').skip(1).step_by(2) {
                let folders = [folder_of(path), path.rsplit_once('/').expect("sources lie in folders").0.to_owned()];
                let place =
                    folders.iter().map(|folder| format!("{folder}/{name}")).find(|place| all.files.contains_key(place));
                match place.filter(|_| !why.is_empty()) {
                    Some(other) => pairs.extend([(path.clone(), other.clone()), (other, path.clone())]),
                    None => wrong.push(format!("{path}:{}: no file {name} beside or below it, or no reason", at + 1)),
                }
            }
        }
    }
    (pairs, wrong)
}

/// The files that are reachable from a file.
fn reached<'a>(graph: &'a BTreeMap<&str, BTreeMap<String, usize>>, from: &'a str) -> BTreeSet<&'a str> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(file) = open.pop() {
        let new = graph.get(file).into_iter().flat_map(BTreeMap::keys).filter(|to| seen.insert(to.as_str()));
        open.extend(new.map(String::as_str));
    }
    seen
}

/// Groups of files that all reach each other, with their dependencies inside the group.
fn cycles(graph: &BTreeMap<&str, BTreeMap<String, usize>>) -> Vec<(Vec<String>, Vec<String>)> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|file| (*file, reached(graph, file))).collect();
    let mut found = BTreeMap::new();
    for (file, to) in &reach {
        let mut group: Vec<String> =
            to.iter().filter(|other| reach[*other].contains(file)).map(|other| (*other).to_owned()).collect();
        group.sort();
        if group.len() > 1 {
            let inside = |from: &String| {
                let edges = graph[from.as_str()].iter().filter(|(to, _)| group.contains(to));
                edges.map(|(to, line)| format!("    {from}:{line} uses {to}")).collect::<Vec<_>>()
            };
            let edges = group.iter().flat_map(inside).collect();
            found.insert(group.clone(), edges);
        }
    }
    found.into_iter().collect()
}

#[test]
fn no_file_depends_on_itself_through_others() {
    let (mut found, mut offences) = (Vec::new(), Vec::new());
    for all in Crate::all() {
        let mut graph = all.dependencies();
        let (pairs, wrong) = ideas(&all);
        offences.extend(wrong);
        for (one, other) in &pairs {
            let removed = graph.get_mut(one.as_str()).and_then(|edges| edges.remove(other));
            if removed.is_none() && !graph[other.as_str()].contains_key(one) {
                offences.push(format!("{one} and {other} do not depend on each other: they need no excuse"));
            }
        }
        found.extend(cycles(&graph));
    }
    offences.extend(found.iter().map(|(group, edges)| format!("{}:\n{}", group.join(", "), edges.join("\n"))));
    assert_none(offences, "files do not depend on each other in a circle");
}
