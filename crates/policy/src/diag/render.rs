//! Renders diagnostics for a terminal: what, where with the place underlined, and what to do.

use super::{Diagnostic, Severity};
use crate::source::{FileId, SourceMap, Span};
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Renderer, Snippet};
use std::ops::Range;

/// With or without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// For pipes and files.
    Plain,
    /// For terminals.
    Coloured,
}

/// All diagnostics, one after the other, each followed by an empty line.
pub fn render(diagnostics: &[Diagnostic], sources: &SourceMap, style: Style) -> String {
    let renderer = match style {
        Style::Plain => Renderer::plain(),
        Style::Coloured => Renderer::styled(),
    };
    let mut text = String::new();
    for diagnostic in diagnostics {
        text.push_str(&renderer.render(&[group(diagnostic, sources)]));
        text.push_str("\n\n");
    }
    text
}

fn group<'a>(diagnostic: &'a Diagnostic, sources: &'a SourceMap) -> Group<'a> {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(&diagnostic.message).id(diagnostic.code));
    let mut files: Vec<FileId> = vec![diagnostic.span.file];
    for (span, _) in &diagnostic.notes {
        if !files.contains(&span.file) {
            files.push(span.file);
        }
    }
    for file in files {
        group = group.element(snippet(diagnostic, file, sources));
    }
    match &diagnostic.help {
        Some(help) => group.element(Level::HELP.message(help)),
        None => group,
    }
}

/// The lines of a file from the first annotated one to the last: long files are not looked through for each message.
fn snippet<'a>(diagnostic: &'a Diagnostic, file: FileId, sources: &'a SourceMap) -> Snippet<'a, Annotation<'a>> {
    let source = sources.file(file);
    let primary = (diagnostic.span, diagnostic.label.as_str(), AnnotationKind::Primary);
    let notes = diagnostic.notes.iter().map(|(span, text)| (*span, text.as_str(), AnnotationKind::Context));
    let places: Vec<_> = std::iter::once(primary)
        .chain(notes)
        .filter(|(span, ..)| span.file == file)
        .map(|(span, label, kind)| (bytes(span, &source.text), label, kind))
        .collect();
    let first = places.iter().map(|(range, ..)| range.start).min().unwrap_or(0);
    let last = places.iter().map(|(range, ..)| range.end).max().unwrap_or(0);
    let start = source.text[..first].rfind('\n').map_or(0, |newline| newline + 1);
    let end = source.text[last..].find('\n').map_or(source.text.len(), |newline| last + newline);
    let line = 1 + source.text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count();
    let annotations = places.into_iter().map(|(range, label, kind)| {
        let annotation = kind.span(range.start - start..range.end - start);
        if label.is_empty() { annotation } else { annotation.label(label) }
    });
    Snippet::source(&source.text[start..end]).path(&source.name).line_start(line).annotations(annotations)
}

/// The span as a range of whole characters of the text.
fn bytes(span: Span, text: &str) -> Range<usize> {
    let start = text.floor_char_boundary(span.start as usize);
    start..text.ceil_char_boundary((span.end as usize).max(start))
}
