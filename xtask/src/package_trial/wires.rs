//! Three network namespaces in a row, and packets between the outer two (packets.rs).
//!
//! ```text
//!   client                       weir                          server
//!   10.9.0.1, .3   wire ------ lower    upper ------ wire      10.9.0.2
//!   10.9.1.1, .3   wire2 ----- lower3   upper3 ----- wire2     10.9.1.2   for weir-dpdk
//!                              lower2 - peer2, upper2 - peer3             for a second instance
//! ```

use super::packets::{BURST, LATER};
use crate::shell::run;
use std::io::Read;
use std::process::{Child, Command, Stdio};

/// A way between the outer namespaces.
#[derive(Clone, Copy)]
pub struct Way {
    /// The interface of the outer namespaces.
    outer: &'static str,
    lower: &'static str,
    upper: &'static str,
    /// The network of the addresses, without the last number.
    network: &'static str,
}

/// The way of `weir`.
pub const WEIR: Way = Way { outer: "wire", lower: "lower", upper: "upper", network: "10.9.0" };
/// The way of `weir-dpdk`.
pub const DPDK: Way = Way { outer: "wire2", lower: "lower3", upper: "upper3", network: "10.9.1" };

/// The namespaces. They are removed when it is dropped.
pub struct Wires {
    /// The part of the names that no other trial has.
    id: u32,
}

impl Wires {
    /// Makes the namespaces and the interfaces.
    ///
    /// # Errors
    /// There is no `ip` or `ethtool`, or this is not root.
    pub fn new() -> Result<Self, String> {
        let wires = Wires { id: std::process::id() };
        let [client, weir, server] = ["client", "weir", "server"].map(|name| wires.name(name));
        for name in [&client, &weir, &server] {
            ip(&format!("netns add {name}"))?;
        }
        for Way { outer, lower, upper, network } in [WEIR, DPDK] {
            for (name, inner, numbers) in [(&client, lower, [1, 3].as_slice()), (&server, upper, &[2])] {
                ip(&format!("-n {name} link add {outer} type veth peer name {inner} netns {weir}"))?;
                for number in numbers {
                    ip(&format!("-n {name} address add {network}.{number}/24 dev {outer}"))?;
                }
                ip(&format!("-n {name} link set {outer} up"))?;
                // Between virtual wires, XDP needs the first one (docs/reference/interfaces.md).
                ip(&format!("netns exec {name} ethtool -K {outer} gro on tx off"))?;
                ip(&format!("-n {weir} link set {inner} up"))?;
            }
        }
        for (inner, peer) in [("lower2", "peer2"), ("upper2", "peer3")] {
            ip(&format!("-n {weir} link add {inner} type veth peer name {peer}"))?;
            ip(&format!("-n {weir} link set {inner} up"))?;
            ip(&format!("-n {weir} link set {peer} up"))?;
            ip(&format!("netns exec {weir} ethtool -K {peer} gro on"))?;
        }
        Ok(wires)
    }

    /// The name of a namespace.
    pub fn name(&self, of: &str) -> String {
        format!("weir-trial-{}-{of}", self.id)
    }

    /// Sends packets until [`Traffic::end`]. A connection is open when this returns.
    ///
    /// # Errors
    /// A process cannot be started, or nothing passes.
    pub fn traffic(&self, way: Way) -> Result<Traffic, String> {
        let receiver = self.end("server", &["receive"])?;
        Ok(Traffic { receiver, sender: self.end("client", &["send", &format!("{}.2", way.network)])? })
    }

    /// Starts this program in a namespace.
    fn end(&self, place: &str, words: &[&str]) -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place)]).arg(program).args(["package-trial", "packets"]).args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("ip netns exec: {error}"))?;
        // It says when it is ready.
        let output = child.stdout.as_mut().expect("it is piped");
        output.read_exact(&mut [0]).map_err(|error| format!("packets {words:?}: {error}"))?;
        Ok(child)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for name in ["client", "weir", "server"] {
            // It is absent if it could not be made.
            let _gone = Command::new("ip").args(["netns", "del", &self.name(name)]).stderr(Stdio::null()).status();
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    // ethtool lists what it has changed.
    run(Command::new("ip").args(arguments.split(' ')).stdout(Stdio::null()))
}

/// Packets that are being sent and received.
pub struct Traffic {
    sender: Child,
    receiver: Child,
}

/// What became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Rounds that were sent: one packet to each port.
    pub sent: u64,
    /// Numbers that came back on the connection.
    pub exchanged: u64,
    /// Received on the port whose packets pass.
    pub passed: u64,
    /// Received although the policy drops them, or the table that was changed by hand.
    pub unfiltered: u64,
    /// Received on the port with a limit.
    pub limited: u64,
}

impl Counts {
    /// Fails if a packet was lost, if one has passed that is to be dropped, or if more or fewer have passed than the
    /// limit permits from the first packet to the last.
    ///
    /// # Errors
    /// It says how many.
    pub fn check(self) -> Result<(), String> {
        if self.lost()? > 0 || self.limited != BURST { Err(format!("{self:?}")) } else { Ok(()) }
    }

    /// Like [`Counts::check`] for a program that begins anew: packets are lost, and the limit begins with a full
    /// bucket. Packets pass before and behind that.
    ///
    /// # Errors
    /// It says how many.
    pub fn check_restarted(self) -> Result<(), String> {
        let lost = self.lost()?;
        if lost == self.sent || self.limited != BURST + LATER { Err(format!("{self:?}")) } else { Ok(()) }
    }

    /// Packets that were lost.
    fn lost(self) -> Result<u64, String> {
        let Counts { sent, exchanged, passed, unfiltered, limited } = self;
        let lost = sent - passed;
        println!("    {sent} packets sent to each port: {lost} lost, {unfiltered} unfiltered");
        println!("    {exchanged} numbers came back on a connection; {limited} packets passed the limit");
        // A number before and one behind.
        if sent == 0 || exchanged < 2 || unfiltered > 0 { Err(format!("{self:?}")) } else { Ok(lost) }
    }
}

impl Traffic {
    /// Stops sending, and counts.
    ///
    /// # Errors
    /// A process has failed.
    pub fn end(mut self) -> Result<Counts, String> {
        let sent = numbers(&mut self.sender)?;
        let received = numbers(&mut self.receiver)?;
        match (&sent[..], &received[..]) {
            (&[sent, exchanged], &[passed, dropped, suspected, limited]) => {
                Ok(Counts { sent, exchanged, passed, unfiltered: dropped + suspected, limited })
            }
            _ => Err(format!("packets: {sent:?} {received:?}")),
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        for child in [&mut self.sender, &mut self.receiver] {
            // It has ended unless the trial fails.
            let _ended = child.kill();
            let _status = child.wait();
        }
    }
}

/// Tells a process to end. Returns the numbers that it prints.
fn numbers(child: &mut Child) -> Result<Vec<u64>, String> {
    drop(child.stdin.take());
    let mut text = String::new();
    let read = child.stdout.as_mut().expect("it is piped").read_to_string(&mut text);
    read.map_err(|error| format!("packets: {error}"))?;
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let status = child.wait().map_err(|error| format!("packets: {error}"))?;
    if status.success() && !numbers.is_empty() { Ok(numbers) } else { Err(format!("packets: {status}")) }
}
