//! Messages when a link or an MTU changes, or packets are too long.
//!
//! The kernel's notifications only say that a state may have changed. It is read then, never where packets move.

use crate::generations::generation::Loader;
use crate::interfaces::states::status;
use crate::parts::part::{Part, Running};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{InterfaceStatus, LinkState};
use weir_engine::live::os::link_watch::LinkWatch;

/// Interval of looks at what no notification tells: lost packets, and ports that the kernel does not know.
const INTERVAL: Duration = Duration::from_secs(2);

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
        self.look(&interfaces).iter().for_each(|said| warning!("weir: {said}"));
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
