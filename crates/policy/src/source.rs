//! Policy texts and places in them.

/// A file of a [`SourceMap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// A run of bytes of one file, `start..end`.
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
    /// The smallest span that covers both; they are in one file.
    pub fn to(self, end: Span) -> Span {
        debug_assert_eq!(self.file, end.file, "a span stays in one file");
        Span { file: self.file, start: self.start.min(end.start), end: self.end.max(end.end) }
    }
}

/// A policy file's name, as the user gave it, and its text.
#[derive(Clone, Debug)]
pub struct Source {
    /// The name that messages use.
    pub name: String,
    /// The text.
    pub text: String,
    /// Where lines start, the first excepted.
    line_starts: Vec<u32>,
}

impl Source {
    /// A file.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        let text: String = text.into();
        let newlines = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let line_starts = newlines.map(|(at, _)| at as u32 + 1).collect();
        Source { name: name.into(), text, line_starts }
    }

    /// Line and column (in characters) of a byte, both counted from 1.
    pub fn line_column(&self, offset: u32) -> (u32, u32) {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = if line == 0 { 0 } else { self.line_starts[line - 1] };
        let column = self.text[start as usize..offset as usize].chars().count();
        (line as u32 + 1, column as u32 + 1)
    }
}

/// All files of one policy: the main one first, then the included ones in order.
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

    /// `edge.weir:12`: the file's last path component and the line, as counters and generated code cite rules.
    pub fn cite(&self, span: Span) -> String {
        let name = &self.file(span.file).name;
        let name = name.rsplit('/').next().unwrap_or(name);
        format!("{name}:{}", self.line(span))
    }
}
