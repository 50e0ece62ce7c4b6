//! The page of figures: a section of Markdown for each scenario. `--figures` replaces the section of its scenario.

/// Options of `weir bench` with a path, which is different on every machine.
const PATHS: [&str; 2] = ["--data", "--rtl"];
/// Options with a path that have no influence on figures.
const OUTPUTS: [&str; 2] = ["--figures", "--plot"];

/// A section of the page.
pub struct Section<'a> {
    /// The scenario, which is the heading.
    pub name: &'a str,
    /// The processor, and its clock in GHz.
    pub cpu: (&'a str, String),
    /// The kernel's release.
    pub kernel: &'a str,
    /// The command, without machine-specific paths.
    pub command: String,
    /// Names of what the machine could not measure.
    pub left_out: Vec<&'a str>,
    /// The tables.
    pub tables: &'a str,
}

impl Section<'_> {
    /// The page with this section in place of the scenario's old one, or at its end. What begins with `Meaning:` stays.
    pub fn put_into(&self, page: &str) -> String {
        let heading = format!("## {}\n", self.name);
        let is_start = |at: usize| at == 0 || page.as_bytes()[at - 1] == b'\n';
        let start = page.match_indices(&heading).map(|(at, _)| at).find(|&at| is_start(at)).unwrap_or(page.len());
        let rest = &page[start..];
        let end = rest.get(heading.len()..).and_then(|body| body.find("\n## ")).map(|at| heading.len() + at + 1);
        let (old, after) = rest.split_at(end.unwrap_or(rest.len()));
        let meaning = old.split("\n\n").find(|paragraph| paragraph.starts_with("Meaning:"));
        let meaning = meaning.map(|text| format!("{}\n\n", text.trim_end())).unwrap_or_default();
        let before = page[..start].trim_end();
        let after = if after.is_empty() { String::new() } else { format!("\n{after}") };
        format!("{before}\n\n{heading}\n{meaning}{}\n{after}", self.text().trim_end())
    }

    fn text(&self) -> String {
        let (cpu, ghz) = &self.cpu;
        let mut text =
            format!("*Measured* on {cpu}, TSC {ghz} GHz, Linux {}:\n`{}`. Medians.", self.kernel, self.command);
        if !self.left_out.is_empty() {
            text += &format!(" Left out: {}.", self.left_out.join(", "));
        }
        format!("{text}\n\n{}", self.tables)
    }
}

/// The command of these words. `DIR` stands for each path; options for outputs are left out.
pub fn command(words: impl Iterator<Item = String>) -> String {
    let mut command = "weir bench".to_owned();
    let mut words = words;
    while let Some(word) = words.next() {
        let (option, is_whole) = word.split_once('=').map_or((&*word, false), |(option, _)| (option, true));
        let is_path = PATHS.contains(&option);
        if is_path || OUTPUTS.contains(&option) {
            let _path = if is_whole { None } else { words.next() };
            if is_path {
                command += &format!(" {option} DIR");
            }
        } else if word != "--json" {
            command += &format!(" {word}");
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str) -> Section<'_> {
        Section {
            name,
            cpu: ("a processor", "2.6".to_owned()),
            kernel: "6.18",
            command: "weir bench live".to_owned(),
            left_out: vec!["ipset", "nft"],
            tables: "| new |\n\n",
        }
    }

    const OWN: &str = "*Measured* on a processor, TSC 2.6 GHz, Linux 6.18:\n`weir bench live`. Medians. Left out: \
                       ipset, nft.\n\n| new |\n";

    const HYBRID: &str = "# Page\n\n## hybrid\n\nold\n";
    const LIVE: &str = "\n## live\n\nMeaning: [a](a.md).\n\n| old |\n\n### more\n\nold\n";
    const TABLES: &str = "\n## tables\n\nold\n";

    #[test]
    fn a_section_is_replaced_and_its_meaning_stays() {
        let page = format!("{HYBRID}{LIVE}{TABLES}");
        let once = section("live").put_into(&page);
        assert_eq!(once, format!("{HYBRID}\n## live\n\nMeaning: [a](a.md).\n\n{OWN}{TABLES}"));
        assert_eq!(section("live").put_into(&once), once);
        assert_eq!(section("tables").put_into(&page), format!("{HYBRID}{LIVE}\n## tables\n\n{OWN}"));
    }

    #[test]
    fn a_new_section_is_added_at_the_end() {
        assert_eq!(section("slots").put_into(HYBRID), format!("{HYBRID}\n## slots\n\n{OWN}"));
    }

    #[test]
    fn commands_have_no_paths_of_the_machine() {
        let words = "live --only afpacket --data /a/b --json --figures=c.md --rtl=/d --plot e.svg --quick";
        let command = command(words.split(' ').map(str::to_owned));
        assert_eq!(command, "weir bench live --only afpacket --data DIR --rtl DIR --quick");
    }
}
