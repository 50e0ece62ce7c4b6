//! The card's RTL has the numbers of `crates/abi/src/card.rs`, under the same names.

use crate::assert_none;
use crate::tree::root;
use std::collections::BTreeMap;
use weir_abi::card::{FRAME_BYTES_MAX, SEAL_BYTES, act, control, field, header, memory, mode, register, source};
use weir_card::Profile;

/// The constants of the package `layout` that are numbers, by name.
fn constants() -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(root().join("hw/rtl/layout.sv")).expect("the package exists");
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("localparam ")?.split_once(';'));
    let named = lines.filter_map(|(declaration, _)| declaration.split_once(" = "));
    let constant = |(declared, value): (&str, &str)| {
        let name = declared.split_whitespace().last().expect("a constant has a name").to_owned();
        let number = match value.split_once('\'') {
            None => value.parse(),
            Some((_, digits)) => {
                let radix = if digits.starts_with('h') { 16 } else { 10 };
                u64::from_str_radix(&digits[1..], radix)
            }
        };
        (name, number.expect("constants of the package are plain numbers"))
    };
    named.map(constant).collect()
}

macro_rules! shared {
    ($($prefix:literal $module:ident { $($name:ident)* })*) => {
        vec![$($((concat!($prefix, stringify!($name)), u64::from($module::$name)),)*)*]
    };
}

/// These numbers in Rust.
fn expected() -> Vec<(&'static str, u64)> {
    let mut expected = shared! {
        "SOURCE_" source { FLAGS HEADERS PROTOCOL SPORT DPORT SADDR DADDR LOOKUPS }
        "HEADER_" header { ANY VLAN QINQ IPV4 IPV6 IP TCP UDP ICMP ICMP6 PORTS TRANSPORT }
        "FIELD_" field {
            PROTOCOL SPORT DPORT TCP_FLAGS SADDR DADDR TTL LENGTH ICMP_TYPE ICMP_CODE VLAN_ID TCP_WINDOW
        }
        "MEMORY_" memory { CONFIG PATTERNS RULES SELECT LOOKUPS COUNTERS COUNTERS_BEFORE DIRECT EXTENSION }
        "REGISTER_" register { SEAL_ANSWERS SEAL_ALONE SHAPE MODE }
        "MODE_" mode { OPTIONS_ALONE PLAIN }
        "ACT_" act { COUNT DROP END }
        "CONTROL_" control { ETHER_TYPE WRITE COMMIT READ ANSWER }
    };
    expected.extend([
        ("SEAL_BYTES", SEAL_BYTES as u64),
        ("REGISTER_COUNT", register::COUNT as u64),
        ("CONTROL_HEADER_BYTES", control::HEADER_BYTES as u64),
        ("CONTROL_WORDS_MAX", control::WORDS_MAX as u64),
        ("BEATS_MAX", FRAME_BYTES_MAX as u64 / 64),
    ]);
    expected
}

#[test]
fn rtl_and_rust_agree_on_every_number() {
    let constants = constants();
    let differs = |(name, value): (&str, u64)| {
        let found = constants.get(name).copied();
        (found != Some(value)).then(|| format!("{name} is {value} in Rust, {found:?} in hw/rtl/layout.sv"))
    };
    assert_none(expected().into_iter().filter_map(differs).collect(), "shared numbers are equal");
}

#[test]
fn profiles_of_synthesis_read() {
    let text = std::fs::read_to_string(root().join("hw/synth/lfe5-85.card")).expect("the profile exists");
    Profile::parse(&text).unwrap_or_else(|error| panic!("hw/synth/lfe5-85.card: {error}"));
}
