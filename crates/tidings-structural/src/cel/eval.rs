//! Evaluates expressions. Every step has a cost, and evaluation stops when the sum exceeds the limit.
//!
//! The parser of the crate `cel` makes the expressions. Its evaluator counts no cost, stops `all` at the first error and measures
//! text in bytes; so expressions are evaluated here, and only functions of the Kubernetes library are called there.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

use super::arithmetic::arithmetic;
use super::call;
use super::fault::{EvalFault, EvalResult};
use super::val::{NO_OVERLOAD, Val};
use crate::pattern_cache;

/// The maximum cost of one evaluation of a rule.
pub(crate) const CALL_COST_MAX: u64 = 1_000_000;

/// A variable of a comprehension, with the variables around it.
struct EvalScope<'s, 'a> {
    name: &'s str,
    value: EvalResult<'a>,
    outer: Option<&'s EvalScope<'s, 'a>>,
}

/// The values that the variables of an expression have.
pub(crate) struct Variables<'v, 'a> {
    pub(crate) values: &'v [(&'v str, Val<'a>)],
    /// The values of `variables.name`, which are expressions themselves.
    pub(crate) composed: Option<&'v HashMap<String, EvalResult<'a>>>,
}

/// The variable whose members are expressions.
pub(crate) const COMPOSED: &str = "variables";

/// One evaluation of an expression, with the cost so far.
pub(crate) struct Evaluation<'v, 'a> {
    variables: Variables<'v, 'a>,
    cost: u64,
    cost_max: u64,
}

impl<'v, 'a> Evaluation<'v, 'a> {
    /// An evaluation with values of the variables.
    pub(crate) fn new(values: &'v [(&'v str, Val<'a>)]) -> Evaluation<'v, 'a> {
        Evaluation::of(Variables {
            values,
            composed: None,
        })
    }

    /// An evaluation that may have variables that are expressions.
    pub(crate) fn of(variables: Variables<'v, 'a>) -> Evaluation<'v, 'a> {
        Evaluation {
            variables,
            cost: 0,
            cost_max: CALL_COST_MAX,
        }
    }

    /// Evaluates an expression. Returns the result and its cost.
    pub(crate) fn run(mut self, expr: &IdedExpr) -> (EvalResult<'a>, u64) {
        let answer = self.eval(expr, None);
        (answer, self.cost)
    }

    fn spend(&mut self, cost: u64) -> Result<(), EvalFault> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.cost_max {
            Err(EvalFault::Cost)
        } else {
            Ok(())
        }
    }

    fn eval(&mut self, expr: &IdedExpr, scope: Option<&EvalScope<'_, 'a>>) -> EvalResult<'a> {
        match &expr.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => {
                self.spend(1)?;
                self.variable(name, scope)
            }
            Expr::Select(select) => {
                if let Some(found) = self.composed(&select.operand, &select.field, scope) {
                    self.spend(2)?;
                    return match select.test {
                        true => Ok(Val::Bool(true)),
                        false => found,
                    };
                }
                let operand = self.eval(&select.operand, scope)?;
                if select.test {
                    let operand = match &operand {
                        Val::Optional(None) => return Ok(Val::Bool(false)),
                        Val::Optional(Some(inner)) => inner,
                        operand => operand,
                    };
                    return Ok(Val::Bool(operand.member(&select.field)?.is_some()));
                }
                self.spend(1)?;
                self.select(&operand, &select.field)
            }
            Expr::List(list) => {
                let mut elements = Vec::with_capacity(list.elements.len());
                for (index, element) in list.elements.iter().enumerate() {
                    match self.eval(element, scope)? {
                        Val::Optional(inner) if list.optional_indices.contains(&index) => {
                            elements.extend(inner.map(|inner| (*inner).clone()));
                        }
                        value => elements.push(value),
                    }
                }
                self.spend(10)?;
                Ok(Val::List(Arc::new(elements)))
            }
            Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err(EvalFault::Error(NO_OVERLOAD.into()));
                    };
                    let key = self.eval(&entry.key, scope)?;
                    match self.eval(&entry.value, scope)? {
                        Val::Optional(inner) if entry.optional => {
                            entries.extend(inner.map(|inner| (key, (*inner).clone())));
                        }
                        value => entries.push((key, value)),
                    }
                }
                self.spend(30)?;
                Ok(Val::Map(Arc::new(entries)))
            }
            Expr::Comprehension(comprehension) => self.fold(comprehension, scope),
            Expr::Call(call) => {
                let target = call.target.as_deref();
                self.call(&call.func_name, target, &call.args, scope)
            }
            Expr::Struct(made) => {
                let mut members = Vec::with_capacity(made.entries.len());
                for entry in &made.entries {
                    let EntryExpr::StructField(field) = &entry.expr else {
                        return Err(EvalFault::Error(NO_OVERLOAD.into()));
                    };
                    let name = Val::text(super::decl::unescape(&field.field));
                    match self.eval(&field.value, scope)? {
                        Val::Optional(inner) if field.optional => {
                            members.extend(inner.map(|inner| (name, (*inner).clone())));
                        }
                        value => members.push((name, value)),
                    }
                }
                self.spend(40)?;
                Ok(Val::Map(Arc::new(members)))
            }
            Expr::Unspecified => Err(EvalFault::Error(NO_OVERLOAD.into())),
        }
    }

    /// The value of `variables.field`.
    fn composed(
        &self,
        operand: &IdedExpr,
        field: &str,
        mut scope: Option<&EvalScope<'_, 'a>>,
    ) -> Option<EvalResult<'a>> {
        let composed = self.variables.composed?;
        if !matches!(&operand.expr, Expr::Ident(name) if name == COMPOSED) {
            return None;
        }
        while let Some(inner) = scope {
            if inner.name == COMPOSED {
                return None;
            }
            scope = inner.outer;
        }
        composed.get(field).cloned()
    }

    fn variable(&self, name: &str, mut scope: Option<&EvalScope<'_, 'a>>) -> EvalResult<'a> {
        while let Some(inner) = scope {
            if inner.name == name {
                return inner.value.clone();
            }
            scope = inner.outer;
        }
        let mut values = self.variables.values.iter();
        if let Some((_, value)) = values.find(|(known, _)| *known == name) {
            return Ok(value.clone());
        }
        match name {
            name if super::check::type_named(name).is_some() => Ok(Val::Type(name.to_owned())),
            _ => Err(EvalFault::Error(format!("no such attribute(s): {name}"))),
        }
    }

    fn select(&self, operand: &Val<'a>, field: &str) -> EvalResult<'a> {
        if let Val::Optional(inner) = operand {
            let found = match inner {
                Some(inner) => inner.member(field)?,
                None => None,
            };
            return Ok(Val::Optional(found.map(Arc::new)));
        }
        operand.member(field)?.ok_or_else(|| {
            EvalFault::Error(format!("no such key: {}", super::decl::unescape(field)))
        })
    }

    fn call(
        &mut self,
        name: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
        scope: Option<&EvalScope<'_, 'a>>,
    ) -> EvalResult<'a> {
        match (name, args) {
            (operators::LOGICAL_AND, [left, right]) => {
                return self.junction(left, right, false, scope);
            }
            (operators::LOGICAL_OR, [left, right]) => {
                return self.junction(left, right, true, scope);
            }
            (operators::CONDITIONAL, [condition, yes, no]) => {
                return match self.eval(condition, scope)? {
                    Val::Bool(true) => self.eval(yes, scope),
                    Val::Bool(false) => self.eval(no, scope),
                    _ => Err(EvalFault::Error(NO_OVERLOAD.into())),
                };
            }
            (operators::NOT_STRICTLY_FALSE, [value]) => {
                let value = self.eval(value, scope);
                self.spend(1)?;
                return match value {
                    Ok(Val::Bool(false)) => Ok(Val::Bool(false)),
                    Err(EvalFault::Cost) => Err(EvalFault::Cost),
                    _ => Ok(Val::Bool(true)),
                };
            }
            (operators::OPT_SELECT, [operand, field]) => {
                let operand = self.eval(operand, scope)?;
                self.spend(1)?;
                let Val::Text(field) = self.eval(field, scope)? else {
                    return Err(EvalFault::Error(NO_OVERLOAD.into()));
                };
                let found = match &operand {
                    Val::Optional(None) => None,
                    Val::Optional(Some(inner)) => inner.member(field.as_str())?,
                    operand => operand.member(field.as_str())?,
                };
                return Ok(Val::Optional(found.map(Arc::new)));
            }
            _ => {}
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        let mut full_name = std::borrow::Cow::Borrowed(name);
        let mut is_member = false;
        if let Some(target) = target {
            match super::check::qualified(target, name) {
                Some(qualified) => full_name = qualified.into(),
                None => {
                    is_member = true;
                    values.push(self.eval(target, scope)?);
                }
            }
        }
        for arg in args {
            values.push(self.eval(arg, scope)?);
        }
        // Calls are paid for before they run, except where the cost is known only from the result.
        let price = if full_name == "join" {
            None
        } else {
            Some(call::cost(&full_name, &values, None))
        };
        if let Some(cost) = price {
            self.spend(cost)?;
        }
        let result = match (&*full_name, values.as_slice()) {
            ("matches", [Val::Text(text), Val::Text(pattern)]) => {
                let is_literal =
                    matches!(args, [.., last] if matches!(last.expr, Expr::Literal(_)));
                let matched = pattern_cache::matches(text.as_str(), pattern.as_str(), is_literal);
                matched.map(Val::Bool).map_err(EvalFault::Error)
            }
            _ => self.apply(&full_name, &values, is_member),
        };
        if price.is_none() {
            self.spend(call::cost(&full_name, &values, result.as_ref().ok()))?;
        }
        result
    }

    /// Evaluates `&&` and `||`: an error on one side does not matter if the other side decides.
    fn junction(
        &mut self,
        left: &IdedExpr,
        right: &IdedExpr,
        decisive: bool,
        scope: Option<&EvalScope<'_, 'a>>,
    ) -> EvalResult<'a> {
        let left = self.eval(left, scope);
        match &left {
            Ok(Val::Bool(value)) if *value == decisive => return left,
            Err(EvalFault::Cost) => return left,
            _ => {}
        }
        let right = self.eval(right, scope);
        match (left, right) {
            (_, Ok(Val::Bool(value))) if value == decisive => Ok(Val::Bool(decisive)),
            (_, Err(EvalFault::Cost)) => Err(EvalFault::Cost),
            (Err(fault), _) | (_, Err(fault)) => Err(fault),
            (Ok(Val::Bool(_)), Ok(Val::Bool(value))) => Ok(Val::Bool(value)),
            _ => Err(EvalFault::Error(NO_OVERLOAD.into())),
        }
    }

    fn apply(&self, name: &str, args: &[Val<'a>], is_member: bool) -> EvalResult<'a> {
        let overload = || EvalFault::Error(NO_OVERLOAD.into());
        let compare = |wanted: &dyn Fn(std::cmp::Ordering) -> bool| match args {
            [Val::Double(left), right] if left.is_nan() && right.compare(right).is_some() => {
                Ok(Val::Bool(false))
            }
            [left, right] => left
                .compare(right)
                .map(|ordering| Val::Bool(wanted(ordering)))
                .ok_or_else(overload),
            _ => Err(overload()),
        };
        match (name, args) {
            (operators::EQUALS, [left, right]) => Ok(Val::Bool(left.equals(right))),
            (operators::NOT_EQUALS, [left, right]) => Ok(Val::Bool(!left.equals(right))),
            (operators::LESS, _) => compare(&|ordering| ordering.is_lt()),
            (operators::LESS_EQUALS, _) => compare(&|ordering| ordering.is_le()),
            (operators::GREATER, _) => compare(&|ordering| ordering.is_gt()),
            (operators::GREATER_EQUALS, _) => compare(&|ordering| ordering.is_ge()),
            (operators::LOGICAL_NOT, [Val::Bool(value)]) => Ok(Val::Bool(!value)),
            (operators::LOGICAL_NOT, _) => Err(overload()),
            (operators::NEGATE, [Val::Int(number)]) => number
                .checked_neg()
                .map(Val::Int)
                .ok_or_else(|| EvalFault::Error("integer overflow".into())),
            (operators::NEGATE, [Val::Double(number)]) => Ok(Val::Double(-number)),
            (operators::NEGATE, _) => Err(overload()),
            (operators::INDEX, [operand, index]) => {
                if let Val::Optional(inner) = operand {
                    let found = inner.as_ref().map_or(Ok(None), |inner| inner.at(index))?;
                    return Ok(Val::Optional(found.map(Arc::new)));
                }
                operand.at(index)?.ok_or_else(|| {
                    let index = printed(index);
                    EvalFault::Error(if operand.is_map() {
                        format!("no such key: {index}")
                    } else {
                        format!("index out of bounds: {index}")
                    })
                })
            }
            (operators::OPT_INDEX, [operand, index]) => {
                let found = match operand {
                    Val::Optional(None) => None,
                    Val::Optional(Some(inner)) => inner.at(index)?,
                    operand => operand.at(index)?,
                };
                Ok(Val::Optional(found.map(Arc::new)))
            }
            (operators::IN, [value, container]) => match container.elements()? {
                Some(elements) => Ok(Val::Bool(
                    elements.iter().any(|element| element.equals(value)),
                )),
                None if container.is_map() => Ok(Val::Bool(container.at(value)?.is_some())),
                None => Err(overload()),
            },
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO,
                [left, right],
            ) => arithmetic(name, left, right),
            (super::functions::SORT_BY, [list, keys]) => {
                let (Some(elements), Some(keys)) = (list.elements()?, keys.elements()?) else {
                    return Err(overload());
                };
                let mut pairs: Vec<(Val<'a>, Val<'a>)> = keys.into_iter().zip(elements).collect();
                if pairs
                    .windows(2)
                    .any(|pair| pair[0].0.compare(&pair[1].0).is_none())
                {
                    return Err(overload());
                }
                pairs.sort_by(|(a, _), (b, _)| a.compare(b).unwrap_or(std::cmp::Ordering::Equal));
                let sorted = pairs.into_iter().map(|(_, element)| element).collect();
                Ok(Val::List(Arc::new(sorted)))
            }
            _ => Ok(call::call(name, args, is_member)?),
        }
    }

    /// Evaluates a comprehension: `all`, `exists`, `map` and the like.
    fn fold(
        &mut self,
        fold: &ComprehensionExpr,
        scope: Option<&EvalScope<'_, 'a>>,
    ) -> EvalResult<'a> {
        let range = self.eval(&fold.iter_range, scope)?;
        let mut accumulator = self.eval(&fold.accu_init, scope);
        let is_map = range.is_map();
        let elements = match range.elements()? {
            Some(elements) => elements,
            None if is_map => range.keys(),
            None => return Err(EvalFault::Error(NO_OVERLOAD.into())),
        };
        for (position, element) in elements.into_iter().enumerate() {
            let (first, second) = match &fold.iter_var2 {
                None => (element, None),
                Some(_) if is_map => {
                    let value = range.at(&element)?.unwrap_or(Val::Null);
                    (element, Some(value))
                }
                Some(_) => (
                    Val::Int(i64::try_from(position).unwrap_or(i64::MAX)),
                    Some(element),
                ),
            };
            let outer = EvalScope {
                name: &fold.iter_var,
                value: Ok(first),
                outer: scope,
            };
            let second = second.map(|value| EvalScope {
                name: fold.iter_var2.as_deref().unwrap_or_default(),
                value: Ok(value),
                outer: Some(&outer),
            });
            let inner = second.as_ref().unwrap_or(&outer);
            let taken = std::mem::replace(&mut accumulator, Ok(Val::Null));
            match self.step(fold, taken, inner) {
                Ok((next, true)) => accumulator = next,
                Ok((last, false)) => {
                    accumulator = last;
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        let inner = EvalScope {
            name: &fold.accu_var,
            value: accumulator,
            outer: scope,
        };
        self.eval(&fold.result, Some(&inner))
    }

    /// The accumulator after one element, and false if the loop ends here.
    fn step(
        &mut self,
        fold: &ComprehensionExpr,
        accumulator: EvalResult<'a>,
        scope: &EvalScope<'_, 'a>,
    ) -> Result<(EvalResult<'a>, bool), EvalFault> {
        let mut inner = EvalScope {
            name: &fold.accu_var,
            value: accumulator,
            outer: Some(scope),
        };
        match self.eval(&fold.loop_cond, Some(&inner)) {
            Ok(Val::Bool(true)) => {}
            Err(EvalFault::Cost) => return Err(EvalFault::Cost),
            _ => return Ok((inner.value, false)),
        }
        let mut expr = &fold.loop_step;
        if let Expr::Call(call) = &expr.expr
            && call.func_name == operators::CONDITIONAL
            && let [condition, yes, no] = call.args.as_slice()
            && (appended(yes, &fold.accu_var).is_some() || inserted(yes, &fold.accu_var).is_some())
        {
            match self.eval(condition, Some(&inner)) {
                Ok(Val::Bool(true)) => expr = yes,
                Ok(Val::Bool(false)) => expr = no,
                Ok(_) => return Ok((Err(EvalFault::Error(NO_OVERLOAD.into())), true)),
                Err(EvalFault::Cost) => return Err(EvalFault::Cost),
                Err(fault) => return Ok((Err(fault), true)),
            }
        }
        if let Some(inserted) = inserted(expr, &fold.accu_var) {
            return self.insert(inserted, inner);
        }
        // `accumulator + [element]` would copy the list for every element.
        if let Some(element) = appended(expr, &fold.accu_var) {
            self.spend(12)?;
            let element = match self.eval(element, Some(&inner)) {
                Ok(element) => element,
                Err(EvalFault::Cost) => return Err(EvalFault::Cost),
                Err(fault) => return Ok((Err(fault), true)),
            };
            if let Ok(Val::List(elements)) = &mut inner.value {
                Arc::make_mut(elements).push(element);
            }
            return Ok((inner.value, true));
        }
        match self.eval(expr, Some(&inner)) {
            Err(EvalFault::Cost) => Err(EvalFault::Cost),
            next => Ok((next, true)),
        }
    }

    /// Inserts entries into the accumulator; a key that is already there is an error.
    fn insert(
        &mut self,
        inserted: &[IdedExpr],
        mut scope: EvalScope<'_, 'a>,
    ) -> Result<(EvalResult<'a>, bool), EvalFault> {
        self.spend(2)?;
        let mut values = Vec::with_capacity(inserted.len());
        for expr in inserted {
            match self.eval(expr, Some(&scope)) {
                Ok(value) => values.push(value),
                Err(EvalFault::Cost) => return Err(EvalFault::Cost),
                Err(fault) => return Ok((Err(fault), true)),
            }
        }
        let entries: Vec<(Val<'a>, Val<'a>)> = match values.as_slice() {
            [key, value] => vec![(key.clone(), value.clone())],
            [map] if map.is_map() => {
                let keys = map.keys().into_iter();
                let found: Result<Vec<_>, String> = keys
                    .filter_map(|key| {
                        let value = map.at(&key).transpose()?;
                        Some(value.map(|value| (key, value)))
                    })
                    .collect();
                found?
            }
            _ => return Ok((Err(EvalFault::Error(NO_OVERLOAD.into())), true)),
        };
        for (key, value) in entries {
            let Ok(Val::Map(known)) = &mut scope.value else {
                return Ok((Err(EvalFault::Error(NO_OVERLOAD.into())), true));
            };
            // Upstream finds a key in a hash map; here the search through the entries is added to the cost.
            self.spend(known.len() as u64 / 16)?;
            if known.iter().any(|(other, _)| other.equals(&key)) {
                let why = format!("insert failed: key {} already exists", printed(&key));
                return Ok((Err(EvalFault::Error(why)), true));
            }
            Arc::make_mut(known).push((key, value));
        }
        Ok((scope.value, true))
    }
}

/// The arguments that `MAP_INSERT` adds to the accumulator: a key and a value, or a map.
fn inserted<'e>(expr: &'e IdedExpr, accumulator: &str) -> Option<&'e [IdedExpr]> {
    let Expr::Call(call) = &expr.expr else {
        return None;
    };
    match call.args.as_slice() {
        [into, rest @ ..] if call.func_name == super::functions::MAP_INSERT => {
            matches!(&into.expr, Expr::Ident(name) if name == accumulator).then_some(rest)
        }
        _ => None,
    }
}

/// The `element` of the expression `accumulator + [element]`.
fn appended<'e>(expr: &'e IdedExpr, accumulator: &str) -> Option<&'e IdedExpr> {
    let Expr::Call(call) = &expr.expr else {
        return None;
    };
    let [left, right] = call.args.as_slice() else {
        return None;
    };
    match (&left.expr, &right.expr) {
        (Expr::Ident(name), Expr::List(list))
            if call.func_name == operators::ADD
                && name == accumulator
                && list.optional_indices.is_empty() =>
        {
            match list.elements.as_slice() {
                [element] => Some(element),
                _ => None,
            }
        }
        _ => None,
    }
}

fn printed(value: &Val<'_>) -> String {
    match value {
        Val::Text(text) => text.as_str().to_owned(),
        Val::Int(number) => number.to_string(),
        Val::Uint(number) => number.to_string(),
        Val::Double(number) => number.to_string(),
        Val::Bool(value) => value.to_string(),
        other => other.type_name(),
    }
}

fn literal_value<'a>(literal: &LiteralValue) -> Val<'a> {
    match literal {
        LiteralValue::Boolean(value) => Val::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Val::Bytes(Arc::new(value.inner().to_vec())),
        LiteralValue::Double(value) => Val::Double(*value.inner()),
        LiteralValue::Int(value) => Val::Int(*value.inner()),
        LiteralValue::Null => Val::Null,
        LiteralValue::String(value) => Val::text(value.inner()),
        LiteralValue::UInt(value) => Val::Uint(*value.inner()),
    }
}
