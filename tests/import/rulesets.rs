//! The rulesets of `tests/import`, as the importer and as the kernel read them.

use std::path::{Path, PathBuf};
use weir_import::finding::Kind;
use weir_import::{Import, Options, Source};
use weir_loading::{LoadError, Policy, PolicyFile};
use weir_policy::diag::render::{Style, render};
use weir_policy::pass::choose_layouts::CostModel;

/// What a ruleset was written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Nft,
    Iptables,
    Ipset,
    Fastnetmon,
    Crowdsec,
}

/// A folder of `tests/import`.
pub struct Ruleset {
    pub name: String,
    pub folder: PathBuf,
    pub format: Format,
    options: Options,
    sources: Vec<Source>,
}

/// Files that are not sources.
const RESULTS: [&str; 4] = ["imported.weir", "report.txt", "lists.txt", "options"];

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All rulesets. The name of a folder begins with its format.
pub fn rulesets() -> Vec<Ruleset> {
    let folders = std::fs::read_dir(root().join("tests/import")).expect("the folder of the rulesets");
    let mut folders: Vec<PathBuf> =
        folders.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders.into_iter().map(read).collect()
}

fn read(folder: PathBuf) -> Ruleset {
    let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
    let format = match name.split('-').next().unwrap_or("") {
        "nft" => Format::Nft,
        "iptables" => Format::Iptables,
        "ipset" => Format::Ipset,
        "fastnetmon" => Format::Fastnetmon,
        "crowdsec" => Format::Crowdsec,
        other => panic!("{name}: no format {other}"),
    };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let is_source = |path: &&PathBuf| !RESULTS.contains(&path.file_name().expect("a name").to_string_lossy().as_ref());
    let sources = files.iter().filter(is_source).map(|path| Source {
        name: path.file_name().expect("a name").to_string_lossy().into_owned(),
        text: std::fs::read_to_string(path).expect("text"),
    });
    let sources = sources.collect();
    let words = std::fs::read_to_string(folder.join("options")).unwrap_or_default();
    let after = |word: &str| -> Vec<String> {
        let found = words.split_whitespace().skip_while(|known| *known != word).nth(1);
        found.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
    };
    let options = Options {
        host: words.split_whitespace().any(|word| word == "--host"),
        outside: after("--outside"),
        inside: after("--inside"),
        list_files: true,
    };
    Ruleset { name, folder, format, options, sources }
}

impl Ruleset {
    /// The ruleset with rates an hour, so that no limit has room again while a test runs.
    pub fn slow(self) -> Ruleset {
        let hourly = |text: &str| {
            let text = text.replace("\"per\": \"second\"", "\"per\": \"hour\"");
            text.replace("/sec ", "/hour ").replace("/min ", "/hour ")
        };
        let sources =
            self.sources.iter().map(|source| Source { text: hourly(&source.text), name: source.name.clone() });
        Ruleset { sources: sources.collect(), ..self }
    }

    /// What the importer makes of it.
    pub fn import(&self) -> Import {
        self.import_of(&self.sources)
    }

    fn import_of(&self, sources: &[Source]) -> Import {
        let result = match self.format {
            Format::Nft => weir_import::nft(&sources[0], &self.options),
            Format::Iptables => weir_import::iptables(sources, &self.options),
            Format::Ipset => weir_import::ipset(sources, &self.options),
            Format::Fastnetmon => weir_import::fastnetmon(sources, &self.options),
            Format::Crowdsec => weir_import::crowdsec(sources, &self.options),
        };
        result.unwrap_or_else(|refused| panic!("{}: {refused}", self.name))
    }

    /// The policy, loaded with its lists.
    pub fn load(&self, import: &Import) -> Policy {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("lists")).expect("it can be made");
        for (path, text) in &import.lists {
            std::fs::write(folder.path().join(path), text).expect("it can be written");
        }
        let path = folder.path().join("imported.weir");
        std::fs::write(&path, &import.policy).expect("it can be written");
        match PolicyFile::open(&path).and_then(|file| file.check(&CostModel::default())) {
            Ok(policy) => policy,
            Err(LoadError::Mistakes(rejected)) => {
                let messages = render(&rejected.diagnostics, &rejected.sources, Style::Plain);
                panic!("{}: {messages}\n{}", self.name, rejected.lists.join("\n"))
            }
            Err(error) => panic!("{}: {error}", self.name),
        }
    }

    /// Programs that load the ruleset, their arguments, and what they read. Rules that are left out are missing.
    pub fn for_the_kernel(&self, import: &Import) -> Vec<(&'static str, &'static str, String)> {
        let findings = import.findings.all().iter().filter(|finding| finding.kind == Kind::LeftOut);
        let missing: Vec<&str> =
            findings.filter(|finding| !finding.reason.starts_with("log")).map(|finding| finding.at.as_str()).collect();
        let mut loads = Vec::new();
        for source in &self.sources {
            if self.format == Format::Nft {
                loads.push(("nft", "-j -f -", self.nft(&source.text, &missing)));
            } else if source.name.ends_with(".ipset") {
                loads.insert(0, ("ipset", "restore", source.text.clone()));
            } else {
                let program = if source.name.ends_with("v6") { "ip6tables-restore" } else { "iptables-restore" };
                loads.push((program, "-n", self.iptables(source, &missing)));
            }
        }
        loads
    }

    /// The JSON of nftables. On a host, `input` becomes `forward`, which also sees what the host sends and accepts it.
    fn nft(&self, text: &str, missing: &[&str]) -> String {
        let mut value: serde_json::Value = serde_json::from_str(text).expect("it is JSON");
        let objects = value["nftables"].as_array_mut().expect("a list");
        let elsewhere: Vec<_> = objects
            .iter()
            .map(|object| object["chain"].clone())
            .filter(|chain| {
                let hook = chain["hook"].as_str().unwrap_or("");
                chain["type"] == "nat" || self.options.host && matches!(hook, "forward" | "output" | "postrouting")
            })
            .map(|chain| [chain["family"].clone(), chain["table"].clone(), chain["name"].clone()])
            .collect();
        let is_elsewhere = |body: &serde_json::Value, name: &str| {
            elsewhere.contains(&[body["family"].clone(), body["table"].clone(), body[name].clone()])
        };
        objects.retain(|object| {
            let handle = format!("(handle {})", object["rule"]["handle"]);
            let is_missing = object.get("rule").is_some() && missing.iter().any(|at| at.ends_with(&handle));
            !is_missing && !is_elsewhere(&object["chain"], "name") && !is_elsewhere(&object["rule"], "chain")
        });
        let mut made = Vec::new();
        for object in objects.drain(..) {
            let mut object = object;
            let is_input = self.options.host && object["chain"]["hook"] == "input";
            if is_input {
                object["chain"]["hook"] = "forward".into();
                let chain = object["chain"].clone();
                made.push(object);
                made.push(serde_json::json!({ "rule": { "family": chain["family"], "table": chain["table"],
                    "chain": chain["name"], "expr": [
                        { "match": { "op": "==", "left": { "meta": { "key": "iifname" } }, "right": "eth1" } },
                        { "accept": null } ] } }));
            } else {
                made.push(object);
            }
        }
        *objects = made;
        // nft takes objects in the order in which rules need them.
        objects.sort_by_key(|object| object.get("rule").is_some());
        value.to_string()
    }

    /// The lines of iptables-save, likewise.
    fn iptables(&self, source: &Source, missing: &[&str]) -> String {
        let mut text = String::new();
        let mut is_nat = false;
        for (number, line) in source.text.lines().enumerate() {
            let line = line.split_once("] -A").map_or(line.to_owned(), |(_, rule)| format!("-A{rule}"));
            is_nat = if line.starts_with('*') { line == "*nat" } else { is_nat };
            let at = format!("{}:{}", source.name, number + 1);
            let chain = line.trim_start_matches(':').trim_start_matches("-A ").split(' ').next().unwrap_or("");
            let is_elsewhere = self.options.host && matches!(chain, "FORWARD" | "OUTPUT" | "POSTROUTING");
            if is_nat || missing.contains(&at.as_str()) || is_elsewhere && line.starts_with([':', '-']) {
                continue;
            }
            let line = if self.options.host && chain == "INPUT" { line.replacen("INPUT", "FORWARD", 1) } else { line };
            text += &line;
            text.push('\n');
        }
        if self.options.host {
            // In front of the first rule of each table.
            let tables: Vec<&str> = text.split_inclusive("COMMIT\n").collect();
            return tables.into_iter().map(accept_sent).collect();
        }
        text
    }
}

/// The table with a first rule that accepts what the host sends.
fn accept_sent(table: &str) -> String {
    let Some(first) = table.find("\n-A ").filter(|_| table.contains(":FORWARD")) else { return table.to_owned() };
    format!("{}\n-A FORWARD -i eth1 -j ACCEPT{}", &table[..first], &table[first..])
}

/// The difference between a file and what it should be. With `WEIR_BLESS` the file is written.
pub fn bless_or_compare(path: &Path, text: &str) -> Option<String> {
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(path, text).expect("it can be written");
        return None;
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let first = known.lines().zip(text.lines()).position(|(known, new)| known != new);
    let line = first.unwrap_or(known.lines().count().min(text.lines().count()));
    let shown = |text: &str| text.lines().nth(line).unwrap_or("(end)").to_owned();
    (known != text).then(|| format!("{}:{}\n  {}\n  {}", path.display(), line + 1, shown(&known), shown(text)))
}
