//! AF_XDP sockets. Packets go from the card's queue into memory of this process, are decided there, and are sent from
//! the same place. Drivers with zero-copy copy nothing. With others (veth) the kernel copies once in each direction.
//!
//! If the interface's MTU permits it, a packet longer than a frame takes several frames. Filters see its window.
//!
//! A lane has a socket on each of its queues of every interface, and one umem for all of them. A packet keeps its frame
//! from reception to the completion ring of the other interface. The addresses and routes of the interfaces are not
//! used, and no change of an interface outlives the process.

mod busy;
mod lane;
mod open;
mod options;
mod port;
mod program;
mod queue;
mod ring;
mod umem;
mod way;
mod window;

pub use busy::Waiting;
pub use lane::AfXdpLane;
