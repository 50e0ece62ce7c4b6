//! What blocks sources at an interface of the host: programs of peers.c, and `weir run --host`. The blockers of the
//! kernel's netfilter are in netfilter.rs.

use super::blocker::Blocker;
use super::door::Door;
use super::netfilter::{IpSet, IpTables, Nft};
use crate::data::list;
use crate::live::peers;
use crate::need::Need;
use crate::process::Process;
use crate::scenario::Member;
use crate::stateful::hosts::Host;
use std::fs;
use std::path::{Path, PathBuf};
use weir_command::failure::Failure;
use weir_control::{Request, TableOperation};
use weir_engine::clang::Clang;
use weir_engine::live::programs::attach::Attached;

/// The row that is necessary for the differences of all other rows.
pub const DROP_ALL: &str = "xdp-drop-all";
/// The host that a card is compared with: the same policy without it.
pub const ALONE: &str = "weir-host-counters";
/// The host [`ALONE`] again, which receives only what a card leaves over (rows of `load`).
pub const LEFT_OVER: &str = "weir-host-left-over";
/// All of them, in the order of their turns.
pub const BLOCKERS: [Member; 14] = [
    Member::plain(DROP_ALL),
    Member::plain("xdp-hash-map"),
    Member::with("weir-host", &[Need::Weir]),
    Member::with("weir-host-set", &[Need::Weir]),
    Member::with(ALONE, &[Need::Weir]),
    Member::with("weir-host-list", &[Need::Weir]),
    Member::with("weir-card-hybrid", &[Need::Weir]),
    Member::with("weir-card", &[Need::Weir]),
    Member::with("weir-card-cpu", &[Need::Weir]),
    Member::with("nft-netdev", &[Need::Program("nft")]),
    Member::with("nft-raw", &[Need::Program("nft")]),
    Member::with("ipset", &[Need::Program("ipset"), Need::Program("iptables-legacy-restore")]),
    Member::with("iptables", &[Need::Program("iptables-legacy-restore")]),
    Member::with("iptables-nft", &[Need::Program("iptables-nft-restore")]),
];
/// The blockers that Fig. 4 compares. It leaves out the hosts that drop everything, which serve no client.
pub const SERVING: [&str; 8] =
    ["weir-host", ALONE, "weir-card-hybrid", "weir-card", "weir-card-cpu", "nft-netdev", "ipset", "iptables"];
/// Most sources of a linear chain: beyond it a packet takes more than a tenth of a millisecond.
const LINEAR_MAX: usize = 1 << 12;
/// Entries of the card's table.
pub const CARD_ENTRIES: usize = 512;

/// Whether a card stands in front of the host.
pub fn has_card(name: &str) -> bool {
    name.starts_with("weir-card")
}

/// Whether the kernel's netfilter blocks.
pub fn is_of_netfilter(name: &str) -> bool {
    ["nft", "ipset", "iptables"].iter().any(|program| name.starts_with(program))
}

/// The most sources that a blocker is measured with.
pub fn sources_max(name: &str) -> usize {
    if name.starts_with("iptables") { LINEAR_MAX } else { usize::MAX }
}

/// Starts a blocker by its name at a host. It has room for as many sources as `room` has, and may block them. Files are
/// written to the folder.
///
/// # Errors
/// It cannot be started.
pub fn start(name: &str, door: &Door, folder: &Path, room: &[u32]) -> Result<Box<dyn Blocker>, Failure> {
    Ok(match name {
        DROP_ALL => Box::new(DropAll { attached: None }),
        "xdp-hash-map" => Box::new(HashMap { attached: None }),
        "nft-netdev" => Box::new(Nft::at_device(&door.far)),
        "nft-raw" => Box::new(Nft::AT_PREROUTING),
        "ipset" => Box::new(IpSet),
        "iptables" => Box::new(IpTables::LEGACY),
        "iptables-nft" => Box::new(IpTables::ON_NFTABLES),
        weir => Box::new(Weir::start(weir, door, folder, room)?),
    })
}

/// A program of one instruction.
struct DropAll {
    attached: Option<Attached>,
}

impl Blocker for DropAll {
    fn block(&mut self, door: &Door, sources: &[u32]) -> Result<(), Failure> {
        self.attached = None;
        if !sources.is_empty() {
            self.attached = Some(attach(door, "peer_drop_all", Vec::new())?);
        }
        Ok(())
    }
}

/// The kernel's own hash table, as the paper's program has it, without counters.
struct HashMap {
    attached: Option<Attached>,
}

impl Blocker for HashMap {
    fn block(&mut self, door: &Door, sources: &[u32]) -> Result<(), Failure> {
        self.attached = None;
        self.attached = Some(attach(door, "peer_hash_map", sources.to_vec())?);
        Ok(())
    }
}

/// Attaches a program of peers.c, with the addresses in its maps.
fn attach(door: &Door, program: &'static str, addresses: Vec<u32>) -> Result<Attached, Failure> {
    let far = door.far.clone();
    door.host.run(move || Ok(peers::load(&Clang::find()?, &addresses)?.attach(program, far.name, far.index)?))
}

/// `weir run --host` with a table.
struct Weir {
    process: Process,
    list: PathBuf,
}

impl Weir {
    fn start(name: &str, door: &Door, folder: &Path, room: &[u32]) -> Result<Self, Failure> {
        let (policy, path) = (folder.join("host.weir"), folder.join("blocked.txt"));
        let put = |path: &Path, text: &str| fs::write(path, text).map_err(|error| Failure::file(path, error));
        put(&path, &list(room))?;
        put(&policy, &policy_text(name, room.len()))?;
        let mut arguments = ["--engine", "xdp", "--host", door.far.name].map(str::to_owned).to_vec();
        if let Some(card) = &door.card {
            arguments.extend(card_arguments(name, card));
        }
        let folder = folder.to_owned();
        let process = door.host.run(move || Process::start(&folder, &policy, &arguments))?;
        Ok(Weir { process, list: path })
    }
}

/// The options of a card. Its table has as many entries as the paper's. It takes changes at once, and often: it is
/// measured when it has chosen.
fn card_arguments(name: &str, card: &Host) -> Vec<String> {
    let table = format!("entries={CARD_ENTRIES},update=0ms");
    let place = match name {
        "weir-card" => format!("{table},place=card"),
        "weir-card-cpu" => "place=card-cpu".to_owned(),
        _ => format!("{table},place=hybrid"),
    };
    let wire = format!("wire:netns={},outer=outer,inner=inner,{place}", card.namespace());
    ["--card", &wire, "--card-table", "blocked", "--card-period", "200ms"].map(str::to_owned).to_vec()
}

/// The policy of a Weir by its name.
pub fn policy_text(name: &str, room: usize) -> String {
    let table = match name {
        "weir-host" => format!("dynamic; size {room}"),
        // As mitigation fills it, and as it fills it if a card follows.
        "weir-host-set" => format!("dynamic; size {room}; layout exact-set"),
        name if name == ALONE || has_card(name) => format!("dynamic; size {room}; counters"),
        _ => "file \"blocked.txt\"".to_owned(),
    };
    format!(
        "on-exit forward\ntable blocked {{ type ipv4; {table} }}\n\
         upstream {{ ip saddr @blocked drop; accept }}\ndownstream {{ accept }}\n"
    )
}

impl Blocker for Weir {
    fn block(&mut self, _: &Door, sources: &[u32]) -> Result<(), Failure> {
        // A list without entries says that it is meant to have none.
        let text = if sources.is_empty() { "# none\n".to_owned() } else { list(sources) };
        fs::write(&self.list, text).map_err(|error| Failure::file(&self.list, error))?;
        let operation = TableOperation::Replace { file: self.list.clone(), atomic: false, force: false };
        weir_control::ask(self.process.control(), &Request::Table { table: "blocked".to_owned(), operation })?;
        Ok(())
    }
}
