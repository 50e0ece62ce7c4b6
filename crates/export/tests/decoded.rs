//! What the encoders write, read by decoders that are not ours.

#[path = "decoded/flows.rs"]
mod flows;
#[path = "decoded/ipfix.rs"]
mod ipfix;
#[path = "decoded/sflow.rs"]
mod sflow;
