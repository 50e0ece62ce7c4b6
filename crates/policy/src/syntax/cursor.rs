//! The parser's position in the tokens of a file: looks ahead, consumes tokens, reports errors, and skips to where
//! parsing can continue.

use super::ERRORS_MAX;
use super::token::{Token, TokenKind, lex};
use super::tree::Name;
use crate::diag::Diagnostic;
use crate::source::{FileId, Span};

/// The error has been reported.
#[derive(Debug)]
pub(super) struct Reported;

/// The result of a parsing function.
pub(super) type Parse<T> = Result<T, Reported>;

/// Keywords that begin an item or a direction, and no other line.
pub(super) const ITEM_WORDS: [&str; 13] = [
    "table",
    "limits",
    "define",
    "include",
    "defaults",
    "tracking",
    "slot",
    "observe",
    "inside",
    "on-exit",
    "upstream",
    "downstream",
    "posture",
];

pub(super) struct Cursor<'a> {
    file: FileId,
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    diagnostics: Vec<Diagnostic>,
}

/// A position in the tokens, with the number of errors before it.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    at: usize,
    errors: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: FileId, text: &'a str) -> Self {
        Cursor { file, text, tokens: lex(text), at: 0, diagnostics: Vec::new() }
    }

    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.diagnostics
    }

    /// The position and the errors so far.
    pub(super) fn mark(&self) -> Mark {
        Mark { at: self.at, errors: self.diagnostics.len() }
    }

    /// Returns to an earlier position, and forgets the errors that were reported since.
    pub(super) fn back_to(&mut self, mark: Mark) {
        self.at = mark.at;
        self.diagnostics.truncate(mark.errors);
    }

    fn token(&self, ahead: usize) -> Token {
        self.tokens[(self.at + ahead).min(self.tokens.len() - 1)]
    }

    pub(super) fn kind(&self) -> TokenKind {
        self.token(0).kind
    }

    pub(super) fn kind_ahead(&self, ahead: usize) -> TokenKind {
        self.token(ahead).kind
    }

    pub(super) fn is(&self, kind: TokenKind) -> bool {
        self.kind() == kind
    }

    fn span_of(&self, token: Token) -> Span {
        Span { file: self.file, start: token.start, end: token.end }
    }

    pub(super) fn span(&self) -> Span {
        self.span_of(self.token(0))
    }

    pub(super) fn span_ahead(&self, ahead: usize) -> Span {
        self.span_of(self.token(ahead))
    }

    /// The span of the last consumed token.
    pub(super) fn last_span(&self) -> Span {
        self.span_of(self.tokens[self.at.saturating_sub(1)])
    }

    /// An empty span before the next token.
    pub(super) fn here(&self) -> Span {
        let span = self.span();
        Span { end: span.start, ..span }
    }

    pub(super) fn slice(&self) -> &'a str {
        self.slice_ahead(0)
    }

    pub(super) fn slice_ahead(&self, ahead: usize) -> &'a str {
        let token = self.token(ahead);
        &self.text[token.start as usize..token.end as usize]
    }

    /// The next token, if it is a word.
    pub(super) fn word(&self) -> Option<&'a str> {
        self.is(TokenKind::Word).then(|| self.slice())
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub(super) fn bump(&mut self) -> Span {
        let span = self.span();
        if self.kind() != TokenKind::End {
            self.at += 1;
        }
        span
    }

    pub(super) fn eat(&mut self, kind: TokenKind) -> bool {
        let found = self.is(kind);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn skip_newlines(&mut self) {
        while self.eat(TokenKind::Newline) {}
    }

    /// Skips newlines and semicolons.
    pub(super) fn skip_separators(&mut self) {
        while self.eat(TokenKind::Newline) || self.eat(TokenKind::Semicolon) {}
    }

    /// Whether a rule or setting ends here.
    pub(super) fn at_end_of_statement(&self) -> bool {
        matches!(self.kind(), TokenKind::Newline | TokenKind::Semicolon | TokenKind::CloseBrace | TokenKind::End)
    }

    /// Whether the next token begins another item, so that an earlier block was not closed.
    pub(super) fn at_item(&self) -> bool {
        let first = self.at == 0 || matches!(self.tokens[self.at - 1].kind, TokenKind::Newline | TokenKind::CloseBrace);
        first && self.word().is_some_and(|word| ITEM_WORDS.contains(&word)) && self.item_follows()
    }

    fn item_follows(&self) -> bool {
        match self.slice() {
            "define" => self.kind_ahead(1) == TokenKind::Word && self.kind_ahead(2) == TokenKind::Assign,
            "include" => self.kind_ahead(1) == TokenKind::String,
            "upstream" | "downstream" | "defaults" | "tracking" | "observe" | "inside" => {
                self.kind_ahead(1) == TokenKind::OpenBrace
            }
            "on-exit" => self.kind_ahead(1) == TokenKind::Word,
            _ => self.kind_ahead(1) == TokenKind::Word && self.kind_ahead(2) == TokenKind::OpenBrace,
        }
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) -> Reported {
        if self.diagnostics.len() < ERRORS_MAX {
            self.diagnostics.push(diagnostic);
        } else if self.diagnostics.len() == ERRORS_MAX {
            let message = format!("more than {ERRORS_MAX} syntax errors; the rest of the file is not reported");
            self.diagnostics.push(Diagnostic::error("E0112", diagnostic.span, message));
        }
        Reported
    }

    /// The next token in messages: `` `;` ``.
    pub(super) fn found(&self) -> String {
        match self.kind().name() {
            Some(name) => name.to_owned(),
            None => format!("`{}`", self.slice().chars().take(40).collect::<String>()),
        }
    }

    /// Reports that the next token is not what is expected.
    pub(super) fn unexpected(&mut self, expected: &str) -> Reported {
        let diagnostic = self.unexpected_here(expected);
        self.report(diagnostic)
    }

    pub(super) fn unexpected_here(&self, expected: &str) -> Diagnostic {
        let span = match self.kind() {
            // Underlines the position where the token is missing.
            TokenKind::Newline | TokenKind::End => {
                let last = self.last_span();
                Span { start: last.end, ..last }
            }
            _ => self.span(),
        };
        match self.kind() {
            TokenKind::Unknown => Diagnostic::error("E0101", span, format!("{} means nothing here", self.found()))
                .label(format!("expected {expected}")),
            TokenKind::OpenString => Diagnostic::error("E0102", span, "the string has no end")
                .label("the closing `\"` must be on the same line"),
            _ => Diagnostic::error("E0103", span, format!("expected {expected}, found {}", self.found())),
        }
    }

    pub(super) fn expect(&mut self, kind: TokenKind, expected: &str) -> Parse<Span> {
        if self.is(kind) { Ok(self.bump()) } else { Err(self.unexpected(expected)) }
    }

    pub(super) fn name(&mut self, expected: &str) -> Parse<Name> {
        let text = self.slice().to_owned();
        Ok(Name { text, span: self.expect(TokenKind::Word, expected)? })
    }

    /// Reads `@name`. The span includes the `@`.
    pub(super) fn referred(&mut self, expected: &str) -> Parse<Name> {
        let at = self.expect(TokenKind::At, expected)?;
        let name = self.name("a name after `@`")?;
        Ok(Name { span: at.to(name.span), ..name })
    }

    /// Reads a string. The text excludes the quotes, the span includes them.
    pub(super) fn string(&mut self, expected: &str) -> Parse<Name> {
        let text = self.slice().trim_matches('"').to_owned();
        Ok(Name { text, span: self.expect(TokenKind::String, expected)? })
    }

    /// Reports and skips tokens between a complete rule or setting and its end.
    pub(super) fn end_of_statement(&mut self, after: &str) {
        if !self.at_end_of_statement() {
            self.unexpected(&format!("a new line or `;` after {after}"));
            self.skip_statement();
        }
    }

    /// Skips the rest of an invalid rule, setting or item: up to a newline, `;` or `}` outside of braces that open
    /// meanwhile.
    pub(super) fn skip_statement(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.kind() {
                TokenKind::End => return,
                TokenKind::Newline | TokenKind::Semicolon | TokenKind::CloseBrace if depth == 0 => return,
                TokenKind::OpenBrace => depth += 1,
                TokenKind::CloseBrace => depth -= 1,
                _ if depth > 0 && self.at_item() => return,
                _ => {}
            }
            self.bump();
        }
    }

    /// Whether the next token is the first of its line.
    pub(super) fn begins_line(&self) -> bool {
        self.at == 0 || self.tokens[self.at - 1].kind == TokenKind::Newline
    }

    /// Skips a block. The next token is its `{`.
    pub(super) fn skip_braces(&mut self) {
        let mut depth = 0_usize;
        loop {
            match self.kind() {
                TokenKind::End => return,
                TokenKind::OpenBrace => depth += 1,
                TokenKind::CloseBrace => depth = depth.saturating_sub(1),
                _ if self.at_item() => return,
                _ => {}
            }
            self.bump();
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips to the end of the line or of the block, whichever comes first.
    pub(super) fn skip_line(&mut self) {
        while !self.at_end_of_statement() {
            self.bump();
        }
    }

    /// Reads `{` on this or a later line.
    pub(super) fn open_block(&mut self, of: &str) -> Parse<Span> {
        let line_end = self.at;
        self.skip_newlines();
        if !self.is(TokenKind::OpenBrace) {
            self.at = line_end;
        }
        self.expect(TokenKind::OpenBrace, &format!("`{{` after {of}"))
    }

    /// Reads the settings of a block up to its `}`. An invalid setting is skipped. `nested` are settings that are
    /// called like items.
    pub(super) fn settings<S>(
        &mut self,
        open: Span,
        nested: &[&str],
        setting: impl Fn(&mut Self) -> Parse<S>,
    ) -> Vec<S> {
        let mut settings = Vec::new();
        while self.block_goes_on(open, nested) {
            match setting(self) {
                Ok(setting) => {
                    settings.push(setting);
                    self.end_of_statement("the setting");
                }
                Err(Reported) => self.skip_statement(),
            }
        }
        settings
    }

    /// Whether the block continues. Consumes its `}`, and reports a block without one.
    pub(super) fn block_goes_on(&mut self, open: Span, nested: &[&str]) -> bool {
        self.skip_separators();
        if self.eat(TokenKind::CloseBrace) {
            return false;
        }
        let foreign_item = self.at_item() && !nested.contains(&self.slice());
        if foreign_item || self.is(TokenKind::End) {
            // An unterminated string has consumed the `}` on its line, an unterminated set the next `}`.
            let last = self.diagnostics.last().map(|last| last.code);
            if last == Some("E0102") || last == Some("E0104") && !foreign_item {
                return false;
            }
            self.report(
                Diagnostic::error("E0104", open, "this block is not closed")
                    .label("its `}` is missing")
                    .note(self.here(), format!("{} is here instead", self.found())),
            );
            return false;
        }
        true
    }
}
