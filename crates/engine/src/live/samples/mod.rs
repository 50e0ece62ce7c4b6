//! Reads the packets that rules sample. Only the datapath can write what is read here: workers in user space hand
//! samples over in memory of this process (`queue.rs`), and programs in the kernel in a ring that only they have
//! (`ring.rs`). An interface would not do, because since Linux 5.7 every user may send packets out of one.
//!
//! Queue and ring are bounded and lose samples without room. Samples are read in the order in which they were made.

pub mod queue;
pub mod ring;
mod sample;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use weir_abi::{BURST_MAX, Verdict};

use crate::live::lane::{Lane, PortCounters, Role, Side, add};
use crate::{EngineError, FrameBurst};
use queue::SampleQueue;
use ring::SampleRing;
pub use sample::Sample;

/// Pause of a reader between two looks at an empty queue. Workers do not wake it up, so a sample costs no system call.
const NAP: Duration = Duration::from_millis(2);

/// The reader of samples. One thread reads.
pub struct SampleReader {
    source: Source,
}

/// Where samples come from.
enum Source {
    /// Workers of this process.
    Queue(Arc<SampleQueue>),
    /// Programs in the kernel.
    Ring(Arc<SampleRing>),
}

impl SampleReader {
    /// Creates a queue, for workers.
    pub fn create_queue() -> Self {
        SampleReader { source: Source::Queue(Arc::default()) }
    }

    /// Creates a ring, for programs in the kernel.
    ///
    /// # Errors
    /// The process lacks the right to create BPF maps.
    pub fn create_ring() -> Result<Self, EngineError> {
        Ok(SampleReader { source: Source::Ring(Arc::new(SampleRing::create()?)) })
    }

    /// The queue, if samples come from one.
    pub fn queue(&self) -> Option<Arc<SampleQueue>> {
        match &self.source {
            Source::Queue(queue) => Some(queue.clone()),
            Source::Ring(_) => None,
        }
    }

    /// The ring, if samples come from one.
    pub fn ring(&self) -> Option<Arc<SampleRing>> {
        match &self.source {
            Source::Queue(_) => None,
            Source::Ring(ring) => Some(ring.clone()),
        }
    }

    /// Waits for a sample, up to `timeout`. Returns whether there is one.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        match &self.source {
            Source::Queue(queue) => Ok(wait_for(queue, timeout)),
            Source::Ring(ring) => wait_on(ring, timeout),
        }
    }

    /// Number of samples that wait to be read.
    pub fn waiting(&self) -> u64 {
        match &self.source {
            Source::Queue(queue) => queue.waiting(),
            Source::Ring(ring) => ring.waiting(),
        }
    }

    /// Copies the beginning of the next sample to `frame`; `None` if there is none now.
    pub fn read<'a>(&self, frame: &'a mut [u8]) -> Option<Sample<'a>> {
        let read = match &self.source {
            Source::Queue(queue) => queue.read(frame),
            Source::Ring(ring) => ring.read(frame),
        };
        read.map(|(bytes, wire_len, from)| Sample { bytes: &frame[..bytes], wire_len, from })
    }
}

fn wait_for(queue: &SampleQueue, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if queue.has_sample() || left.is_zero() {
            return queue.has_sample();
        }
        thread::sleep(NAP.min(left));
    }
}

fn wait_on(ring: &SampleRing, timeout: Duration) -> io::Result<bool> {
    let mut waiting = [PollFd::from_borrowed_fd(ring.as_fd(), PollFlags::IN)];
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
    match poll(&mut waiting, Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A worker's end of the queue.
pub(super) struct WorkerSamples {
    queue: Arc<SampleQueue>,
    /// Counters of the lane's ports, by side.
    ports: [Vec<Arc<PortCounters>>; 2],
}

impl WorkerSamples {
    /// The end of the worker that drives a lane.
    pub fn new(queue: Arc<SampleQueue>, lane: &dyn Lane) -> Self {
        let of = |side: Side| lane.ports().into_iter().filter(|port| port.role == Role::from(side)).collect();
        WorkerSamples { queue, ports: Side::BOTH.map(of) }
    }

    /// Takes the samples of a burst whose packets end before as many bytes as `cut` says. Samples are of received
    /// packets. The lane makes no copies of them any more: its divert interface is for diverted packets.
    pub fn take(&self, from: Side, burst: &FrameBurst<'_>, verdicts: &mut [Verdict], cut: &[u8; BURST_MAX]) {
        let made = verdicts.iter().filter(|verdict| verdict.sampled()).count();
        if made == 0 {
            return;
        }
        // Reads only what was counted.
        add(&self.ports[from as usize][burst.port()].sampled, made as u64);
        for (index, verdict) in verdicts.iter_mut().enumerate().filter(|(_, verdict)| verdict.sampled()) {
            let (frame, cut) = (burst.frames()[index], cut[index]);
            let left = frame.cap.min(frame.len.saturating_sub(u32::from(cut))) as usize;
            self.queue.put(Sample { bytes: &burst.bytes(index)[..left], wire_len: frame.len - u32::from(cut), from });
            *verdict = Verdict(verdict.0 & !Verdict::SAMPLED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_set::FrameSet;
    use crate::live::memory_lane::MemoryLane;
    use weir_abi::verdict::Sampled;
    use weir_abi::{Action, Link, Reason};

    #[test]
    fn a_worker_takes_samples_without_trailers_and_leaves_none_to_the_lane() {
        let long = [7u8; 1500];
        let packets: [&[u8]; 3] = [&long[..60], &long, &[9; 70]];
        let set = Arc::new(FrameSet::new(Link::Ethernet, packets.map(|bytes| (bytes, bytes.len() as u32))));
        let lane = MemoryLane::new([set.clone(), set.clone()], [3, 3], ());
        let reader = SampleReader::create_queue();
        let samples = WorkerSamples::new(reader.queue().expect("it has one"), &lane);
        let verdict = |action, sampled| Verdict::new(action, Reason::rule(0), sampled);
        let mut cut = [0; BURST_MAX];
        cut[2] = 20;
        let mut frame = [0; 256];
        for from in Side::BOTH {
            let mut verdicts = [
                verdict(Action::Accept, Sampled::No),
                verdict(Action::Drop, Sampled::Yes),
                verdict(Action::Divert, Sampled::Yes),
            ];
            samples.take(from, &set.burst(0), &mut verdicts, &cut);
            assert_eq!(reader.waiting(), 2);
            assert_eq!(verdicts.map(Verdict::action), [Action::Accept, Action::Drop, Action::Divert].map(Some));
            assert!(verdicts.iter().all(|verdict| !verdict.sampled()), "the divert interface gets no copy");
            let sample = reader.read(&mut frame).expect("the second");
            assert_eq!((sample.from, sample.wire_len, sample.bytes), (from, 1500, &long[..256]));
            let sample = reader.read(&mut frame).expect("the third");
            assert_eq!((sample.from, sample.wire_len, sample.bytes), (from, 50, &[9; 50][..]));
            assert!(reader.read(&mut frame).is_none() && reader.waiting() == 0);
        }
        assert_eq!(lane.ports().iter().map(|port| port.read().sampled).collect::<Vec<_>>(), [2, 2]);
    }
}
