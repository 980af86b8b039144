//! Checks bounds, multiples and formats of numbers, with upstream's conversions.

use tidings_api::FieldError;
use tidings_go::{GoNumber, print_float};
use tidings_json::Value;

use super::{CheckResult, ValueChecker, ValueProblem};
use crate::format::Format;
use crate::node::SchemaNode;

impl ValueChecker<'_> {
    pub(super) fn number(&self, number: GoNumber, node: &SchemaNode, outcome: &mut CheckResult) {
        let format = if node.types().len() == 1 {
            node.format
        } else {
            None
        };
        let kind = match node.types() {
            [kind @ ("integer" | "number")] => kind,
            _ => "",
        };
        let out_of_range = |prefix: &str, number: GoNumber| {
            let fits = match (kind, format, number) {
                ("integer", Some(Format::Int32), GoNumber::Int(number)) => {
                    i32::try_from(number).is_ok()
                }
                ("integer", Some(Format::Int32), GoNumber::Float(float)) => {
                    float.fract() == 0.0
                        && float.abs() <= 2_147_483_648.0
                        && float != 2_147_483_648.0
                }
                ("integer", _, GoNumber::Float(float)) => {
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
            let misfit = out_of_range("MultipleOf", GoNumber::Float(factor));
            let as_integer = matches!(number, GoNumber::Int(_)) && misfit.is_none();
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
            let misfit = out_of_range(name, GoNumber::Float(bound));
            // As upstream: an integer is compared with the bound without its fraction.
            let (ordering, printed) = match number {
                GoNumber::Int(number) if misfit.is_none() => {
                    (number.cmp(&(bound as i64)), (bound as i64).to_string())
                }
                number => match number.as_f64().partial_cmp(&bound) {
                    Some(ordering) => (ordering, print_float(bound)),
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

    fn multiple_of(
        &self,
        number: GoNumber,
        factor: f64,
        as_integer: bool,
        outcome: &mut CheckResult,
    ) {
        let (printed, is_positive, is_multiple) = match number {
            GoNumber::Int(number) if as_integer => {
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
                (print_float(factor), factor > 0.0, is_json_integer(quotient))
            }
        };
        if !is_positive {
            let message = format!(
                "factor MultipleOf declared for {} must be positive: {printed}",
                self.path
            );
            outcome.add(ValueProblem {
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
}

/// True if a value equals an allowed value of an enum. A number is first converted to the type of the allowed number.
pub(super) fn is_member(value: &Value, allowed: &Value) -> bool {
    match (GoNumber::of(value), GoNumber::of(allowed)) {
        (Some(GoNumber::Float(value)), Some(GoNumber::Int(allowed))) => value as i64 == allowed,
        (Some(value), Some(allowed)) => value.as_f64() == allowed.as_f64(),
        _ => !value.is_null() && value == allowed,
    }
}

/// True for an integer, up to a relative error of 1e-9, that a double can hold exactly.
pub(super) fn is_json_integer(float: f64) -> bool {
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
