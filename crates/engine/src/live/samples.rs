//! Reads the packets that rules sample: the divert interface is a tap, and this process is its other end.
//!
//! Every engine sends samples to the divert interface, so a reader needs no code in the datapath. On a host that Weir
//! protects there is no such interface, and a ring takes its place (`sample_ring.rs`). The interface leaves
//! with the process, however that ends. The kernel drops what the queue has no room for. Its headers are read in the
//! order in which they were sent.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::EngineError;
use crate::live::device::Device;
use crate::live::sample_ring::SampleRing;
use crate::live::tap::Tap;
use crate::xdp::load::SAMPLES;

/// Names that the interface may have. The kernel puts a number in place of `%d`.
const NAMES: &str = "weir%d";
/// Packets that wait to be read: the reader may pause for a quarter of a second at 16,000 packets a second.
const QUEUE_PACKETS: u32 = 4096;
/// The shortest MTU that Ethernet interfaces have.
const MTU_MIN: u32 = 1500;

/// The reader of samples. One thread reads.
pub struct SampleReader {
    source: Source,
}

/// Where samples come from.
enum Source {
    /// An interface, to which engines send copies.
    Tap(Tap),
    /// A ring, on a host that Weir protects.
    Ring(Arc<SampleRing>),
}

/// A sample: the bytes of a packet, or its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The length of the packet.
    pub wire_len: u32,
}

impl SampleReader {
    /// Creates the interface. It takes packets as long as any of the interfaces `between` has.
    ///
    /// # Errors
    /// The process lacks the right to create interfaces (CAP_NET_ADMIN), or the kernel does not support them.
    pub fn create(between: &[String]) -> Result<Self, EngineError> {
        let mtus = between.iter().map(|name| Device::open(name)?.mtu());
        let mtu = mtus.collect::<Result<Vec<u32>, _>>()?.into_iter().max().unwrap_or(0).max(MTU_MIN);
        let tap = Tap::create(NAMES)?;
        // A kernel without IPv6 has no such file, and sends nothing of its own either.
        let _without = fs::write(format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", tap.interface()), "1");
        let device = Device::open(tap.interface())?;
        let flags = libc::IFF_NOARP | libc::IFF_UP;
        let set = device.set_mtu(mtu).and_then(|()| device.set_queue(QUEUE_PACKETS));
        set.and_then(|()| device.set_flags(flags, flags)).map_err(|error| device.failed(error))?;
        Ok(SampleReader { source: Source::Tap(tap) })
    }

    /// Creates a ring, for a host that Weir protects.
    ///
    /// # Errors
    /// The process lacks the right to create BPF maps.
    pub fn create_ring() -> Result<Self, EngineError> {
        Ok(SampleReader { source: Source::Ring(Arc::new(SampleRing::create()?)) })
    }

    /// The ring, if samples come from one.
    pub fn ring(&self) -> Option<Arc<SampleRing>> {
        match &self.source {
            Source::Tap(_) => None,
            Source::Ring(ring) => Some(ring.clone()),
        }
    }

    /// The name of the interface, or of the ring.
    pub fn interface(&self) -> &str {
        match &self.source {
            Source::Tap(tap) => tap.interface(),
            Source::Ring(_) => SAMPLES,
        }
    }

    /// Waits for a packet, up to `timeout`. Returns whether there is one.
    ///
    /// # Errors
    /// The interface failed.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let source = match &self.source {
            Source::Tap(tap) => tap.as_fd(),
            Source::Ring(ring) => ring.as_fd(),
        };
        let mut waiting = [PollFd::from_borrowed_fd(source, PollFlags::IN)];
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut waiting, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads a packet into `frame`; `None` if there is no packet now.
    ///
    /// # Errors
    /// The interface failed.
    pub fn read<'a>(&self, frame: &'a mut [u8]) -> Result<Option<Sample<'a>>, EngineError> {
        let read = match &self.source {
            Source::Tap(tap) => tap.read_into(frame)?.map(|bytes| (bytes, bytes as u32)),
            Source::Ring(ring) => ring.read(frame),
        };
        Ok(read.map(|(bytes, wire_len)| Sample { bytes: &frame[..bytes], wire_len }))
    }
}
