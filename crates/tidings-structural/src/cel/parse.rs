//! Parses a rule into an expression that is not too deep to walk.
//!
//! The parser of the crate `cel` needs much stack for each level of nesting, and panics where it gives up. So it runs on a thread
//! with a large stack, only on texts that cannot exhaust that stack, and expressions that are too deep are refused.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr};
use kube_cel::cel::parser::{ParseErrors, Parser};

use super::expand;
use super::locate::RuleSource;
use super::rule_errors::{ERRORS_MAX, RuleErrors};
use super::signs::SignedText;

/// The maximum number of characters, as upstream.
const CHARS_MAX: usize = 100_000;
/// The maximum nesting of brackets.
const NESTING_MAX: usize = 64;
/// The maximum number of operators and selections: each can make the expression deeper by one.
const OPERATORS_MAX: usize = 4096;
/// The maximum number of pairs of signs: each can double the work of the parser.
const SIGN_PAIRS_MAX: usize = 12;
/// The maximum depth of an expression; upstream allows twice as much.
const DEPTH_MAX: usize = 125;
/// The stack of the parser thread: ten times what a release build needs at both bounds. Only touched pages take memory.
const STACK_BYTES: usize = 128 << 20;

/// Parses an expression and expands macros that the parser does not know.
///
/// # Errors
/// Syntax errors with line and column, in the format of cel-go.
pub(crate) fn parse(text: &str) -> Result<IdedExpr, String> {
    let size = text.chars().count();
    if size > CHARS_MAX {
        let message = "expression code point size exceeds limit";
        return Err(format!(
            "ERROR: <input>:-1:0: {message}: size: {size}, limit {CHARS_MAX}"
        ));
    }
    let source = RuleSource::new(text);
    let (nesting, operators) = source.complexity();
    let signed = SignedText::new(text);
    if nesting > NESTING_MAX || operators > OPERATORS_MAX || signed.pairs > SIGN_PAIRS_MAX {
        return Err(too_deep(&source));
    }
    std::thread::scope(|scope| {
        let parser = std::thread::Builder::new()
            .name("cel-parser".into())
            .stack_size(STACK_BYTES);
        match parser.spawn_scoped(scope, || parse_here(&signed.text, &source)) {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(too_deep(&source))),
            Err(error) => Err(format!("cannot start the parser: {error}")),
        }
    })
}

fn too_deep(source: &RuleSource<'_>) -> String {
    source.error_at(
        1,
        1,
        &format!("expression recursion limit exceeded: {DEPTH_MAX}"),
    )
}

fn parse_here(text: &str, source: &RuleSource<'_>) -> Result<IdedExpr, String> {
    let parsed = Parser::default().enable_optional_syntax(true).parse(text);
    let mut expr = parsed.map_err(|errors| syntax_errors(&errors, source))?;
    if depth(&expr) > DEPTH_MAX {
        return Err(too_deep(source));
    }
    expand::expand(&mut expr);
    if depth(&expr) > 2 * DEPTH_MAX {
        return Err(too_deep(source));
    }
    Ok(expr)
}

fn syntax_errors(found: &ParseErrors, source: &RuleSource<'_>) -> String {
    let place = |number: isize| usize::try_from(number).unwrap_or(1);
    let is_syntax = |message: &str| message.starts_with("Syntax error: ");
    let syntax = found.errors.iter().filter(|error| is_syntax(&error.msg));
    // Upstream's parser gives up at the first syntax error that is not told.
    let reached = match syntax.count() {
        count if count > ERRORS_MAX => ERRORS_MAX + 1,
        _ => found.errors.len(),
    };
    let mut errors = RuleErrors::default();
    for error in found.errors.iter().take(reached) {
        errors.push(|| {
            let message = as_upstream_says(&error.msg);
            source.error_at(place(error.pos.0), place(error.pos.1), &message)
        });
    }
    errors.into_text()
}

/// Upstream's text for a literal in place of a field name, for which the parser has another text.
fn as_upstream_says(message: &str) -> String {
    for word in ["true", "false", "null"] {
        let told = format!("no viable alternative at input '.{word}'");
        if let Some(before) = message.strip_suffix(&told) {
            return format!("{before}mismatched input '{word}' expecting IDENTIFIER");
        }
    }
    message.to_owned()
}

fn depth(expr: &IdedExpr) -> usize {
    let deepest = |parts: &[&IdedExpr]| parts.iter().map(|part| depth(part)).max().unwrap_or(0);
    1 + match &expr.expr {
        Expr::Call(call) => {
            let args = call.args.iter().map(depth).max().unwrap_or(0);
            call.target.as_deref().map_or(0, depth).max(args)
        }
        Expr::Comprehension(fold) => deepest(&[
            &fold.iter_range,
            &fold.accu_init,
            &fold.loop_cond,
            &fold.loop_step,
            &fold.result,
        ]),
        Expr::Select(select) => depth(&select.operand),
        Expr::List(list) => list.elements.iter().map(depth).max().unwrap_or(0),
        Expr::Map(map) => {
            let entries = map.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => depth(&entry.key).max(depth(&entry.value)),
                EntryExpr::StructField(field) => depth(&field.value),
            });
            entries.max().unwrap_or(0)
        }
        Expr::Struct(message) => {
            let entries = message.entries.iter().map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => depth(&entry.key).max(depth(&entry.value)),
                EntryExpr::StructField(field) => depth(&field.value),
            });
            entries.max().unwrap_or(0)
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => 0,
    }
}
