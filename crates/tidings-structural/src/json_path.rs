//! JSONPath as Kubernetes writes it, for printer columns and selectable fields: `.spec.replicas`,
//! `.metadata.labels['a\.b']`, `.status.conditions[?(@.type=="Ready")].status`.

use std::cmp::Ordering;

use tidings_json::Value;

/// A parsed JSONPath.
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
    steps: Vec<PathStep>,
}

/// Why a text is not a JSONPath.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(String);

/// One step of a path.
#[derive(Debug, Clone, PartialEq)]
enum PathStep {
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
        left: FilterOperand,
        comparison: Option<(FilterComparison, FilterOperand)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum FilterComparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone, PartialEq)]
enum FilterOperand {
    Path(JsonPath),
    Literal(Value),
}

/// The maximum number of steps of a path.
const STEPS_MAX: usize = 64;

fn error<T>(text: impl Into<String>) -> Result<T, JsonPathError> {
    Err(JsonPathError(text.into()))
}

impl JsonPath {
    /// Parses a path. Braces around it are allowed.
    ///
    /// # Errors
    /// If the text is not a path in the dialect of Kubernetes.
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

    /// All values at this path. Missing fields give no value.
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

    /// The first value at this path.
    pub fn first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        // Most paths consist of fields only, so they need no list of values.
        let mut found = value;
        for (index, step) in self.steps.iter().enumerate() {
            match step {
                PathStep::Field(name) => found = found.get(name)?,
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

    /// The names of the members that the path walks; `None` if it has other steps.
    pub fn members(&self) -> Option<Vec<&str>> {
        let steps = self.steps.iter();
        steps
            .map(|step| match step {
                PathStep::Field(name) => Some(name.as_str()),
                PathStep::Names(names) if names.len() == 1 => Some(names[0].as_str()),
                _ => None,
            })
            .collect()
    }

    /// The first value as text, as field selectors compare it. A missing value is the empty text.
    pub fn first_text(&self, value: &Value) -> String {
        match self.first(value) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

fn step<'t>(text: &'t str, steps: &mut Vec<PathStep>) -> Result<&'t str, JsonPathError> {
    if let Some(rest) = text.strip_prefix("..") {
        steps.push(PathStep::Descendants);
        return if rest.starts_with('[') {
            Ok(rest)
        } else {
            field(rest, steps)
        };
    }
    if let Some(rest) = text.strip_prefix('.') {
        // A path of one dot is the object itself.
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
            "unrecognized character in action: {}",
            PrintedChar(c)
        )),
        None => Ok(text),
    }
}

/// A character as Go's `%#U` prints it.
struct PrintedChar(char);

impl std::fmt::Display for PrintedChar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "U+{:04X} '{}'", self.0 as u32, self.0)
    }
}

fn field<'t>(text: &'t str, steps: &mut Vec<PathStep>) -> Result<&'t str, JsonPathError> {
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
        PathStep::Everything
    } else {
        PathStep::Field(name)
    });
    let rest = &text[end..];
    match rest.chars().next() {
        None | Some('.' | '[') => Ok(rest),
        Some(c) => error(format!(
            "unrecognized character in action: {}",
            PrintedChar(c)
        )),
    }
}

/// The position of the bracket that closes `text`; nested and quoted brackets do not count.
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

fn bracket<'t>(text: &'t str, steps: &mut Vec<PathStep>) -> Result<&'t str, JsonPathError> {
    let Some(end) = closing(text) else {
        return error("unterminated array");
    };
    let (inner, rest) = (text[..end].trim(), &text[end + 1..]);
    if inner == "*" {
        steps.push(PathStep::Everything);
    } else if let Some(filter) = inner
        .strip_prefix("?(")
        .and_then(|rest| rest.strip_suffix(')'))
    {
        steps.push(self::filter(filter.trim())?);
    } else if inner.starts_with(['\'', '"']) {
        let names = quoted(inner)?;
        steps.push(PathStep::Names(names));
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
        steps.push(PathStep::Slice {
            start: part(0),
            end: part(1),
            step,
        });
    } else {
        let indices: Result<Vec<i64>, _> = inner
            .split(',')
            .map(|part| integer(part.trim(), inner))
            .collect();
        steps.push(PathStep::Indices(indices?));
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

fn filter(text: &str) -> Result<PathStep, JsonPathError> {
    const OPERATORS: [(&str, FilterComparison); 6] = [
        ("==", FilterComparison::Equal),
        ("!=", FilterComparison::NotEqual),
        ("<=", FilterComparison::LessOrEqual),
        (">=", FilterComparison::GreaterOrEqual),
        ("<", FilterComparison::Less),
        (">", FilterComparison::Greater),
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
                        return Ok(PathStep::Filter {
                            left: operand(text[..at].trim())?,
                            comparison: Some((comparison, operand(right.trim())?)),
                        });
                    }
                }
            }
        }
    }
    Ok(PathStep::Filter {
        left: operand(text)?,
        comparison: None,
    })
}

fn operand(text: &str) -> Result<FilterOperand, JsonPathError> {
    if let Some(path) = text.strip_prefix('@') {
        return Ok(FilterOperand::Path(JsonPath::parse(path)?));
    }
    if text.starts_with(['\'', '"']) {
        return match quoted(text)?.as_slice() {
            [only] => Ok(FilterOperand::Literal(Value::String(only.clone()))),
            _ => error(format!("invalid filter operand {text}")),
        };
    }
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => Ok(FilterOperand::Literal(value)),
        _ => error(format!("invalid filter operand {text}")),
    }
}

impl PathStep {
    fn apply<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            PathStep::Field(name) => value.get(name).into_iter().collect(),
            PathStep::Names(names) => names.iter().filter_map(|name| value.get(name)).collect(),
            PathStep::Indices(indices) => {
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
            PathStep::Slice { start, end, step } => {
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
            PathStep::Everything => children(value),
            PathStep::Descendants => {
                let mut found = vec![value];
                let mut at = 0;
                while at < found.len() {
                    let more = children(found[at]);
                    found.extend(more);
                    at += 1;
                }
                found
            }
            PathStep::Filter { left, comparison } => {
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

fn holds(
    element: &Value,
    left: &FilterOperand,
    comparison: Option<&(FilterComparison, FilterOperand)>,
) -> bool {
    let value = |operand: &FilterOperand| match operand {
        FilterOperand::Path(path) => path.first(element).cloned(),
        FilterOperand::Literal(value) => Some(value.clone()),
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
        FilterComparison::Equal => ordering == Some(Ordering::Equal),
        FilterComparison::NotEqual => ordering != Some(Ordering::Equal),
        FilterComparison::Less => ordering == Some(Ordering::Less),
        FilterComparison::LessOrEqual => matches!(ordering, Some(Ordering::Less | Ordering::Equal)),
        FilterComparison::Greater => ordering == Some(Ordering::Greater),
        FilterComparison::GreaterOrEqual => {
            matches!(ordering, Some(Ordering::Greater | Ordering::Equal))
        }
    }
}
