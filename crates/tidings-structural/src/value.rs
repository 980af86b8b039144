//! Checks a value against its schema. All errors are reported together, in the words and the order of kube-openapi.

mod number;

use std::fmt::Write;

use tidings_api::FieldError;
use tidings_go::{self as go, GoNumber};
use tidings_json::{Map, Value};

use self::number::{is_json_integer, is_member};
use crate::correlate::{KeyedElements, UpdatePair};
use crate::format::Format;
use crate::node::{AdditionalProperties, SchemaNode};
use crate::text::{FieldPath, bad_value, json};

/// Appends the errors of a value. With the value before an update in `pair`, errors in unchanged values are not reported.
pub(crate) fn check(
    value: &Value,
    node: &SchemaNode,
    pair: Option<UpdatePair<'_>>,
    prefix: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let mut check = ValueChecker {
        path: String::new(),
        prefix,
    };
    let outcome = check.ratcheted(value, node, pair);
    errors.extend(outcome.problems.into_iter().map(|problem| problem.error));
}

/// An error of a value.
struct ValueProblem {
    /// The text by which upstream removes duplicate errors.
    message: String,
    error: FieldError,
}

/// The errors of a value, and the number of checks that it passed: `anyOf` and `oneOf` report the branch with the most passes.
#[derive(Default)]
struct CheckResult {
    problems: Vec<ValueProblem>,
    matches: usize,
}

impl CheckResult {
    fn is_valid(&self) -> bool {
        self.problems.is_empty()
    }

    fn add(&mut self, problem: ValueProblem) {
        if !self
            .problems
            .iter()
            .any(|known| known.message == problem.message)
        {
            self.problems.push(problem);
        }
    }

    fn merge(&mut self, other: CheckResult) {
        self.matches += other.matches;
        other
            .problems
            .into_iter()
            .for_each(|problem| self.add(problem));
    }
}

/// Walks a value with its schema.
struct ValueChecker<'p> {
    path: String,
    prefix: &'p FieldPath,
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(_) => match GoNumber::of(value) {
            Some(GoNumber::Int(_)) => "integer",
            _ => "number",
        },
    }
}

impl ValueChecker<'_> {
    fn field(&self, name: &str) -> String {
        let name = name.trim_start_matches('.');
        if name.is_empty() {
            self.prefix.text()
        } else {
            self.prefix.child(name).into()
        }
    }

    /// An error of the value at the current path.
    fn problem(
        &self,
        detail: impl AsRef<str>,
        error: impl FnOnce(String, String) -> FieldError,
    ) -> ValueProblem {
        let message = format!("{} in body {}", self.path, detail.as_ref());
        ValueProblem {
            error: error(self.field(&self.path), message.clone()),
            message,
        }
    }

    /// An error that upstream reports without a path.
    fn pathless(&self, message: String) -> ValueProblem {
        ValueProblem {
            error: FieldError::invalid(self.prefix.text(), "", message.clone()),
            message,
        }
    }

    fn wrong_type(&self, wanted: &str, found: &str) -> ValueProblem {
        let detail = format!("must be of type {wanted}: {}", go::quote(found));
        self.problem(detail, |path, message| {
            FieldError::type_invalid(path, go::quote(found), message)
        })
    }

    /// Checks a value; the errors of an unchanged value are dropped.
    fn ratcheted(
        &mut self,
        value: &Value,
        node: &SchemaNode,
        pair: Option<UpdatePair<'_>>,
    ) -> CheckResult {
        let mut outcome = self.value(value, node, pair);
        if !outcome.is_valid() && pair.is_some_and(|pair| pair.is_same()) {
            outcome.problems.clear();
        }
        outcome
    }

    fn value(
        &mut self,
        value: &Value,
        node: &SchemaNode,
        pair: Option<UpdatePair<'_>>,
    ) -> CheckResult {
        let mut outcome = CheckResult::default();
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
                if let Some(number) = GoNumber::of(value) {
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

    fn type_name(&self, value: &Value, node: &SchemaNode, outcome: &mut CheckResult) {
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
            matches!(GoNumber::of(value), Some(GoNumber::Float(float)) if is_json_integer(float));
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

    fn junctors(&mut self, value: &Value, node: &SchemaNode, outcome: &mut CheckResult) {
        if !node.any_of.is_empty() {
            let mut closest: Option<CheckResult> = None;
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

    fn one_of(&mut self, value: &Value, node: &SchemaNode, outcome: &mut CheckResult) {
        let mut closest: Option<CheckResult> = None;
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

    /// Checks length and pattern of a text. Only the first error is reported.
    fn text(&self, text: &str, node: &SchemaNode, outcome: &mut CheckResult) {
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

    fn elements(
        &mut self,
        elements: &[Value],
        node: &SchemaNode,
        pair: Option<UpdatePair<'_>>,
        outcome: &mut CheckResult,
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

    fn enumeration(&self, value: &Value, node: &SchemaNode, outcome: &mut CheckResult) {
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
        object: &Map,
        node: &SchemaNode,
        pair: Option<UpdatePair<'_>>,
        outcome: &mut CheckResult,
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
            AdditionalProperties::Bool(false) => {
                for name in object
                    .keys()
                    .filter(|name| !node.properties.contains_key(*name))
                {
                    let message = format!("{}.{name} in body is a forbidden property", self.path);
                    outcome.add(ValueProblem {
                        error: FieldError::invalid(self.field(&self.path), name, message.clone()),
                        message,
                    });
                }
            }
            AdditionalProperties::Schema(schema) => {
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
            .filter(|name| !object.contains_key(name))
        {
            let path = format!("{}.{name}", self.path);
            outcome.add(ValueProblem {
                error: FieldError::required(self.field(&path), ""),
                message: format!("{path} in body is required"),
            });
        }
    }

    /// The pair of a field. Both objects are converted to the same apiVersion and kind first, so these never count as unchanged.
    fn field_pair<'a>(&self, pair: Option<UpdatePair<'a>>, name: &str) -> Option<UpdatePair<'a>> {
        if self.path.is_empty() && (name == "kind" || name == "apiVersion") {
            return None;
        }
        pair?.field(name)
    }
}

fn element_pair<'a>(
    old: Option<&KeyedElements<'a>>,
    index: usize,
    list: Option<UpdatePair<'a>>,
) -> Option<UpdatePair<'a>> {
    let list = list?;
    let new = list.new.as_array()?.get(index)?;
    Some(UpdatePair {
        new,
        old: old?.get(new)?,
        node: list.node.items.as_deref()?,
    })
}

fn text_format(node: &SchemaNode) -> Option<Format> {
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
