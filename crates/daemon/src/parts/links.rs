//! The state of the interfaces: for the status, and messages when a link or an MTU changes or packets are too long.
//!
//! The kernel's notifications only say that a state may have changed. It is read then, and whenever the status is asked
//! for, never where packets move. An MTU has two limits: what the engine receives, and what the opposite interface
//! sends.

use crate::generations::generation::Loader;
use crate::parts::carry::opposite;
use crate::parts::part::{Part, Running};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{InterfaceStatus, LinkState};
use weir_engine::live::os::link_watch::{self, LinkWatch};
use weir_engine::live::{LINK_BYTES, PortStatus, Role};

/// Interval of looks at what no notification tells: lost packets, and ports that the kernel does not know.
const INTERVAL: Duration = Duration::from_secs(2);

/// The state of each interface, lower side first. On a host, the interface stands for both sides.
pub fn status(ports: &[PortStatus]) -> Vec<InterfaceStatus> {
    let mut interfaces: Vec<(Role, InterfaceStatus)> = Vec::new();
    for port in ports {
        let too_long = port.reading.rx_too_long + port.reading.tx_too_long;
        match interfaces.iter_mut().find(|(_, known)| known.interface == port.interface) {
            Some((_, known)) => known.too_long += too_long,
            None => interfaces.push((port.role, InterfaceStatus { too_long, ..state(port) })),
        }
    }
    // Workers have the ports of an engine in the same order, lower side first.
    let of = |role| interfaces.iter().filter(|(own, _)| *own == role).count();
    let opposite = if of(Role::Upper) > 0 { opposite(of(Role::Lower), of(Role::Upper)) } else { Vec::new() };
    let mtus: Vec<(String, Option<u32>)> = interfaces.iter().map(|(_, one)| (one.interface.clone(), one.mtu)).collect();
    for (at, (_, one)) in interfaces.iter_mut().enumerate() {
        let facing = opposite.get(at).into_iter().flatten().map(|&other| &mtus[other]);
        one.problem = problem(one, facing);
    }
    interfaces.into_iter().map(|(_, one)| one).collect()
}

/// The state of a port's interface. One that cannot be read is as the datapath knows it.
fn state(port: &PortStatus) -> InterfaceStatus {
    let link = match port.nature.kernel_index {
        0 => None,
        index => link_watch::read(index).ok(),
    };
    let (state, mtu) = match link {
        Some(Some(link)) if !link.up => (LinkState::Down, Some(link.mtu)),
        Some(Some(link)) if !link.has_link => (LinkState::NoLink, Some(link.mtu)),
        Some(Some(link)) => (LinkState::Up, Some(link.mtu)),
        Some(None) => (LinkState::Gone, None),
        None if port.has_link => (LinkState::Up, None),
        None => (LinkState::NoLink, None),
    };
    InterfaceStatus {
        interface: port.interface.clone(),
        side: port.role.name().to_owned(),
        state,
        mtu,
        longest_frame: port.nature.longest,
        too_long: 0,
        problem: None,
    }
}

/// What packets of the interface's MTU are too long for.
fn problem<'a>(own: &InterfaceStatus, opposite: impl Iterator<Item = &'a (String, Option<u32>)>) -> Option<String> {
    let mtu = own.mtu?;
    if let Some(longest) = own.longest_frame.filter(|longest| mtu.saturating_add(LINK_BYTES) > *longest) {
        let takes = longest.saturating_sub(LINK_BYTES);
        return Some(format!(
            "packets of more than {takes} bytes are lost, because weir was started with a shorter MTU: \
             restart weir, or set the MTU to {takes} or less"
        ));
    }
    let (name, least) = opposite.filter_map(|(name, mtu)| mtu.map(|mtu| (name, mtu))).min_by_key(|(_, mtu)| *mtu)?;
    (mtu > least).then(|| {
        format!("packets of more than {least} bytes, the MTU of {name}, are dropped (tx-too-long): set both to one MTU")
    })
}

/// What was said about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    state: LinkState,
    mtu: Option<u32>,
    problem: Option<String>,
    /// Whether its lost packets were mentioned since its MTU or its problem changed.
    has_told_lost: bool,
    too_long: u64,
}

impl Said {
    /// Nothing was said about a usual interface.
    fn nothing(one: &InterfaceStatus) -> Self {
        Said { state: LinkState::Up, mtu: one.mtu, problem: None, has_told_lost: false, too_long: one.too_long }
    }

    /// What is to be said now.
    fn see(&mut self, one: &InterfaceStatus) -> Vec<String> {
        let (name, mut said) = (&one.interface, Vec::new());
        if one.state != self.state {
            said.push(match one.state {
                LinkState::Up => format!("{name} is up again"),
                LinkState::NoLink => {
                    format!(
                        "{name} has no link: its other end is missing or down; packets to it are dropped (link-down)"
                    )
                }
                LinkState::Down => format!("{name} was taken down; packets to it are dropped (link-down)"),
                LinkState::Gone => format!("{name} was removed"),
            });
        }
        if one.mtu != self.mtu || one.problem != self.problem {
            let number = |mtu: Option<u32>| mtu.map_or("unknown".to_owned(), |mtu| mtu.to_string());
            let before = if one.mtu == self.mtu { String::new() } else { format!(" (before: {})", number(self.mtu)) };
            let problem = one.problem.as_ref().map_or(String::new(), |problem| format!(": {problem}"));
            said.push(format!("{name} has MTU {}{before}{problem}", number(one.mtu)));
            self.has_told_lost = false;
        }
        if one.too_long > self.too_long && !self.has_told_lost {
            let lost = one.too_long - self.too_long;
            said.push(format!(
                "{name}: {lost} packets were lost because they are too long; `weir ctl status` counts them"
            ));
            self.has_told_lost = true;
        }
        (self.state, self.mtu, self.problem) = (one.state, one.mtu, one.problem.clone());
        self.too_long = one.too_long;
        said
    }
}

/// Watches the interfaces of a running Weir.
#[derive(Default)]
pub struct Links {
    watch: Option<LinkWatch>,
    /// Indices in the kernel.
    own: Vec<u32>,
    /// Of each interface, in the order of [`status`].
    said: Vec<Said>,
    looked: Option<Instant>,
}

impl Links {
    /// What is to be said of the interfaces now.
    fn look(&mut self, interfaces: &[InterfaceStatus]) -> Vec<String> {
        if self.said.len() != interfaces.len() {
            self.said = interfaces.iter().map(Said::nothing).collect();
        }
        self.said.iter_mut().zip(interfaces).flat_map(|(said, one)| said.see(one)).collect()
    }

    /// Reads the state of all interfaces, and says what has changed.
    fn say<L: Loader>(&mut self, running: &Running<'_, L>) {
        self.looked = Some(Instant::now());
        let interfaces = status(&running.door.controller.ports());
        self.look(&interfaces).iter().for_each(|said| eprintln!("weir: {said}"));
    }
}

impl<L: Loader> Part<L> for Links {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let watch = LinkWatch::open().map_err(|error| Failure::system("a socket for the state of links", error))?;
        self.watch = Some(watch);
        let mut own: Vec<u32> =
            running.door.controller.ports().iter().map(|port| port.nature.kernel_index).filter(|&i| i != 0).collect();
        own.sort_unstable();
        own.dedup();
        self.own = own;
        self.say(running);
        Ok(())
    }

    fn step(&mut self, running: &Running<'_, L>) {
        let own = &self.own;
        let has_news = self.watch.as_mut().is_some_and(|watch| watch.may_have_changed(own));
        if has_news || self.looked.is_none_or(|looked| looked.elapsed() >= INTERVAL) {
            self.say(running);
        }
    }
}

#[cfg(test)]
#[path = "links/tests.rs"]
mod tests;
