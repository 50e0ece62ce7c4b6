//! Messages on standard error, with a level and fields.
//!
//! On a terminal or in a file a message is its text. If standard error is the journal of systemd (`JOURNAL_STREAM`
//! names its device and inode), a message is an entry with fields, by journald's protocol (systemd.io,
//! JOURNAL_NATIVE_PROTOCOL). One that the journal does not take at once goes to standard error with the level as
//! `<4>` in front of each line (sd-daemon(3)), so that nothing waits for the journal's socket and no message is lost.
//! The last message of a process goes there too ([`say_last`]).

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

/// The socket of the journal.
const SOCKET: &str = "/run/systemd/journal/socket";

/// How severe a message is, with its number in syslog(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something does not work: packets are not decided as the operator wants.
    Error = 3,
    /// Something may not work, or soon will not.
    Warning = 4,
    /// Something important has changed: attacks, actions, what decides packets.
    Notice = 5,
    /// What Weir does.
    Info = 6,
}

/// A field of a journal entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The number of an attack.
    Attack,
    /// The number of an action.
    Action,
    /// What an action does: its rule.
    Rule,
    /// The number of a generation.
    Generation,
    /// A table or a list of limits.
    List,
    /// An interface.
    Interface,
}

impl Field {
    fn name(self) -> &'static str {
        match self {
            Field::Attack => "WEIR_ATTACK",
            Field::Action => "WEIR_ACTION",
            Field::Rule => "WEIR_RULE",
            Field::Generation => "WEIR_GENERATION",
            Field::List => "WEIR_LIST",
            Field::Interface => "WEIR_INTERFACE",
        }
    }
}

/// Prints a message whose text is escaped already. Write errors are ignored.
pub fn say(level: Level, fields: &[(Field, String)], text: &str) {
    let lines = match journal() {
        None => format!("{text}\n"),
        Some(socket) if socket.send_to(&entry(level, fields, text), SOCKET).is_ok() => return,
        Some(_) => prefixed(level, text),
    };
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// Prints the last message of a process, whose text is escaped already. Write errors are ignored.
///
/// The journal finds the unit of an entry by its process. A busy journal reads the entry after the process has ended,
/// and then `journalctl -u` does not show it. Standard error has had the name of the unit since it was opened.
pub fn say_last(level: Level, text: &str) {
    let lines = if journal().is_some() { prefixed(level, text) } else { format!("{text}\n") };
    let _ = std::io::stderr().lock().write_all(lines.as_bytes());
}

/// A socket to the journal, if standard error leads there.
fn journal() -> Option<&'static UnixDatagram> {
    static JOURNAL: OnceLock<Option<UnixDatagram>> = OnceLock::new();
    let open = || {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let found = rustix::fs::fstat(std::io::stderr().as_fd()).ok()?;
        if !is_stream(&stream, found.st_dev, found.st_ino) {
            return None;
        }
        let socket = UnixDatagram::unbound().ok()?;
        socket.set_nonblocking(true).ok().map(|()| socket)
    };
    JOURNAL.get_or_init(open).as_ref()
}

/// Whether `JOURNAL_STREAM` names this device and inode.
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    let numbers = stream.split_once(':').map(|(device, inode)| (device.parse(), inode.parse()));
    numbers == Some((Ok(device), Ok(inode)))
}

/// A journal entry. Each value has its length in front, so a line end in it begins no other field.
fn entry(level: Level, fields: &[(Field, String)], text: &str) -> Vec<u8> {
    let mut bytes = format!("PRIORITY={}\nSYSLOG_IDENTIFIER=weir\n", level as u8).into_bytes();
    let values = fields.iter().map(|(field, value)| (field.name(), value.as_str()));
    for (name, value) in values.chain([("MESSAGE", text)]) {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'\n');
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(b'\n');
    }
    bytes
}

/// The text with the level in front of each line.
fn prefixed(level: Level, text: &str) -> String {
    let mut lines = String::with_capacity(text.len() + 8);
    for line in text.lines() {
        let _ = writeln!(lines, "<{}>{line}", level as u8);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_fields_that_no_text_can_forge() {
        let fields = [(Field::Attack, "3".to_owned()), (Field::Rule, "drop\nPRIORITY=0".to_owned())];
        let bytes = entry(Level::Warning, &fields, "weir: attack 3\nMESSAGE=other");
        let expected =
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=weir\nWEIR_ATTACK\n\x01\0\0\0\0\0\0\x003\nWEIR_RULE\n\x0f\0\0\0\0\0\0\0\
                         drop\nPRIORITY=0\nMESSAGE\n\x1c\0\0\0\0\0\0\0weir: attack 3\nMESSAGE=other\n";
        assert_eq!(bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn each_line_has_its_level() {
        assert_eq!(prefixed(Level::Error, "one\ntwo"), "<3>one\n<3>two\n");
    }

    #[test]
    fn only_the_stream_itself_is_the_journal() {
        assert!(is_stream("9:34", 9, 34));
        for other in ["9:35", "8:34", "9", "", "9:34:1", "-9:34", "9: 34"] {
            assert!(!is_stream(other, 9, 34), "{other}");
        }
    }
}
