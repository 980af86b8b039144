//! Expands macros that the parser does not know: comprehensions with two variables, `sortBy`, and the macros of optional values.
//! Also turns type names with dots, such as `net.IP`, into identifiers.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, LiteralValue, MapExpr, operators,
};

const RESULT: &str = "@result";
const TARGET: &str = "@target";

/// Expands all macros and dotted type names of an expression.
pub(crate) fn expand(expr: &mut IdedExpr) {
    match &mut expr.expr {
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                expand(target);
            }
            call.args.iter_mut().for_each(expand);
            if let Some(replaced) = replacement(call) {
                expr.expr = replaced;
            }
        }
        Expr::Comprehension(fold) => {
            for part in [
                &mut fold.iter_range,
                &mut fold.accu_init,
                &mut fold.loop_cond,
                &mut fold.loop_step,
                &mut fold.result,
            ] {
                expand(part);
            }
        }
        Expr::Select(_) => {
            if let Some(name) = type_name(expr) {
                expr.expr = Expr::Ident(name);
            } else if let Expr::Select(select) = &mut expr.expr {
                expand(&mut select.operand);
            }
        }
        Expr::List(list) => list.elements.iter_mut().for_each(expand),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr {
                    expand(&mut entry.key);
                    expand(&mut entry.value);
                }
            }
        }
        Expr::Struct(made) => {
            for entry in &mut made.entries {
                if let EntryExpr::StructField(field) = &mut entry.expr {
                    expand(&mut field.value);
                }
            }
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// The type name that a chain of selections spells, such as `net.IP`.
fn type_name(expr: &IdedExpr) -> Option<String> {
    fn spelled(expr: &IdedExpr) -> Option<String> {
        match &expr.expr {
            Expr::Ident(name) => Some(name.clone()),
            Expr::Select(select) if !select.test => {
                let before = spelled(&select.operand)?;
                Some(format!("{before}.{}", select.field))
            }
            _ => None,
        }
    }
    let name = spelled(expr)?;
    let is_type = super::check::QUALIFIED_TYPES.contains(&name.as_str());
    is_type.then_some(name)
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn ident(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}

fn member(target: IdedExpr, name: &str) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: Some(Box::new(target)),
        args: Vec::new(),
    }))
}

fn boolean(value: bool) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn integer(value: i64) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Int(value.into())))
}

fn list(elements: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::List(ListExpr::new(elements)))
}

/// The expression `result` in which `name` stands for `value`: a comprehension over an empty list.
fn bind(name: &str, value: IdedExpr, result: IdedExpr) -> IdedExpr {
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: list(Vec::new()),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: boolean(false),
        loop_step: ident(name),
        result,
    })))
}

/// The expression that a macro call stands for; `None` if the call is not a macro.
fn replacement(found: &CallExpr) -> Option<Expr> {
    let target = (**found.target.as_ref()?).clone();
    let names: Vec<&str> = found
        .args
        .iter()
        .map_while(|arg| match &arg.expr {
            Expr::Ident(name) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let accumulator = || ident(RESULT);
    let two_variables = |init: IdedExpr, condition: IdedExpr, step: IdedExpr, result: IdedExpr| {
        let [first, second, ..] = names.as_slice() else {
            return None;
        };
        Some(Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: target.clone(),
            iter_var: (*first).to_owned(),
            iter_var2: Some((*second).to_owned()),
            accu_var: RESULT.to_owned(),
            accu_init: init,
            loop_cond: condition,
            loop_step: step,
            result,
        })))
    };
    match (found.func_name.as_str(), found.args.as_slice()) {
        ("all", [_, _, predicate]) => two_variables(
            boolean(true),
            call(operators::NOT_STRICTLY_FALSE, vec![accumulator()]),
            call(
                operators::LOGICAL_AND,
                vec![accumulator(), predicate.clone()],
            ),
            accumulator(),
        ),
        ("exists", [_, _, predicate]) => two_variables(
            boolean(false),
            call(
                operators::NOT_STRICTLY_FALSE,
                vec![call(operators::LOGICAL_NOT, vec![accumulator()])],
            ),
            call(
                operators::LOGICAL_OR,
                vec![accumulator(), predicate.clone()],
            ),
            accumulator(),
        ),
        ("existsOne", [_, _, predicate]) => two_variables(
            integer(0),
            boolean(true),
            call(
                operators::CONDITIONAL,
                vec![
                    predicate.clone(),
                    call(operators::ADD, vec![accumulator(), integer(1)]),
                    accumulator(),
                ],
            ),
            call(operators::EQUALS, vec![accumulator(), integer(1)]),
        ),
        ("transformList", [_, _, transform]) => two_variables(
            list(Vec::new()),
            boolean(true),
            call(
                operators::ADD,
                vec![accumulator(), list(vec![transform.clone()])],
            ),
            accumulator(),
        ),
        ("transformList", [_, _, filter, transform]) => {
            let step = call(
                operators::ADD,
                vec![accumulator(), list(vec![transform.clone()])],
            );
            two_variables(
                list(Vec::new()),
                boolean(true),
                call(
                    operators::CONDITIONAL,
                    vec![filter.clone(), step, accumulator()],
                ),
                accumulator(),
            )
        }
        ("transformMap" | "transformMapEntry", [first, _, rest @ ..]) => {
            let (filter, transform) = match rest {
                [transform] => (None, transform),
                [filter, transform] => (Some(filter), transform),
                _ => return None,
            };
            let mut args = vec![accumulator()];
            if found.func_name == "transformMap" {
                args.push(first.clone());
            }
            args.push(transform.clone());
            let insert = call(super::functions::MAP_INSERT, args);
            let step = match filter {
                None => insert,
                Some(filter) => call(
                    operators::CONDITIONAL,
                    vec![filter.clone(), insert, accumulator()],
                ),
            };
            let nothing = node(Expr::Map(MapExpr {
                entries: Vec::new(),
            }));
            two_variables(nothing, boolean(true), step, accumulator())
        }
        ("sortBy", [_, key]) => {
            let [name, ..] = names.as_slice() else {
                return None;
            };
            let keys = node(Expr::Comprehension(Box::new(ComprehensionExpr {
                iter_range: ident(TARGET),
                iter_var: (*name).to_owned(),
                iter_var2: None,
                accu_var: RESULT.to_owned(),
                accu_init: list(Vec::new()),
                loop_cond: boolean(true),
                loop_step: call(operators::ADD, vec![accumulator(), list(vec![key.clone()])]),
                result: accumulator(),
            })));
            let sorted = call(super::functions::SORT_BY, vec![ident(TARGET), keys]);
            Some(bind(TARGET, target, sorted).expr)
        }
        ("optMap" | "optFlatMap", [_, transform]) => {
            let [name, ..] = names.as_slice() else {
                return None;
            };
            // The target is bound to a name, not repeated: otherwise each call in a chain would double the expression.
            let bound = bind(name, member(ident(TARGET), "value"), transform.clone());
            let optional = |name: &str, args: Vec<IdedExpr>| {
                node(Expr::Call(CallExpr {
                    func_name: name.to_owned(),
                    target: Some(Box::new(ident("optional"))),
                    args,
                }))
            };
            let some = if found.func_name == "optMap" {
                optional("of", vec![bound])
            } else {
                bound
            };
            let condition = member(ident(TARGET), "hasValue");
            let chosen = call(
                operators::CONDITIONAL,
                vec![condition, some, optional("none", Vec::new())],
            );
            Some(bind(TARGET, target, chosen).expr)
        }
        _ => None,
    }
}
