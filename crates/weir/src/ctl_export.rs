//! `weir ctl status`: what is exported to collectors.

use std::fmt::Write as _;
use weir_command::figures::grouped;
use weir_control::{CollectorStatus, ExportStatus};
use weir_policy::diag::printable::printable;

/// A line for the samples, and one for each collector.
pub fn text(export: &ExportStatus) -> String {
    let ExportStatus { every, samples, lost, sflow, ipfix } = export;
    let [every, samples, lost] = [u64::from(*every), *samples, *lost].map(grouped);
    let mut text = format!("export: 1 packet in {every} is sampled, {samples} so far, {lost} lost\n");
    if let Some(sflow) = sflow {
        let [notifications, suppressed] = [sflow.notifications, sflow.suppressed].map(grouped);
        let what = format!("{notifications} dropped packets notified, {suppressed} not");
        text += &collector("sflow", &sflow.collector, &what);
    }
    if let Some(ipfix) = ipfix {
        let [records, flows, evicted] = [ipfix.records, ipfix.flows, ipfix.evicted].map(grouped);
        let what = format!("{records} flows ended, {evicted} of them for lack of room, {flows} have not ended");
        text += &collector("ipfix", &ipfix.collector, &what);
    }
    text
}

fn collector(protocol: &str, of: &CollectorStatus, what: &str) -> String {
    let CollectorStatus { address, datagrams, errors, problem } = of;
    let [datagrams, errors] = [*datagrams, *errors].map(grouped);
    let mut text = format!("{protocol} to {}: {datagrams} datagrams, {errors} errors", printable(address));
    if let Some(problem) = problem {
        let _ = write!(text, " (the last one: {})", printable(problem));
    }
    format!("{text}; {what}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_control::{FlowExportStatus, SampleExportStatus};

    #[test]
    fn each_collector_has_a_line_with_its_errors() {
        let refused = CollectorStatus {
            address: "192.0.2.1:6343".to_owned(),
            datagrams: 1200,
            errors: 3,
            problem: Some("Connection refused".to_owned()),
        };
        let well = CollectorStatus { address: "[::1]:4739".to_owned(), datagrams: 7, ..CollectorStatus::default() };
        let export = ExportStatus {
            every: 1000,
            samples: 5000,
            lost: 2,
            sflow: Some(SampleExportStatus { collector: refused, notifications: 100, suppressed: 123_456 }),
            ipfix: Some(FlowExportStatus { collector: well, records: 9, flows: 4, evicted: 1, without_flow: 0 }),
        };
        assert_eq!(
            text(&export),
            "export: 1 packet in 1,000 is sampled, 5,000 so far, 2 lost\n\
             sflow to 192.0.2.1:6343: 1,200 datagrams, 3 errors (the last one: Connection refused); \
             100 dropped packets notified, 123,456 not\n\
             ipfix to [::1]:4739: 7 datagrams, 0 errors; \
             9 flows ended, 1 of them for lack of room, 4 have not ended\n"
        );
    }
}
