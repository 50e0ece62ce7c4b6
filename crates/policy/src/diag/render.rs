//! Renders diagnostics for a terminal.
