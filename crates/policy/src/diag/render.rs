//! Renders diagnostics for a terminal: the message, the underlined text and the help. Text from outside is escaped,
//! long lines are shortened, and only the first warnings of each code are shown.

use super::excerpt::Excerpt;
use super::printable::printable_line;
use super::{Diagnostic, Severity};
use crate::source::{FileId, SourceMap, Span};
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// Warnings of one code that are shown. The others are only counted.
pub const WARNINGS_OF_A_CODE_MAX: usize = 10;
/// Characters at the start and at the end of a long message that are shown.
const MESSAGE_HEAD: usize = 240;
const MESSAGE_TAIL: usize = 120;

/// With or without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For pipes and files.
    Plain,
    /// For terminals.
    Coloured,
}

/// Renders all errors and the first warnings of each code, each followed by an empty line.
pub fn render(diagnostics: &[Diagnostic], sources: &SourceMap, style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Coloured => Renderer::styled(),
    };
    let mut text = String::new();
    let mut warnings: BTreeMap<&str, usize> = BTreeMap::new();
    for diagnostic in diagnostics {
        if diagnostic.severity == Severity::Warning {
            let count = warnings.entry(diagnostic.code).or_default();
            *count += 1;
            if *count > WARNINGS_OF_A_CODE_MAX {
                continue;
            }
        }
        text.push_str(&rendered(diagnostic, sources, &renderer));
        text.push_str("\n\n");
    }
    for (code, count) in warnings {
        if count > WARNINGS_OF_A_CODE_MAX {
            let more = count - WARNINGS_OF_A_CODE_MAX;
            let warnings = if more == 1 { "warning" } else { "warnings" };
            let _ = writeln!(text, "warning: {more} more {warnings} {code} (`weir check --json` lists them)\n");
        }
    }
    text
}

fn rendered(diagnostic: &Diagnostic, sources: &SourceMap, renderer: &Renderer) -> String {
    let mut files: Vec<FileId> = vec![diagnostic.span.file];
    for (span, _) in &diagnostic.notes {
        if !files.contains(&span.file) {
            files.push(span.file);
        }
    }
    let quotes: Vec<Quote<'_>> = files.into_iter().map(|file| Quote::new(diagnostic, file, sources)).collect();
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(line(&diagnostic.message)).id(diagnostic.code));
    for quote in &quotes {
        if let Some(origin) = quote.origin() {
            group = group.element(origin);
        }
        group = group.element(quote.snippet());
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(line(help)));
    }
    let text = renderer.render(&[group]);
    // After an explicit origin the renderer repeats the file as `:::`.
    let lines: Vec<&str> = text.lines().filter(|line| !is_file_separator(line)).collect();
    lines.join("\n")
}

/// Whether a line contains only ` ::: ` and colours (`ESC [ ... m`).
fn is_file_separator(line: &str) -> bool {
    let mut pieces = line.split('\u{1b}');
    let plain: String =
        pieces.next().into_iter().chain(pieces.filter_map(|piece| Some(piece.split_once('m')?.1))).collect();
    plain.trim() == ":::"
}

/// Escapes a message to one line. The middle of a long message is left out.
fn line(text: &str) -> Cow<'_, str> {
    let shown = printable_line(text);
    let count = shown.chars().count();
    if count <= MESSAGE_HEAD + MESSAGE_TAIL {
        return shown;
    }
    let head: String = shown.chars().take(MESSAGE_HEAD).collect();
    let tail: String = shown.chars().skip(count - MESSAGE_TAIL).collect();
    Cow::Owned(format!("{head}...{tail}"))
}

/// The lines of a file from the first annotated line to the last. The renderer does not scan the rest of a long file.
struct Quote<'a> {
    path: Cow<'a, str>,
    /// Number of the first quoted line.
    line: usize,
    /// Line and column of the first annotation.
    origin: (u32, u32),
    excerpt: Excerpt<'a>,
    /// Annotations, with ranges in bytes of the excerpt.
    annotations: Vec<(Range<usize>, Cow<'a, str>, AnnotationKind)>,
}

impl<'a> Quote<'a> {
    fn new(diagnostic: &'a Diagnostic, file: FileId, sources: &'a SourceMap) -> Self {
        let source = sources.file(file);
        let primary = (diagnostic.span, diagnostic.label.as_str(), AnnotationKind::Primary);
        let notes = diagnostic.notes.iter().map(|(span, text)| (*span, text.as_str(), AnnotationKind::Context));
        let annotated: Vec<_> = std::iter::once(primary)
            .chain(notes)
            .filter(|(span, ..)| span.file == file)
            .map(|(span, label, kind)| (bytes(span, &source.text), label, kind))
            .collect();
        let first = annotated.iter().map(|(range, ..)| range.start).min().unwrap_or(0);
        let last = annotated.iter().map(|(range, ..)| range.end).max().unwrap_or(0);
        let start = source.text[..first].rfind('\n').map_or(0, |newline| newline + 1);
        let end = source.text[last..].find('\n').map_or(source.text.len(), |newline| last + newline);
        let inside = |range: &Range<usize>| range.start - start..range.end - start;
        let marked: Vec<_> = annotated.iter().map(|(range, ..)| inside(range)).collect();
        let excerpt = Excerpt::new(&source.text[start..end], &marked);
        let origin =
            source.line_column(u32::try_from(annotated.first().map_or(0, |(range, ..)| range.start)).unwrap_or(0));
        let annotations = marked.iter().zip(annotated).map(|(range, (_, label, kind))| {
            (excerpt.offset(range.start)..excerpt.offset(range.end), self::line(label), kind)
        });
        let annotations = annotations.collect();
        let line = 1 + source.text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
        Quote { path: self::line(&source.name), line, origin, excerpt, annotations }
    }

    /// The origin, if the excerpt is shortened. Otherwise the renderer derives it from the quoted text.
    fn origin(&self) -> Option<Origin<'_>> {
        let (line, column) = self.origin;
        let origin = || Origin::path(self.path.as_ref()).line(line as usize).char_column(column as usize);
        (!self.excerpt.is_whole()).then(origin)
    }

    fn snippet(&self) -> Snippet<'_, Annotation<'_>> {
        let annotations = self.annotations.iter().map(|(range, label, kind)| {
            let annotation = kind.span(range.clone());
            if label.is_empty() { annotation } else { annotation.label(label.as_ref()) }
        });
        let snippet = Snippet::source(self.excerpt.text.as_str()).line_start(self.line).annotations(annotations);
        if self.excerpt.is_whole() { snippet.path(self.path.as_ref()) } else { snippet }
    }
}

/// The span as a byte range that is extended to whole characters.
fn bytes(span: Span, text: &str) -> Range<usize> {
    let start = text.floor_char_boundary(span.start as usize);
    start..text.ceil_char_boundary((span.end as usize).max(start))
}
