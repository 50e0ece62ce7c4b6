//! Backends: each turns a program into source text.

pub mod c;
