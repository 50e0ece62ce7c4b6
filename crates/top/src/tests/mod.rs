//! Screens as text, and what events change.

mod events;
mod picture;
mod scenes;
mod screens;
