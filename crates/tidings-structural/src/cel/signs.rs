//! Signs before an operand. The parser of the crate `cel` reads an even number of them as one, `!!a` as `!a`, and walks the operand
//! twice: where such operands are nested, each level doubles the time and the memory.

use super::lex::{self, Token, TokenKind};

/// A rule for the parser.
pub(crate) struct SignedText {
    /// The rule with spaces for pairs of equal signs before an operand, which mean nothing.
    pub(crate) text: String,
    /// How many pairs of equal signs the parser may still read before an operand: in `a--b`, or where it drops tokens between two
    /// signs because they are wrong.
    pub(crate) pairs: usize,
}

impl SignedText {
    pub(crate) fn new(rule: &str) -> SignedText {
        let mut chars: Vec<char> = rule.chars().collect();
        let (kept, dropped) = split(&chars);
        let pairs = pairs(&chars, &kept);
        for token in dropped {
            chars[token.start] = ' ';
        }
        SignedText {
            text: chars.into_iter().collect(),
            pairs,
        }
    }
}

/// The tokens that the parser is to see, and signs that mean nothing.
fn split(chars: &[char]) -> (Vec<Token>, Vec<Token>) {
    let mut seen = lex::tokens(chars);
    seen.retain(|token| !matches!(token.kind, TokenKind::Hidden | TokenKind::Wrong));
    let (mut kept, mut dropped): (Vec<Token>, Vec<Token>) = (Vec::new(), Vec::new());
    let are_equal = |one: &Token, next: &Token| {
        sign(chars, one).is_some() && sign(chars, one) == sign(chars, next)
    };
    for run in seen.chunk_by(are_equal) {
        let sign = run.first().and_then(|first| sign(chars, first));
        let follows_operand = kept.last().is_some_and(|last| ends_operand(chars, last));
        // The first minus after an operand is an operator.
        let operators = usize::from(sign == Some('-') && follows_operand);
        let signs = (run.len() - operators) % 2;
        let (meant, rest) = run.split_at(operators + signs);
        kept.extend(meant);
        dropped.extend(rest);
    }
    (kept, dropped)
}

/// The number of signs after an equal sign, without a token between them that begins an operand.
fn pairs(chars: &[char], tokens: &[Token]) -> usize {
    let mut pairs = 0;
    let mut signs: Vec<char> = Vec::new();
    for token in tokens {
        match sign(chars, token) {
            Some(sign) if signs.contains(&sign) => pairs += 1,
            Some(sign) => signs.push(sign),
            None if begins_operand(chars, token) => signs.clear(),
            None => {}
        }
    }
    pairs
}

fn sign(chars: &[char], token: &Token) -> Option<char> {
    let is_single = token.kind == TokenKind::Sign && token.end == token.start + 1;
    let sign = chars[token.start];
    (is_single && matches!(sign, '!' | '-')).then_some(sign)
}

fn is_value(chars: &[char], token: &Token) -> bool {
    let is_in = chars[token.start..token.end] == ['i', 'n'];
    token.kind == TokenKind::Quoted || token.kind == TokenKind::Word && !is_in
}

fn ends_operand(chars: &[char], token: &Token) -> bool {
    is_value(chars, token) || matches!(chars[token.start], ')' | ']' | '}')
}

fn begins_operand(chars: &[char], token: &Token) -> bool {
    // An escaped name can only follow a dot.
    let first = chars[token.start];
    is_value(chars, token) && first != '`' || matches!(first, '(' | '[' | '{' | '.')
}

#[cfg(test)]
mod tests {
    use super::SignedText;

    #[test]
    fn only_signs_that_mean_nothing_are_dropped() {
        for (rule, text, pairs) in [
            ("!!a", "  a", 0),
            ("! //!\n!a", "  //!\n a", 0),
            ("!!!a", "!  a", 0),
            ("!!!!a != b", "    a != b", 0),
            ("--1", "  1", 0),
            ("a - b", "a - b", 0),
            ("a--b", "a--b", 1),
            ("a---b", "a-  b", 0),
            ("f(x)--[1][0]---1", "f(x)--[1][0]-  1", 1),
            ("1 in --a", "1 in   a", 0),
            ("'!!' == \"--\"", "'!!' == \"--\"", 0),
            ("a !!= b", "a !!= b", 0),
            ("a.`b`--c", "a.`b`--c", 1),
            ("!,]!(", "!,]!(", 1),
            ("!`a`!(", "!`a`!(", 1),
        ] {
            let found = SignedText::new(rule);
            assert_eq!((&*found.text, found.pairs), (text, pairs), "{rule}");
        }
    }
}
