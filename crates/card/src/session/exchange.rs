//! Control frames on their way: a window of requests, each sent again until it is answered.

use crate::control::{Control, Request};
use std::time::Duration;
use weir_abi::card::control;

/// Requests that wait for answers at once. A card takes one after the other, and queues in between are short.
const WINDOW: usize = 16;
/// Time after which a request is sent again. It doubles with each try.
const RETRY: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_millis(500);

struct Asked {
    request: Request,
    number: u16,
    frame: Vec<u8>,
    /// When it is sent again; `None` if it was not sent yet.
    due: Option<Duration>,
    retry: Duration,
    answer: Option<Vec<u32>>,
}

/// Requests that do no harm if the card gets them twice. They are sent in order, and so are their repetitions.
#[derive(Default)]
pub(super) struct Exchange {
    asked: Vec<Asked>,
    /// The first without an answer.
    first: usize,
    /// How often that one was sent since an answer came.
    tries: u32,
}

/// What a frame is for an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The frame answers no request that waits.
    Nothing,
    /// The frame answers the request with this index.
    Answer,
    /// The frame refuses that request.
    Refused(usize),
}

impl Exchange {
    /// Requests with the numbers that `number` gives.
    pub fn new(requests: impl IntoIterator<Item = Request>, mut number: impl FnMut() -> u16) -> Self {
        let asked = requests.into_iter().map(|request| {
            let number = number();
            Asked { frame: request.frame(number), request, number, due: None, retry: RETRY, answer: None }
        });
        Exchange { asked: asked.collect(), first: 0, tries: 0 }
    }

    /// The next frame to send, or the time until which there is none.
    pub fn poll(&mut self, now: Duration) -> Result<&[u8], Duration> {
        let window = self.asked[self.first..].iter().take(WINDOW).enumerate().filter(|(_, one)| one.answer.is_none());
        let due = |(at, one): (usize, &Asked)| (one.due.unwrap_or_default(), self.first + at);
        let Some((due, at)) = window.map(due).min() else { return Err(now) };
        if due > now {
            return Err(due);
        }
        self.tries += u32::from(at == self.first);
        let one = &mut self.asked[at];
        one.due = Some(now + one.retry);
        one.retry = RETRY_MAX.min(one.retry * 2);
        Ok(&one.frame)
    }

    /// Whether so many tries got no answer. A session that sends and receives late has as many tries as any other.
    pub fn is_unanswered(&self, tries: u32, now: Duration) -> bool {
        let is_due = |one: &Asked| one.due.is_some_and(|due| due <= now);
        self.tries >= tries && self.asked.get(self.first).is_some_and(is_due)
    }

    /// Whether a frame answers a request that waits.
    pub fn waits_for(&self, answer: Control<'_>) -> bool {
        self.asked_by(answer).is_some()
    }

    /// The request that waits for this answer.
    fn asked_by(&self, answer: Control<'_>) -> Option<usize> {
        let answers = |one: &Asked| {
            one.answer.is_none()
                && one.due.is_some()
                && answer.number() == one.number
                && answer.op() == one.request.op | control::ANSWER
                && answer.memory() == one.request.memory
                && answer.first() == one.request.first
        };
        let end = self.asked.len().min(self.first + WINDOW);
        (self.first..end).find(|&at| answers(&self.asked[at]))
    }

    /// Takes an answer without its seal.
    pub fn receive(&mut self, answer: Control<'_>) -> Heard {
        let Some(at) = self.asked_by(answer) else { return Heard::Nothing };
        let one = &mut self.asked[at];
        let wanted = if one.request.op == control::READ { usize::from(one.request.count) } else { 0 };
        if answer.count() != one.request.count || answer.words().count() < wanted {
            return Heard::Refused(at);
        }
        one.answer = Some(answer.words().take(wanted).collect());
        self.tries = 0;
        while self.asked.get(self.first).is_some_and(|one| one.answer.is_some()) {
            self.first += 1;
        }
        Heard::Answer
    }

    /// Whether all requests are answered.
    pub fn is_done(&self) -> bool {
        self.first == self.asked.len()
    }

    /// The request with an index.
    pub fn request(&self, at: usize) -> &Request {
        &self.asked[at].request
    }

    /// The first request without an answer.
    pub fn waiting(&self) -> Option<&Request> {
        self.asked.get(self.first).map(|one| &one.request)
    }

    /// All requests with the words of their answers.
    pub fn answers(&self) -> impl Iterator<Item = (&Request, &[u32])> {
        self.asked.iter().map(|one| (&one.request, one.answer.as_deref().unwrap_or_default()))
    }
}
