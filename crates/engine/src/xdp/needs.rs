//! What programs need of the kernel.

use crate::EngineError;

/// Helpers that programs call and older kernels lack: number (`enum bpf_func_id`), first release of
/// Linux, purpose.
const HELPERS: [(u32, &str, &str); 6] = [
    (131, "5.8", "the ring of samples"),
    (160, "5.11", "times of flows and entries"),
    (181, "5.17", "loops"),
    (188, "5.18", "packets in several buffers"),
    (189, "5.18", "packets in several buffers"),
    (190, "5.18", "packets in several buffers"),
];

/// The error for a program that calls a helper which this kernel does not have. `None` if the log of the verifier says
/// something else.
pub(super) fn missing_helper(object: &str, log: &str) -> Option<EngineError> {
    // kernel/bpf/verifier.c, check_helper_call(): "invalid func unknown#189", "unknown func bpf_loop#181".
    let number = log.lines().find_map(|line| {
        let name = line.strip_prefix("invalid func ").or_else(|| line.strip_prefix("unknown func "))?;
        name.rsplit_once('#')?.1.trim().parse::<u32>().ok()
    })?;
    let &(_, release, purpose) = HELPERS.iter().find(|(helper, ..)| *helper == number)?;
    Some(EngineError::KernelTooOld { object: object.to_owned(), release, purpose, running: running_release() })
}

/// The release of the running kernel, for messages.
pub(crate) fn running_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::missing_helper;

    #[test]
    fn a_missing_helper_names_the_release_that_has_it() {
        let log = "5: (b7) r4 = 8\n6: (85) call unknown#189\ninvalid func unknown#189\nprocessed 7 insns";
        let error = missing_helper("edge", log).expect("the helper is known").to_string();
        assert!(
            error.starts_with("xdp: edge needs Linux 5.18 or newer for packets in several buffers, and this is "),
            "{error}"
        );
        assert!(missing_helper("edge", "unknown func bpf_loop#181").is_some());
        for other in ["R1 invalid mem access 'scalar'", "invalid func unknown#9999", "call unknown#189"] {
            assert!(missing_helper("edge", other).is_none(), "{other}");
        }
    }
}
