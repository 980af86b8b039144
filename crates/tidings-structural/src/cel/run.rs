//! Evaluates the rules of a schema over an object.

use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use tidings_api::FieldError;
use tidings_go as go;
use tidings_json::Value;

use super::check::OLD;
use super::eval::Evaluation;
use super::fault::{EvalFault, EvalResult};
use super::val::{NO_OVERLOAD, Val};
use crate::correlate::{KeyedElements, UpdatePair};
use crate::node::{CompiledRule, RuleText, SchemaNode};
use crate::text::{FieldPath, bad_value};

/// The maximum cost of all rules for one object.
const OBJECT_COST_MAX: i64 = 10_000_000;
/// The maximum length of a message that `messageExpression` makes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The value before the update. A rule may fail after an update if the value has not changed.
#[derive(Clone, Copy, Default)]
struct RatchetContext<'a> {
    pair: Option<UpdatePair<'a>>,
    /// The nearest ancestor that has an old value.
    ancestor: Option<UpdatePair<'a>>,
}

impl<'a> RatchetContext<'a> {
    fn field(self, name: &str) -> RatchetContext<'a> {
        match self.pair {
            None => self,
            // Both objects are converted to the same apiVersion and kind first, so these fields never count as unchanged.
            Some(_) if self.ancestor.is_none() && (name == "apiVersion" || name == "kind") => {
                RatchetContext::default()
            }
            Some(pair) => RatchetContext {
                pair: pair.field(name),
                ancestor: self.pair,
            },
        }
    }

    fn element(self, element: Option<UpdatePair<'a>>) -> RatchetContext<'a> {
        match self.pair {
            None => self,
            Some(_) => RatchetContext {
                pair: element,
                ancestor: self.pair,
            },
        }
    }

    fn is_unchanged(self) -> bool {
        self.pair
            .or(self.ancestor)
            .is_some_and(|pair| pair.is_same())
    }
}

/// The cost budget of the object is used up: no further rule is evaluated.
struct BudgetExhausted;

/// `On` if a rule may fail after an update when the value has not changed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Ratcheting {
    On,
    Off,
}

/// Evaluates all rules of a schema over an object and appends an error for each that fails.
pub(crate) fn validate(
    value: &Value,
    old: Option<&Value>,
    root: &SchemaNode,
    prefix: &FieldPath,
    is_resource: bool,
    ratcheting: Ratcheting,
    errors: &mut Vec<FieldError>,
) {
    if !root.below.rules {
        return;
    }
    let mut run = RuleRun {
        budget: OBJECT_COST_MAX,
        path: prefix.clone(),
        errors,
    };
    let ratchet = RatchetContext {
        pair: old
            .filter(|_| ratcheting == Ratcheting::On)
            .map(|old| UpdatePair {
                new: value,
                old,
                node: root,
            }),
        ancestor: None,
    };
    let _ = run.node(value, old, root, is_resource, ratchet);
}

/// The rules of one object: the rest of the budget, the current path and the errors so far.
struct RuleRun<'e> {
    budget: i64,
    path: FieldPath,
    errors: &'e mut Vec<FieldError>,
}

impl RuleRun<'_> {
    fn node<'a>(
        &mut self,
        value: &'a Value,
        old: Option<&'a Value>,
        node: &'a SchemaNode,
        is_resource: bool,
        ratchet: RatchetContext<'a>,
    ) -> Result<(), BudgetExhausted> {
        if value.is_null() || !node.below.rules {
            return Ok(());
        }
        let old = old.filter(|old| !old.is_null());
        self.rules(value, old, node, is_resource, ratchet)?;
        let len = self.path.len();
        match value {
            Value::Array(elements) => {
                let Some(items) = &node.items else {
                    return Ok(());
                };
                let old_elements = old
                    .and_then(Value::as_array)
                    .and_then(|old| KeyedElements::new(node, old));
                for (index, element) in elements.iter().enumerate() {
                    let old = old_elements.as_ref().and_then(|old| old.get(element));
                    let pair = old.map(|old| UpdatePair {
                        new: element,
                        old,
                        node: items,
                    });
                    self.path.push_index(index);
                    self.node(element, old, items, items.embedded, ratchet.element(pair))?;
                    self.path.truncate(len);
                }
            }
            Value::Object(object) => {
                let old = old.and_then(Value::as_object);
                for (name, value) in object {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(property) = node.properties.get(name) {
                        self.path.push_child(name);
                        self.node(value, old, property, property.embedded, ratchet.field(name))?;
                    } else if let Some(schema) = node.additional.schema() {
                        self.path.push_key(name);
                        self.node(value, old, schema, schema.embedded, ratchet.field(name))?;
                    }
                    self.path.truncate(len);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn rules<'a>(
        &mut self,
        value: &'a Value,
        old: Option<&'a Value>,
        node: &'a SchemaNode,
        is_resource: bool,
        ratchet: RatchetContext<'a>,
    ) -> Result<(), BudgetExhausted> {
        if node.rules.is_empty() {
            return Ok(());
        }
        let kind = go::quote(&node.kind);
        if self.budget <= 0 {
            return self.exhausted(&kind);
        }
        let this = match Val::of(value, node, is_resource) {
            Ok(this) => this,
            Err(why) => {
                self.errors
                    .push(FieldError::invalid_value(self.path.clone(), kind, why));
                return Ok(());
            }
        };
        let old = old.and_then(|old| Val::of(old, node, is_resource).ok());
        for rule in &node.rules {
            let is_optional = rule.text.optional_old_self == Some(true);
            if rule.uses_old && old.is_none() && !is_optional {
                continue;
            }
            let old_self = if is_optional {
                Some(Val::Optional(old.clone().map(Arc::new)))
            } else {
                old.clone()
            };
            let (answer, cost) = evaluate(&rule.expr, this.clone(), old_self);
            self.pay(cost, &kind)?;
            let name = rule.text.printed_name();
            match answer {
                Ok(Val::Bool(true)) => continue,
                Err(EvalFault::Cost) => {
                    let detail = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost \
                         exceeds limit for rule: {name}"
                    );
                    self.errors
                        .push(FieldError::invalid_value(self.path.clone(), kind, detail));
                    return Err(BudgetExhausted);
                }
                Err(EvalFault::Error(why)) => {
                    let detail = if why.starts_with(NO_OVERLOAD) {
                        format!(
                            "'{why}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
                        )
                    } else {
                        format!("{why} evaluating rule: {name}")
                    };
                    self.errors
                        .push(FieldError::invalid_value(self.path.clone(), &kind, detail));
                    continue;
                }
                Ok(_) => {}
            }
            let made = match &rule.message {
                Some(expr) => self.message(expr, rule, &this, &old, &kind)?,
                None => None,
            };
            if !rule.uses_old && ratchet.is_unchanged() {
                continue;
            }
            let detail = made.unwrap_or_else(|| match rule.text.message.as_str() {
                "" => format!("failed rule: {}", rule.text.rule.trim()),
                message => message.trim().to_owned(),
            });
            self.errors.push(self.failure(rule, value, node, detail));
        }
        Ok(())
    }

    fn failure(
        &self,
        rule: &CompiledRule,
        value: &Value,
        node: &SchemaNode,
        detail: String,
    ) -> FieldError {
        let path = match rule.field_path.as_str() {
            "" => self.path.clone(),
            below => self.path.child(below),
        };
        let is_large = node.kind == "object" || node.kind == "array";
        let printed = (!is_large).then(|| bad_value(value));
        match rule.text.reason.as_deref() {
            Some("FieldValueForbidden") => FieldError::forbidden(path, detail),
            Some("FieldValueRequired") => FieldError::required(path, detail),
            Some("FieldValueDuplicate") => FieldError::duplicate_value(path, printed),
            _ => match printed {
                Some(printed) => FieldError::invalid_value(path, printed, detail),
                None => FieldError::invalid_omitted(path, detail),
            },
        }
    }

    /// The text that `messageExpression` makes; `None` if it fails or the text is empty, too long or has line breaks.
    fn message<'a>(
        &mut self,
        expr: &IdedExpr,
        rule: &CompiledRule,
        this: &Val<'a>,
        old: &Option<Val<'a>>,
        kind: &str,
    ) -> Result<Option<String>, BudgetExhausted> {
        let (answer, cost) = evaluate(expr, this.clone(), old.clone());
        if i64::try_from(cost).is_ok_and(|cost| cost > self.budget) {
            let detail = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            self.errors
                .push(FieldError::invalid_value(self.path.clone(), kind, detail));
            return Err(BudgetExhausted);
        }
        if answer.as_ref().err() == Some(&EvalFault::Cost) {
            let expression = go::quote(&rule.text.message_expression);
            let detail = format!(
                "no further validation rules will be run due to call cost exceeds limit for messageExpression: {expression}"
            );
            self.errors
                .push(FieldError::invalid_value(self.path.clone(), kind, detail));
            return Err(BudgetExhausted);
        }
        self.budget -= i64::try_from(cost).unwrap_or(i64::MAX);
        Ok(match answer {
            Ok(Val::Text(text)) => {
                let text = text.as_str().trim();
                let is_fit =
                    !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                is_fit.then(|| text.to_owned())
            }
            _ => None,
        })
    }

    fn pay(&mut self, cost: u64, kind: &str) -> Result<(), BudgetExhausted> {
        match i64::try_from(cost) {
            Ok(cost) if cost <= self.budget => {
                self.budget -= cost;
                Ok(())
            }
            _ => self.exhausted(kind),
        }
    }

    fn exhausted(&mut self, kind: &str) -> Result<(), BudgetExhausted> {
        let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
        self.errors
            .push(FieldError::invalid_value(self.path.clone(), kind, detail));
        Err(BudgetExhausted)
    }
}

/// Evaluates an expression over `self` and, if there is a value before the update, `oldSelf`.
fn evaluate<'a>(expr: &IdedExpr, this: Val<'a>, old: Option<Val<'a>>) -> (EvalResult<'a>, u64) {
    match old {
        Some(old) => Evaluation::new(&[("self", this), (OLD, old)]).run(expr),
        None => Evaluation::new(&[("self", this)]).run(expr),
    }
}

impl RuleText {
    /// The name of the rule in errors: its message, or its text if it has none.
    fn printed_name(&self) -> &str {
        match self.message.as_str() {
            "" => self.rule.trim(),
            message => message.trim(),
        }
    }
}
