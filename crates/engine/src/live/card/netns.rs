//! Work in another network namespace.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::EngineError;

/// Where `ip netns add NAME` puts the namespace.
const NAMED: &str = "/run/netns";

/// The file of a namespace: a name without `/` is one of `ip netns`.
fn file(namespace: &Path) -> PathBuf {
    let is_name = namespace.components().count() == 1 && namespace.is_relative();
    if is_name { Path::new(NAMED).join(namespace) } else { namespace.to_owned() }
}

/// Runs `work` on a thread of its own in a namespace. `None` is the namespace of the caller.
///
/// # Errors
/// There is no such namespace, the process lacks the right to enter it (CAP_SYS_ADMIN), or `work` fails.
pub fn within<R: Send, E: From<EngineError> + Send>(
    namespace: Option<&Path>,
    work: impl FnOnce() -> Result<R, E> + Send,
) -> Result<R, E> {
    let Some(namespace) = namespace else { return work() };
    let path = file(namespace);
    let failed = |source| EngineError::Io { path: path.clone(), source };
    let opened = File::open(&path).map_err(failed)?;
    let enter = || {
        let entered = move_into_link_name_space(opened.as_fd(), Some(LinkNameSpaceType::Network));
        entered.map_err(|errno| failed(errno.into()))?;
        work()
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("weir-netns".to_owned()).spawn_scoped(scope, enter);
        let thread = thread.map_err(failed)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::{file, within};
    use crate::EngineError;
    use std::path::Path;

    #[test]
    fn a_name_is_a_namespace_of_ip_netns_and_a_path_is_a_file() {
        assert_eq!(file(Path::new("card")), Path::new("/run/netns/card"));
        assert_eq!(file(Path::new("/proc/7/ns/net")), Path::new("/proc/7/ns/net"));
        assert_eq!(within(None, || Ok::<_, EngineError>(7)).ok(), Some(7));
        let missing =
            within(Some(Path::new("weir-none")), || Ok::<_, EngineError>(7)).expect_err("there is none").to_string();
        assert!(missing.contains("/run/netns/weir-none"), "{missing}");
    }
}
