//! A small part of rtnetlink(7): messages with attributes, and a socket for requests in batches.
//!
//! It knows no interface and no filter. What the kernel answers is read through slices whose lengths are proven, so an
//! answer that is cut off or not as expected is an error.

mod message;
mod route;

pub use message::{Malformed, Message, answers, attributes, number, word};
pub use route::{Refusal, Route};
