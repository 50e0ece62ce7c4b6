//! One Weir an interface, and one guard.
//!
//! A claim is a socket with a name in the kernel and no place in the file system: it belongs to a network namespace, as interfaces do, and goes
//! with its process. Virtual ports of DPDK are their process's own: two of one name have nothing to do with each other, and are not claimed.

use crate::failure::Failure;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};
use weir_engine::live::link::LinkSwitch;

/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// Claims on interfaces, given up when dropped.
pub(in crate::run) struct Claims {
    _sockets: Vec<UnixListener>,
}

impl Claims {
    /// Claims the interfaces; waits so long for a guard that is not done yet.
    pub fn make<'a>(interfaces: impl Iterator<Item = &'a String>, patience: Duration) -> Result<Self, Failure> {
        let start = Instant::now();
        let mut sockets = Vec::new();
        for interface in interfaces.filter(|interface| !is_private(interface)) {
            sockets.extend(claim(interface, start, patience)?);
        }
        Ok(Claims { _sockets: sockets })
    }
}

/// Whether it is a virtual port of DPDK, whose names begin with those of their drivers (`net_memif0`). An interface of the kernel may be called
/// like that as well.
fn is_private(port: &str) -> bool {
    const VIRTUAL: &str = "net_";
    port.starts_with(VIRTUAL) && LinkSwitch::new(port).index().is_err()
}

fn claim(interface: &str, start: Instant, patience: Duration) -> Result<Option<UnixListener>, Failure> {
    let failed = |error: std::io::Error| Failure::Runtime(format!("claim on {interface}: {error}"));
    let address = SocketAddr::from_abstract_name(format!("weir/{interface}")).map_err(failed)?;
    loop {
        match UnixListener::bind_addr(&address) {
            Ok(socket) => return Ok(Some(socket)),
            Err(error) if error.kind() != ErrorKind::AddrInUse => return Err(failed(error)),
            Err(_) => {}
        }
        if start.elapsed() >= patience {
            // Anybody may use the name; only those who could run a Weir are believed.
            let holder = UnixStream::connect_addr(&address).ok();
            let uid =
                holder.and_then(|holder| rustix::net::sockopt::socket_peercred(&holder).ok()).map(|peer| peer.uid);
            return match uid {
                Some(uid) if !uid.is_root() && uid != rustix::process::geteuid() => Ok(None),
                _ => Err(Failure::Runtime(format!("interface {interface}: another weir has it"))),
            };
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_stands_until_it_is_given_up() {
        let interfaces = ["weir-test-claim".to_owned()];
        let held = Claims::make(interfaces.iter(), Duration::ZERO).expect("nobody else uses the name");
        let refused = Claims::make(interfaces.iter(), Duration::ZERO).err().expect("it is taken");
        assert_eq!(refused.message(), "interface weir-test-claim: another weir has it");
        let waiting = thread::spawn(move || Claims::make(interfaces.iter(), Duration::from_secs(30)).is_ok());
        drop(held);
        assert!(waiting.join().expect("it ends"));
    }

    #[test]
    fn virtual_ports_of_dpdk_are_private_and_cards_are_not() {
        let claims = |ports: &[&str]| {
            let ports: Vec<String> = ports.iter().map(|&port| port.to_owned()).collect();
            Claims::make(ports.iter(), Duration::ZERO)
        };
        let _one = claims(&["net_memif0", "0000:fe:1f.7"]).expect("nobody else uses the names");
        let _other = claims(&["net_memif0", "net_af_packet1"]).expect("ports of another process");
        let refused = claims(&["net_memif0", "0000:fe:1f.7"]).err().expect("there is one such card");
        assert_eq!(refused.message(), "interface 0000:fe:1f.7: another weir has it");
    }
}
