//! The options of `weir run` for collectors.

use clap::Args;
use std::net::IpAddr;

/// What `weir run` tells collectors.
#[derive(Clone, Debug, Args)]
pub struct ExportOptions {
    /// Send sFlow version 5 to this collector, over UDP: samples of packets, counters of interfaces, and notifications
    /// of dropped packets with their reasons. The default port is 6343.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub sflow: Option<String>,
    /// Send IPFIX to this collector, over UDP: flows of sampled packets with what became of them. The default port is
    /// 4739.
    #[arg(long, value_name = "HOST[:PORT]")]
    pub ipfix: Option<String>,
    /// Sample one packet in N for sFlow and IPFIX, chosen by chance [default: 1000].
    #[arg(long, value_name = "N", value_parser = every)]
    pub export_every: Option<u32>,
    /// Send at most so many notifications of dropped packets in a second. 0 sends none.
    #[arg(long, value_name = "PER_SECOND", default_value_t = 100, value_parser = drops, requires = "sflow")]
    pub sflow_drops: u32,
    /// The address by which the collector of sFlow knows this machine. The default is the address from which datagrams
    /// come.
    #[arg(long, value_name = "ADDRESS", requires = "sflow")]
    pub export_agent: Option<IpAddr>,
}

/// Without another number.
const EVERY: u32 = 1000;
/// With fewer samples a counter of 32 bits wraps around before the next one.
const EVERY_MAX: u32 = 1 << 24;
/// What a reader keeps up with.
const DROPS_MAX: u32 = 10_000;

impl ExportOptions {
    /// Packets are sampled as one of so many.
    pub fn every(&self) -> u32 {
        self.export_every.unwrap_or(EVERY)
    }
}

fn every(text: &str) -> Result<u32, String> {
    let every = text.parse().ok().filter(|every| (1..=EVERY_MAX).contains(every));
    every.ok_or_else(|| format!("a number from 1 to {EVERY_MAX} is expected"))
}

fn drops(text: &str) -> Result<u32, String> {
    let drops = text.parse().ok().filter(|drops| *drops <= DROPS_MAX);
    drops.ok_or_else(|| format!("a number up to {DROPS_MAX} is expected"))
}
