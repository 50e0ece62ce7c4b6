//! When the parts of a picture are visible.

use std::fmt::Write;

/// From when until when something is visible, seconds.
pub type Interval = (f64, f64);

/// Collects the intervals of a picture. Each distinct one is a class of its style sheet.
pub struct Animation {
    seconds: f64,
    intervals: Vec<Interval>,
}

impl Animation {
    /// An animation that begins again after a time.
    pub fn new(seconds: f64) -> Self {
        Animation { seconds, intervals: Vec::new() }
    }

    /// The class of what is visible in an interval; `None` if it always is.
    pub fn class(&mut self, interval: Interval) -> Option<String> {
        if interval == (0.0, self.seconds) {
            return None;
        }
        let known = self.intervals.iter().position(|known| *known == interval);
        let number = known.unwrap_or_else(|| {
            self.intervals.push(interval);
            self.intervals.len() - 1
        });
        Some(format!("t{number}"))
    }

    /// The style sheet. What ends with the picture is also visible without animation.
    pub fn style(&self) -> String {
        let mut style = String::new();
        let percent = |seconds: f64| (seconds / self.seconds * 100.0 * 1000.0).round() / 1000.0;
        for (number, &(start, end)) in self.intervals.iter().enumerate() {
            let still = if end == self.seconds { "visible" } else { "hidden" };
            let first = if start == 0.0 { "visible" } else { "hidden" };
            let mut frames = format!("0%{{visibility:{first}}}");
            if start > 0.0 {
                let _ = write!(frames, "{}%{{visibility:visible}}", percent(start));
            }
            if end < self.seconds {
                let _ = write!(frames, "{}%{{visibility:hidden}}", percent(end));
            }
            let seconds = (self.seconds * 1000.0).round() / 1000.0;
            let _ = writeln!(
                style,
                ".t{number}{{visibility:{still};animation:k{number} {seconds}s step-end infinite}}\
                 @keyframes k{number}{{{frames}}}"
            );
        }
        style + "@media(prefers-reduced-motion:reduce){g{animation:none!important}}\n"
    }
}
