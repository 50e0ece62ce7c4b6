//! Exports attacks while Weir runs: a thread writes them into a folder, up to a number of them.

use super::outlet::Outlet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weir_command::failure::Failure;
use weir_command::inside::Inside;
use weir_mitigate::Attack;
use weir_mitigate::excerpt::Excerpt;
use weir_recording::export::{self, Export, PolicyParts};

/// Reads the policy that is active, with the contents of its tables and slots.
pub type ReadPolicy = dyn Fn() -> PolicyParts + Send;

/// What is exported, and where to.
pub struct ExportSettings {
    /// The folder.
    pub folder: PathBuf,
    /// Exports that it may have.
    pub most: usize,
    /// The protected prefixes.
    pub inside: Vec<Inside>,
    /// The slot for rules.
    pub slot: String,
    /// The tables of blocked sources.
    pub source_tables: Vec<String>,
}

/// Writes exports in a thread of its own, so that a slow disk delays nothing.
pub struct Exports {
    outlet: Outlet<Export>,
    inside: Vec<Inside>,
    slot: String,
    source_tables: Vec<String>,
}

impl Exports {
    /// Creates the folder, and starts the thread.
    ///
    /// # Errors
    /// The folder cannot be created, or the thread cannot be started.
    pub fn start(settings: ExportSettings, policy: Box<ReadPolicy>) -> Result<Self, Failure> {
        let ExportSettings { folder, most, inside, slot, source_tables } = settings;
        fs::create_dir_all(&folder).map_err(|error| Failure::file(&folder, error))?;
        let write = move |export: Export| write(&folder, most, &export, &policy());
        Ok(Exports { outlet: Outlet::start("weir-export", write)?, inside, slot, source_tables })
    }

    /// Exports an attack.
    pub fn put(&self, attack: &Attack, excerpt: Excerpt, now_ns: u64) {
        self.outlet.put(|| {
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let shift_ns = since_1970.as_nanos() as i128 - i128::from(now_ns);
            let export = Export::new(attack, excerpt, self.inside.clone(), self.slot.clone(), shift_ns);
            Export { source_tables: self.source_tables.clone(), ..export }
        });
    }

    /// Exports that were written, that failed, and that were lost because the disk is slow.
    pub fn counts(&self) -> [u64; 3] {
        self.outlet.counts()
    }

    /// The last failure.
    pub fn problem(&self) -> Option<String> {
        self.outlet.problem()
    }

    /// Waits a while until all are written.
    pub fn end(&mut self, deadline: Instant) {
        self.outlet.end(deadline);
    }
}

fn write(folder: &Path, most: usize, export: &Export, policy: &PolicyParts) -> Result<(), String> {
    let there = count(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    if there >= most {
        return Err(format!("{}: it has {there} exports, and may have {most}", folder.display()));
    }
    let path = export::write(folder, export, policy).map_err(|failure| failure.to_string())?;
    notice!([Attack: export.number] "weir: attack {}: exported to {}", export.number, path.display());
    Ok(())
}

/// The exports in a folder.
fn count(folder: &Path) -> io::Result<usize> {
    let is_export = |name: &Path| name.join("attack.pcapng").exists();
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        count += usize::from(is_export(&entry?.path()));
    }
    Ok(count)
}
