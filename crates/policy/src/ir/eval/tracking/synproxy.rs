//! The SYN proxy's handshake: the answer to a SYN, the check of a cookie, and the SYN to the server.

use super::segment::Segment;
use super::switch::Switch;
use crate::ir::Synproxy;
use crate::ir::eval::packet::Packet;
use crate::ir::eval::packet::tcp_flag::{ACK, SYN};
use crate::ir::eval::rewrite::{Built, Way};
use crate::ir::eval::tcp_options::{self, kind};
use weir_abi::cookie::{self, REPLAY_SECRET, Request, StampedOptions, epoch, mss_index};
use weir_abi::flow::{Agreed, Flow, FlowKey, FlowState, Proxied, Side, Window};

/// What answers SYNs and checks cookies.
pub(super) struct SynProxy {
    settings: Synproxy,
    switch: Switch,
    /// The epoch of the latest cookie. Only in this epoch and the next one a cookie may be valid.
    last_made: Option<u32>,
}

/// A client that has returned a cookie.
pub(super) struct Opened {
    pub(super) flow: Flow,
    pub(super) proxied: Proxied,
    pub(super) syn: Built,
}

impl SynProxy {
    pub(super) fn new(settings: &Synproxy) -> Self {
        SynProxy { settings: *settings, switch: Switch::default(), last_made: None }
    }

    /// Counts a SYN. Returns whether those that open connections are answered.
    pub(super) fn counts(&mut self, clock_ns: u64) -> bool {
        self.settings.threshold.is_none_or(|threshold| self.switch.counts(clock_ns, &threshold))
    }

    /// The SYN-ACK for a client's SYN. Its window is 0, so that the client sends nothing before the server has
    /// answered.
    pub(super) fn answer(&mut self, key: &FlowKey, client: usize, segment: &Segment<'_>, clock_ns: u64) -> Built {
        let epoch = epoch(clock_ns);
        self.last_made = Some(epoch);
        let request = Request { key: *key, client, isn: segment.seq };
        let client_mss = tcp_options::mss(segment.options).unwrap_or(0);
        let seq = cookie::make(REPLAY_SECRET, &request, epoch, mss_index(client_mss));
        let mut options = mss_option(self.settings.mss);
        let timestamps = tcp_options::timestamps(segment.options).filter(|_| self.settings.timestamp);
        if let Some([value, _]) = timestamps {
            let scale = segment.scale();
            let told = self.settings.wscale.filter(|_| scale != Side::NO_SCALE);
            let kept = StampedOptions {
                scale: told.map_or(Side::NO_SCALE, |_| scale),
                told_scale: told.unwrap_or(0),
                sack: self.settings.sack && segment.permits_sack(),
            };
            put_options(&mut options, kept.sack, [kept.timestamp(clock_ns), value], told);
        }
        let ack = segment.seq.wrapping_add(1);
        Built { way: Way::Back, seq, ack, flags: SYN | ACK, window: 0, options, payload: vec![] }
    }

    /// The flow that an ACK opens, if it returns a valid cookie. It has the number behind the client's SYN; a probe of
    /// the closed window has the number of the SYN (RFC 9293, section 3.8.6.1).
    pub(super) fn opened(&self, key: &FlowKey, client: usize, segment: &Segment<'_>, clock_ns: u64) -> Option<Opened> {
        let now = epoch(clock_ns);
        self.last_made.filter(|&last| now.wrapping_sub(last) <= 1)?;
        let cookie = segment.ack?.wrapping_sub(1);
        let (isn, mss) = [segment.seq.wrapping_sub(1), segment.seq].into_iter().find_map(|isn| {
            let request = Request { key: *key, client, isn };
            Some((isn, cookie::check(REPLAY_SECRET, &request, now, cookie)?))
        })?;
        // Another policy may have made the offer, so the segment says what it was.
        let timestamps = tcp_options::timestamps(segment.options);
        let kept = timestamps.map_or(StampedOptions::NONE, |[_, echo]| StampedOptions::of(echo));
        let agreed = Agreed {
            client_scale: kept.scale,
            told_scale: if kept.scale == Side::NO_SCALE { 0 } else { kept.told_scale },
            timestamps: timestamps.is_some(),
            sack: kept.sack,
        };
        let proxied = Proxied::new(cookie, timestamps.map_or(0, |[_, echo]| echo), mss, agreed);
        let syn = syn(isn, segment, &proxied)?;
        let mut sides = [Side::default(); 2];
        sides[client] = Side {
            una: isn,
            next: isn.wrapping_add(1),
            window: Window::of(u32::from(syn.window).max(1)),
            scale: agreed.client_scale,
            sack: agreed.sack,
        };
        let flow = Flow {
            time: 0,
            state: FlowState::SynSent,
            opener: client,
            liberal: false,
            replied: false,
            syn: false,
            proxied: true,
            sides,
        };
        Some(Opened { flow, proxied, syn })
    }
}

/// The SYN to the server in place of a segment of the client. `None` if the segment lacks the timestamps that were
/// agreed on (RFC 7323, section 3.2).
pub(super) fn syn(isn: u32, segment: &Segment<'_>, proxied: &Proxied) -> Option<Built> {
    let agreed = proxied.agreed();
    let mut options = mss_option(proxied.mss);
    if agreed.timestamps {
        let [value, _] = tcp_options::timestamps(segment.options)?;
        let scale = Some(agreed.client_scale).filter(|&scale| scale != Side::NO_SCALE);
        put_options(&mut options, agreed.sack, [value, 0], scale);
    }
    // The window of a SYN is never shifted (RFC 7323, section 2.2).
    let window = match segment.has_syn() {
        true => segment.window as u16,
        false => proxied.window_for_server(segment.window as u16, 0),
    };
    Some(Built { way: Way::On, seq: isn, ack: 0, flags: SYN, window, options, payload: vec![] })
}

/// The ACK for the client in place of the server's SYN-ACK: a keep-alive (RFC 9293, section 3.8.4), which the client
/// answers. It has the number of the SYN-ACK, and an octet in place of its SYN.
pub(super) fn keep_alive(packet: &Packet, segment: &Segment<'_>, proxied: &Proxied) -> Built {
    let mut options = Vec::new();
    if let Some([value, echo]) = tcp_options::timestamps(segment.options).filter(|_| proxied.agreed().timestamps) {
        put_options(&mut options, false, [value.wrapping_add(proxied.stamp), echo], None);
    }
    Built {
        way: Way::On,
        seq: packet.seq.wrapping_add(proxied.delta),
        ack: packet.ack,
        flags: ACK,
        window: proxied.window_for_client(packet.window, 0),
        options,
        payload: vec![0],
    }
}

fn mss_option(mss: u16) -> Vec<u8> {
    let [high, low] = mss.to_be_bytes();
    vec![kind::MSS, 4, high, low]
}

/// Writes timestamps, with the permission of selective acknowledgements or two fillers before them, and a shift.
fn put_options(options: &mut Vec<u8>, sack: bool, [value, echo]: [u32; 2], scale: Option<u8>) {
    options.extend(if sack { [kind::SACK_PERMITTED, 2] } else { [1, 1] });
    options.extend([kind::TIMESTAMPS, 10]);
    options.extend(value.to_be_bytes());
    options.extend(echo.to_be_bytes());
    if let Some(scale) = scale {
        options.extend([1, kind::WINDOW_SCALE, 3, scale]);
    }
}
