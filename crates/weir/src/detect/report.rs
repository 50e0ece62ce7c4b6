//! The report of `weir detect`.

use super::exporting::Exports;
use super::short::ShortReport;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use weir_command::failure::{self, Failure};
use weir_command::figures::{bytes, grouped, share};
use weir_engine::capture;
use weir_mitigate::action::Measure;
use weir_mitigate::defence::Fate;
use weir_mitigate::measure::{Directions, Handshake, Way};
use weir_mitigate::prefix::Prefix;
use weir_mitigate::recording::Recording;
use weir_mitigate::waiting::{Syns, Waiting};
use weir_mitigate::{Attack, Record, State};
use weir_recording::capture_notes::CaptureNotes;
use weir_recording::captures::Damage;
use weir_recording::clock::Clock;
use weir_recording::headers::Unseen;
use weir_recording::labels::{Beyond, Labels};
use weir_recording::sides::Sides;

/// Counts of a recording.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    packets: u64,
    bytes: u64,
    dropped: u64,
    readings: Readings,
    times_ns: Option<(u64, u64)>,
    labelled: Option<Labelled>,
    waiting: Waiting,
    /// Labels without packets.
    beyond: Option<Beyond>,
    notes: CaptureNotes,
}

/// How many packets were judged, and why others were not. Packets that the policy drops are neither judged nor outside.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Readings {
    judged: u64,
    /// With `--inside`: what says from which side packets came, `link` or `address`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sides_by: Option<&'static str>,
    /// Packets with a source inside that came from outside.
    forged: u64,
    /// Packets from `--inside`, or to other destinations.
    outside: u64,
    /// Packets without an IP header that can be read.
    without_header: u64,
    /// Packets without some of their headers in the capture.
    cut_short: u64,
    /// Packets that have the time of the previous packet, because their own is late or wrong.
    times_corrected: u64,
    /// Whether all packets have the same time.
    without_time: bool,
    /// Which directions of traffic are seen: `both`, `one`, or `unknown` if too few conversations are seen.
    directions: &'static str,
    /// Datagrams that are not judged, because answers are not seen.
    unjudged: u64,
}

/// Counts of labelled packets.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Labelled {
    attack_packets: u64,
    attack_dropped: u64,
    legitimate_packets: u64,
    legitimate_dropped: u64,
}

impl Figures {
    /// Nothing was counted.
    pub fn new(has_labels: bool) -> Self {
        Figures { labelled: has_labels.then(Labelled::default), ..Figures::default() }
    }

    /// The number of the next packet, from 1.
    pub fn next_packet(&self) -> u64 {
        self.packets + 1
    }

    /// Counts a packet that detection does not see.
    pub fn count_unseen(&mut self, unseen: Unseen) {
        match unseen {
            Unseen::WithoutHeader => self.readings.without_header += 1,
            Unseen::CutShort => self.readings.cut_short += 1,
        }
    }

    /// Counts a packet that detection sees.
    pub fn count_seen(&mut self, way: Way) {
        let is_judged = matches!(way, Way::In | Way::Both);
        self.readings.judged += u64::from(is_judged);
        self.readings.forged += u64::from(way == Way::Forged);
        self.readings.outside += u64::from(!is_judged && way != Way::Forged);
    }

    /// Adds what a reader says of a capture.
    pub fn add_notes(&mut self, notes: &capture::CaptureNotes) {
        self.notes.add(notes);
    }

    /// The recording has ended.
    pub fn finish(&mut self, clock: &Clock, labels: Option<&Labels>, sides: Option<&Sides>, recording: &Recording) {
        self.readings.directions = recording.directions().name();
        self.readings.unjudged = recording.mitigator().unjudged();
        self.readings.sides_by = sides.map(|sides| if sides.are_known() { "link" } else { "address" });
        self.readings.times_corrected = clock.corrected();
        self.readings.without_time = self.packets > 1 && self.times_ns.is_some_and(|(first, last)| first == last);
        self.beyond = labels.and_then(|labels| labels.beyond(self.packets));
    }

    /// Counts a packet.
    pub fn count(&mut self, now_ns: u64, wire_len: u32, fate: Fate, is_attack: Option<bool>) {
        self.packets += 1;
        self.bytes += u64::from(wire_len);
        let is_dropped = fate.is_dropped();
        self.dropped += u64::from(is_dropped);
        let (first, last) = self.times_ns.unwrap_or((now_ns, now_ns));
        self.times_ns = Some((first, last.max(now_ns)));
        if let (Some(labelled), Some(is_attack)) = (&mut self.labelled, is_attack) {
            let (packets, dropped) = match is_attack {
                true => (&mut labelled.attack_packets, &mut labelled.attack_dropped),
                false => (&mut labelled.legitimate_packets, &mut labelled.legitimate_dropped),
            };
            *packets += 1;
            *dropped += u64::from(is_dropped);
        }
        match fate {
            Fate::Waits(handshake) => self.waiting.add(handshake, is_attack == Some(true)),
            Fate::Completes(handshake) => self.release(handshake),
            Fate::Passes | Fate::Drops => {}
        }
    }

    /// The SYNs of a connection that were counted as dropped have passed.
    fn release(&mut self, handshake: Handshake) {
        let Syns { attack, others } = self.waiting.take(handshake);
        self.dropped -= attack + others;
        if let Some(labelled) = &mut self.labelled {
            labelled.attack_dropped -= attack;
            labelled.legitimate_dropped -= others;
        }
    }
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
pub struct Report {
    packets: u64,
    bytes: u64,
    dropped: u64,
    #[serde(flatten)]
    readings: Readings,
    /// Packets that are not judged as the captures have them.
    #[serde(flatten)]
    notes: CaptureNotes,
    seconds: f64,
    attacks: Vec<AttackReport>,
    /// If the recording is shorter than an attack must be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    too_short: Option<ShortReport>,
    #[serde(flatten)]
    labelled: Option<Labelled>,
    /// With `--labels`.
    #[serde(skip_serializing_if = "Option::is_none")]
    labels_beyond: Option<u64>,
    #[serde(skip)]
    beyond: Option<Beyond>,
    truncated: bool,
    /// The position, if a capture is damaged.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated_at: Option<Damage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<failure::Error>,
    /// With `--export`.
    #[serde(skip_serializing_if = "Option::is_none")]
    exports: Option<Exports>,
}

/// An attack.
#[derive(Debug, Serialize)]
pub struct AttackReport {
    /// When it was detected, seconds from the first packet.
    from_s: f64,
    /// When it was last seen.
    to_s: f64,
    victim: String,
    kind: &'static str,
    /// The dimension that separates it: `signature`, `sources` or `posture`.
    by: &'static str,
    /// Matches of the policy language, separated by `; `.
    signature: Option<String>,
    /// Blocked sources.
    sources: Vec<String>,
    /// `drop`, `limit`, `block` or `posture`: the first action.
    action: &'static str,
    /// The highest rate of packets without proof, packets a second.
    peak_pps: f64,
    evidence: Vec<EvidenceReport>,
    actions: Vec<ActionReport>,
}

/// A measurement that led to the detection.
#[derive(Debug, Serialize)]
pub struct EvidenceReport {
    measure: String,
    value: f64,
    usual: f64,
    /// Absent for measurements that only explain.
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<f64>,
}

/// An action.
#[derive(Debug, Serialize)]
pub struct ActionReport {
    action: &'static str,
    rule: String,
    from_s: f64,
    /// `active`, `proposed`, `quiet`, `timeout`, `collateral`.
    state: &'static str,
    /// Packets that it dropped, and those of them that belong to proven sources.
    packets: u64,
    proven: u64,
    /// Connections that a SYN proxy has let pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    completed: Option<u64>,
    /// What it would have hit in the samples: of the attack, and of legitimate packets.
    sample_attack: usize,
    sample_attack_of: usize,
    sample_legitimate: usize,
    sample_legitimate_of: usize,
}

impl Report {
    /// The report of a recording.
    pub fn new(
        figures: &Figures,
        recording: &Recording,
        (truncated_at, failure): (Option<Damage>, Option<&Failure>),
        exports: Option<Exports>,
    ) -> Self {
        let (first_ns, last_ns) = figures.times_ns.unwrap_or_default();
        let mut attacks: Vec<AttackReport> =
            recording.mitigator().attacks().map(|attack| AttackReport::new(attack, first_ns)).collect();
        attacks.sort_by(|one, other| one.from_s.total_cmp(&other.from_s));
        Report {
            packets: figures.packets,
            bytes: figures.bytes,
            dropped: figures.dropped,
            readings: figures.readings,
            notes: figures.notes.clone(),
            seconds: seconds(last_ns, first_ns),
            attacks,
            too_short: recording.too_short().filter(|_| figures.readings.judged > 0).map(ShortReport::new),
            labelled: figures.labelled,
            labels_beyond: figures.labelled.map(|_| figures.beyond.as_ref().map_or(0, Beyond::labels)),
            beyond: figures.beyond.clone(),
            truncated: failure.is_some(),
            truncated_at,
            error: failure.map(Failure::error),
            exports,
        }
    }

    /// The report as text.
    pub fn describe(&self, captures: &[PathBuf]) -> String {
        let names: Vec<String> =
            captures.iter().map(|capture| weir_recording::captures::name(capture).display().to_string()).collect();
        let (packets, size) = (grouped(self.packets), bytes(self.bytes));
        let mut text = format!("{}: {packets} packets, {size}, {:.1} s\n", names.join(", "), self.seconds);
        if self.attacks.is_empty() {
            text += match self.readings {
                Readings { judged: 0, .. } => "\n  nothing was judged\n",
                Readings { without_time: true, .. } => "\n  no attack, but detection needs time\n",
                _ if self.too_short.is_some() => "\n  too short to judge\n",
                _ => "\n  no attack\n",
            };
        }
        self.too_short.iter().for_each(|short| short.describe(self.seconds, self.attacks.len(), &mut text));
        self.attacks.iter().for_each(|attack| attack.describe(&mut text));
        if let Some(labelled) = &self.labelled {
            let Labelled { attack_packets, attack_dropped, legitimate_packets, legitimate_dropped } = *labelled;
            let _ = writeln!(
                text,
                "\n  attack packets     {:>13}, dropped {} ({})\n  legitimate packets {:>13}, dropped {} ({})",
                grouped(attack_packets),
                grouped(attack_dropped),
                share(attack_dropped, attack_packets),
                grouped(legitimate_packets),
                grouped(legitimate_dropped),
                share(legitimate_dropped, legitimate_packets),
            );
        } else {
            let _ =
                writeln!(text, "\n  dropped {} packets ({})", grouped(self.dropped), share(self.dropped, self.packets));
        }
        self.beyond.iter().for_each(|beyond| _ = writeln!(text, "  {}", beyond.describe()));
        self.readings.describe(&mut text);
        text += &self.notes.describe();
        if let Some(exports) = &self.exports {
            text += "\n";
            exports.folders.iter().for_each(|folder| _ = writeln!(text, "  exported to {}", folder.display()));
            if exports.left_out > 0 {
                let _ = writeln!(text, "  {} attacks were not exported", grouped(exports.left_out));
            }
        }
        text + &self.truncated_at.as_ref().map(Damage::describe).unwrap_or_default()
    }
}

impl Readings {
    fn describe(&self, text: &mut String) {
        let Readings { judged, outside, without_header, cut_short, times_corrected, without_time, .. } = *self;
        let Readings { sides_by, forged, directions, unjudged, .. } = *self;
        for (packets, why) in [
            (outside, "from --inside, or to other destinations"),
            (forged, "from --inside that came from outside: forged"),
            (without_header, "without an IP header that can be read"),
            (cut_short, "with a header that the capture cuts short (snaplen)"),
        ] {
            if packets > 0 {
                let _ = writeln!(text, "  not judged: {} packets {why}", grouped(packets));
            }
        }
        if outside > 0 {
            let _ = writeln!(text, "  judged: {} packets", grouped(judged));
        }
        match sides_by {
            Some("link") => *text += "  sides: by the link layer\n",
            Some(_) => *text += "  sides: by addresses, which can be forged\n",
            None => {}
        }
        if directions == Directions::One.name() {
            *text += "  directions: only one is seen, so a missing answer is no evidence\n";
        }
        if unjudged > 0 {
            let packets = grouped(unjudged);
            let _ = writeln!(text, "  not judged: {packets} packets of UDP that may be answered where it is not seen");
        }
        if times_corrected > 0 {
            let packets = grouped(times_corrected);
            let _ =
                writeln!(text, "  time: {packets} packets have that of the previous one: their own is late or wrong");
        }
        if without_time {
            *text += "  time: all packets have the same: timestamps are absent, equal or backwards\n";
        }
    }
}

impl AttackReport {
    fn new(attack: &Attack, first_ns: u64) -> Self {
        let records = &attack.records;
        let signatures: Vec<String> =
            records.iter().filter_map(|record| record.action.measure.signature()).map(ToString::to_string).collect();
        let sources = records.iter().filter_map(|record| match record.action.measure {
            Measure::Block((is_ipv6, address), _) => Some(Prefix::of(is_ipv6, address, u8::MAX).to_string()),
            _ => None,
        });
        let first = records.first().map(|record| &record.action.measure);
        let evidence = attack.evidence.iter().map(|one| EvidenceReport {
            measure: one.measure.clone(),
            value: rounded(one.value),
            usual: rounded(one.usual),
            threshold: one.threshold.map(rounded),
        });
        AttackReport {
            from_s: seconds(attack.from_ns, first_ns),
            to_s: seconds(attack.last_ns.max(attack.from_ns), first_ns),
            victim: attack.victim.to_string(),
            kind: attack.kind(),
            by: first.map_or("none", dimension),
            signature: (!signatures.is_empty()).then(|| signatures.join("; ")),
            sources: sources.collect(),
            action: first.map_or("none", Measure::name),
            peak_pps: rounded(attack.peak_pps),
            evidence: evidence.collect(),
            actions: records.iter().map(|record| ActionReport::new(record, first_ns)).collect(),
        }
    }

    fn describe(&self, text: &mut String) {
        let AttackReport { from_s, to_s, victim, kind, peak_pps, .. } = self;
        let _ = writeln!(
            text,
            "\n  {from_s:.2} s to {to_s:.2} s: {kind} on {victim}, up to {peak_pps:.0} packets/s without proof"
        );
        for EvidenceReport { measure, value, usual, threshold } in &self.evidence {
            let _ = write!(text, "    {measure}: {value}, usual {usual}");
            let _ = match threshold {
                Some(threshold) => writeln!(text, ", threshold {threshold}"),
                None => writeln!(text),
            };
        }
        for action in &self.actions {
            let ActionReport { rule, from_s, state, packets, proven, .. } = action;
            let _ = writeln!(text, "    {from_s:.2} s  {rule}");
            if let Some(completed) = action.completed {
                let (packets, completed) = (grouped(*packets), grouped(completed));
                let _ = writeln!(
                    text,
                    "      {state}, simulated; answered or refused {packets} packets; {completed} connections completed"
                );
                continue;
            }
            let _ = write!(text, "      {state}; dropped {} packets", grouped(*packets));
            let _ = if *proven > 0 { write!(text, ", {} of proven sources", grouped(*proven)) } else { Ok(()) };
            let ActionReport { sample_attack, sample_attack_of, sample_legitimate, sample_legitimate_of, .. } = action;
            let _ = writeln!(
                text,
                "; would have hit {sample_attack} of {sample_attack_of} in the victim's sample, {sample_legitimate} of \
                 {sample_legitimate_of} legitimate ones"
            );
        }
    }
}

impl ActionReport {
    fn new(record: &Record, first_ns: u64) -> Self {
        let trial = record.action.trial;
        ActionReport {
            action: record.action.measure.name(),
            rule: record.action.measure.to_string(),
            from_s: seconds(record.since_ns, first_ns),
            state: match record.state {
                State::Proposed => "proposed",
                State::Active => "active",
                State::Ended(ending) => ending.name(),
            },
            packets: record.packets,
            proven: record.proven,
            completed: matches!(record.action.measure, Measure::SynProxy(..)).then_some(record.completed),
            sample_attack: trial.attack,
            sample_attack_of: trial.attack_of,
            sample_legitimate: trial.legitimate,
            sample_legitimate_of: trial.legitimate_of,
        }
    }
}

fn seconds(at_ns: u64, first_ns: u64) -> f64 {
    rounded(at_ns.saturating_sub(first_ns) as f64 / 1e9)
}

/// To three digits behind the point.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The dimension that separates an attack: signatures, sources, or the posture as a whole.
fn dimension(measure: &Measure) -> &'static str {
    match measure {
        Measure::Drop(_) | Measure::Limit(..) => "signature",
        Measure::Block(..) => "sources",
        Measure::Posture(_) | Measure::SynProxy(..) => "posture",
    }
}
