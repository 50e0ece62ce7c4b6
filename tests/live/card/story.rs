//! A web server behind Weir and a card: an attack by real sources begins in its sixth second, is found, blocked and
//! moved into the card. When it is over, everything is released. No operator helps.

use super::running::{behind_card, in_card, status};
use crate::device_under_test::{Running, Setup};
use crate::hosts::{Host, Hosts, SERVER};
use crate::mitigation::{Repeated, attacks, wait_for_attack};
use crate::put;
use crate::tables::done;
use crate::traffic::frames;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::AttackEntry;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

const POLICY: &str = "
table blocked { type ipv4; dynamic; size 100; counters }
slot attacks { size 8 }
upstream { sample 1/1; ip saddr @blocked drop; slot attacks; accept }
downstream { sample 1/1; accept }
";
const WEB: u16 = 8080;
/// Before the attack.
const PEACE: Duration = Duration::from_secs(5);
/// The attack is stopped within this time.
const STOPPED: Duration = Duration::from_secs(3);
const ANSWER_TIME: Duration = Duration::from_secs(2);
const BETWEEN_REQUESTS: Duration = Duration::from_millis(50);
const ATTACKERS: u8 = 6;
/// Segments of each attacker in a burst, and the pause behind it: at most 1,000 packets a second.
const BURST: u32 = 5;
const PAUSE: Duration = Duration::from_millis(5);

fn attacker(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, 100 + number)
}

/// A web server with a thread for each connection.
fn serve(hosts: &Hosts) {
    let (ready, is_ready) = channel();
    let _until_the_end = hosts.server.start(move || {
        let listener = TcpListener::bind((SERVER, WEB)).expect("the server has the address");
        ready.send(()).expect("somebody waits");
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines();
                let is_asked = lines.by_ref().map_while(Result::ok).any(|line| line.is_empty());
                // A client that gives up is no failure of the server.
                let _gone = is_asked.then(|| (&stream).write_all(b"HTTP/1.0 200 OK\r\n\r\nhello\n"));
            });
        }
    });
    is_ready.recv().expect("the server listens");
}

fn requests(hosts: &Hosts) -> Repeated {
    Repeated::on(&hosts.client, || {
        || {
            thread::sleep(BETWEEN_REQUESTS);
            let ask = || -> std::io::Result<bool> {
                let mut stream = TcpStream::connect_timeout(&(SERVER, WEB).into(), ANSWER_TIME)?;
                stream.set_read_timeout(Some(ANSWER_TIME))?;
                stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer)?;
                Ok(answer.ends_with("hello\n"))
            };
            ask().unwrap_or(false)
        }
    })
}

/// Connections of the attackers. Each attacker is a real source.
fn connections(client: &Host) -> Vec<TcpStream> {
    (0..ATTACKERS).for_each(|number| client.ip(&format!("addr add {}/24 dev c", attacker(number))));
    let connect = |number: u8| {
        client.run(move || {
            use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
            bind(&socket, &std::net::SocketAddrV4::new(attacker(number), 0)).expect("the client has the address");
            connect(&socket, &std::net::SocketAddrV4::new(SERVER, WEB)).expect("the server accepts");
            let mut stream = TcpStream::from(socket);
            stream.write_all(b"GET / HTTP/1.0\r\n").expect("the connection stands");
            stream
        })
    };
    (0..ATTACKERS).map(connect).collect()
}

/// Floods the connections with segments without an answer.
fn flood(hosts: &Hosts, connections: &[TcpStream]) -> Repeated {
    let port = |stream: &TcpStream| stream.local_addr().expect("it is connected").port();
    let ports: Vec<u16> = connections.iter().map(port).collect();
    Repeated::on(&hosts.client, move || {
        let (mut wire, mut seq) = (Wire::open("c").expect("the client has the wire"), 1u32);
        move || {
            for (number, port) in (0..).zip(&ports) {
                for _ in 0..BURST {
                    seq = seq.wrapping_add(1000);
                    let from = attacker(number);
                    let text = format!(
                        "eth / ip saddr={from} daddr=10.9.0.2 / tcp sport={port} dport={WEB} flags=psh,ack seq={seq} / payload 100\n"
                    );
                    let bytes = frames(&text).remove(0);
                    let one = FrameSet::new(Link::Ethernet, [(bytes.as_slice(), bytes.len() as u32)]);
                    wire.send(&one.burst(0)).expect("the wire takes frames");
                }
            }
            thread::sleep(PAUSE);
            true
        }
    })
}

#[test]
fn a_web_server_survives_an_attack_that_ends_in_the_card() {
    behind_card("xdp", |hosts, card, folder| {
        put(folder, "p.weir", POLICY);
        let events = folder.join("events");
        let card = format!("wire:netns={},outer=outer,inner=inner,update=1ms", card.namespace().display());
        let options = ["--mitigate", "act", "--inside", "10.9.0.2/32", "--mitigate-table", "blocked"];
        let hold = ["--mitigate-hold", "3s", "--mitigate-log", &events.display().to_string()].map(str::to_owned);
        let card = ["--card", &card, "--card-table", "blocked", "--card-period", "250ms"];
        let more = options.iter().chain(&card).map(|&word| word.to_owned()).chain(hold);
        let setup = Setup { more: more.collect(), ..Setup::new("xdp") };
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
        serve(hosts);
        let (client, connections) = (requests(hosts), connections(&hosts.client));
        thread::sleep(PEACE);
        assert_eq!((attacks(&running).attacks, client.counts().1), (vec![], 0), "{}", running.log());

        let attack = flood(hosts, &connections);
        let all: BTreeSet<String> = (0..ATTACKERS).map(|number| attacker(number).to_string()).collect();
        let begun = Instant::now();
        running.wait_until("the attackers are in the card", |running| in_card(running).is_superset(&all));
        thread::sleep(STOPPED.saturating_sub(begun.elapsed()));
        let (before, passed) = (client.counts(), running.stats().upstream.total);
        thread::sleep(STOPPED);
        let (after, now) = (client.counts(), running.stats().upstream.total);
        let (good, bad) = (after.0 - before.0, after.1 - before.1);
        assert!(good > 10 && bad * 20 <= good, "{good} requests were answered, {bad} not: {}", running.log());
        let (dropped, passed) = (now.dropped - passed.dropped, now.passed - passed.passed);
        assert!(dropped > 1000 && passed < dropped, "{dropped} {passed}: {}", running.log());

        // The card drops them, so there are no samples of them: its counters keep them blocked.
        // An action is quiet for a moment when a busy machine gives its attacker no time to send.
        let acts = |attack: &AttackEntry| {
            !attack.actions.is_empty() && attack.actions.iter().all(|action| action.state == "active")
        };
        let found = wait_for_attack(&running, "it acts on all", acts);
        assert!(found.actions.iter().all(|action| action.action == "block"), "{found:#?}");
        let seen = status(&running);
        assert!(seen.share > 0.0 && seen.share_blocked > 0.9 && seen.blocked_pps > 100.0, "{seen:#?}");

        drop(attack);
        running.wait_until("all are released", |running| in_card(running).is_empty());
        assert_eq!(done(&running, "blocked count")["entries"], 0, "{}", running.log());
        wait_for_attack(&running, "it is over", |attack| attack.is_over);
        drop(client);
        assert_eq!(running.stop(), 0);
        let told = fs::read_to_string(&events).expect("it was written");
        let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let count = |name: &str| told.iter().filter(|event| event["event"] == name).count();
        let attackers = usize::from(ATTACKERS);
        assert_eq!((count("action-taken"), count("action-released")), (attackers, attackers), "{told:#?}");
        assert_eq!(
            (&told[0]["event"], &told[told.len() - 1]["event"]),
            (&"attack-began".into(), &"attack-ended".into())
        );
        assert_eq!((count("attack-began"), count("action-undone")), (1, 0), "{told:#?}");
    });
}
