//! Proxied flows, whose records have what translates them, and files of the first version, which have none.

use super::*;
use weir_abi::flow::{Agreed, Proxied};

fn proxied(nth: u32, state: FlowState) -> KnownFlow {
    let agreed = Agreed { client_scale: 7, told_scale: 9, timestamps: nth.is_multiple_of(3), sack: true };
    let asked = Proxied::new(nth << 8, !nth, 1460, agreed);
    let kept = if state == FlowState::SynSent { asked } else { asked.answered(nth ^ 0xffff, Some(nth)) };
    KnownFlow { key: key(nth, TCP), flow: Flow { proxied: true, ..flow(state, nth) }, proxied: Some(kept) }
}

fn known(table: &FlowTable) -> Vec<KnownFlow> {
    let slots = (0..table.slot_count()).map(|number| table.slot(number));
    let mut known: Vec<KnownFlow> =
        slots.filter_map(|slot| if let Slot::Flow(known) = slot { Some(known) } else { None }).collect();
    known.sort_by_key(|known| known.key.words);
    known
}

/// As [`restored`], with a policy that has a proxy.
fn restored_by_proxy(path: &Path, size: u32) -> (Vec<KnownFlow>, Vec<String>) {
    let mut restored = restore(&Folder::open(path).unwrap(), Clocks::now()).unwrap();
    let table = table(size, 99);
    table.keep_proxied().unwrap();
    if let Some(saved) = restored.flows {
        saved.restore(&table, &needs(size, true), Clocks::now());
        restored.notices.extend(saved.take_notices());
    }
    table.verify().unwrap();
    (known(&table), restored.notices)
}

#[test]
fn proxied_flows_continue_with_what_translates_them_also_during_their_handshake() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(1000, 1);
    first.keep_proxied().unwrap();
    let opening = [FlowState::SynSent, FlowState::SynReceived];
    let open = [FlowState::Established, FlowState::Resetting, FlowState::FinWait, FlowState::CloseWait];
    let over = [FlowState::SynSent2, FlowState::TimeWait, FlowState::Closed];
    let states = opening.into_iter().chain(open).chain(over);
    let flows: Vec<KnownFlow> = (0..).zip(states).map(|(nth, state)| proxied(nth, state)).collect();
    assert_eq!(first.enter(&flows), flows.len());
    assert!(enter(&first, &key(20, TCP), &flow(FlowState::Established, 5)));
    save(folder.path(), &first);

    let (found, notices) = restored_by_proxy(folder.path(), 64);
    assert_eq!((found.len(), notices), (opening.len() + open.len() + 1, vec![]));
    for known in found.iter().filter(|known| known.key != key(20, TCP)) {
        let before = flows.iter().find(|before| before.key == known.key).unwrap();
        let mut expected = continued(&before.flow, known.flow.time);
        if before.flow.state == FlowState::SynSent {
            // The SYN must be acknowledged.
            (expected.liberal, expected.sides[1].next) = (false, expected.sides[1].una + 1);
        }
        if before.flow.state == FlowState::SynReceived {
            // And the SYN-ACK.
            expected.sides[0].next = expected.sides[0].una + 1;
        }
        assert_eq!(*known, KnownFlow { flow: expected, ..*before });
    }
}

#[test]
fn a_policy_without_a_proxy_leaves_proxied_flows_out() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(1000, 1);
    first.keep_proxied().unwrap();
    let flows: Vec<KnownFlow> = (0..7).map(|nth| proxied(nth, FlowState::Established)).collect();
    assert_eq!(first.enter(&flows), 7);
    assert!(enter(&first, &key(20, TCP), &flow(FlowState::Established, 5)));
    save(folder.path(), &first);
    let (second, notices) = restored(folder.path(), 640);
    let path = folder.path().join("flows").display().to_string();
    let told = "7 of 8 flows are proxied, and are left out: the policy has no `synproxy`";
    assert_eq!(notices, [format!("{path}: {told}")]);
    assert_eq!(known(&second).iter().map(|known| known.key).collect::<Vec<_>>(), [key(20, TCP)]);
    let (found, notices) = restored_by_proxy(folder.path(), 640);
    assert_eq!((found.len(), notices), (8, vec![]), "the file still has them");
}

#[test]
fn a_proxied_flow_is_written_again_when_its_translation_changes() {
    let folder = tempfile::tempdir().unwrap();
    let first = table(64, 1);
    first.keep_proxied().unwrap();
    let (mut saver, timeouts) = (saver(folder.path()), timeouts());
    let before = proxied(6, FlowState::Established);
    assert_eq!(first.enter(&[before]), 1);
    saver.complete(Some((&first, &timeouts))).unwrap();
    // The client has opened another connection with the same ports.
    let after = KnownFlow { proxied: proxied(9, FlowState::Established).proxied, ..before };
    assert_eq!(first.enter(&[after]), 1);
    saver.complete(Some((&first, &timeouts))).unwrap();
    drop(saver);
    let (found, _) = restored_by_proxy(folder.path(), 64);
    assert_eq!(found.iter().map(|known| known.proxied).collect::<Vec<_>>(), [after.proxied]);
}

#[test]
fn a_damaged_file_of_proxied_flows_has_no_flow_that_was_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    let first = table(640, 1);
    first.keep_proxied().unwrap();
    let (mut saver, timeouts) = (saver(folder.path()), timeouts());
    for nth in 0..4 {
        assert_eq!(first.enter(&[proxied(nth, FlowState::Established)]), 1);
        saver.complete(Some((&first, &timeouts))).unwrap();
    }
    drop(saver);
    let (all, _) = restored_by_proxy(folder.path(), 640);
    assert_eq!(all.len(), 4);
    let whole = fs::read(&file).unwrap();
    let (cut, damaged) =
        (0..whole.len()).map(|at| (whole[..at].to_vec(), whole.clone())).unzip::<_, _, Vec<_>, Vec<_>>();
    let damaged = damaged.into_iter().enumerate().map(|(at, mut bytes)| {
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    for (at, bytes) in cut.into_iter().chain(damaged).enumerate() {
        fs::write(&file, &bytes).unwrap();
        let (found, _) = restored_by_proxy(folder.path(), 640);
        let is_known = |known: &KnownFlow| all.iter().any(|one| one.key == known.key && one.proxied == known.proxied);
        assert!(found.len() < 4 && found.iter().all(is_known), "{at}");
        let _kept = fs::remove_file(folder.path().join("flows.unread"));
    }
}

/// Versions before the third did not know from which side packets had come.
#[test]
fn a_file_that_knows_no_sides_is_kept_and_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows");
    let (near, far) = (key(0, TCP), key(1, TCP));
    let words: [u64; 2] = [0x0000_0007_0000_0009, 0x0850_7780_0000_0063];
    let mut payload = [Clocks::now().day_ns.to_le_bytes().to_vec(), 0x63_u32.to_le_bytes().to_vec()].concat();
    payload.extend(2_u32.to_le_bytes());
    payload.extend((3_u32 | 1 << 30).to_le_bytes());
    payload.extend([near.words[1] as u32, near.words[3] as u32].map(u32::to_le_bytes).concat());
    payload.extend([near.words[4], words[0], words[1]].map(u64::to_le_bytes).concat());
    payload.extend((4_u32 | 2 << 30).to_le_bytes());
    payload.extend(far.words.map(u64::to_le_bytes).concat());
    payload.extend([words[0], words[1] | 1 << 57].map(u64::to_le_bytes).concat());
    let mut bytes = [&b"weirkeep"[..], &1_u32.to_le_bytes(), &4_u32.to_le_bytes(), &64_u64.to_le_bytes()].concat();
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32c(&payload).to_le_bytes());
    bytes.extend(&payload);
    fs::write(&file, &bytes).unwrap();
    let (second, notices) = restored(folder.path(), 64);
    let told = "another version of Weir wrote it: format 1, not 3; it is kept as flows.unread; flows begin anew";
    assert_eq!(notices, [format!("{}: {told}", file.display())]);
    assert_eq!((flows(&second), fs::read(folder.path().join("flows.unread")).unwrap()), (vec![], bytes));
}

/// The check of frames, as a slow reference.
fn crc32c(bytes: &[u8]) -> u32 {
    let shifted = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| shifted(crc)))
}
