//! What libbpf and the verifier say while an object is loaded.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::{PrintLevel, set_print};

/// The most that is kept; a verifier's log can be megabytes, and its end is what matters.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Lines of the verifier's log that an error shows.
const LINES_SHOWN: usize = 20;

thread_local! {
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `load` and returns what was said on this thread meanwhile. Nothing reaches stderr.
pub(crate) fn listen<T>(load: impl FnOnce() -> T) -> (T, String) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        set_print(Some((PrintLevel::Warn, |_, message| {
            HEARD.with_borrow_mut(|heard| {
                if let Some(heard) = heard {
                    heard.push_str(tail(&message, KEPT_BYTES_MAX));
                }
            });
        })));
    });
    HEARD.set(Some(String::new()));
    let result = load();
    (result, HEARD.take().unwrap_or_default())
}

/// The last `bytes` of a text, without cutting a character.
fn tail(text: &str, bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// The last lines of the verifier's log, if `heard` holds one.
pub(super) fn verifier_log(heard: &str) -> Option<String> {
    const END: &str = "-- END PROG LOAD LOG --";
    const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
    let end = heard.find(END)?;
    let log = &heard[..end];
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
        let heard =
            format!("libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n{lines}-- END PROG LOAD LOG --\nlibbpf: failed\n");
        let log = verifier_log(&heard).expect("there is a log");
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
