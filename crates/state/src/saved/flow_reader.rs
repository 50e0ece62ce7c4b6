//! Reads the file of flows. It is read twice, a frame at a time: at the start to find damage and the last record of
//! each slot, and when there is a table that the flows enter. So it may be larger than memory should hold.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir_abi::flow::{
    Exchanges, Flow, FlowNeeds, FlowState, SIZE_MAX, SLOTS, TICK_SHIFT, TICKS, TIMEOUT_MAX_MS, Window,
};
use weir_abi::flow::{age, ticks, timeout_ticks};

use super::flow_record::{FrameTime, Record, read};
use super::folder::{FLOWS, Folder};
use super::frame::{FrameReader, Purpose};
use super::log::Clocks;
use super::state_file::StateFile;
use crate::flows::{FlowTable, KnownFlow};

/// Flows that wait for a table.
pub struct SavedFlows {
    /// Its path, for messages.
    path: String,
    /// The open file. Its name may belong to another one later.
    file: Mutex<StateFile>,
    /// For each slot of the former table the number, from 1, of the frame with its last record.
    last: Vec<u32>,
    /// Number of frames that are whole.
    frames: u32,
    notices: Mutex<Vec<String>>,
}

/// Numbers of flows that have not expired.
#[derive(Clone, Copy, Default)]
struct Restored {
    entered: usize,
    no_room: usize,
    /// Proxied ones, if the policy cannot translate them.
    untranslated: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the flows of a folder. Without a file there are none. Damage is told in `notices`; the flows before it count.
/// A file that is no such file, or that another version of Weir wrote, is set aside.
///
/// # Errors
/// The file cannot be set aside.
pub(super) fn find(folder: &Folder, notices: &mut Vec<String>) -> io::Result<Option<SavedFlows>> {
    let path = folder.shown(FLOWS);
    let problem = match folder.read(FLOWS) {
        Ok(None) => return Ok(None),
        Err(problem) => problem,
        Ok(Some(file)) => match SavedFlows::open(&path, file) {
            Ok((saved, damage)) => {
                notices.extend(damage.map(|damage| format!("{path}: {damage}")));
                return Ok(Some(saved));
            }
            Err(problem) => problem,
        },
    };
    let kept = folder.set_aside(FLOWS)?;
    notices.push(format!("{path}: {problem}; it is kept as {kept}; flows begin anew"));
    Ok(None)
}

impl SavedFlows {
    /// Reads a file for the first time. Returns what is wrong with its end besides.
    ///
    /// # Errors
    /// It is no such file.
    fn open(path: &str, file: StateFile) -> Result<(Self, Option<String>), String> {
        let reader = file.reader().map_err(|error| error.to_string())?;
        let (mut frames, slots) = FrameReader::open(reader, Purpose::Flows)?;
        if slots > u64::from(SIZE_MAX) + SLOTS as u64 {
            return Err(format!("a table of {slots} flows is too large"));
        }
        let (mut last, mut count) = (vec![0; slots as usize], 0);
        let damage = loop {
            let at = frames.at();
            let problem = match frames.next() {
                Ok(None) => break None,
                Err(problem) => problem,
                Ok(Some(payload)) => match read(payload, last.len()) {
                    Some((_, records)) => {
                        count += 1;
                        records.iter().for_each(|record| last[record.slot as usize] = count);
                        continue;
                    }
                    None => "unknown record".to_owned(),
                },
            };
            break Some(format!("byte {at}: {problem}; the flows from there on are lost"));
        };
        drop(frames);
        let (path, file, notices) = (path.to_owned(), Mutex::new(file), Mutex::default());
        Ok((SavedFlows { path, file, last, frames: count, notices }, damage))
    }

    /// Enters the flows that have not expired in an empty table, which no code may use meanwhile. Can be repeated.
    pub fn restore(&self, table: &FlowTable, needs: &FlowNeeds, clocks: Clocks) {
        let mut restored = Restored::default();
        let problem = self.enter(table, needs, clocks, &mut restored).err();
        let Restored { entered, no_room, untranslated } = restored;
        let (all, size) = (entered + no_room + untranslated, table.slot_count());
        let told = [
            problem.map(|problem| format!("{problem}; the flows from there on are lost")),
            (no_room > 0)
                .then(|| format!("{no_room} of {all} flows have no room in a table of {size}, and are left out")),
            (untranslated > 0).then(|| {
                format!("{untranslated} of {all} flows are proxied, and are left out: the policy has no `synproxy`")
            }),
        ];
        let told = told.into_iter().flatten().map(|told| format!("{}: {told}", self.path));
        lock(&self.notices).extend(told);
    }

    /// Counts the flows in `restored`.
    fn enter(
        &self,
        table: &FlowTable,
        needs: &FlowNeeds,
        clocks: Clocks,
        restored: &mut Restored,
    ) -> Result<(), String> {
        let file = lock(&self.file);
        let reader = file.reader().map_err(|error| error.to_string())?;
        let (mut frames, _) = FrameReader::open(reader, Purpose::Flows)?;
        for number in 1..=self.frames {
            let payload = frames.next()?.ok_or("the end is missing")?;
            let (time, records) = read(payload, self.last.len()).ok_or("unknown record")?;
            let alive = |Record { slot, flow }: Record| {
                let known = flow.filter(|_| self.last[slot as usize] == number)?;
                let flow = continued(known.flow, time, clocks)?;
                let has_expired = needs.timeouts.has_passed(&flow, known.key.protocol(), ticks(clocks.now_ns));
                (!has_expired).then_some(KnownFlow { flow, ..known })
            };
            let mut flows: Vec<KnownFlow> = records.into_iter().filter_map(alive).collect();
            let alive = flows.len();
            flows.retain(|known| needs.proxied || known.proxied.is_none());
            let entered = table.enter(&flows);
            restored.entered += entered;
            restored.no_room += flows.len() - entered;
            restored.untranslated += alive - flows.len();
        }
        Ok(())
    }

    /// What was found since the last call.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.notices))
    }
}

/// A flow as it continues: its time in the present clock, and a connection without checks of windows, because more may
/// have passed than was saved. One that is open and whose numbers were known is `restored` until both sides have shown
/// where they are. A server that has not answered the proxy's SYN must still acknowledge it. `None` if the last packet
/// is so long ago that no timeout lasts.
fn continued(flow: Flow, time: FrameTime, clocks: Clocks) -> Option<Flow> {
    let since = clocks.day_ns.saturating_sub(time.day_ns) >> TICK_SHIFT;
    let age = since + u64::from(age(time.now, flow.time));
    if age > timeout_ticks(TIMEOUT_MAX_MS).into() {
        return None;
    }
    let time = ticks(clocks.now_ns).wrapping_sub(age as u32) & (TICKS - 1);
    let (was_liberal, liberal) = (flow.liberal, flow.state.is_of_tcp());
    let mut flow = Flow { time, syn: false, liberal, ..flow };
    match flow.state {
        // What was sent is a SYN, or a SYN-ACK.
        FlowState::SynSent => {
            let client = &mut flow.sides[flow.opener];
            client.next = client.una.wrapping_add(1);
            flow.liberal = false;
        }
        FlowState::SynReceived => {
            let server = &mut flow.sides[1 - flow.opener];
            server.next = server.una.wrapping_add(1);
        }
        FlowState::Established | FlowState::Resetting if !was_liberal => {
            flow.state = FlowState::Restored;
            flow.sides.iter_mut().for_each(|side| side.window = Window::NONE);
        }
        FlowState::Replied => Exchanges { since: time, ..Exchanges::of(&flow) }.store(&mut flow),
        _ => {}
    }
    Some(flow)
}
