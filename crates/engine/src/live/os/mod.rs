//! What the operating system knows of interfaces: devices, links, carriers, queues, and the small netlink that asks it.

pub mod bond;
pub mod carrier;
pub mod control_socket;
pub mod descriptor;
pub mod device;
pub mod inherited;
pub mod link;
pub mod link_watch;
pub(crate) mod netlink;
pub mod packet_socket;
pub mod promiscuous;
pub mod rss;
pub mod speed;
pub mod tap;
