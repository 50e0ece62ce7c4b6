//! The third stage: the intermediate representation.
