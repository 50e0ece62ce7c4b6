//! Attacks as files: each is a folder with a capture, a policy and expected counts, which together are a regression
//! test.
//!
//! ```text
//! 20260301T120010Z-1-udp-flood-192.0.2.1/
//!   attack.pcapng    packets to and from the victim before and during the attack; its comment says what was detected
//!   policy.weir      the policy that was active, with the rules against the attack; it needs no other file
//!   expected.json    what a replay counts:  weir replay policy.weir --in attack.pcapng --expect expected.json
//! ```
//! The folder appears when it is complete. Nothing is overwritten.

mod attack;
pub mod expected;
mod narrow;
mod policy_text;

use crate::replay::Replay;
use attack::rules_of_slots;
pub use attack::{Export, PolicyParts, details};
use expected::{About, Counts, Expected, RuleExpected, SlotRules};
use narrow::Addresses;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use weir_command::failure::Failure;
use weir_command::options::{ChainOptions, DirectionName, EngineName};
use weir_engine::capture::CaptureWriter;
use weir_mitigate::excerpt::Packet;

const CAPTURE: &str = "attack.pcapng";
const POLICY: &str = "policy.weir";
const EXPECTED: &str = "expected.json";

/// Writes an export into a folder, which is created if it does not exist. Returns the folder of the attack.
///
/// # Errors
/// The folder cannot be written, or there is an export of the same name.
pub fn write(folder: &Path, export: &Export, policy: &PolicyParts) -> Result<PathBuf, Failure> {
    let path = folder.join(name(export));
    if path.exists() {
        return Err(Failure::Runtime(format!("{}: it exists already", path.display())));
    }
    fs::create_dir_all(folder).map_err(|error| Failure::file(folder, error))?;
    // The scratch folder is removed if anything fails, and renamed if nothing does.
    let scratch = tempfile::Builder::new().prefix(".weir-export-").tempdir_in(folder);
    let scratch = scratch.map_err(|error| Failure::file(folder, error))?;
    fill(scratch.path(), export, policy)?;
    fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .and_then(|()| fs::rename(scratch.path(), &path))
        .map_err(|error| Failure::file(&path, error))?;
    let _renamed = scratch.keep();
    Ok(path)
}

/// `20260301T120010Z-1-udp-flood-192.0.2.0_24`
fn name(export: &Export) -> String {
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + export.detected).to_string();
    let time: String = time.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let victim = export.victim.replace('/', "_").replace(':', "-");
    format!("{time}-{}-{}-{victim}", export.number, export.kind)
}

fn fill(folder: &Path, export: &Export, policy: &PolicyParts) -> Result<(), Failure> {
    let packets = &export.excerpt.packets;
    capture(&folder.join(CAPTURE), export, packets)?;
    let mut expected = Expected {
        about: About {
            attack: export.kind.to_owned(),
            victim: export.victim.clone(),
            detected: humantime::format_rfc3339_millis(UNIX_EPOCH + export.detected).to_string(),
            rules: export.rules.clone(),
            sources: export.sources.clone(),
            packets_seen: export.excerpt.seen,
            notes: Vec::new(),
        },
        inside: export.inside.iter().map(ToString::to_string).collect(),
        posture: policy.posture.clone(),
        slots: Vec::new(),
        counts: Counts::default(),
        rules: Vec::new(),
    };
    let replayed = match &policy.bundle {
        Some(bundle) => {
            let note = format!("the policy is a bundle, which has no text: replay {}", bundle.display());
            expected.about.notes.push(note);
            expected.slots = rules_of_slots(export, policy);
            replayed(bundle, &expected.slots, folder, export, policy)
        }
        None => {
            let text = policy_text::text(policy.sources.as_ref(), export, policy, &Addresses::of(packets));
            let path = folder.join(POLICY);
            fs::write(&path, &text.policy).map_err(|error| Failure::file(&path, error))?;
            expected.about.notes.extend(text.notes);
            replayed(&path, &[], folder, export, policy)
        }
    };
    match replayed {
        Ok((counts, rules)) => (expected.counts, expected.rules) = (counts, rules),
        Err(failure) => expected.about.notes.push(format!("nothing is expected, because the replay failed: {failure}")),
    }
    expected.write(&folder.join(EXPECTED))
}

/// The counts of the exported policy over the exported packets.
fn replayed(
    path: &Path,
    slots: &[SlotRules],
    folder: &Path,
    export: &Export,
    policy: &PolicyParts,
) -> Result<(Counts, Vec<RuleExpected>), Failure> {
    let chain = ChainOptions {
        direction: Some(DirectionName::Upstream),
        inside: export.inside.clone(),
        posture: policy.posture.clone(),
    };
    let slots: Vec<_> = slots.iter().map(|one| (one.slot.clone(), one.rule.clone())).collect();
    let replay = Replay {
        policy: path,
        input: &folder.join(CAPTURE),
        outputs: [None; 3],
        chain: &chain,
        engine: Some(EngineName::Eval),
        controller: None,
        verdicts: false,
    };
    Ok(replay.count(&slots)?.counted())
}

fn capture(path: &Path, export: &Export, packets: &[Packet]) -> Result<(), Failure> {
    let comment = format!("{}\n{}", export.details.trim_end(), export.rules.join("\n"));
    let mut writer = CaptureWriter::create_own(path, comment.trim_end())?;
    for packet in packets {
        let time_ns = u64::try_from(i128::from(packet.time_ns) + export.shift_ns).unwrap_or(0);
        writer.write_own(packet.link, time_ns, &packet.bytes, packet.wire_len)?;
    }
    Ok(writer.finish()?)
}
