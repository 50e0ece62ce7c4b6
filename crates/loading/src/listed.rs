//! Which tables of a policy follow list files.

use crate::text::Text;
use weir_policy::pipeline;
use weir_policy::source::FileId;

impl Text {
    /// Names of the tables with list files, except dynamic tables, which only begin with them. The text is parsed again.
    pub fn tables_with_files(&self) -> Vec<String> {
        let known = |path: &str| {
            let file = (0..).zip(self.sources.names()).find(|(_, name)| *name == path).map(|(at, _)| FileId(at));
            let text = file.map(|id| self.sources.file(id).text.clone());
            text.ok_or_else(|| format!("{path}: was not read when the policy was loaded"))
        };
        let (sources, parsed) = pipeline::parse(self.sources.file(FileId(0)).clone(), &known);
        let with_files = parsed.tables(&sources).into_iter().filter(|table| !table.files.is_empty() && !table.dynamic);
        with_files.map(|table| table.name).collect()
    }
}
