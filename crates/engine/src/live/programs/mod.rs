//! Small programs at interfaces: attached by a link that ends with Weir, or resident, such as a bypass and a gate.

pub mod attach;
pub mod bypass;
pub mod gate;
pub mod redirect;
pub mod resident;
