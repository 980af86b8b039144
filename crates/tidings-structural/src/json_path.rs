//! JSONPath as Kubernetes writes it, for printer columns and selectable fields: `.spec.replicas`,
//! `.metadata.labels['a\.b']`, `.status.conditions[?(@.type=="Ready")].status`.

use std::cmp::Ordering;

use tidings_json::Value;

/// A path that was read.
///
/// ```
/// use tidings_json::json;
/// use tidings_structural::JsonPath;
///
/// let ready = JsonPath::parse(r#".status.conditions[?(@.type=="Ready")].status"#)?;
/// let object = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
/// assert_eq!(ready.first(&object), Some(&json!("True")));
/// # Ok::<(), tidings_structural::JsonPathError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(String);

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Names(Vec<String>),
    Indices(Vec<i64>),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Everything,
    Descendants,
    Filter {
        left: Operand,
        comparison: Option<(Comparison, Operand)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

/// The most steps a path may have.
const STEPS_MAX: usize = 64;

fn error<T>(text: impl Into<String>) -> Result<T, JsonPathError> {
    Err(JsonPathError(text.into()))
}

impl JsonPath {
    /// Reads a path. Braces around it are allowed.
    ///
    /// # Errors
    /// If it is not a path of this dialect.
    pub fn parse(text: &str) -> Result<JsonPath, JsonPathError> {
        let inner = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(text);
        let inner = inner.strip_prefix('$').unwrap_or(inner);
        let mut steps = Vec::new();
        let mut rest = inner;
        while !rest.is_empty() {
            if steps.len() == STEPS_MAX {
                return error(format!("path has more than {STEPS_MAX} steps"));
            }
            rest = step(rest, &mut steps)?;
        }
        Ok(JsonPath { steps })
    }

    /// All values the path leads to. What is missing is left out.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            found = found
                .into_iter()
                .flat_map(|value| step.apply(value))
                .collect();
        }
        found
    }

    /// The first value the path leads to.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        // Most paths are fields all the way down: no list of values is needed for them.
        let mut found = value;
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                Step::Field(name) => found = found.get(name)?,
                _ => {
                    let rest = JsonPath {
                        steps: self.steps[index..].to_vec(),
                    };
                    return rest.find(found).into_iter().next();
                }
            }
        }
        Some(found)
    }

    /// The first value as field selectors compare it: text as it is, nothing as the empty text.
    pub fn first_text(&self, value: &Value) -> String {
        match self.first(value) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

fn step<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, JsonPathError> {
    if let Some(rest) = text.strip_prefix("..") {
        steps.push(Step::Descendants);
        return if rest.starts_with('[') {
            Ok(rest)
        } else {
            field(rest, steps)
        };
    }
    if let Some(rest) = text.strip_prefix('.') {
        // A lone dot is the object itself.
        return if rest.is_empty() || rest.starts_with('[') {
            Ok(rest)
        } else {
            field(rest, steps)
        };
    }
    if let Some(rest) = text.strip_prefix('[') {
        return bracket(rest, steps);
    }
    match text.chars().next() {
        Some(c) if c.is_alphanumeric() || c == '_' => field(text, steps),
        Some(c) => error(format!(
            "unrecognized character in action: {:?}",
            Character(c)
        )),
        None => Ok(text),
    }
}

struct Character(char);

impl std::fmt::Debug for Character {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "U+{:04X} '{}'", self.0 as u32, self.0)
    }
}

fn field<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, JsonPathError> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    let mut end = text.len();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, escaped)) => name.push(escaped),
                None => return error("unterminated escape at the end of the path"),
            },
            '.' | '[' | ' ' | ')' | '=' | '!' | '<' | '>' | ',' | '|' => {
                end = at;
                break;
            }
            c => name.push(c),
        }
    }
    if name.is_empty() {
        return error("empty field name");
    }
    steps.push(if name == "*" {
        Step::Everything
    } else {
        Step::Field(name)
    });
    let rest = &text[end..];
    match rest.chars().next() {
        None | Some('.' | '[') => Ok(rest),
        Some(c) => error(format!(
            "unrecognized character in action: {:?}",
            Character(c)
        )),
    }
}

/// Everything up to the bracket that closes, with quotes and brackets inside respected.
fn closing(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open && !escaped => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
        escaped = c == '\\' && !escaped;
    }
    None
}

fn bracket<'t>(text: &'t str, steps: &mut Vec<Step>) -> Result<&'t str, JsonPathError> {
    let Some(end) = closing(text) else {
        return error("unterminated array");
    };
    let (inner, rest) = (text[..end].trim(), &text[end + 1..]);
    if inner == "*" {
        steps.push(Step::Everything);
    } else if let Some(filter) = inner
        .strip_prefix("?(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        steps.push(self::filter(filter.trim())?);
    } else if inner.starts_with(['\'', '"']) {
        let names = quoted(inner)?;
        steps.push(Step::Names(names));
    } else if inner.contains(':') {
        let mut parts = Vec::new();
        for part in inner.split(':') {
            parts.push(match part.trim() {
                "" => None,
                number => Some(integer(number, inner)?),
            });
        }
        if parts.len() > 3 {
            return error(format!("invalid array index {inner}"));
        }
        let part = |at: usize| parts.get(at).copied().flatten();
        let step = part(2).unwrap_or(1);
        if step <= 0 {
            return error("step must be > 0");
        }
        steps.push(Step::Slice {
            start: part(0),
            end: part(1),
            step,
        });
    } else {
        let indices: Result<Vec<i64>, _> = inner
            .split(',')
            .map(|part| integer(part.trim(), inner))
            .collect();
        steps.push(Step::Indices(indices?));
    }
    Ok(rest)
}

fn integer(text: &str, whole: &str) -> Result<i64, JsonPathError> {
    text.parse()
        .or_else(|_| error(format!("invalid array index {whole}")))
}

fn quoted(text: &str) -> Result<Vec<String>, JsonPathError> {
    let mut names = Vec::new();
    let mut rest = text;
    loop {
        let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
            return error(format!("invalid array index {text}"));
        };
        let mut name = String::new();
        let mut chars = rest.char_indices().skip(1);
        let close = loop {
            match chars.next() {
                None => return error("unterminated quoted string"),
                Some((_, '\\')) => match chars.next() {
                    Some((_, escaped)) => name.push(escaped),
                    None => return error("unterminated quoted string"),
                },
                Some((at, c)) if c == quote => break at,
                Some((_, c)) => name.push(c),
            }
        };
        names.push(name);
        rest = rest[close + 1..].trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None if rest.is_empty() => return Ok(names),
            None => return error(format!("invalid array index {text}")),
        }
    }
}

fn filter(text: &str) -> Result<Step, JsonPathError> {
    const OPERATORS: [(&str, Comparison); 6] = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, _) => {
                for (symbol, comparison) in OPERATORS {
                    if let Some(right) = text[at..].strip_prefix(symbol) {
                        return Ok(Step::Filter {
                            left: operand(text[..at].trim())?,
                            comparison: Some((comparison, operand(right.trim())?)),
                        });
                    }
                }
            }
        }
    }
    Ok(Step::Filter {
        left: operand(text)?,
        comparison: None,
    })
}

fn operand(text: &str) -> Result<Operand, JsonPathError> {
    if let Some(path) = text.strip_prefix('@') {
        return Ok(Operand::Path(JsonPath::parse(path)?));
    }
    if text.starts_with(['\'', '"']) {
        return match quoted(text)?.as_slice() {
            [only] => Ok(Operand::Literal(Value::String(only.clone()))),
            _ => error(format!("invalid filter operand {text}")),
        };
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => Ok(Operand::Literal(value)),
        _ => error(format!("invalid filter operand {text}")),
    }
}

impl Step {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Names(names) => names.iter().filter_map(|name| value.get(name)).collect(),
            Step::Indices(indices) => {
                let elements = value.as_array().map_or(&[][..], Vec::as_slice);
                let place = |index: &i64| {
                    if *index < 0 {
                        index + elements.len() as i64
                    } else {
                        *index
                    }
                };
                indices
                    .iter()
                    .filter_map(|index| elements.get(usize::try_from(place(index)).ok()?))
                    .collect()
            }
            Step::Slice { start, end, step } => {
                let elements = value.as_array().map_or(&[][..], Vec::as_slice);
                let len = elements.len() as i64;
                let clamp = |at: i64| (if at < 0 { at + len } else { at }).clamp(0, len) as usize;
                let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(len)));
                let step = usize::try_from(*step).unwrap_or(1);
                elements
                    .get(start..end.max(start))
                    .unwrap_or_default()
                    .iter()
                    .step_by(step)
                    .collect()
            }
            Step::Everything => children(value),
            Step::Descendants => {
                let mut found = vec![value];
                let mut at = 0;
                while at < found.len() {
                    let more = children(found[at]);
                    found.extend(more);
                    at += 1;
                }
                found
            }
            Step::Filter { left, comparison } => {
                let elements = value.as_array().map_or(&[][..], Vec::as_slice);
                elements
                    .iter()
                    .filter(|element| holds(element, left, comparison.as_ref()))
                    .collect()
            }
        }
    }
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(elements) => elements.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn holds(element: &Value, left: &Operand, comparison: Option<&(Comparison, Operand)>) -> bool {
    let value = |operand: &Operand| match operand {
        Operand::Path(path) => path.first(element).cloned(),
        Operand::Literal(value) => Some(value.clone()),
    };
    let Some((comparison, right)) = comparison else {
        return value(left).is_some();
    };
    let (Some(left), Some(right)) = (value(left), value(right)) else {
        return false;
    };
    let ordering = match (&left, &right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => left.as_f64().partial_cmp(&right.as_f64()),
        (left, right) if left == right => Some(Ordering::Equal),
        _ => None,
    };
    match comparison {
        Comparison::Equal => ordering == Some(Ordering::Equal),
        Comparison::NotEqual => ordering != Some(Ordering::Equal),
        Comparison::Less => ordering == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => ordering == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(ordering, Some(Ordering::Greater | Ordering::Equal)),
    }
}
