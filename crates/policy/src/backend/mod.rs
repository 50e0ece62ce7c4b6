//! Backends: a program in, an artifact's text out.

pub mod c;
