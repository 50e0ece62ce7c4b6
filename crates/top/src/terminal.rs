//! The loop between the terminal, the source of snapshots and the model.

use crate::recording::{Recorder, Recording, line};
use crate::source::{Source, take_two};
use crate::{Command, Error, Event, Key, Model, Picture, Setup, Snapshot, screen};
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, IsTerminal, Write};
use std::iter::Peekable;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::vec::IntoIter;
use weir_control::AttackEntry;

/// How long the screen waits for a key before it looks for snapshots.
const TICK: Duration = Duration::from_millis(100);
/// The longest pause between two snapshots of a recording.
const GAP_MAX: Duration = Duration::from_secs(3);

/// `weir top`
pub struct Options {
    /// The control socket.
    pub control: PathBuf,
    /// A recording that is played instead.
    pub from: Option<PathBuf>,
    /// Where snapshots are recorded.
    pub record: Option<PathBuf>,
    /// Whether one screen is printed as text, or the last snapshot as JSON.
    pub once: Option<Once>,
    /// A picture that is drawn of the recording instead.
    pub picture: Option<Picture>,
    /// Whether colours may be used.
    pub has_colour: bool,
    /// What `weir ctl attacks show` says about an attack.
    pub explain: fn(&AttackEntry) -> String,
    /// Set when the program is to end.
    pub stop: Arc<AtomicBool>,
}

/// What is printed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once {
    /// A screen of this many columns and lines.
    Text(u16, u16),
    /// A snapshot, as a line of a recording.
    Json,
}

/// Runs `weir top`.
///
/// # Errors
/// The terminal or a recording cannot be used, or no Weir answers with `once`.
pub fn run(options: &Options) -> Result<(), Error> {
    if let Some(once) = options.once {
        return print_once(options, once);
    }
    if let (Some(picture), Some(from)) = (&options.picture, &options.from) {
        return picture.save(&Recording::read(from)?, setup(options));
    }
    let mut feed = Feed::open(options)?;
    if !io::stdout().is_terminal() {
        return match options.record {
            Some(_) => feed.record_only(&options.stop),
            None => Err(Error::NoTerminal),
        };
    }
    end_with_the_terminal();
    let mut model = Model::new(setup(options));
    let mut terminal = ratatui::try_init().map_err(Error::Terminal)?;
    let shown = show(&mut terminal, &mut model, &mut feed, &options.stop);
    // `ratatui::restore` would print a problem, and printing to a closed terminal panics.
    let restored = ratatui::try_restore().map_err(Error::Terminal);
    let shown = shown.and(restored);
    if shown.is_err() && has_closed(Some(&Timespec::default())) {
        // Nobody can read why.
        std::process::exit(1);
    }
    shown
}

fn setup(options: &Options) -> Setup {
    let from = options.from.as_ref().unwrap_or(&options.control);
    Setup {
        from: from.display().to_string(),
        is_recording: options.from.is_some(),
        has_colour: options.has_colour,
        explain: options.explain,
    }
}

/// Ends the program when its terminal is closed. crossterm 0.29 would read a closed terminal for ever, and the program
/// may have been told to ignore SIGHUP.
fn end_with_the_terminal() {
    thread::spawn(|| {
        has_closed(None);
        std::process::exit(1);
    });
}

/// Waits until the terminal is closed, or for a time. Returns whether it is.
fn has_closed(wait: Option<&Timespec>) -> bool {
    let stdout = io::stdout();
    loop {
        // No events are asked for, so only a closed terminal ends the wait early.
        match poll(&mut [PollFd::new(&stdout, PollFlags::empty())], wait) {
            Err(Errno::INTR) => {}
            polled => return polled != Ok(0),
        }
    }
}

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    model: &mut Model,
    feed: &mut Feed,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let started = Instant::now();
    while !model.is_done() && !stop.load(Ordering::Relaxed) {
        while let Some(event) = feed.next(started.elapsed(), model.is_paused)? {
            model.update(event, started.elapsed());
        }
        model.update(Event::Tick, started.elapsed());
        terminal.draw(|frame| screen::draw(frame, model)).map_err(Error::Terminal)?;
        // All keys that are there, then one screen.
        let mut wait = TICK;
        while event::poll(wait).map_err(Error::Terminal)? {
            wait = Duration::ZERO;
            let Input::Key(pressed) = event::read().map_err(Error::Terminal)? else { continue };
            if let Some(command) = key(pressed).and_then(|key| model.update(Event::Key(key), started.elapsed())) {
                feed.send(command);
            }
        }
    }
    Ok(())
}

/// A key of the terminal that means something here.
fn key(KeyEvent { code, modifiers, kind, .. }: KeyEvent) -> Option<Key> {
    if kind == KeyEventKind::Release {
        return None;
    }
    if modifiers.contains(KeyModifiers::CONTROL) {
        return (code == KeyCode::Char('c')).then_some(Key::Interrupt);
    }
    Some(match code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        _ => return None,
    })
}

/// Where events come from.
struct Feed {
    source: From,
    recorder: Option<Recorder>,
}

enum From {
    Weir(Source),
    Recording { snapshots: Box<Peekable<IntoIter<Snapshot>>>, due: Duration, is_over: bool },
}

impl Feed {
    fn open(options: &Options) -> Result<Self, Error> {
        let source = match &options.from {
            Some(path) => From::recording(path)?,
            None => From::Weir(Source::start(&options.control)),
        };
        let recorder = options.record.as_deref().map(Recorder::create).transpose()?;
        Ok(Feed { source, recorder })
    }

    /// The next event that has come by a time since the start. A recording waits while it is paused.
    fn next(&mut self, now: Duration, is_paused: bool) -> Result<Option<Event>, Error> {
        let event = match &mut self.source {
            From::Weir(source) => source.events.try_recv().ok(),
            From::Recording { .. } if is_paused => None,
            recording => recording.play(now),
        };
        if let (Some(Event::Snapshot(snapshot)), Some(recorder)) = (&event, &mut self.recorder) {
            recorder.write(snapshot)?;
        }
        Ok(event)
    }

    fn send(&self, command: Command) {
        if let From::Weir(source) = &self.source {
            source.send(command);
        }
    }

    /// Records until the program is to end.
    fn record_only(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let started = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            match self.next(started.elapsed(), false)? {
                Some(Event::EndOfRecording) => return Ok(()),
                Some(_) => {}
                None => std::thread::sleep(TICK),
            }
        }
        Ok(())
    }
}

impl From {
    fn recording(path: &Path) -> Result<Self, Error> {
        let snapshots = Box::new(Recording::read(path)?.snapshots.into_iter().peekable());
        Ok(From::Recording { snapshots, due: Duration::ZERO, is_over: false })
    }

    /// The next snapshot of a recording, at the pace in which it was recorded.
    fn play(&mut self, now: Duration) -> Option<Event> {
        let From::Recording { snapshots, due, is_over } = self else { return None };
        if now < *due {
            return None;
        }
        let Some(snapshot) = snapshots.next() else {
            return (!mem::replace(is_over, true)).then_some(Event::EndOfRecording);
        };
        let pause = snapshots.peek().map_or(0.0, |next| next.time_s - snapshot.time_s);
        let pause = Duration::try_from_secs_f64(pause).unwrap_or_default().min(GAP_MAX);
        *due = now + pause;
        Some(Event::Snapshot(Box::new(snapshot)))
    }
}

/// Prints a screen or a snapshot.
fn print_once(options: &Options, once: Once) -> Result<(), Error> {
    let snapshots = match &options.from {
        Some(path) => Recording::read(path)?.snapshots,
        None => take_two(&options.control)?.to_vec(),
    };
    let mut recorder = options.record.as_deref().map(Recorder::create).transpose()?;
    let mut model = Model::new(setup(options));
    let mut text = String::new();
    for snapshot in snapshots {
        if let Some(recorder) = &mut recorder {
            recorder.write(&snapshot)?;
        }
        if once == Once::Json {
            text = line(&snapshot);
        }
        model.update(Event::Snapshot(Box::new(snapshot)), Duration::ZERO);
    }
    if let Once::Text(columns, lines) = once {
        text = screen::frame(&model, columns, lines);
    }
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Error::Terminal),
    }
}
