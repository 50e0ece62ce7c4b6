//! Tests of misbehaving clients.

use super::*;
use serde_json::json;
use std::io::Read;
use tempfile::TempDir;

/// A server with a handler for tests.
fn serve() -> (TempDir, PathBuf, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let mut server = Server::listen(&path).expect("it can be bound");
    let handler = |request| match request {
        Request::Status => Ok(json!("fine")),
        Request::Stats => Ok(json!("x".repeat(1 << 20))),
        Request::Confirm => panic!("on purpose {}", 1),
        _ => Err(Failure::Rejected("weir: no".to_owned())),
    };
    server.serve(handler).expect("there are threads");
    (folder, path, server)
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket has one");
    stream
}

fn line(stream: &UnixStream) -> String {
    let mut line = String::new();
    // A client that was refused before it wrote may get an error from the system.
    let _hung_up = BufReader::new(stream).read_line(&mut line);
    line
}

fn say(mut stream: &UnixStream, bytes: &[u8]) -> String {
    let _hung_up = stream.write_all(bytes);
    line(stream)
}

const FINE: &str = "{\"ok\":\"fine\"}\n";

#[test]
fn a_panic_is_an_answer_and_takes_no_slot() {
    let (_folder, path, _server) = serve();
    for _ in 0..2 * CLIENTS_MAX {
        let stream = connect(&path);
        assert_eq!(say(&stream, b"\"confirm\"\n"), "{\"failed\":\"compiler bug: on purpose 1\"}\n");
        // The connection continues.
        assert_eq!(say(&stream, b"\"status\"\n"), FINE);
    }
}

#[test]
fn an_invalid_request_is_answered() {
    let (_folder, path, _server) = serve();
    let deep = [vec![b'['; 60_000], vec![b'\n']].concat();
    let long = vec![b' '; REQUEST_BYTES_MAX + 1];
    let in_object = [b"{\"limits\":".repeat(1000), vec![b'\n']].concat();
    let cases: [(&[u8], &str); 8] = [
        (b"\n", "not a request: EOF"),
        (b"\xff\xfe\n", "not a request: expected value"),
        (b"{\"load\":{\"policy\":\"\xff\"}}\n", "not a request: invalid unicode"),
        (b"{\"activate\":{\"generation\":1,\"confirm_s\":NaN}}\n", "not a request: expected value"),
        (b"{\"activate\":{\"generation\":1,\"confirm_s\":1e999}}\n", "not a request: number out of range"),
        (&deep, "not a request: expected value"),
        (&in_object, "not a request: unknown field"),
        (&long, "not a request: longer than 65536 bytes"),
    ];
    for (bytes, words) in cases {
        let said = say(&connect(&path), bytes);
        assert!(said.starts_with("{\"error\":\"weir: ") && said.contains(words), "{words}: {said}");
    }
    // A line of the greatest length, and many lines in one write. Each is answered in order.
    let padded = [vec![b' '; REQUEST_BYTES_MAX - 9], b"\"status\"\n".to_vec()].concat();
    assert_eq!(say(&connect(&path), &padded), FINE);
    let stream = connect(&path);
    (&stream).write_all(&b"\"status\"\n".repeat(500)).expect("it reads");
    stream.shutdown(Shutdown::Write).expect("it stands");
    let mut all = String::new();
    (&stream).read_to_string(&mut all).expect("it answers");
    assert_eq!(all, FINE.repeat(500));
}

#[test]
fn requests_that_are_sent_together_are_answered_in_their_order() {
    let (_folder, path, _server) = serve();
    let mut client = weir_control::Client::connect(&path).expect("it listens");
    for _ in 0..3 {
        let requests: Vec<Request> =
            (0..300).map(|number| if number % 7 == 3 { Request::Rollback } else { Request::Status }).collect();
        let mut answers = Vec::new();
        client.ask_all(&requests, &mut answers).expect("the connection continues");
        assert_eq!(answers.len(), requests.len());
        for (number, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(value) => assert!(value == "fine" && number % 7 != 3, "{number}: {value}"),
                Err(error) => assert!(error.to_string() == "weir: no" && number % 7 == 3, "{number}: {error}"),
            }
        }
    }
}

#[test]
fn clients_that_hang_up_release_their_slots() {
    let (_folder, path, _server) = serve();
    for _ in 0..3 {
        // Clients of the previous round may still have slots for a moment.
        let start = Instant::now();
        let staying = loop {
            let staying: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| connect(&path)).collect();
            if staying.iter().all(|stream| say(stream, b"\"status\"\n") == FINE) {
                break staying;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "slots are lost");
            drop(staying);
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(line(&connect(&path)), "{\"failed\":\"more than 32 clients\"}\n");
        assert!(staying.iter().all(|stream| say(stream, b"\"status\"\n") == FINE), "they still have theirs");
    }
}

#[test]
fn the_client_that_was_silent_for_longest_gives_way() {
    let clients = Arc::new(Clients::default());
    let enter = || {
        let (near, far) = UnixStream::pair().expect("a pair");
        (Clients::enter(&clients, near), far)
    };
    let mut all: Vec<_> = (0..CLIENTS_MAX).map(|_| enter()).collect();
    assert!(all.iter().all(|(slot, _)| slot.is_some()));
    let (refused, far) = enter();
    assert!(refused.is_none());
    assert_eq!(line(&far), "{\"failed\":\"more than 32 clients\"}\n");
    // Client 1 has executed a request for long. Clients 2 and 3 have been silent for long, client 3 longer.
    let set = |at: usize, since: Option<Instant>| {
        all[at].0.as_ref().expect("it has a slot").client.set_silent_since(since);
    };
    let now = Instant::now();
    set(1, None);
    set(2, now.checked_sub(GIVE_WAY));
    set(3, now.checked_sub(2 * GIVE_WAY));
    let (entered, _far) = enter();
    assert!(entered.is_some());
    assert_eq!(line(&all[3].1), "", "it was hung up on");
    assert_eq!(clients.lock().len(), CLIENTS_MAX);
    drop(all.drain(..4).collect::<Vec<_>>());
    assert_eq!(clients.lock().len(), CLIENTS_MAX - 3, "it had no slot any more");
}

#[test]
fn a_client_that_has_hung_up_gives_way_at_once() {
    let clients = Arc::new(Clients::default());
    let pairs = (0..CLIENTS_MAX).map(|_| UnixStream::pair().expect("a pair"));
    let (slots, mut far): (Vec<_>, Vec<_>) = pairs.map(|(near, far)| (Clients::enter(&clients, near), far)).unzip();
    // One has sent a request before it hung up, which must still be answered.
    let asked = far.remove(0);
    assert_eq!((&asked).write(b"\"status\"\n").expect("it fits"), 9);
    drop((asked, far.remove(0)));
    let enter = || Clients::enter(&clients, UnixStream::pair().expect("a pair").0);
    assert!(enter().is_some());
    let list = clients.lock();
    let has_slot =
        |at: usize| list.iter().any(|one| slots[at].as_ref().is_some_and(|slot| Arc::ptr_eq(one, &slot.client)));
    assert_eq!((has_slot(0), has_slot(1), has_slot(2)), (true, false, true));
}

#[test]
fn requests_and_answers_have_a_time_limit() {
    let read = |far: &UnixStream, near: &UnixStream, bytes: &[u8], silence: u64, time: u64| {
        let mut far = far;
        far.write_all(bytes).expect("it has room");
        let (silence, time) = (Duration::from_millis(silence), Duration::from_millis(time));
        read_line(&mut BufReader::new(near), silence, time).expect("it stands")
    };
    let (near, far) = UnixStream::pair().expect("a pair");
    assert_eq!(read(&far, &near, b"", 20, 20), Received::End);
    assert_eq!(read(&far, &near, b"\"status", 10_000, 20), Received::Invalid("incomplete after 0.02 s".to_owned()));
    // Single bytes do not extend the time limit.
    let (near, far) = UnixStream::pair().expect("a pair");
    let dripping = thread::spawn(move || while (&far).write_all(b" ").is_ok() {});
    let said = read_line(&mut BufReader::new(&near), Duration::from_secs(10), Duration::from_millis(5));
    assert!(matches!(said, Ok(Received::Invalid(_))), "{said:?}");
    drop(near);
    dripping.join().expect("it ends when nobody reads");
}

#[test]
fn a_client_that_reads_no_answers_does_not_block_others() {
    let (_folder, path, server) = serve();
    let lazy: Vec<UnixStream> = (0..CLIENTS_MAX - 1).map(|_| connect(&path)).collect();
    for mut stream in &lazy {
        stream.write_all(&b"\"stats\"\n".repeat(20)).expect("it reads");
    }
    assert_eq!(say(&connect(&path), b"\"status\"\n"), FINE);
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_listening_server_is_detected_without_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("it can be bound");
    assert!(is_listened_at(&path));
    // Nothing accepts clients, so the queue gets full and connecting would block for ever.
    rustix::net::listen(&listener, 0).expect("it listens");
    assert!((0..10).all(|_| is_listened_at(&path)));
    assert!(Server::listen(&path).is_err());
    drop(listener);
    assert!(!is_listened_at(&path));
    Server::listen(&path).expect("nobody listens there");
}
