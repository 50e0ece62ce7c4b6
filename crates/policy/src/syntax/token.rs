//! The tokens of a policy. Lexing never fails: invalid characters are a token, which the parser reports.

use logos::Logos;

/// The kind of a token. Keywords are words; the parser decides by position whether a word is a keyword.
#[derive(Logos, Clone, Copy, Debug, PartialEq, Eq)]
#[logos(skip r"[ \t\r\u{feff}]+")]
#[logos(skip r"\\[ \t\r]*\n")]
pub enum TokenKind {
    /// A comment, up to the end of the line. [`lex`] drops it.
    #[regex(r"#[^\n]*", allow_greedy = true)]
    Comment,
    /// Ends a rule, except inside a set.
    #[token("\n")]
    Newline,
    /// `;`
    #[token(";")]
    Semicolon,
    /// `{`
    #[token("{")]
    OpenBrace,
    /// `}`
    #[token("}")]
    CloseBrace,
    /// `(`
    #[token("(")]
    OpenParen,
    /// `)`
    #[token(")")]
    CloseParen,
    /// `,`
    #[token(",")]
    Comma,
    /// `:`
    #[token(":")]
    Colon,
    /// `.`
    #[token(".")]
    Dot,
    /// `=`
    #[token("=")]
    Assign,
    /// `==`
    #[token("==")]
    Equal,
    /// `!=`
    #[token("!=")]
    NotEqual,
    /// `!`
    #[token("!")]
    Bang,
    /// `<`
    #[token("<")]
    Less,
    /// `<=`
    #[token("<=")]
    LessEqual,
    /// `>`
    #[token(">")]
    Greater,
    /// `>=`
    #[token(">=")]
    GreaterEqual,
    /// `&`
    #[token("&")]
    Ampersand,
    /// `|`
    #[token("|")]
    Pipe,
    /// `/`
    #[token("/")]
    Slash,
    /// `-`
    #[token("-")]
    Minus,
    /// `%`
    #[token("%")]
    Percent,
    /// `@`
    #[token("@")]
    At,
    /// `$`
    #[token("$")]
    Dollar,
    /// `tcp`, `frag-off`, `HR`.
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*(-[A-Za-z0-9_]+)*", priority = 3)]
    Word,
    /// `22`, `0x1f`, `10m`, `8021q`: a word that starts with a digit.
    #[regex(r"[0-9][0-9A-Za-z_]*", priority = 4)]
    Number,
    /// `192.0.2.1`, and any other digits separated by dots.
    #[regex(r"[0-9]+(\.[0-9]+)+")]
    Ipv4,
    /// `2001:db8::1`: at least two colons. A single colon at the end is not part of it (`2001:db8::1: HR`).
    #[regex(r"[0-9a-fA-F]*:([0-9a-fA-F]*:)+[0-9a-fA-F]+(\.[0-9]+)*")]
    #[regex(r"[0-9a-fA-F]*:([0-9a-fA-F]+:)*:")]
    Ipv6,
    /// `"lists/bad.txt"`; there are no escapes.
    #[regex(r#""[^"\n]*""#)]
    String,
    /// A string without closing quote.
    #[regex(r#""[^"\n]*"#)]
    OpenString,
    /// Characters that begin no token.
    Unknown,
    /// After the last token.
    End,
}

/// A token and its position in the text, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The kind.
    pub kind: TokenKind,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl TokenKind {
    /// The name of the kind in messages. `None` if messages quote the token instead.
    pub fn name(self) -> Option<&'static str> {
        match self {
            TokenKind::Newline => Some("the end of the line"),
            TokenKind::End => Some("the end of the file"),
            _ => None,
        }
    }
}

/// Splits a text of less than 4 GiB into tokens. The last is [`TokenKind::End`].
pub fn lex(text: &str) -> Vec<Token> {
    let position = |offset: usize| u32::try_from(offset).expect("policy texts are bounded by TEXT_BYTES_MAX");
    let mut tokens: Vec<Token> = Vec::with_capacity(text.len() / 4 + 1);
    let mut lexer = TokenKind::lexer(text);
    while let Some(kind) = lexer.next() {
        let kind = kind.unwrap_or(TokenKind::Unknown);
        let (start, end) = (position(lexer.span().start), position(lexer.span().end));
        match tokens.last_mut() {
            _ if kind == TokenKind::Comment => {}
            Some(last) if kind == TokenKind::Unknown && last.kind == kind && last.end == start => last.end = end,
            _ => tokens.push(Token { kind, start, end }),
        }
    }
    let end = position(text.len());
    tokens.push(Token { kind: TokenKind::End, start: end, end });
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<(TokenKind, &str)> {
        let tokens = lex(text);
        tokens[..tokens.len() - 1].iter().map(|t| (t.kind, &text[t.start as usize..t.end as usize])).collect()
    }

    #[test]
    fn addresses_end_where_labels_begin() {
        use TokenKind::*;
        assert_eq!(kinds("2001:db8::1: HR"), [(Ipv6, "2001:db8::1"), (Colon, ":"), (Word, "HR")]);
        assert_eq!(kinds("::/0"), [(Ipv6, "::"), (Slash, "/"), (Number, "0")]);
        assert_eq!(kinds("fe80::-fe80::5"), [(Ipv6, "fe80::"), (Minus, "-"), (Ipv6, "fe80::5")]);
        assert_eq!(kinds("::ffff:192.0.2.1"), [(Ipv6, "::ffff:192.0.2.1")]);
        assert_eq!(
            kinds("192.0.2.0/24:HR"),
            [(Ipv4, "192.0.2.0"), (Slash, "/"), (Number, "24"), (Colon, ":"), (Word, "HR")]
        );
        assert_eq!(kinds("ipv4 : label"), [(Word, "ipv4"), (Colon, ":"), (Word, "label")]);
        assert_eq!(kinds("a: b"), [(Word, "a"), (Colon, ":"), (Word, "b")]);
    }

    #[test]
    fn words_and_numbers() {
        use TokenKind::*;
        assert_eq!(
            kinds("frag-off 1-2 8021q"),
            [(Word, "frag-off"), (Number, "1"), (Minus, "-"), (Number, "2"), (Number, "8021q")]
        );
        assert_eq!(kinds("a \\\n b # c \\\nd"), [(Word, "a"), (Word, "b"), (Newline, "\n"), (Word, "d")]);
        assert_eq!(kinds("\"x#y\" \"z"), [(String, "\"x#y\""), (OpenString, "\"z")]);
        assert_eq!(kinds("€€ x"), [(Unknown, "€€"), (Word, "x")]);
    }
}
