//! What this program takes over from the one before it in its process.
//!
//! It is trusted because of where it is: a folder that only this user can write to, under the number of this process
//! and the time of its start, which stay the same over execve. Each descriptor is checked for what it should be.

use super::format::{FORMAT, VERSION};
use super::handover::{DESCRIPTION, Description, STATE, folder, part_file, remove_stale};
use crate::generations::beginning::Beginning;
use crate::generations::carried::CarriedLedger;
use crate::generations::generation::{Generation, Loader, LoaderCode};
use crate::generations::succession::Succession;
use crate::interfaces::claim::{ClaimTarget, Claims};
use crate::interfaces::guard::Guard;
use crate::options::RunOptions;
use crate::server::Server;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;
use weir_command::failure::Failure;
use weir_control::{Active, Carried};
use weir_engine::live::os::inherited::Inherited;
use weir_engine::live::programs::attach::HeldLink;
use weir_engine::live::xdp::HeldCounts;
use weir_engine::live::{Counts, Interfaces};
use weir_policy::ir::{OnExit, Program, parse};
use weir_state::saved::{Clocks, Folder, Restored, restore};
use weir_state::{SharedState, UsedBy};

/// Mode bits of other users.
const OTHERS: u32 = 0o077;

/// What was handed over.
pub struct Resumed {
    description: Description,
    inherited: Inherited,
    carried: Carried,
    /// What was in files, until a part takes it.
    pub restored: Option<Restored>,
    /// What parts have handed over, by name.
    pub parts: BTreeMap<String, Vec<u8>>,
    /// The policies whose programs count until they are replaced, the active one first.
    open: Vec<Program>,
}

impl Resumed {
    /// What the program before this one has handed over; `None` if the process has started with this program. It is
    /// removed, so it is found once.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn find() -> Result<Option<Self>, Failure> {
        let failed = |why: String| Failure::Runtime(format!("upgrade: {why}"));
        let folder = folder().map_err(|error| failed(error.to_string()))?;
        let found = match fs::symlink_metadata(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                remove_stale();
                return Ok(None);
            }
            found => found.map_err(|error| Failure::file(&folder, error))?,
        };
        let own = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != own || found.mode() & OTHERS != 0 {
            return Err(failed(format!("{}: not a folder of this user alone", folder.display())));
        }
        let mut parts = BTreeMap::new();
        for entry in fs::read_dir(&folder).map_err(|error| Failure::file(&folder, error))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(part) = name.strip_prefix(&part_file("")) {
                let bytes = fs::read(entry.path()).map_err(|error| Failure::file(&entry.path(), error))?;
                parts.insert(part.to_owned(), bytes);
            }
        }
        let text = fs::read_to_string(folder.join(DESCRIPTION)).map_err(|error| failed(error.to_string()))?;
        let description: Description = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
        if description.format != FORMAT {
            return Err(failed(format!("format {} is not known", description.format)));
        }
        let inherited =
            Inherited::receive(description.descriptors.iter().copied()).map_err(|error| failed(error.to_string()))?;
        let restored = Folder::open(&folder.join(STATE))
            .map_err(|problem| failed(problem.to_string()))
            .and_then(|state| restore(&state, Clocks::now()).map_err(|error| failed(error.to_string())))?;
        restored.notices.iter().for_each(|notice| eprintln!("weir: {notice}"));
        fs::remove_dir_all(&folder).map_err(|error| Failure::file(&folder, error))?;
        let carried = Carried {
            from_version: description.from_version.clone(),
            interfaces: description.links.as_ref().map_or(0, |links| links.len() as u64),
            flow_tables: 0,
            flows_from_file: restored.flows.is_some(),
            tables: restored.tables.len() as u64,
            missing: description.missing.clone(),
        };
        Ok(Some(Resumed { description, inherited, carried, restored: Some(restored), parts, open: Vec::new() }))
    }

    /// The claims on the targets.
    ///
    /// # Errors
    /// They were not handed over.
    pub fn claims(&mut self, targets: &[ClaimTarget]) -> Result<Claims, Failure> {
        Claims::continued(targets, &self.description.claims, &mut self.inherited)
    }

    /// The control socket.
    ///
    /// # Errors
    /// It was not handed over.
    pub fn server(&mut self, options: &RunOptions) -> Result<Server, Failure> {
        let listener = self.inherited.take(self.description.control);
        Server::continued(&options.control, listener.map_err(|error| Failure::file(&options.control, error))?)
    }

    /// The links of programs in the kernel, if the engine has some.
    ///
    /// # Errors
    /// They were not handed over.
    pub fn links(&mut self) -> Result<Option<Vec<HeldLink>>, Failure> {
        let Some(links) = self.description.links.take() else { return Ok(None) };
        let links = links.into_iter().map(|link| link.take(&mut self.inherited)).collect::<Result<_, _>>();
        links.map(Some).map_err(|error| Failure::system("links of programs", error))
    }

    /// What drivers had counted of packets without room, in the order of the ports.
    pub fn missed(&self) -> &[Option<u64>] {
        &self.description.counts.missed
    }

    /// The counters of programs that decide packets until they are replaced. What they count meanwhile is lost if this
    /// program cannot read them.
    pub fn counters(&mut self) -> Vec<HeldCounts> {
        let (mut held, mut problem) = (Vec::new(), None);
        for (text, counts) in std::mem::take(&mut self.description.counts.open) {
            let program = parse::parse(&text);
            match (program, counts.take(&mut self.inherited)) {
                (Ok(program), Ok(counts)) => {
                    held.push(counts);
                    self.open.push(program);
                }
                (Err(why), _) => problem = Some(why),
                (_, Err(why)) => problem = Some(why.to_string()),
            }
            // Those behind one that cannot be read would be taken for it.
            if problem.is_some() {
                break;
            }
        }
        let lost = |why| format!("the counts of packets that were decided while this program started ({why})");
        self.carried.missing.extend(problem.map(lost));
        held
    }

    /// The counts with which this program begins. `since` is what [`Resumed::counters`] have counted.
    pub fn counts(&mut self, since: Vec<Counts>) -> CarriedLedger {
        let handed = &mut self.description.counts;
        let mut carried = CarriedLedger {
            past: std::mem::take(&mut handed.past),
            current: std::mem::take(&mut handed.current),
            ports: std::mem::take(&mut handed.ports),
            uptime_ns: handed.uptime_ns,
            activations: handed.activations,
        };
        let since: Vec<(Program, Counts)> = std::mem::take(&mut self.open).into_iter().zip(since).collect();
        carried.add(&since);
        carried
    }

    /// The state in maps of the kernel.
    ///
    /// # Errors
    /// It was not handed over.
    pub fn shared(&mut self, used_by: UsedBy) -> Result<SharedState, Failure> {
        let state = std::mem::take(&mut self.description.state);
        SharedState::continuing(used_by, state, &mut |number| self.inherited.take(number))
            .map_err(|error| Failure::system("state", error))
    }

    /// The guard.
    ///
    /// # Errors
    /// It has ended.
    pub fn guard(
        &mut self,
        options: &RunOptions,
        interfaces: &Interfaces,
        targets: &[ClaimTarget],
    ) -> Result<Guard, Failure> {
        let handed = std::mem::replace(&mut self.description.guard, crate::interfaces::guard::Handed::Host(None));
        Guard::continued(interfaces.clone(), targets, &options.host, handed, &mut self.inherited)
    }

    /// Loads the policies in use again.
    ///
    /// # Errors
    /// One of them cannot be loaded, unless it is only the rollback target.
    pub fn continued<L: Loader>(&mut self, loader: &L) -> Result<Beginning<LoaderCode<L>>, Failure> {
        let mut handed = self.description.succession.clone();
        let mut ready = Vec::new();
        for (id, path) in &self.description.policies {
            match Generation::prepare(path, loader) {
                Ok(mut generation) => {
                    generation.id = *id;
                    ready.push(generation);
                }
                Err(failure) => {
                    let previous = handed.previous.take_if(|previous| previous.generation == *id);
                    if previous.is_none() || handed.generations().contains(id) {
                        return Err(failure);
                    }
                    self.carried.missing.push(format!("the rollback target: {}", failure.message().trim_end()));
                }
            }
        }
        let has_posture = |generation: u64, posture: &str| {
            ready.iter().any(|one| one.id == generation && one.loaded(Some(posture)).is_ok())
        };
        let decided = handed.decided().map(|active| active.generation).unwrap_or_default();
        let lost = handed.automatic.take_if(|(_, posture, _)| !has_posture(decided, posture));
        self.carried.missing.extend(lost.map(|(_, posture, _)| format!("the automatic posture {posture}")));
        let damaged = || Failure::Runtime("upgrade: no active policy was handed over".to_owned());
        let has = |active: &Active| {
            ready.iter().any(|one| one.id == active.generation && one.loaded(active.posture.as_deref()).is_ok())
        };
        let all_ready = handed.generations().iter().all(|id| ready.iter().any(|one| one.id == *id));
        if !all_ready || !handed.decided().is_some_and(has) {
            return Err(damaged());
        }
        let confirmed = handed.confirmed.as_ref().and_then(|confirmed| {
            ready.iter().find(|one| one.id == confirmed.generation).map(|one| one.program().on_exit)
        });
        let succession = Succession::continued(handed, Instant::now(), weir_state::now_ns());
        Ok(Beginning { ready, succession, on_exit: confirmed.unwrap_or(OnExit::Forward) })
    }

    /// Ends the handover: what no policy has taken is gone. Returns the number of upgrades, and what was carried over.
    pub fn end(mut self, shared: &SharedState) -> (u64, Carried) {
        self.carried.flow_tables = shared.handed_flows() as u64;
        shared.end_handover();
        let Carried { from_version, interfaces, flow_tables, tables, missing, .. } = &self.carried;
        eprintln!(
            "weir: upgraded from {from_version} to {VERSION}: programs of {interfaces} interfaces replaced, \
             {flow_tables} tables of flows and {tables} dynamic tables carried over{}",
            if missing.is_empty() { String::new() } else { format!("; not carried over: {}", missing.join("; ")) }
        );
        (self.description.upgrades, self.carried)
    }
}
