//! What the commands of Weir have in common: from the command line to the exit code. Options, failures, reports of
//! counters and limits, and the signals that end a command.
#![forbid(unsafe_code)]

/// Replaces the macro of the standard library in crates that say `#[macro_use] extern crate weir_command`: a message of
/// the level info. It escapes text from outside, and does not panic if standard error is closed. As all macros here, it
/// takes fields in front of the text: `notice!([Attack: 3] "weir: attack {}", 3)`.
#[macro_export]
macro_rules! eprintln {
    ($($message:tt)*) => { $crate::tell!(Info, $($message)*) };
}

/// A message about something important that has changed.
#[macro_export]
macro_rules! notice {
    ($($message:tt)*) => { $crate::tell!(Notice, $($message)*) };
}

/// A message about something that may not work.
#[macro_export]
macro_rules! warning {
    ($($message:tt)*) => { $crate::tell!(Warning, $($message)*) };
}

/// A message about something that does not work.
#[macro_export]
macro_rules! error {
    ($($message:tt)*) => { $crate::tell!(Error, $($message)*) };
}

/// A message with a level and fields.
#[macro_export]
macro_rules! tell {
    ($level:ident, [$($field:ident: $value:expr),+ $(,)?] $($text:tt)*) => {
        $crate::report::say_with(
            $crate::journal::Level::$level,
            &[$(($crate::journal::Field::$field, ($value).to_string())),+],
            &format!($($text)*),
        )
    };
    ($level:ident, $($text:tt)*) => {
        $crate::report::say_with($crate::journal::Level::$level, &[], &format!($($text)*))
    };
}

pub mod additions;
pub mod comparison;
pub mod engine;
pub mod entry;
pub mod failure;
pub mod figures;
pub mod inside;
pub mod journal;
pub mod limit_counts;
pub mod options;
pub mod report;
pub mod signals;
pub mod tracked;
pub mod values;
