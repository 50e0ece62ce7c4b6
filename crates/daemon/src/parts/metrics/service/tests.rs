//! Requests as clients send them, over loopback.

use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Longest wait for the end of a connection: reading then fails, and the test with it.
const READ_MAX: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(600);

/// A service, and what it was asked for.
struct Served {
    address: SocketAddr,
    made: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Served {
    /// Serves a page for `serves`. Without a page, making one fails.
    fn with(page: Option<String>, serves: Duration, times: Times) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
        let address = listener.local_addr().expect("it is bound");
        let (made, closed) = <(Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let (stop, stopped) = oneshot::channel();
        let make = {
            let (made, closed) = (made.clone(), closed.clone());
            move |so_far| {
                made.fetch_add(1, Ordering::SeqCst);
                closed.store(so_far, Ordering::SeqCst);
                let page = page.clone().ok_or_else(|| Failure::Runtime("weir: it is about to end".to_owned()))?;
                Ok((page, serves))
            }
        };
        let thread = std::thread::spawn(move || serve(listener, Box::new(make), times, stopped));
        Served { address, made, closed, stop: Some(stop), thread: Some(thread) }
    }

    fn new(page: &str) -> Self {
        Self::with(Some(page.to_owned()), LONG, Times { request: LONG, connection: LONG })
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("it listens");
        stream.set_read_timeout(Some(READ_MAX)).expect("it is a time");
        stream
    }

    /// The answer to bytes.
    fn raw(&self, request: &str) -> String {
        let mut stream = self.connect();
        // The service may refuse before it has read all.
        let _refused = stream.write_all(request.as_bytes());
        rest(&mut stream)
    }

    fn ask(&self, method: &str, path: &str, host: &str) -> String {
        self.raw(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok_and(|served| served.is_ok()) || std::thread::panicking());
    }
}

/// What comes until the end of a connection.
fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection that is reset has an end too.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8(answer).expect("it is text")
}

#[test]
fn one_page_is_served_to_get_and_head() {
    let served = Served::new("weir_generation 1\n");
    let answer = served.ask("GET", "/metrics", "127.0.0.1:9464");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body == "weir_generation 1\n", "{answer}");
    assert!(head.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8"), "{answer}");
    assert!(head.contains("\r\ncontent-length: 18\r\n") && head.contains("\r\nconnection: close"), "{answer}");
    let answer = served.ask("HEAD", "/metrics", "localhost:9464");
    assert!(answer.contains("content-length: 18\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[test]
fn other_requests_are_refused() {
    let served = Served::new("weir_generation 1\n");
    let status = |answer: &str| answer.split(' ').nth(1).map(str::to_owned).unwrap_or_default();
    for (method, path, expected) in [
        ("GET", "/", "404"),
        ("GET", "/metrics/", "404"),
        ("GET", "/../metrics", "404"),
        ("POST", "/metrics", "405"),
        ("DELETE", "/metrics", "405"),
        ("OPTIONS", "*", "404"),
    ] {
        assert_eq!(status(&served.ask(method, path, "127.0.0.1")), expected, "{method} {path}");
    }
    assert!(served.ask("PUT", "/metrics", "127.0.0.1").contains("allow: GET, HEAD"));
    let refused = served.raw(&format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20)));
    assert_eq!(status(&refused), "431", "{refused}");
    let many: String = (0..1000).map(|line| format!("x{line}: y\r\n")).collect();
    assert_eq!(status(&served.raw(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n"))), "431");
    assert_eq!(status(&served.raw("weir status\r\n\r\n")), "400");
    assert_eq!(served.made.load(Ordering::SeqCst), 0, "a refusal costs no page");
}

#[test]
fn requests_name_this_host() {
    let served = Served::new("weir_generation 1\n");
    for host in ["127.0.0.1", "127.0.0.1:9464", "localhost", "LocalHost:1", "[::1]:9464", "127.9.9.9"] {
        assert!(served.ask("GET", "/metrics", host).starts_with("HTTP/1.1 200"), "{host}");
    }
    for host in
        ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "192.0.2.1:9464", "[2001:db8::1]"]
    {
        let answer = served.ask("GET", "/metrics", host);
        assert!(answer.starts_with("HTTP/1.1 421") && !answer.contains("weir_generation"), "{host}: {answer}");
    }
    assert!(served.raw("GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.0 200"), "old clients name no host");
}

#[test]
fn a_page_serves_all_who_ask_in_its_time_and_a_failure_serves_nobody_else() {
    let served = Served::new("weir_generation 1\n");
    (0..5).for_each(|_| assert!(served.ask("GET", "/metrics", "127.0.0.1").contains("weir_generation 1")));
    assert_eq!(served.made.load(Ordering::SeqCst), 1);
    let short = Served::with(Some("x 1\n".to_owned()), Duration::ZERO, Times::default());
    (0..3).for_each(|_| assert!(short.ask("GET", "/metrics", "127.0.0.1").contains("x 1")));
    assert_eq!(short.made.load(Ordering::SeqCst), 3);
    let ending = Served::with(None, LONG, Times::default());
    for asked in 1..3 {
        let answer = ending.ask("GET", "/metrics", "127.0.0.1");
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("it is about to end\n"), "{answer}");
        assert_eq!(ending.made.load(Ordering::SeqCst), asked);
    }
}

#[test]
fn nobody_occupies_all_connections() {
    let served = Served::new("weir_generation 1\n");
    let mut silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| served.connect()).collect();
    silent.iter_mut().for_each(|stream| stream.write_all(b"GET /metrics HTTP/1.1\r\n").expect("it stands"));
    assert!(served.ask("GET", "/metrics", "127.0.0.1").contains("weir_generation 1"));
    assert_eq!(served.closed.load(Ordering::SeqCst), 1);
    assert_eq!(rest(&mut silent[0]), "", "the oldest has no answer");
    silent[1].write_all(b"Host: 127.0.0.1\r\n\r\n").expect("it stands");
    assert!(rest(&mut silent[1]).contains("weir_generation 1"), "the second oldest still has its place");
}

#[test]
fn slow_clients_lose_their_connections() {
    let times = Times { request: Duration::from_millis(20), connection: LONG };
    let served = Served::with(Some("x 1\n".to_owned()), LONG, times);
    let mut slow = served.connect();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHo").expect("it stands");
    assert!(!rest(&mut slow).contains("x 1"), "the head is not complete in time");

    // A connection that may take no time ends at the first thing that it waits for.
    let page = "x 1\n".repeat(16 << 20);
    let length = page.len();
    let served = Served::with(Some(page), LONG, Times { request: LONG, connection: Duration::ZERO });
    let mut tries = std::iter::repeat_with(|| {
        let mut slow = served.connect();
        // It may be closed before its request arrives.
        let _closed = slow.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        // Connections are served in order, so the first one was served when the second one ends.
        rest(&mut served.connect());
        slow
    });
    let mut slow = tries.find(|_| served.made.load(Ordering::SeqCst) > 0).expect("it tries again");
    let got = rest(&mut slow).len();
    assert!(got < length, "{got}: the client has not read, so the service waited");
}
