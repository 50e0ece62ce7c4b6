//! What mitigation measures if not every packet is copied, or copies are lost, and beside a divert interface.

use super::*;
use crate::hosts::Wires;
use crate::traffic::{flows, send};

each_kind_and_host!(one_sample_in_eight_is_an_estimate);
fn one_sample_in_eight_is_an_estimate(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", &POLICY.replace("sample 1/1", "sample 1/8"));
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "watch"));
    std::thread::sleep(PEACE);
    let flood = flood(hosts);
    let attack = wait_for_attack(&running, "it is seen", has("watched"));
    drop(flood);
    // 1,600 packets a second were sent at most, 200 of them are seen.
    assert!((300.0..4000.0).contains(&attack.peak_pps), "{engine}: {attack:#?}");
    let stats = running.settled();
    running.wait_until("the copies are counted", |running| {
        let samples = attacks(running).samples;
        samples.seen + samples.lost >= stats.upstream.total.sampled + stats.downstream.total.sampled
    });
    let samples = attacks(&running).samples;
    // Each of two workers or CPUs counts to eight for each direction, and may have a sample more than an eighth.
    let sent = stats.upstream.total.packets + stats.downstream.total.packets;
    assert!(samples.one_in == 8 && (samples.seen + samples.lost).abs_diff(sent / 8) <= 4, "{samples:?} {sent}");
    assert_eq!(samples.lost, 0, "{samples:?}");
    assert_eq!(running.stop(), 0);
}

each_kind!(a_flood_that_samples_do_not_show_is_found_by_what_is_observed);
fn a_flood_that_samples_do_not_show_is_found_by_what_is_observed(engine: &str, hosts: &Hosts, folder: &Path) {
    // Of 1,600 packets a second at most, a window has less than one sample. From samples alone, the least rate that can
    // be told from chance is 200,000.
    let policy = POLICY.replace("sample 1/1", "sample 1/2000");
    put(folder, "p.weir", &format!("observe {{ size 64; inside 10.9.0.0/24 }}\n{policy}"));
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "watch"));
    std::thread::sleep(PEACE);
    assert_eq!(attacks(&running).attacks, [], "{}", running.log());
    let flood = flood(hosts);
    let attack = wait_for_attack(&running, "it is seen", |attack| attack.peak_pps > 0.0);
    drop(flood);
    assert_eq!((attack.victim.as_str(), attack.kind.as_str()), ("10.9.0.2", "udp-reflection"), "{attack:#?}");
    assert!((100.0..2000.0).contains(&attack.peak_pps), "{engine}: {attack:#?}");
    let evidence = attack.evidence.iter().find(|one| one.measure == "UDP from service ports without proof, packets/s");
    assert!(evidence.is_some_and(|one| (100.0..2000.0).contains(&one.value)), "{attack:#?}");
    assert_eq!(running.stop(), 0);
}

/// A pause of Weir in which several windows would have ended.
const LATE: Duration = Duration::from_secs(1);

each_kind!(what_waits_while_weir_pauses_is_not_lost);
/// The kernel samples on, or packets wait in the ring of an engine.
fn what_waits_while_weir_pauses_is_not_lost(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "watch"));
    let sent: Vec<Vec<u8>> = flows(400, 1, 9);
    for round in 1..=3 {
        let pause = |signal| nix::sys::signal::kill(running.pid(), signal).expect("it runs");
        pause(nix::sys::signal::Signal::SIGSTOP);
        send(&hosts.client, "c", &sent);
        std::thread::sleep(LATE);
        pause(nix::sys::signal::Signal::SIGCONT);
        let all = round * sent.len() as u64;
        running.wait_for("all are sampled", |stats| stats.upstream.total.sampled >= all);
        let windows = attacks(&running).samples.windows;
        // Losses are known a window later.
        running.wait_until("two windows end", |running| attacks(running).samples.windows >= windows + 3);
        let stats = running.settled();
        let copies = stats.upstream.total.sampled + stats.downstream.total.sampled;
        running.wait_until("all are read", |running| attacks(running).samples.seen >= copies);
        let samples = attacks(&running).samples;
        assert_eq!((samples.seen, samples.lost, samples.blind_windows), (copies, 0, 0), "{engine}: {samples:?}");
    }
    assert_eq!(running.stop(), 0);
}

/// Packets of a flood that is faster than copies are read, sent without a pause.
const FAST: u64 = 1_200_000;

each_kind_and_host!(a_flood_that_is_too_fast_to_read_is_found_and_losses_are_known);
fn a_flood_that_is_too_fast_to_read_is_found_and_losses_are_known(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "act"));
    let client = in_peace(hosts, &running);
    let frames = Arc::new(flood_frames());
    let flood = Repeated::on(&hosts.client, move || {
        let bytes = frames.iter().map(|frame| (frame.as_slice(), frame.len() as u32));
        let set = FrameSet::new(Link::Ethernet, bytes);
        let mut wire = Wire::open("c").expect("the client has the wire");
        move || {
            match wire.counters().tx_packets < FAST {
                true => set.bursts().for_each(|burst| wire.send(&burst).expect("the wire takes frames")),
                false => std::thread::sleep(PAUSE),
            }
            true
        }
    });
    let begun = Instant::now();
    wait_for_attack(&running, "it acts", has("active"));
    running.wait_until("all are sent", |_| flood.counts().0 > FAST / 2000 + 1);
    let sent_pps = FAST as f64 / begun.elapsed().as_secs_f64();
    let attack = wait_for_attack(&running, "it lasts", has("active"));
    assert!(!has("collateral")(&attack) && !has("quiet")(&attack), "{engine}: {attack:#?}");
    assert!(dropped(&running) > FAST / 100, "{engine}: {}", running.log());
    drop(flood);

    // What was lost is known to the packet, and requests are answered again.
    let samples = || attacks(&running).samples;
    let copies = || {
        let stats = running.stats();
        stats.upstream.total.sampled + stats.downstream.total.sampled
    };
    let answered = client.counts().0;
    running.wait_until("requests are answered", |_| client.counts().0 > answered + 10);
    drop(client);
    running.wait_until("copies are accounted for", |_| samples().seen + samples().lost == copies());
    assert!(samples().lost > 0 || sent_pps < 100_000.0, "{engine}: {sent_pps}: {:?}", samples());
    assert_eq!(running.stop(), 0);
}

/// A datagram in so many is for the analyser.
const DIVERTED: u64 = 5;

each_engine!(diverted_packets_leave_and_their_samples_do_not, Wires { divert: 1, ..Wires::default() });
fn diverted_packets_leave_and_their_samples_do_not(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", "upstream { sample 1/1; udp dport 7 divert; accept } downstream { sample 1/1; accept }\n");
    let more = ["--mitigate", "watch", "--inside", "10.9.0.2/32"].map(str::to_owned).to_vec();
    let setup = Setup { divert: Some("divert".to_owned()), more, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    let sent = 40 * DIVERTED;
    hosts.client.run(move || {
        let frame = |at: u64| {
            let port = if at.is_multiple_of(DIVERTED) { 7 } else { 8 };
            format!("eth / ip saddr=10.20.0.1 daddr=10.9.0.2 / udp sport=9 dport={port} / payload 40\n")
        };
        let all = frames(&(0..sent).map(frame).collect::<String>());
        let mut wire = Wire::open("c").expect("the client has the wire");
        for bytes in &all {
            let one = FrameSet::new(Link::Ethernet, [(bytes.as_slice(), bytes.len() as u32)]);
            wire.send(&one.burst(0)).expect("the wire takes frames");
        }
    });
    running.wait_until("all are counted", |running| running.stats().upstream.total.packets >= sent);
    running.wait_until("all are measured", |running| attacks(running).samples.seen >= sent);
    let stats = running.settled();
    let to = |side: &str| stats.interfaces.iter().filter(|one| one.side == side).map(|one| one.tx_packets).sum::<u64>();
    assert_eq!((to("divert"), to("upper")), (sent / DIVERTED, sent - sent / DIVERTED), "{engine}: {stats:#?}");
    assert_eq!((stats.upstream.total.sampled, stats.upstream.total.diverted), (sent, sent / DIVERTED), "{engine}");
    assert_eq!((attacks(&running).samples.seen, attacks(&running).samples.lost), (sent, 0), "{engine}");
    assert_eq!(running.stop(), 0);
}
