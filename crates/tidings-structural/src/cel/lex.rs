//! Splits a rule into tokens, as the lexer of CEL does. Wrong text too: the parser goes on after it, so it must be known which
//! brackets and operators it finds there.

/// What a token is to the parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// An identifier, a keyword or a number.
    Word,
    /// An operator or a bracket.
    Sign,
    /// A string or bytes.
    Quoted,
    /// Whitespace or a comment, which the parser does not see.
    Hidden,
    /// Not a token. The parser does not see it, and reports an error at its start.
    Wrong,
}

/// A token and its characters, from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// The tokens of a rule. Each begins where the one before ends.
pub(crate) fn tokens(chars: &[char]) -> Vec<Token> {
    let lexer = Lexer(chars);
    let mut tokens = Vec::new();
    let mut start = 0;
    while start < chars.len() {
        let (kind, end) = lexer.token(start);
        tokens.push(Token { kind, start, end });
        start = end;
    }
    tokens
}

/// The characters of a rule.
struct Lexer<'c>(&'c [char]);

impl Lexer<'_> {
    /// The kind and the end of the token at `start`.
    fn token(&self, start: usize) -> (TokenKind, usize) {
        match self.0[start] {
            '"' | '\'' => match self.quoted(start, false) {
                Ok(end) => (TokenKind::Quoted, end),
                Err(stuck) => self.wrong(stuck),
            },
            '`' => self.escaped_name(start),
            c if c.is_ascii_digit() => (TokenKind::Word, self.number(start)),
            '.' if self.has(start + 1, |c| c.is_ascii_digit()) => {
                (TokenKind::Word, self.exponent(self.digits(start + 1)))
            }
            c if is_name(c) => match self.prefixed(start) {
                Some(end) => (TokenKind::Quoted, end),
                None => (TokenKind::Word, self.while_is(start, is_name)),
            },
            '/' if self.is(start + 1, '/') => {
                (TokenKind::Hidden, self.while_is(start, |c| c != '\n'))
            }
            c if is_space(c) => (TokenKind::Hidden, self.while_is(start, is_space)),
            c @ ('&' | '|' | '=') if self.is(start + 1, c) => (TokenKind::Sign, start + 2),
            '&' | '|' | '=' => self.wrong(start + 1),
            '!' | '<' | '>' if self.is(start + 1, '=') => (TokenKind::Sign, start + 2),
            '!' | '<' | '>' | '[' | ']' | '{' | '}' | '(' | ')' | '.' | ',' | '-' | '?' | ':'
            | '+' | '*' | '/' | '%' => (TokenKind::Sign, start + 1),
            _ => self.wrong(start),
        }
    }

    /// The lexer is stuck at a character that does not fit what it has begun. It drops all of that, and the character.
    fn wrong(&self, stuck: usize) -> (TokenKind, usize) {
        (TokenKind::Wrong, (stuck + 1).min(self.0.len()))
    }

    fn has(&self, at: usize, fits: impl Fn(char) -> bool) -> bool {
        self.0.get(at).is_some_and(|c| fits(*c))
    }

    fn is(&self, at: usize, wanted: char) -> bool {
        self.has(at, |c| c == wanted)
    }

    /// The first position from `at` on whose character does not fit.
    fn while_is(&self, at: usize, fits: impl Fn(char) -> bool) -> usize {
        let rest = self.0.get(at..).unwrap_or_default();
        at + rest.iter().take_while(|c| fits(**c)).count()
    }

    fn digits(&self, at: usize) -> usize {
        self.while_is(at, |c| c.is_ascii_digit())
    }

    /// The end of an exponent at `at`; `at` if there is none.
    fn exponent(&self, at: usize) -> usize {
        let sign = at + 1;
        let digits = sign + usize::from(self.has(sign, |c| matches!(c, '+' | '-')));
        let end = self.digits(digits);
        if self.has(at, |c| matches!(c, 'e' | 'E')) && end > digits {
            end
        } else {
            at
        }
    }

    fn number(&self, start: usize) -> usize {
        let is_unsigned = |at: usize| self.has(at, |c| matches!(c, 'u' | 'U'));
        if self.is(start, '0') && self.is(start + 1, 'x') {
            let end = self.while_is(start + 2, |c| c.is_ascii_hexdigit());
            if end > start + 2 {
                return end + usize::from(is_unsigned(end));
            }
        }
        let whole = self.digits(start);
        if is_unsigned(whole) {
            return whole + 1;
        }
        let fraction = self.digits(whole + 1);
        if self.is(whole, '.') && fraction > whole + 1 {
            self.exponent(fraction)
        } else {
            self.exponent(whole)
        }
    }

    fn escaped_name(&self, start: usize) -> (TokenKind, usize) {
        let end = self.while_is(start + 1, |c| is_name(c) || "./- ".contains(c));
        if end > start + 1 && self.is(end, '`') {
            (TokenKind::Word, end + 1)
        } else {
            self.wrong(end)
        }
    }

    /// The end of a string or bytes with a prefix such as `r` or `b`. `None` if this is an identifier.
    fn prefixed(&self, start: usize) -> Option<usize> {
        let raw = start + usize::from(self.has(start, |c| matches!(c, 'b' | 'B')));
        let quote = raw + usize::from(self.has(raw, |c| matches!(c, 'r' | 'R')));
        let is_quoted = quote > start && self.has(quote, |c| matches!(c, '"' | '\''));
        is_quoted
            .then(|| self.quoted(quote, quote > raw).ok())
            .flatten()
    }

    /// The end of a string whose first quote is at `open`.
    ///
    /// # Errors
    /// The position where the lexer is stuck.
    fn quoted(&self, open: usize, is_raw: bool) -> Result<usize, usize> {
        let quote = self.0[open];
        if !self.is(open + 1, quote) {
            return self.closed(open + 1, is_raw, 1, quote);
        }
        if self.is(open + 2, quote)
            && let Ok(end) = self.closed(open + 3, is_raw, 3, quote)
        {
            return Ok(end);
        }
        // Without an end the first two of three quotes are an empty string.
        Ok(open + 2)
    }

    /// The end of the text of a string that begins at `at` and ends with `count` quotes.
    fn closed(
        &self,
        mut at: usize,
        is_raw: bool,
        count: usize,
        quote: char,
    ) -> Result<usize, usize> {
        loop {
            match *self.0.get(at).ok_or(at)? {
                _ if (0..count).all(|nth| self.is(at + nth, quote)) => return Ok(at + count),
                '\\' if !is_raw => at = self.escape(at + 1)?,
                '\n' | '\r' if count == 1 => return Err(at),
                _ => at += 1,
            }
        }
    }

    /// The end of an escape sequence, from the character after the backslash.
    fn escape(&self, at: usize) -> Result<usize, usize> {
        let hex = |digits: usize| self.all(at + 1..at + 1 + digits, |c| c.is_ascii_hexdigit());
        match *self.0.get(at).ok_or(at)? {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(at + 1),
            'x' | 'X' => hex(2),
            'u' => hex(4),
            'U' => hex(8),
            '0'..='3' => self.all(at + 1..at + 3, |c| matches!(c, '0'..='7')),
            _ => Err(at),
        }
    }

    /// The end of a range if all of its characters fit; otherwise the first that does not.
    fn all(
        &self,
        mut range: std::ops::Range<usize>,
        fits: impl Fn(char) -> bool,
    ) -> Result<usize, usize> {
        match range.find(|at| !self.has(*at, &fits)) {
            Some(stuck) => Err(stuck),
            None => Ok(range.end),
        }
    }
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_space(c: char) -> bool {
    matches!(c, '\t' | ' ' | '\r' | '\n' | '\u{c}')
}

#[cfg(test)]
mod tests {
    use kube_cel::cel::parser::Parser;
    use proptest::prelude::*;

    use super::{TokenKind, tokens};

    /// Where the lexer of the crate `cel` finds something that is not a token, as lines and columns from one.
    fn wrong_in_cel(text: &str) -> Vec<(isize, isize)> {
        let parsed = Parser::default().enable_optional_syntax(true).parse(text);
        let errors = parsed.err().map(|errors| errors.errors);
        let wrong = |message: &str| message.contains("token recognition error");
        let errors = errors.iter().flatten();
        errors
            .filter(|error| wrong(&error.msg))
            .map(|error| error.pos)
            .collect()
    }

    fn wrong_here(text: &str) -> Vec<(isize, isize)> {
        let chars: Vec<char> = text.chars().collect();
        let position = |at: usize| {
            let lines: Vec<&[char]> = chars[..at].split(|c| *c == '\n').collect();
            let column = lines.last().map_or(0, |line| line.len());
            (lines.len() as isize, column as isize + 1)
        };
        let all = tokens(&chars).into_iter();
        all.filter(|token| token.kind == TokenKind::Wrong)
            .map(|token| position(token.start))
            .collect()
    }

    /// The text of the tokens that are neither hidden nor wrong.
    fn seen(text: &str) -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        let all = tokens(&chars).into_iter();
        all.filter(|token| !matches!(token.kind, TokenKind::Hidden | TokenKind::Wrong))
            .map(|token| chars[token.start..token.end].iter().collect())
            .collect()
    }

    #[test]
    fn tokens_are_those_of_cel() {
        for (text, expected) in [
            ("a // it's\n[", &["a", "["][..]),
            ("'//' [", &["'//'", "["]),
            ("`a//b` [", &["`a//b`", "["]),
            (r"r'\' [", &[r"r'\'", "["]),
            (r"xr'\' [' ]", &["xr", r"'\' ['", "]"]),
            ("br'''\n'''[", &["br'''\n'''", "["]),
            ("rb'['", &["rb", "'['"]),
            (r#""""a"b\"""c""" ["#, &[r#""""a"b\"""c""""#, "["]),
            ("'''[", &["''"]),
            ("'''\n[", &["''", "["]),
            ("'\n[", &["["]),
            (r"'\q[", &["["]),
            ("|'[", &["["]),
            ("=[[", &["["]),
            ("`[[", &["["]),
            ("0x1br'['", &["0x1b", "r'['"]),
            ("1.e5", &["1", ".", "e5"]),
            ("1ur'['", &["1u", "r'['"]),
            (".5e-3 1e+ 2.5", &[".5e-3", "1", "e", "+", "2.5"]),
            ("a!==b", &["a", "!="]),
        ] {
            assert_eq!(seen(text), expected, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// A lexer that splits a text differently is stuck at other characters.
        #[test]
        fn wrong_text_is_found_where_cel_finds_it(
            text in prop::collection::vec(
                prop::sample::select(vec![
                    "'", "'", "'''", "\"", "\"\"\"", "\\", "\\'", "\\x4", "\\u12", "\\01", "r", "b", "R", "B", "//", "/", "`",
                    "\n", "\r", " ", "a", "é", "1", "0x", "e", "u", ".", "-", "&", "|", "=", "!", "@", "[",
                ]),
                0..12,
            ),
        ) {
            let text = text.concat();
            // An error at the end makes sure that the whole text is read.
            let text = format!("{text}\n@");
            prop_assert_eq!(wrong_here(&text), wrong_in_cel(&text), "{:?}", text);
        }
    }
}
