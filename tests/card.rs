//! A card in front of the software. Card and software together decide and count as the policy alone does.
//!
//! `WEIR_CARD_POLICIES=n` sets the number of random policies, which is 200 otherwise. Seeds of failing cases are kept
//! in tests/card.regressions.
//! `WEIR_CARD_COMPILED=n` sets the number of those that are compiled, too.

#[path = "card/categories.rs"]
mod categories;
#[path = "card/compiled.rs"]
mod compiled;
#[path = "conntrack/flows.rs"]
mod conntrack_flows;
mod engines;
#[path = "random/flows.rs"]
mod flows;
#[path = "card/hybrid.rs"]
mod hybrid;
#[path = "random/interpreter.rs"]
mod interpreter;
#[path = "random/packets.rs"]
mod packets;
#[path = "card/profiles.rs"]
mod profiles;
#[path = "proxied/flows.rs"]
mod proxied_flows;
#[path = "card/split.rs"]
mod split;
#[path = "card/wires.rs"]
mod wires;
#[path = "card/workers.rs"]
mod workers;
