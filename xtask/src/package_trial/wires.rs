//! Three network namespaces in a row, and numbered packets between the outer two.
//!
//! ```text
//!   client (10.9.0.1)            weir                      server (10.9.0.2)
//!          wire ------------ lower    upper ------------------ wire
//!                            lower2 - peer2, upper2 - peer3     for a second instance
//! ```

use crate::shell::run;
use clap::Subcommand;
use std::io::Read;
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Ports whose packets pass, are dropped, and end the count. The policy of the trial says the first two.
const PASSES: u16 = 9;
const DROPPED: u16 = 666;
const END: u16 = 10;
const SERVER: &str = "10.9.0.2";
/// Pause between two pairs of packets.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest wait for a packet.
const PACKET_WAIT: Duration = Duration::from_secs(20);

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
        for (outer, address, inner) in [(&client, "10.9.0.1/24", "lower"), (&server, "10.9.0.2/24", "upper")] {
            ip(&format!("-n {outer} link add wire type veth peer name {inner} netns {weir}"))?;
            ip(&format!("-n {outer} address add {address} dev wire"))?;
            ip(&format!("-n {outer} link set wire up"))?;
            // Between virtual wires, XDP needs the first one (docs/reference/interfaces.md).
            ip(&format!("netns exec {outer} ethtool -K wire gro on tx off"))?;
            ip(&format!("-n {weir} link set {inner} up"))?;
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

    /// Sends packets until [`Traffic::end`].
    ///
    /// # Errors
    /// A process cannot be started.
    pub fn traffic(&self) -> Result<Traffic, String> {
        let receiver = self.end(Packets::Receive)?;
        Ok(Traffic { receiver, sender: self.end(Packets::Send)? })
    }

    /// Starts this program in a namespace.
    fn end(&self, packets: Packets) -> Result<Child, String> {
        let (name, word) = match packets {
            Packets::Send => ("client", "send"),
            Packets::Receive => ("server", "receive"),
        };
        let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(name)]).arg(program).args(["package-trial", "packets", word]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("ip netns exec: {error}"))?;
        // It says when it is ready.
        let output = child.stdout.as_mut().expect("it is piped");
        output.read_exact(&mut [0]).map_err(|error| format!("packets {word}: {error}"))?;
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
    /// Sent to each port.
    pub sent: u64,
    /// Received on the port whose packets pass.
    pub passed: u64,
    /// Received although the policy drops them.
    pub unfiltered: u64,
}

impl Counts {
    /// Fails if a packet was lost, or if one has passed that the policy drops.
    ///
    /// # Errors
    /// It says how many.
    pub fn check(self) -> Result<(), String> {
        let Counts { sent, passed, unfiltered } = self;
        let lost = sent - passed;
        println!("    {sent} packets sent to each port: {lost} lost, {unfiltered} unfiltered");
        if sent == 0 || lost + unfiltered > 0 { Err(format!("{self:?}")) } else { Ok(()) }
    }
}

impl Traffic {
    /// Stops sending, and counts.
    ///
    /// # Errors
    /// A process has failed.
    pub fn end(mut self) -> Result<Counts, String> {
        let sent = numbers(&mut self.sender)?[0];
        let received = numbers(&mut self.receiver)?;
        Ok(Counts { sent, passed: received[0], unfiltered: received[1] })
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

/// What a process in a namespace does until its standard input ends.
#[derive(Clone, Copy, Subcommand)]
pub enum Packets {
    /// Sends packets to both ports in turns, and prints how many to each.
    Send,
    /// Counts different packets on the first port, and all on the second.
    Receive,
}

impl Packets {
    /// Runs in the namespace of this process.
    ///
    /// # Errors
    /// A socket cannot be used, or no packet comes.
    pub fn run(self) -> Result<(), String> {
        match self {
            Packets::Send => send(),
            Packets::Receive => receive(),
        }
        .map_err(|error| format!("packets: {error}"))
    }
}

fn send() -> std::io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    println!();
    let stop = told_to_stop();
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        for port in [DROPPED, PASSES] {
            socket.send_to(&number.to_be_bytes(), (SERVER, port))?;
        }
        number += 1;
        thread::sleep(PAUSE);
    }
    socket.send_to(&[], (SERVER, END))?;
    println!("{number}");
    Ok(())
}

fn receive() -> std::io::Result<()> {
    let [passes, dropped, end] = [PASSES, DROPPED, END].map(|port| UdpSocket::bind(("0.0.0.0", port)));
    let (passes, dropped, end) = (passes?, dropped?, end?);
    println!();
    let count = |socket: UdpSocket, done: Arc<AtomicBool>| -> std::io::Result<u64> {
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (mut seen, mut bytes) = (std::collections::BTreeSet::new(), [0; 8]);
        loop {
            match socket.recv(&mut bytes) {
                Ok(_) => _ = seen.insert(u64::from_be_bytes(bytes)),
                Err(_) if done.load(Ordering::Relaxed) => return Ok(seen.len() as u64),
                Err(_) => {}
            }
        }
    };
    let done = Arc::new(AtomicBool::new(false));
    let counting = [passes, dropped].map(|socket| {
        let done = done.clone();
        thread::spawn(move || count(socket, done))
    });
    // The last packet comes after the sender was told to stop.
    let stop = told_to_stop();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(PAUSE);
    }
    end.set_read_timeout(Some(PACKET_WAIT))?;
    end.recv(&mut [0])?;
    done.store(true, Ordering::Relaxed);
    for thread in counting {
        println!("{}", thread.join().expect("it does not panic")?);
    }
    Ok(())
}

/// Set when standard input ends.
fn told_to_stop() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    thread::spawn(move || {
        // An error is an end too.
        let _read = std::io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    stop
}
