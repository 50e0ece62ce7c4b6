//! Screens as text, and what events change.

mod events;
mod scenes;
mod screens;
