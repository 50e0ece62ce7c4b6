//! The options of `weir run` for metrics.

use clap::Args;
use std::net::SocketAddr;
use weir_command::failure::Failure;

/// What `weir run` tells Prometheus.
#[derive(Clone, Debug, Args)]
pub struct MetricsOptions {
    /// Answer `GET /metrics` at this address with the figures of Weir, in Prometheus' text format:
    /// `--metrics 127.0.0.1:9464`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Also take an address for `--metrics` that other machines reach. There is no password: everyone who reaches it
    /// can read what is dropped, by which rule, and whether an attack is held.
    #[arg(long, requires = "metrics")]
    pub metrics_public: bool,
}

impl MetricsOptions {
    /// Refuses an address that others reach, unless that is wanted.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self) -> Result<(), Failure> {
        let Some(address) = self.metrics else { return Ok(()) };
        if address.ip().to_canonical().is_loopback() || self.metrics_public {
            return Ok(());
        }
        Err(Failure::Rejected(format!(
            "weir: --metrics {address}: other machines reach this address, and an attacker who reads what is dropped \
             knows what passes; use 127.0.0.1:{port} or [::1]:{port}, or add --metrics-public",
            port = address.port()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_others_reach_are_wanted_explicitly() {
        let check = |address: &str, metrics_public| {
            let metrics = Some(address.parse().expect("an address"));
            MetricsOptions { metrics, metrics_public }.check()
        };
        for address in ["127.0.0.1:9464", "127.8.8.8:1", "[::1]:9464", "[::ffff:127.0.0.1]:9464"] {
            check(address, false).unwrap_or_else(|refused| panic!("{address}: {refused}"));
        }
        for address in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464", "[2001:db8::1]:9464", "[::ffff:192.0.2.1]:9464"]
        {
            let refused = check(address, false).expect_err("others reach it").to_string();
            assert!(refused.contains(&format!("--metrics {address}: other machines reach")), "{refused}");
            assert!(refused.contains("127.0.0.1:9464 or [::1]:9464, or add --metrics-public"), "{refused}");
            check(address, true).unwrap_or_else(|refused| panic!("{address}: {refused}"));
        }
    }
}
