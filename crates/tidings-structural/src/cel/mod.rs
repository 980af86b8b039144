//! CEL rules (`x-kubernetes-validations`): compiles them and estimates their cost.

mod arithmetic;
mod authorizer;
mod call;
mod cel_type;
mod check;
mod decl;
mod estimate;
mod eval;
mod expand;
mod expression;
mod fault;
mod from_json;
mod functions;
mod info;
mod json;
mod lex;
mod locate;
mod min_max;
mod parse;
mod program;
mod rule_errors;
mod run;
mod signs;
mod url;
mod val;

use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use tidings_api::FieldError;

pub use self::authorizer::{AccessCheck, CelAuthorizer, CelDecision};
pub use self::cel_type::CelType;
use self::decl::{DeclType, REQUEST_BYTES_MAX, TypeKind};
pub use self::expression::CelExpression;
pub use self::program::{CelEnvironment, CelFault, CelInput, CelProgram, CelValue};
pub(crate) use self::run::{Ratcheting, validate};
use crate::field_path;
use crate::node::{CompiledRule, RuleText, SchemaNode};
use crate::text::FieldPath;

/// The maximum estimated cost of one rule.
const RULE_ESTIMATE_MAX: u64 = 10_000_000;
/// The maximum estimated cost of all rules of a schema.
const SCHEMA_ESTIMATE_MAX: u64 = 100_000_000;
/// When the errors of the rules of a schema are longer than this, each further rule reports only the first line of its errors.
const SCHEMA_ERROR_BYTES_MAX: usize = 1 << 20;

/// The maximum number of values in one object that one schema node describes.
#[derive(Clone, Copy)]
pub(crate) struct OccurrenceBound {
    /// `None` if a list or map above has no bound.
    occurrences_max: Option<u64>,
}

impl OccurrenceBound {
    pub(crate) fn root() -> OccurrenceBound {
        OccurrenceBound {
            occurrences_max: Some(1),
        }
    }

    pub(crate) fn below(self, node: &SchemaNode) -> OccurrenceBound {
        let factor = match node.kind.as_str() {
            "object" if node.additional.is_set() => node.max_properties,
            "array" => node.max_items,
            _ => Some(1),
        };
        let factor = factor.map(|factor| u64::try_from(factor).unwrap_or(0));
        OccurrenceBound {
            occurrences_max: self
                .occurrences_max
                .zip(factor)
                .map(|(times, factor)| times.saturating_mul(factor)),
        }
    }
}

/// Compiles the rules of a schema and adds up their estimated costs.
pub(crate) struct RuleCompiler {
    tolerates_costs: bool,
    total: u64,
    most_expensive: Vec<(String, u64)>,
    error_bytes: usize,
}

impl RuleCompiler {
    /// With `tolerates_costs`, only the sum over all rules is bounded, not each rule.
    pub(crate) fn new(tolerates_costs: bool) -> RuleCompiler {
        RuleCompiler {
            tolerates_costs,
            total: 0,
            most_expensive: Vec::new(),
            error_bytes: 0,
        }
    }

    /// Compiles the rules of a schema node and stores them in it.
    pub(crate) fn compile(
        &mut self,
        node: &mut SchemaNode,
        path: &FieldPath,
        scope: &OccurrenceBound,
        is_resource: bool,
        forbids_old: Option<&str>,
        errors: &mut Vec<FieldError>,
    ) {
        let path = path.child("x-kubernetes-validations");
        let Some(decl) = DeclType::of(node, is_resource) else {
            errors.push(FieldError::internal(
                path,
                "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural \
                 schema to CEL declarations",
            ));
            return;
        };
        let occurrences = scope.occurrences_max.unwrap_or_else(|| {
            u64::try_from(REQUEST_BYTES_MAX / (decl.bytes_min + 1)).unwrap_or(0)
        });
        let mut rules = Vec::with_capacity(node.rule_texts.len());
        for (index, text) in node.rule_texts.iter().enumerate() {
            let path = path.index(index);
            rules.extend(self.rule(text, node, &decl, &path, occurrences, forbids_old, errors));
        }
        node.rules = rules;
    }

    #[allow(
        clippy::too_many_arguments,
        reason = "the context of one rule; a struct would only rename it"
    )]
    fn rule(
        &mut self,
        text: &RuleText,
        node: &SchemaNode,
        decl: &Arc<DeclType>,
        path: &FieldPath,
        occurrences: u64,
        forbids_old: Option<&str>,
        errors: &mut Vec<FieldError>,
    ) -> Option<CompiledRule> {
        let old = match text.optional_old_self {
            Some(true) => TypeKind::Optional(decl.clone()).plain(),
            _ => decl.clone(),
        };
        let rule_path = path.child("rule");
        let (expr, uses_old) = match compile(&text.rule, decl, &old) {
            Ok((_, checked)) if !matches!(checked.kind, TypeKind::Bool) => {
                let detail = "cel expression must evaluate to a bool";
                errors.push(FieldError::invalid_value(rule_path, text.printed(), detail));
                return None;
            }
            Ok((expr, checked)) => {
                let cost = checked.cost_max.saturating_mul(occurrences);
                if cost > RULE_ESTIMATE_MAX && !self.tolerates_costs {
                    let detail = cost_message("estimated rule cost", cost, RULE_ESTIMATE_MAX);
                    errors.push(FieldError::forbidden(rule_path.clone(), detail));
                }
                self.observe(&rule_path, cost);
                (expr, checked.uses_old)
            }
            Err(why) => {
                let detail = self.failure(&why);
                errors.push(FieldError::invalid_value(rule_path, text.printed(), detail));
                return None;
            }
        };
        let message = self.message(text, decl, &old, path, errors);
        if uses_old {
            if let Some(ancestor) = forbids_old {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {ancestor}"
                );
                errors.push(FieldError::invalid(rule_path, &text.rule, detail));
            }
        } else if let Some(set) = text.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid_value(
                path.child("optionalOldSelf"),
                set,
                detail,
            ));
        }
        let field_path = match text.field_path.as_str() {
            "" => String::new(),
            text => field_path::resolve(text, node, true)
                .map(|(path, ..)| path.as_str().to_owned())
                .unwrap_or_default(),
        };
        Some(CompiledRule {
            text: text.clone(),
            expr,
            message,
            uses_old,
            field_path,
        })
    }

    fn message(
        &mut self,
        text: &RuleText,
        decl: &Arc<DeclType>,
        old: &Arc<DeclType>,
        path: &FieldPath,
        errors: &mut Vec<FieldError>,
    ) -> Option<IdedExpr> {
        if text.message_expression.is_empty() {
            return None;
        }
        let path = path.child("messageExpression");
        match compile(&text.message_expression, decl, old) {
            Ok((expr, checked)) if matches!(checked.kind, TypeKind::String) => {
                if checked.cost_max > RULE_ESTIMATE_MAX && !self.tolerates_costs {
                    let detail = cost_message(
                        "estimated messageExpression cost",
                        checked.cost_max,
                        RULE_ESTIMATE_MAX,
                    );
                    errors.push(FieldError::forbidden(path.clone(), detail));
                }
                self.observe(&path, checked.cost_max);
                return Some(expr);
            }
            Ok(_) => {
                let detail = "messageExpression must evaluate to a string";
                errors.push(FieldError::invalid_value(path, text.printed(), detail));
            }
            Err(why) => {
                let detail = format!("messageExpression {}", self.failure(&why));
                errors.push(FieldError::invalid_value(path, text.printed(), detail));
            }
        }
        None
    }

    /// The error text of an expression that does not compile.
    fn failure(&mut self, why: &str) -> String {
        let why = match why.lines().next() {
            Some(first) if self.error_bytes > SCHEMA_ERROR_BYTES_MAX => first,
            _ => why,
        };
        self.error_bytes += why.len();
        if why.starts_with(check::NO_PROGRAM) {
            why.to_owned()
        } else {
            format!("compilation failed: {why}")
        }
    }

    fn observe(&mut self, path: &FieldPath, cost: u64) {
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_ESTIMATE_MAX / 100 {
            self.most_expensive.push((path.text(), cost));
            self.most_expensive
                .sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.most_expensive.truncate(4);
        }
    }

    /// The errors of a schema whose rules together exceed the budget.
    pub(crate) fn finish(self, path: &FieldPath) -> Vec<FieldError> {
        if self.total <= SCHEMA_ESTIMATE_MAX {
            return Vec::new();
        }
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let mut errors: Vec<FieldError> = self
            .most_expensive
            .into_iter()
            .map(|(path, _)| FieldError::forbidden(path, detail))
            .collect();
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(
            path.clone(),
            cost_message(name, self.total, SCHEMA_ESTIMATE_MAX),
        ));
        errors
    }
}

fn cost_message(name: &str, cost: u64, max: u64) -> String {
    let factor = cost as f64 / max as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where \
         arrays, maps, and strings are declared)"
    )
}

/// Parses and checks an expression.
fn compile(
    text: &str,
    this: &Arc<DeclType>,
    old: &Arc<DeclType>,
) -> Result<(IdedExpr, check::CheckedRule), String> {
    let expr = parse::parse(text)?;
    let variables = [("self", this.clone()), (check::OLD, old.clone())];
    let checked = check::check(text, &expr, &variables)?;
    Ok((expr, checked))
}
