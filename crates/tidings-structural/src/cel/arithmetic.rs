//! The arithmetic operators of CEL on numbers, durations and times, and `+` on text, bytes and lists.

use std::sync::Arc;

use kube_cel::cel::common::ast::operators;

use super::fault::{EvalFault, EvalResult};
use super::val::{NO_OVERLOAD, Val};

pub(crate) fn arithmetic<'a>(operator: &str, left: &Val<'a>, right: &Val<'a>) -> EvalResult<'a> {
    let fault = |text: &str| EvalFault::Error(text.to_owned());
    match (left, right) {
        (Val::Int(left), Val::Int(right)) => {
            let result = match operator {
                operators::ADD => left.checked_add(*right),
                operators::SUBSTRACT => left.checked_sub(*right),
                operators::MULTIPLY => left.checked_mul(*right),
                operators::DIVIDE if *right == 0 => return Err(fault("division by zero")),
                operators::DIVIDE => left.checked_div(*right),
                _ if *right == 0 => return Err(fault("modulus by zero")),
                _ => left.checked_rem(*right),
            };
            result
                .map(Val::Int)
                .ok_or_else(|| fault("integer overflow"))
        }
        (Val::Uint(left), Val::Uint(right)) => {
            let result = match operator {
                operators::ADD => left.checked_add(*right),
                operators::SUBSTRACT => left.checked_sub(*right),
                operators::MULTIPLY => left.checked_mul(*right),
                operators::DIVIDE if *right == 0 => return Err(fault("division by zero")),
                operators::DIVIDE => left.checked_div(*right),
                _ if *right == 0 => return Err(fault("modulus by zero")),
                _ => left.checked_rem(*right),
            };
            result
                .map(Val::Uint)
                .ok_or_else(|| fault("unsigned integer overflow"))
        }
        (Val::Double(left), Val::Double(right)) => Ok(Val::Double(match operator {
            operators::ADD => left + right,
            operators::SUBSTRACT => left - right,
            operators::MULTIPLY => left * right,
            operators::DIVIDE => left / right,
            _ => return Err(fault(NO_OVERLOAD)),
        })),
        (Val::Text(left), Val::Text(right)) if operator == operators::ADD => {
            Ok(Val::text(format!("{}{}", left.as_str(), right.as_str())))
        }
        (Val::Bytes(left), Val::Bytes(right)) if operator == operators::ADD => {
            Ok(Val::Bytes(Arc::new([left.as_slice(), right].concat())))
        }
        (Val::Other(left), Val::Other(right)) => {
            let result = match operator {
                operators::ADD => left.clone() + right.clone(),
                operators::SUBSTRACT => left.clone() - right.clone(),
                _ => return Err(fault(NO_OVERLOAD)),
            };
            result.map(Val::from_cel).map_err(|_| fault(NO_OVERLOAD))
        }
        (left, right) if operator == operators::ADD => concatenate(left, right),
        _ => Err(fault(NO_OVERLOAD)),
    }
}

/// Concatenates two lists. Sets and list maps are merged: an element that is in both is taken from the right.
fn concatenate<'a>(left: &Val<'a>, right: &Val<'a>) -> EvalResult<'a> {
    let (Some(mut elements), Some(more)) = (left.elements()?, right.elements()?) else {
        return Err(EvalFault::Error(NO_OVERLOAD.into()));
    };
    match left {
        Val::Elements(_, node) if matches!(node.list_type.as_deref(), Some("set" | "map")) => {
            let keys = &node.list_map_keys;
            let is_same = |a: &Val<'a>, b: &Val<'a>| {
                if !node.is_list_map() {
                    return a.equals(b);
                }
                keys.iter().all(|key| {
                    let key = super::decl::escape(key).unwrap_or_else(|| key.clone());
                    match (a.member(&key), b.member(&key)) {
                        (Ok(Some(a)), Ok(Some(b))) => a.equals(&b),
                        _ => false,
                    }
                })
            };
            for element in more {
                match elements.iter_mut().find(|known| is_same(known, &element)) {
                    Some(known) => *known = element,
                    None => elements.push(element),
                }
            }
        }
        _ => elements.extend(more),
    }
    Ok(Val::List(Arc::new(elements)))
}
