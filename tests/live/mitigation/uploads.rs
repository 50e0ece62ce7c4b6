//! A customer who uploads as fast as the line allows. Receive offloads merge its segments, so answers are few.

use super::*;

/// The port of a service that takes uploads.
const UPLOADS: u16 = 8001;
/// Bytes of an upload, and of a write.
const BYTES: usize = 150 << 20;
const WRITE: usize = 1 << 16;

each_kind_and_host!(uploads_are_not_blocked);
fn uploads_are_not_blocked(engine: &str, hosts: &Hosts, folder: &Path) {
    serve(hosts);
    for one_in in ["1/1", "1/64"] {
        put(folder, "p.weir", &POLICY.replace("1/1", one_in));
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "act"));
        let client = requests(hosts);
        std::thread::sleep(PEACE);
        let (ready, is_ready) = channel();
        let taken = hosts.server.start(move || {
            let listener = TcpListener::bind((SERVER, UPLOADS)).expect("the server has the address");
            ready.send(()).expect("somebody waits");
            let (mut stream, _) = listener.accept().expect("a customer comes");
            std::io::copy(&mut stream, &mut std::io::sink()).expect("the upload is taken")
        });
        is_ready.recv().expect("the server listens");
        hosts.client.run(|| {
            let mut stream = TcpStream::connect((SERVER, UPLOADS)).expect("the service listens");
            let write = [7; WRITE];
            (0..BYTES / WRITE).for_each(|_| stream.write_all(&write).expect("the upload goes on"));
        });
        assert_eq!(taken.join().expect("the server ends"), BYTES as u64);
        drop(client);
        let blocks = |attack: &AttackEntry| attack.actions.iter().any(|action| action.action == "block");
        let listed = attacks(&running);
        assert!(!listed.attacks.iter().any(blocks), "{engine} {one_in}: {listed:#?}");
        assert!(!running.log().contains("blocked source"), "{engine} {one_in}: {}", running.log());
        assert_eq!(running.stop(), 0);
    }
}
