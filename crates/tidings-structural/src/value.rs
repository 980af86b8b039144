//! Does a value fit a schema? All that does not is told at once, in the words and the order of kube-openapi.

use std::fmt::Write;

use serde_json::{Map, Value};
use tidings_api::{FieldError, go};

use crate::correlate::{Keyed, Pair};
use crate::format::Format;
use crate::node::{Additional, Node};
use crate::text::{Number, Path, bad_value, float, json};

/// Appends what does not fit. With the value before an update, what did not fit before and has not changed is let through.
pub(crate) fn check(
    value: &Value,
    node: &Node,
    pair: Option<Pair<'_>>,
    prefix: &Path,
    errors: &mut Vec<FieldError>,
) {
    let mut check = Check {
        path: String::new(),
        prefix,
    };
    let outcome = check.ratcheted(value, node, pair);
    errors.extend(outcome.problems.into_iter().map(|problem| problem.error));
}

struct Problem {
    /// The text by which upstream tells problems apart.
    message: String,
    error: FieldError,
}

/// What was wrong, and how much was right: `anyOf` and `oneOf` tell of the branch that came closest.
#[derive(Default)]
struct Outcome {
    problems: Vec<Problem>,
    matches: usize,
}

impl Outcome {
    fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    fn add(&mut self, problem: Problem) {
        if !self
            .problems
            .iter()
            .any(|known| known.message == problem.message)
        {
            self.problems.push(problem);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        other
            .problems
            .into_iter()
            .for_each(|problem| self.add(problem));
    }
}

struct Check<'p> {
    path: String,
    prefix: &'p Path,
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(_) => match Number::of(value) {
            Some(Number::Int(_)) => "integer",
            _ => "number",
        },
    }
}

impl Check<'_> {
    fn field(&self, name: &str) -> String {
        let name = name.trim_start_matches('.');
        if name.is_empty() {
            self.prefix.text()
        } else {
            self.prefix.child(name).into()
        }
    }

    /// A problem of the value at the current path.
    fn problem(
        &self,
        detail: impl AsRef<str>,
        error: impl FnOnce(String, String) -> FieldError,
    ) -> Problem {
        let message = format!("{} in body {}", self.path, detail.as_ref());
        Problem {
            error: error(self.field(&self.path), message.clone()),
            message,
        }
    }

    /// A problem that upstream reports without a path.
    fn pathless(&self, message: String) -> Problem {
        Problem {
            error: FieldError::invalid(self.prefix.text(), "", message.clone()),
            message,
        }
    }

    fn wrong_type(&self, wanted: &str, found: &str) -> Problem {
        let detail = format!("must be of type {wanted}: {}", go::quote(found));
        self.problem(detail, |path, message| {
            FieldError::type_invalid(path, go::quote(found), message)
        })
    }

    fn ratcheted(&mut self, value: &Value, node: &Node, pair: Option<Pair<'_>>) -> Outcome {
        let mut outcome = self.value(value, node, pair);
        if !outcome.is_valid() && pair.is_some_and(|pair| pair.is_same()) {
            outcome.problems.clear();
        }
        outcome
    }

    fn value(&mut self, value: &Value, node: &Node, pair: Option<Pair<'_>>) -> Outcome {
        let mut outcome = Outcome::default();
        if value.is_null() {
            self.type_name(value, node, &mut outcome);
            self.enumeration(value, node, &mut outcome);
            return outcome;
        }
        if !node.types().is_empty() || node.format.is_some() {
            self.type_name(value, node, &mut outcome);
            outcome.matches += 1;
        }
        self.junctors(value, node, &mut outcome);
        match value {
            Value::String(text) => {
                self.text(text, node, &mut outcome);
                outcome.matches += 1;
                if let Some(format) = text_format(node) {
                    outcome.matches += 1;
                    if !format.holds(text) {
                        outcome.add(self.wrong_type(&node.format_text, text));
                    }
                }
            }
            Value::Number(_) => {
                if let Some(number) = Number::of(value) {
                    self.number(number, node, &mut outcome);
                }
                outcome.matches += 2;
            }
            Value::Array(elements) => {
                self.elements(elements, node, pair, &mut outcome);
                outcome.matches += 2;
            }
            _ => {}
        }
        self.enumeration(value, node, &mut outcome);
        outcome.matches += 1;
        if let Value::Object(object) = value {
            self.object(object, node, pair, &mut outcome);
            outcome.matches += 1;
        }
        outcome.matches += 1;
        outcome
    }

    fn type_name(&self, value: &Value, node: &Node, outcome: &mut Outcome) {
        let types = node.types();
        let found = type_of(value);
        if value.is_null() {
            if !types.is_empty() && !node.nullable {
                outcome.add(self.wrong_type(&types.join(","), "null"));
            } else {
                outcome.matches += 1;
            }
            return;
        }
        let has = |name: &str| types.contains(&name);
        let is_whole =
            matches!(Number::of(value), Some(Number::Float(float)) if is_json_integer(float));
        let fits =
            has(found) || (is_whole && has("integer")) || (found == "integer" && has("number"));
        let is_text_or_list = value.is_string() || value.is_array();
        if node.format.is_some() && !is_text_or_list && !fits {
            let found = match found {
                "integer" => "int64",
                "number" => "float64",
                _ => "",
            };
            if found != node.format_text {
                outcome.add(self.wrong_type(&node.format_text, found));
                return;
            }
        }
        // A string with a format is only checked against the format.
        if node.format.is_some() && is_text_or_list && !has("number") && !has("integer") {
            outcome.matches += 1;
            return;
        }
        if fits {
            outcome.matches += 1;
        } else {
            outcome.add(self.wrong_type(&types.join(","), found));
        }
    }

    fn junctors(&mut self, value: &Value, node: &Node, outcome: &mut Outcome) {
        if !node.any_of.is_empty() {
            let mut closest: Option<Outcome> = None;
            let mut fits = None;
            for branch in &node.any_of {
                let result = self.value(value, branch, None);
                if result.is_valid() {
                    fits = Some(result);
                    break;
                }
                if closest
                    .as_ref()
                    .is_none_or(|closest| result.matches > closest.matches)
                {
                    closest = Some(result);
                }
            }
            match fits {
                Some(result) => outcome.merge(result),
                None => {
                    let name = go::quote(&self.path);
                    outcome.add(
                        self.pathless(format!("{name} must validate at least one schema (anyOf)")),
                    );
                    outcome.merge(closest.unwrap_or_default());
                }
            }
        }
        if !node.one_of.is_empty() {
            self.one_of(value, node, outcome);
        }
        if !node.all_of.is_empty() {
            let mut fitting = 0;
            for branch in &node.all_of {
                let result = self.value(value, branch, None);
                fitting += usize::from(result.is_valid());
                outcome.merge(result);
            }
            if fitting != node.all_of.len() {
                let more = if fitting == 0 { ". None validated" } else { "" };
                let name = go::quote(&self.path);
                outcome.add(self.pathless(format!(
                    "{name} must validate all the schemas (allOf){more}"
                )));
            }
        }
        if let Some(branch) = &node.not
            && self.value(value, branch, None).is_valid()
        {
            let name = go::quote(&self.path);
            outcome.add(self.pathless(format!("{name} must not validate the schema (not)")));
        }
        outcome.matches += 2;
    }

    fn one_of(&mut self, value: &Value, node: &Node, outcome: &mut Outcome) {
        let mut closest: Option<Outcome> = None;
        let mut first = None;
        let mut fitting = 0;
        for branch in &node.one_of {
            let result = self.value(value, branch, None);
            if result.is_valid() {
                fitting += 1;
                closest = None;
                first = first.or(Some(result));
            } else if fitting == 0
                && closest
                    .as_ref()
                    .is_none_or(|closest| result.matches > closest.matches)
            {
                closest = Some(result);
            }
        }
        if fitting == 1 {
            outcome.merge(first.unwrap_or_default());
            return;
        }
        let more = if fitting == 0 {
            "Found none valid".to_owned()
        } else {
            format!("Found {fitting} valid alternatives")
        };
        let name = go::quote(&self.path);
        outcome.add(self.pathless(format!(
            "{name} must validate one and only one schema (oneOf). {more}"
        )));
        outcome.merge(closest.unwrap_or_default());
    }

    /// Only the first of these is told.
    fn text(&self, text: &str, node: &Node, outcome: &mut Outcome) {
        let length = || i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
        let invalid = |path, message| FieldError::invalid(path, text, message);
        if let Some(max) = node.max_length
            && length() > max
        {
            let bytes_max = usize::try_from(max);
            outcome.add(
                self.problem(format!("should be at most {max} chars long"), |path, _| {
                    match bytes_max {
                        Ok(max) => FieldError::too_long(path, max),
                        Err(_) => FieldError::too_long_unbounded(path),
                    }
                }),
            );
        } else if let Some(min) = node.min_length
            && length() < min
        {
            outcome.add(self.problem(format!("should be at least {min} chars long"), invalid));
        } else if let Some(regex) = &node.regex
            && !regex.is_match(text)
        {
            outcome.add(self.problem(format!("should match '{}'", node.pattern), invalid));
        }
    }

    fn number(&self, number: Number, node: &Node, outcome: &mut Outcome) {
        let format = if node.types().len() == 1 {
            node.format
        } else {
            None
        };
        let kind = match node.types() {
            [kind @ ("integer" | "number")] => kind,
            _ => "",
        };
        let out_of_range = |prefix: &str, number: Number| {
            let fits = match (kind, format, number) {
                ("integer", Some(Format::Int32), Number::Int(number)) => {
                    i32::try_from(number).is_ok()
                }
                ("integer", Some(Format::Int32), Number::Float(float)) => {
                    float.fract() == 0.0
                        && float.abs() <= 2_147_483_648.0
                        && float != 2_147_483_648.0
                }
                ("integer", _, Number::Float(float)) => {
                    float.fract() == 0.0
                        && (-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&float)
                }
                ("number", Some(Format::Float), number) => {
                    number.as_f64().abs() <= f64::from(f32::MAX)
                }
                _ => true,
            };
            (!fits).then(|| {
                let format = match format {
                    Some(_) => format!("with format {}", node.format_text),
                    None => "(default format)".to_owned(),
                };
                self.pathless(format!(
                    "{prefix} value must be of type {kind} {format} in {}",
                    self.path
                ))
            })
        };
        let invalid = |path, message| FieldError::invalid_value(path, number, message);
        outcome.matches += 1;
        if let Some(problem) = out_of_range("Checked", number) {
            outcome.add(problem);
        }
        if let Some(factor) = node.multiple_of {
            let misfit = out_of_range("MultipleOf", Number::Float(factor));
            let as_integer = matches!(number, Number::Int(_)) && misfit.is_none();
            misfit.into_iter().for_each(|problem| outcome.add(problem));
            self.multiple_of(number, factor, as_integer, outcome);
        }
        for (bound, exclusive, name, beyond) in [
            (
                node.minimum,
                node.exclusive_minimum,
                "Minimum boundary",
                "greater",
            ),
            (
                node.maximum,
                node.exclusive_maximum,
                "Maximum boundary",
                "less",
            ),
        ] {
            let Some(bound) = bound else {
                continue;
            };
            let misfit = out_of_range(name, Number::Float(bound));
            // An integer is compared with the whole part of a bound, as upstream does it.
            let (ordering, printed) = match number {
                Number::Int(number) if misfit.is_none() => {
                    (number.cmp(&(bound as i64)), (bound as i64).to_string())
                }
                number => match number.as_f64().partial_cmp(&bound) {
                    Some(ordering) => (ordering, float(bound)),
                    None => continue,
                },
            };
            misfit.into_iter().for_each(|problem| outcome.add(problem));
            let fails = match (beyond, exclusive) {
                ("greater", false) => ordering.is_lt(),
                ("greater", true) => ordering.is_le(),
                (_, false) => ordering.is_gt(),
                (_, true) => ordering.is_ge(),
            };
            if fails {
                let or_equal = if exclusive { "" } else { " or equal to" };
                outcome.add(self.problem(
                    format!("should be {beyond} than{or_equal} {printed}"),
                    invalid,
                ));
            }
        }
    }

    fn multiple_of(&self, number: Number, factor: f64, as_integer: bool, outcome: &mut Outcome) {
        let (printed, is_positive, is_multiple) = match number {
            Number::Int(number) if as_integer => {
                let factor = factor as i64;
                (
                    factor.to_string(),
                    factor > 0,
                    factor > 0 && number % factor == 0,
                )
            }
            number => {
                let number = number.as_f64();
                let quotient = if factor < 1.0 {
                    1.0 / factor * number
                } else {
                    number / factor
                };
                (float(factor), factor > 0.0, is_json_integer(quotient))
            }
        };
        if !is_positive {
            let message = format!(
                "factor MultipleOf declared for {} must be positive: {printed}",
                self.path
            );
            outcome.add(Problem {
                error: FieldError::invalid_value(self.field(&self.path), printed, message.clone()),
                message,
            });
        } else if !is_multiple {
            let detail = format!("should be a multiple of {printed}");
            outcome.add(self.problem(detail, |path, message| {
                FieldError::invalid_value(path, number, message)
            }));
        }
    }

    fn elements(
        &mut self,
        elements: &[Value],
        node: &Node,
        pair: Option<Pair<'_>>,
        outcome: &mut Outcome,
    ) {
        if let Some(items) = &node.items {
            let old = pair.and_then(|pair| pair.elements());
            let len = self.path.len();
            for (index, element) in elements.iter().enumerate() {
                let _ = write!(self.path, "[{index}]");
                let pair = element_pair(old.as_ref(), index, pair);
                outcome.merge(self.ratcheted(element, items, pair));
                self.path.truncate(len);
            }
        }
        let size = i64::try_from(elements.len()).unwrap_or(i64::MAX);
        if let Some(min) = node.min_items
            && size < min
        {
            let detail = format!("should have at least {min} items");
            outcome.add(self.problem(detail, |path, message| {
                FieldError::invalid_value(path, size, message)
            }));
        }
        if let Some(max) = node.max_items
            && size > max
        {
            let detail = format!("should have at most {max} items");
            outcome.add(self.problem(detail, |path, _| too_many(path, elements.len(), max)));
        }
    }

    fn enumeration(&self, value: &Value, node: &Node, outcome: &mut Outcome) {
        if node.enumeration.is_empty()
            || node
                .enumeration
                .iter()
                .any(|allowed| is_member(value, allowed))
        {
            return;
        }
        let printed: Vec<String> = node
            .enumeration
            .iter()
            .map(|allowed| match allowed {
                Value::String(text) => text.clone(),
                other => json(other),
            })
            .collect();
        let supported: Vec<&str> = printed.iter().map(String::as_str).collect();
        let detail = format!("should be one of [{}]", supported.join(" "));
        outcome.add(self.problem(detail, |path, _| {
            FieldError::not_supported(path, bad_value(value), &supported)
        }));
    }

    fn object(
        &mut self,
        object: &Map<String, Value>,
        node: &Node,
        pair: Option<Pair<'_>>,
        outcome: &mut Outcome,
    ) {
        let size = i64::try_from(object.len()).unwrap_or(i64::MAX);
        if let Some(min) = node.min_properties
            && size < min
        {
            let detail = format!("should have at least {min} properties");
            outcome.add(self.problem(detail, |path, message| {
                FieldError::invalid_value(path, size, message)
            }));
        }
        if let Some(max) = node.max_properties
            && size > max
        {
            let detail = format!("should have at most {max} properties");
            outcome.add(self.problem(detail, |path, _| too_many(path, object.len(), max)));
        }
        let len = self.path.len();
        match &node.additional {
            Additional::Bool(false) => {
                for name in object
                    .keys()
                    .filter(|name| !node.properties.contains_key(*name))
                {
                    let message = format!("{}.{name} in body is a forbidden property", self.path);
                    outcome.add(Problem {
                        error: FieldError::invalid(self.field(&self.path), name, message.clone()),
                        message,
                    });
                }
            }
            Additional::Schema(schema) => {
                for (name, value) in object
                    .iter()
                    .filter(|(name, _)| !node.properties.contains_key(*name))
                {
                    let pair = self.field_pair(pair, name);
                    self.path.push('.');
                    self.path.push_str(name);
                    outcome.merge(self.ratcheted(value, schema, pair));
                    self.path.truncate(len);
                }
            }
            _ => {}
        }
        if !node.properties.is_empty() {
            for (name, value) in object {
                let Some(property) = node.properties.get(name) else {
                    continue;
                };
                let pair = self.field_pair(pair, name);
                if len > 0 {
                    self.path.push('.');
                }
                self.path.push_str(name);
                outcome.merge(self.ratcheted(value, property, pair));
                self.path.truncate(len);
            }
        }
        for name in node
            .required
            .iter()
            .filter(|name| !object.contains_key(*name))
        {
            let path = format!("{}.{name}", self.path);
            outcome.add(Problem {
                error: FieldError::required(self.field(&path), ""),
                message: format!("{path} in body is required"),
            });
        }
    }

    /// The type of an object is the same before and after by the time it is compared, so it proves nothing.
    fn field_pair<'a>(&self, pair: Option<Pair<'a>>, name: &str) -> Option<Pair<'a>> {
        if self.path.is_empty() && (name == "kind" || name == "apiVersion") {
            return None;
        }
        pair?.field(name)
    }
}

fn element_pair<'a>(
    old: Option<&Keyed<'a>>,
    index: usize,
    list: Option<Pair<'a>>,
) -> Option<Pair<'a>> {
    let list = list?;
    let new = list.new.as_array()?.get(index)?;
    Some(Pair {
        new,
        old: old?.get(new)?,
        node: list.node.items.as_deref()?,
    })
}

fn text_format(node: &Node) -> Option<Format> {
    node.format.filter(|format| {
        !matches!(
            format,
            Format::Int32 | Format::Int64 | Format::Float | Format::Double
        )
    })
}

fn too_many(path: String, actual: usize, max: i64) -> FieldError {
    FieldError::too_many(path, actual, usize::try_from(max).unwrap_or(0))
}

/// Numbers are converted to the type of the allowed value before they are compared, fractions cut off.
fn is_member(value: &Value, allowed: &Value) -> bool {
    match (Number::of(value), Number::of(allowed)) {
        (Some(Number::Float(value)), Some(Number::Int(allowed))) => value as i64 == allowed,
        (Some(value), Some(allowed)) => value.as_f64() == allowed.as_f64(),
        _ => !value.is_null() && value == allowed,
    }
}

/// An integer up to a relative error of 1e-9, within what a double can hold exactly.
fn is_json_integer(float: f64) -> bool {
    const SAFE_MAX: f64 = 9_007_199_254_740_991.0;
    if !float.is_finite() || float.abs() > SAFE_MAX {
        return false;
    }
    let whole = float.trunc();
    if float == whole {
        return true;
    }
    whole != 0.0 && (float - whole).abs() / (float.abs() + whole.abs()) < 1e-9
}
