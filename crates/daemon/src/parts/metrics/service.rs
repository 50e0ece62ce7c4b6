//! Answers `GET /metrics` over HTTP.
//!
//! It runs in one thread of its own at low priority. It may be reached by everyone on the host, so everything that a
//! client takes is bounded: connections, the length of a request, and the time of a connection, which has one request.
//! The newest of too many connections takes the place of the oldest one, so nobody can occupy all of them.
//!
//! A web page cannot read the figures by a name that resolves to a loopback address (DNS rebinding): requests must name
//! a loopback address or `localhost`.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time;
use weir_command::failure::Failure;

/// Most connections at a time.
pub const CONNECTIONS_MAX: usize = 16;
/// Most bytes of a request's head.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most lines of a request's head.
const REQUEST_LINES_MAX: usize = 64;
/// Pause after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a client may take.
#[derive(Clone, Copy)]
pub struct Times {
    /// Longest time until the head of a request is complete.
    pub request: Duration,
    /// Longest time of a connection.
    pub connection: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times { request: Duration::from_secs(5), connection: Duration::from_secs(15) }
    }
}

/// Makes a page, and says how long it serves. Its argument is the number of connections that were closed so far.
pub type MakePage = dyn FnMut(u64) -> Result<(String, Duration), Failure> + Send;

/// Pages, and the last one.
struct Pages {
    make: Box<MakePage>,
    last: Option<(Bytes, Instant)>,
    crowded_out: u64,
}

/// What requests are answered with.
#[derive(Clone)]
struct Service {
    pages: Arc<Mutex<Pages>>,
    /// Whether requests must name a loopback address.
    is_private: bool,
    times: Times,
}

/// Answers requests until `stop` is sent or dropped.
///
/// # Errors
/// The system gives no events.
pub fn serve(listener: TcpListener, make: Box<MakePage>, times: Times, stop: oneshot::Receiver<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let is_private = listener.local_addr()?.ip().to_canonical().is_loopback();
    let pages = Arc::new(Mutex::new(Pages { make, last: None, crowded_out: 0 }));
    let service = Service { pages, is_private, times };
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(async move { accept(&listener, &service).await });
        // The runtime drops the listener and all connections at its end.
        let _sent_or_dropped = stop.await;
        Ok(())
    })
}

async fn accept(listener: &tokio::net::TcpListener, service: &Service) {
    let mut connections: VecDeque<JoinHandle<()>> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // There may be no descriptors.
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
            service.pages().crowded_out += 1;
        }
        connections.push_back(tokio::spawn(answer_one(stream, service.clone())));
    }
}

async fn answer_one(stream: TcpStream, service: Service) {
    let Times { request, connection: longest } = service.times;
    let answer = service_fn(move |request: Request<Incoming>| {
        let response = service.answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(request)
        .max_buf_size(REQUEST_BYTES_MAX)
        .max_headers(REQUEST_LINES_MAX)
        .keep_alive(false);
    let connection = builder.serve_connection(TokioIo::new(stream), answer);
    // A client that hangs up or is too slow gets no answer.
    let _result = time::timeout(longest, connection).await;
}

impl Service {
    fn pages(&self) -> std::sync::MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let host = request.headers().get(HOST);
        if self.is_private && !host.is_none_or(names_this_host) {
            return refusal(StatusCode::MISDIRECTED_REQUEST, "the request must name a loopback address\n");
        }
        if request.uri().path() != "/metrics" {
            return refusal(StatusCode::NOT_FOUND, "there is only /metrics\n");
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut refused = refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        match self.pages().page() {
            Ok(text) => response(StatusCode::OK, prometheus_text::CONTENT_TYPE, text),
            Err(failure) => {
                response(StatusCode::SERVICE_UNAVAILABLE, PLAIN, Bytes::from(format!("{}\n", failure.message())))
            }
        }
    }
}

impl Pages {
    /// The last page, or a new one if that one has served its time.
    fn page(&mut self) -> Result<Bytes, Failure> {
        if let Some((text, until)) = &self.last
            && Instant::now() < *until
        {
            return Ok(text.clone());
        }
        let (text, serves) = (self.make)(self.crowded_out)?;
        let text = Bytes::from(text);
        self.last = Some((text.clone(), Instant::now() + serves));
        Ok(text)
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn refusal(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    response(status, PLAIN, Bytes::from_static(text.as_bytes()))
}

fn response(status: StatusCode, kind: &'static str, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether the host of a request, with or without port, is a loopback address or `localhost`.
fn names_this_host(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let Ok(authority) = host.parse::<hyper::http::uri::Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
#[path = "service/tests.rs"]
mod tests;
