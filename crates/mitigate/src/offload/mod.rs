//! Which blocked sources a card drops.
