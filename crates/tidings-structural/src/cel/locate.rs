//! Finds the position of an error in a rule. The parser keeps no positions, so they are searched for in the text.

use super::lex::{self, TokenKind};

/// Longer lines are not repeated in errors, as upstream.
const SNIPPET_BYTES_MAX: usize = 16384;

/// The text of a rule, and its characters without what is not an expression: strings are blanked out, and comments are spaces.
pub(crate) struct RuleSource<'s> {
    text: &'s str,
    chars: Vec<char>,
}

impl<'s> RuleSource<'s> {
    pub(crate) fn new(text: &'s str) -> RuleSource<'s> {
        let mut chars: Vec<char> = text.chars().collect();
        for token in lex::tokens(&chars) {
            let blank = match token.kind {
                TokenKind::Word | TokenKind::Sign => continue,
                TokenKind::Hidden => ' ',
                TokenKind::Quoted | TokenKind::Wrong => '\0',
            };
            let shown = chars[token.start..token.end].iter_mut();
            shown.filter(|c| **c != '\n').for_each(|c| *c = blank);
        }
        RuleSource { text, chars }
    }

    /// The nesting depth of brackets, and the number of operators and selections.
    pub(crate) fn complexity(&self) -> (usize, usize) {
        let (mut depth, mut deepest, mut operators) = (0_usize, 0, 0);
        for c in &self.chars {
            match c {
                '(' | '[' | '{' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                    operators += 1;
                }
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                '+' | '-' | '*' | '/' | '%' | '.' | '?' | ':' | '!' | '<' | '>' | '=' | '&'
                | '|' | ',' => operators += 1,
                _ => {}
            }
        }
        (deepest, operators + self.words("in").count())
    }

    /// Start and end of each occurrence of a word.
    fn words<'w>(&'w self, word: &'w str) -> impl Iterator<Item = (usize, usize)> + 'w {
        let wanted: Vec<char> = word.chars().collect();
        let is_word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
        let len = wanted.len();
        (0..self.chars.len()).filter_map(move |at| {
            let end = at + len;
            let fits = self.chars.get(at..end)? == wanted.as_slice()
                && !(at > 0 && is_word(self.chars.get(at - 1)))
                && !is_word(self.chars.get(end));
            fits.then_some((at, end))
        })
    }

    fn before(&self, at: usize) -> Option<usize> {
        self.chars[..at].iter().rposition(|c| !c.is_whitespace())
    }

    fn after(&self, at: usize) -> Option<usize> {
        self.chars[at..]
            .iter()
            .position(|c| !c.is_whitespace())
            .map(|skipped| at + skipped)
    }

    /// The position of the dot before a field, or of the parenthesis of a `has` around it.
    pub(crate) fn field(&self, name: &str, in_has: bool) -> usize {
        let dotted = self.words(name).filter_map(|(at, _)| {
            self.before(at)
                .filter(|dot| matches!(self.chars[*dot], '.' | '?'))
        });
        let first = dotted
            .map(|at| {
                if self.chars[at] == '?' && at > 0 {
                    at - 1
                } else {
                    at
                }
            })
            .next()
            .unwrap_or(0);
        if !in_has {
            return first;
        }
        let opening = self
            .words("has")
            .filter_map(|(_, end)| self.after(end).filter(|at| self.chars[*at] == '('));
        opening.filter(|at| *at < first).last().unwrap_or(first)
    }

    /// The position of an identifier that is not a field.
    pub(crate) fn name(&self, name: &str) -> usize {
        let free = |at: &usize| {
            self.before(*at)
                .is_none_or(|before| self.chars[before] != '.')
        };
        self.words(name).map(|(at, _)| at).find(free).unwrap_or(0)
    }

    /// The position of the parenthesis after the name of a function.
    pub(crate) fn call(&self, name: &str) -> usize {
        let mut opening = self
            .words(name)
            .filter_map(|(_, end)| self.after(end).filter(|at| self.chars[*at] == '('));
        opening.next().unwrap_or(0)
    }

    /// The position of the first argument of a call.
    pub(crate) fn argument(&self, name: &str) -> usize {
        self.after(self.call(name) + 1).unwrap_or(0)
    }

    /// The position of an operator, such as `_>=_`.
    pub(crate) fn operator(&self, name: &str) -> usize {
        let symbol = match name {
            "_[_]" => "[",
            "@in" => return self.words("in").next().map_or(0, |(at, _)| at),
            "_?_:_" => "?",
            name => name.trim_matches('_'),
        };
        let wanted: Vec<char> = symbol.chars().collect();
        let is_sign = |c: Option<&char>| c.is_some_and(|c| "<>=!&|".contains(*c));
        let found = (0..self.chars.len()).find(|at| {
            let end = at + wanted.len();
            self.chars.get(*at..end) == Some(wanted.as_slice())
                && !(wanted.len() == 1 && is_sign(self.chars.get(end)) && is_sign(wanted.first()))
                && !(*at > 0
                    && is_sign(self.chars.get(at - 1))
                    && is_sign(wanted.first())
                    && wanted != ['!'])
        });
        found.unwrap_or(0)
    }

    /// An error at a character of the rule, in the format of cel-go.
    pub(crate) fn error(&self, at: usize, message: &str) -> String {
        let line = self.chars[..at.min(self.chars.len())]
            .iter()
            .filter(|c| **c == '\n')
            .count();
        let start = self.chars[..at.min(self.chars.len())]
            .iter()
            .rposition(|c| *c == '\n')
            .map_or(0, |at| at + 1);
        self.error_at(line + 1, at.saturating_sub(start) + 1, message)
    }

    /// An error at a line and a column, both counted from one.
    pub(crate) fn error_at(&self, line: usize, column: usize, message: &str) -> String {
        let snippet = self
            .text
            .lines()
            .nth(line.saturating_sub(1))
            .unwrap_or_default();
        if snippet.len() > SNIPPET_BYTES_MAX {
            return format!("ERROR: <input>:{line}:{column}: {message}");
        }
        let dots = ".".repeat(column.saturating_sub(1));
        format!("ERROR: <input>:{line}:{column}: {message}\n | {snippet}\n | {dots}^")
    }
}

#[cfg(test)]
mod tests {
    use super::RuleSource;

    #[test]
    fn complexity_counts_what_makes_an_expression_deeper() {
        for (text, expected) in [
            ("a.b + [c]", (1, 3)),
            ("f(g(a), 'in (') // (", (2, 3)),
            ("1 in a in b && inner", (0, 4)),
        ] {
            assert_eq!(RuleSource::new(text).complexity(), expected, "{text}");
        }
    }
}
