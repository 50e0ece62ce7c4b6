//! The simulated card of tests.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weir_card::Profile;
pub use weir_simulation::{Left, NO_STALLS, Port, Sent, Stalls};
use weir_simulation::{Simulation, build};

/// The card of most tests: every part of the RTL, of small size where size changes nothing.
pub const PROFILE: &str = "
name bench
vlan 2
options yes
ip6 yes
match protocol sport dport tcp-flags saddr daddr ttl length icmp-type icmp-code vlan-id tcp-window
carry protocol sport dport saddr daddr
patterns 64
ranges 8
rules 128
counters 64
lookups 6
blocks 256
metadata 448
reconfigure 2ms
";

/// A simulated card without configuration. A failure ends the test.
pub struct Bench(Simulation);

/// The program of a profile.
fn program(profile: &Profile) -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("card-{}", profile.name.replace(' ', "-")));
    build(&project, &folder, profile.parameters()).unwrap_or_else(|error| panic!("the RTL does not build: {error}"))
}

impl Bench {
    /// A card of [`PROFILE`], which is built once.
    pub fn new() -> Self {
        static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
        Bench(Simulation::start(PROGRAM.get_or_init(|| program(&profile()))).expect("the simulation starts"))
    }

    /// Sends frames and returns what leaves until the card is idle: first to the network, then to the software.
    pub fn run(&mut self, frames: &[Sent], stalls: Stalls) -> Vec<Left> {
        self.0.run(frames, stalls).expect("the simulation answers; its message is above")
    }
}

/// [`PROFILE`].
pub fn profile() -> Profile {
    Profile::parse(PROFILE).expect("the profile reads")
}
