//! Policy texts and positions in them.

/// A file of a [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// The bytes `start..end` of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The smallest span that covers both. Both are in the same file.
    pub fn to(self, end: Span) -> Span {
        debug_assert_eq!(self.file, end.file, "a span stays in one file");
        Span { file: self.file, start: self.start.min(end.start), end: self.end.max(end.end) }
    }
}

/// A policy file's name, as the user gave it, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name in messages.
    pub name: String,
    /// The text.
    pub text: String,
    /// Offsets of the line starts, except the first.
    line_starts: Vec<u32>,
}

impl Source {
    /// A file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        let text: String = text.into();
        let newlines = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let line_starts = newlines.map(|(offset, _)| offset as u32 + 1).collect();
        Source { name: name.into(), text, line_starts }
    }

    /// Line and column of a byte offset, both counted from 1. Columns count characters.
    pub fn line_column(&self, offset: u32) -> (u32, u32) {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = if line == 0 { 0 } else { self.line_starts[line - 1] };
        let column = self.text[start as usize..offset as usize].chars().count();
        (line as u32 + 1, column as u32 + 1)
    }
}

/// All files of one policy: the main file, then the included files in order.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    files: Vec<Source>,
}

impl SourceMap {
    /// Adds a file.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).expect("fewer than 2^32 files"));
        self.files.push(Source::new(name, text));
        id
    }

    /// The names of all files.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|source| source.name.as_str())
    }

    /// All files.
    pub fn all(&self) -> &[Source] {
        &self.files
    }

    /// The file.
    pub fn file(&self, id: FileId) -> &Source {
        &self.files[id.0 as usize]
    }

    /// The text of a span.
    pub fn text(&self, span: Span) -> &str {
        &self.file(span.file).text[span.start as usize..span.end as usize]
    }

    /// Line of the span's first byte, counted from 1.
    pub fn line(&self, span: Span) -> u32 {
        self.file(span.file).line_column(span.start).0
    }

    /// `edge.weir:12`: the last path component of the file and the line. Counters and generated code cite rules so.
    pub fn cite(&self, span: Span) -> String {
        let name = &self.file(span.file).name;
        let name = name.rsplit('/').next().unwrap_or(name);
        format!("{name}:{}", self.line(span))
    }
}
