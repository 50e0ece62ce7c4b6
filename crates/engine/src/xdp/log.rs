//! Captures the messages of libbpf and the verifier while an object is loaded.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::{PrintLevel, set_print};

/// Maximum length of the kept messages in bytes. A verifier's log can have megabytes, and its end matters most.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Number of lines of the verifier's log in an error.
const LINES_SHOWN: usize = 20;

thread_local! {
    static MESSAGES: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `load` and returns its result with the messages of this thread. Nothing is printed to stderr.
pub(crate) fn listen<T>(load: impl FnOnce() -> T) -> (T, String) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, |_, message| {
            MESSAGES.with_borrow_mut(|messages| {
                if let Some(messages) = messages {
                    messages.push_str(tail(&message, KEPT_BYTES_MAX));
                }
            });
        })));
    });
    MESSAGES.set(Some(String::new()));
    let result = load();
    (result, MESSAGES.take().unwrap_or_default())
}

/// The last `bytes` bytes of a text, or fewer, so that no character is cut.
fn tail(text: &str, bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// The last lines of the verifier's log, if `messages` contains one.
pub(super) fn verifier_log(messages: &str) -> Option<String> {
    const END: &str = "-- END PROG LOAD LOG --";
    const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
    let end = messages.find(END)?;
    let log = &messages[..end];
    let log = log.rfind(BEGIN).map_or(log, |begin| &log[begin + BEGIN.len()..]);
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    Some(lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_cut_to_its_last_lines() {
        let lines: String = (0..100).map(|line| format!("line {line}\n")).collect();
        let messages =
            format!("libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n{lines}-- END PROG LOAD LOG --\nlibbpf: failed\n");
        let log = verifier_log(&messages).expect("there is a log");
        assert!(log.starts_with("line 80\n") && log.ends_with("line 99"), "{log}");
        assert_eq!(verifier_log("libbpf: something else\n"), None);
    }

    #[test]
    fn tails_keep_characters_whole() {
        assert_eq!(tail("aé", 1), "");
        assert_eq!(tail("aé", 2), "é");
        assert_eq!(tail("aé", 9), "aé");
    }
}
