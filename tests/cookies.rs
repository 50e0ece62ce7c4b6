//! Cookies, their hash and timestamps, and the data of proxied flows are the same in C (`datapath/proxy/cookie.h`,
//! `datapath/proxy/proxied.h`) and in Rust.

use std::path::Path;
use std::process::Command;
use weir_abi::cookie::{Request, StampedOptions, check, epoch, make, mss_index};
use weir_abi::flow::{Agreed, FlowKey, Proxied};
use weir_abi::siphash::siphash;

/// The number of requests.
const REQUESTS: usize = 10_000;

/// SplitMix64, as in the C program.
struct Draws(u64);

impl Draws {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }
}

/// The line of a request.
fn line(nth: usize, draws: &mut Draws) -> String {
    let secret = [draws.draw(), draws.draw()];
    let words = std::array::from_fn(|_| draws.draw());
    let key = FlowKey { words, is_ipv6: draws.draw() & 1 != 0 };
    let request = Request { key, client: draws.draw() as usize & 1, isn: draws.draw() as u32 };
    let time_ns = draws.draw();
    let mss = mss_index((draws.draw() % 2000) as u16);
    let epoch = epoch(time_ns);
    let cookie = make(secret, &request, epoch, mss);
    let other = draws.draw();
    let checked = |now: u32, cookie| check(secret, &request, now, cookie).unwrap_or(0);
    let stamped =
        StampedOptions { scale: other as u8 & 15, told_scale: (other >> 8) as u8 & 15, sack: other >> 4 & 1 != 0 };
    let (client_scale, told_scale) = ((other >> 5) as u8 & 15, (other >> 9) as u8 & 7);
    let agreed = Agreed { client_scale, told_scale, timestamps: true, sack: false };
    let stamp = Some(time_ns as u32).filter(|_| nth & 1 != 0);
    let proxied = Proxied::new(cookie, (other >> 32) as u32, 1460, agreed).answered(request.isn, stamp);
    let (window, scale) = ((other >> 12) as u16, (other >> 28) as u8 & 7);
    format!(
        "{:08x} {:08x} {:08x} {} {} {} {:016x} {cookie:08x} {} {} {} {} {:08x}",
        proxied.delta,
        proxied.stamp,
        proxied.isn,
        u8::from(proxied.agreed().timestamps),
        proxied.window_for_server(window, scale),
        proxied.window_for_client(window, scale),
        siphash(secret, &words),
        checked(epoch, cookie),
        checked(epoch.wrapping_add(1), cookie),
        checked(epoch.wrapping_add(2), cookie),
        checked(epoch, cookie ^ 1 << (other & 31)),
        stamped.timestamp(time_ns)
    )
}

#[test]
fn both_languages_compute_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().expect("a temporary folder");
    for compiler in ["clang-19", "cc"] {
        let program = folder.path().join(compiler);
        let flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-Idatapath", "tests/cookies/cookies.c", "-o"];
        let compiled = Command::new(compiler).args(flags).arg(&program).current_dir(&root).output();
        let compiled = compiled.unwrap_or_else(|error| panic!("{compiler}: {error}; run `make install-deps`"));
        assert!(compiled.status.success(), "{compiler}: {}", String::from_utf8_lossy(&compiled.stderr));
        let printed = Command::new(&program).output().expect("it was compiled").stdout;
        let printed = String::from_utf8(printed).expect("it prints text");
        let mut draws = Draws(1);
        let lines: Vec<&str> = printed.lines().collect();
        assert_eq!(lines.len(), REQUESTS);
        for (nth, printed) in lines.iter().enumerate() {
            assert_eq!(*printed, line(nth, &mut draws), "{compiler}");
        }
    }
}
