//! A page of metrics, and its text in Prometheus' format
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Metrics are declared once, with the text that the page and docs/reference/metrics.md have. Label values come from
//! the policy, from names of interfaces and from Weir itself, never from packets. So an attacker cannot make the page
//! longer.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// Most samples of a metric on a page. The page counts those that it leaves out.
pub const SAMPLES_MAX: usize = 2048;

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows while Weir runs.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    /// Its name without the suffix `_total` of counters.
    base: &'static str,
    /// How it changes.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

impl Metric {
    /// A counter. Its name is `base` and `_total`.
    pub const fn counter(base: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Metric { base, kind: Kind::Counter, labels, help }
    }

    /// A gauge.
    pub const fn gauge(base: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Metric { base, kind: Kind::Gauge, labels, help }
    }

    /// Its name on the page.
    #[cfg(test)]
    pub fn name(&self) -> String {
        format!("{}{}", self.base, if self.kind == Kind::Counter { "_total" } else { "" })
    }
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A count.
    Whole(u64),
    /// A measurement.
    Real(f64),
}

impl From<u64> for Number {
    fn from(number: u64) -> Self {
        Number::Whole(number)
    }
}

impl From<usize> for Number {
    fn from(number: usize) -> Self {
        Number::Whole(number as u64)
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Self {
        Number::Whole(is.into())
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Number::Real(number)
    }
}

/// The samples of a metric.
#[derive(Debug)]
struct Family {
    metric: &'static Metric,
    samples: Vec<(Vec<(&'static str, String)>, Number)>,
}

/// What a scrape gets.
#[derive(Debug, Default)]
pub struct Page {
    families: Vec<Family>,
    left_out: u64,
}

impl Page {
    /// Adds a sample, with the values of the metric's labels.
    pub fn put(&mut self, metric: &'static Metric, labels: &[&str], number: impl Into<Number>) {
        assert_eq!(metric.labels.len(), labels.len(), "compiler bug: {} has other labels", metric.base);
        let place = self.families.iter().rposition(|family| family.metric.base == metric.base);
        let place = place.unwrap_or_else(|| {
            self.families.push(Family { metric, samples: Vec::new() });
            self.families.len() - 1
        });
        let samples = &mut self.families[place].samples;
        if samples.len() >= SAMPLES_MAX {
            self.left_out += 1;
            return;
        }
        let labels = metric.labels.iter().zip(labels).map(|(&name, &value)| (name, value.to_owned()));
        samples.push((labels.collect(), number.into()));
    }

    /// Samples that had no place.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The text.
    pub fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).expect("a string takes all");
        text
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { metric, samples } in &self.families {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut family = encoder.encode_descriptor(metric.base, metric.help, None, kind)?;
            for (labels, number) in samples {
                let labels = &labels.as_slice();
                let mut sample = family.encode_family(labels)?;
                // Nothing has an exemplar: the type only says so.
                type Labels = Vec<(String, String)>;
                match (metric.kind, number) {
                    (Kind::Counter, Number::Whole(count)) => sample.encode_counter::<Labels, _, u64>(count, None)?,
                    (Kind::Counter, Number::Real(sum)) => sample.encode_counter::<Labels, _, u64>(sum, None)?,
                    (Kind::Gauge, Number::Whole(count)) => sample.encode_gauge(count)?,
                    (Kind::Gauge, Number::Real(value)) => sample.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static RULES: Metric = Metric::counter("rules", &["rule"], "Packets of rules.");

    #[test]
    fn label_values_are_escaped() {
        let mut page = Page::default();
        page.put(&RULES, &["a\"b\\c\nd.weir:1"], 3u64);
        let text = "# HELP rules_total Packets of rules.\n# TYPE rules_total counter\n\
                    rules_total{rule=\"a\\\"b\\\\c\\nd.weir:1\"} 3\n";
        assert_eq!(page.text(), text);
    }

    #[test]
    fn a_page_is_bounded_and_counts_what_it_leaves_out() {
        let mut page = Page::default();
        (0..SAMPLES_MAX + 3).for_each(|rule| page.put(&RULES, &[&format!("p:{rule}")], rule));
        assert_eq!(page.left_out(), 3);
        let text = page.text();
        assert_eq!(text.lines().count(), 2 + SAMPLES_MAX);
        assert!(text.contains("p:2047") && !text.contains("p:2048"));
    }
}
