//! Estimates the lowest and the highest cost of a call from the sizes that the schema allows.

use kube_cel::cel::common::ast::operators;

use super::decl::TypeKind;
use super::info::ExprInfo;
use super::min_max::MinMax;

/// The cost of a call including its arguments, and the size of its result if that is known.
pub(crate) fn call(
    name: &str,
    target: Option<&ExprInfo>,
    args: &[ExprInfo],
) -> (MinMax, Option<MinMax>) {
    let given = target
        .into_iter()
        .chain(args)
        .fold(MinMax::fixed(0), |sum, info| sum.plus(info.cost));
    let (own, size) = match (name, args) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right]) => {
            let cost = MinMax {
                min: left.cost.min,
                max: left.cost.plus(right.cost).max,
            };
            return (cost, None);
        }
        (operators::CONDITIONAL, [condition, yes, no]) => {
            let cost = condition.cost.plus(yes.cost.union(no.cost));
            return (
                cost,
                Some(yes.size_or_unknown().union(no.size_or_unknown())),
            );
        }
        _ => own(name, target, args),
    };
    (given.plus(own), size)
}

/// The cost of a call without its arguments, and the size of its result if that is known.
fn own(name: &str, target: Option<&ExprInfo>, args: &[ExprInfo]) -> (MinMax, Option<MinMax>) {
    let one = MinMax::fixed(1);
    let text = |info: &ExprInfo| info.size_or_unknown().share(0.1);
    let is_text = |info: &ExprInfo| {
        matches!(
            info.kind(),
            TypeKind::String | TypeKind::Bytes | TypeKind::Dyn
        )
    };
    let pattern = |text: MinMax, pattern: &ExprInfo| {
        text.plus(one)
            .share(0.1)
            .times(pattern.size_or_unknown().share(0.25))
    };
    match (name, target, args) {
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
            let cost = match target.declared_element() {
                Some(element) => {
                    let mut each = one;
                    if matches!(element.kind(), TypeKind::String | TypeKind::Bytes) {
                        each = each.plus(text(&element));
                    }
                    target.size_or_unknown().times(each)
                }
                None => text(target),
            };
            (cost, None)
        }
        ("url" | "jsonpatch.escapeKey", _, [arg]) => (text(arg), Some(arg.size_or_unknown())),
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
            (text(target), Some(target.size_or_unknown()))
        }
        ("replace", Some(target), [from, to, ..]) => {
            let (size, from, to) = (
                target.size_or_unknown(),
                from.size_or_unknown(),
                to.size_or_unknown(),
            );
            let (count, kept) = if from.min == 0 {
                (size.max.saturating_add(1), size.max)
            } else if to.max <= from.min {
                (0, size.max)
            } else {
                ((size.max as f64 / from.min as f64).ceil() as u64, 0)
            };
            let max = count.saturating_mul(to.max).saturating_add(kept);
            (size.share(0.2), Some(MinMax { min: 0, max }))
        }
        ("split", Some(target), _) => {
            let size = target.size_or_unknown();
            (
                size.share(0.2),
                Some(MinMax {
                    min: 0,
                    max: size.max,
                }),
            )
        }
        ("join", Some(target), _) => {
            let count = target.size_or_unknown();
            let mut size = target
                .declared_element()
                .map_or(MinMax::fixed(0), |element| {
                    count.times(element.size_or_unknown())
                });
            if let [separator] = args {
                let gaps = MinMax {
                    min: count.min.saturating_sub(1),
                    max: count.max.saturating_sub(1),
                };
                size = size.plus(separator.size_or_unknown().times(gaps));
            }
            (size.share(0.1), Some(size))
        }
        ("find" | "findAll", Some(target), [expression, ..]) => {
            let size = target.size_or_unknown();
            (
                pattern(size, expression),
                Some(MinMax {
                    min: 0,
                    max: size.max,
                }),
            )
        }
        ("matches", Some(target), [expression]) => {
            (pattern(target.size_or_unknown(), expression), None)
        }
        (
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
            None,
            [arg, ..],
        ) => (text(arg), None),
        ("ip.isCanonical", _, [arg]) => (arg.size_or_unknown().share(0.2), None),
        ("containsIP" | "containsCIDR", _, [other]) => {
            let address = MinMax { min: 4, max: 16 };
            let mut cost = address.plus(address).share(0.1);
            if name == "containsCIDR" {
                cost = cost.plus(address.share(0.1)).plus(one);
            }
            if is_text(other) {
                cost = cost.plus(text(other));
            }
            (cost, None)
        }
        ("validate", _, [arg]) => (text(arg).share(32.0), None),
        ("format", Some(target), _) => (text(target), None),
        ("bytes", None, [arg]) if matches!(arg.kind(), TypeKind::String) => {
            let size = arg.size_or_unknown();
            let max = size.max.saturating_mul(4);
            (text(arg), Some(MinMax { min: size.min, max }))
        }
        ("string", None, [arg]) if matches!(arg.kind(), TypeKind::Bytes) => {
            let size = arg.size_or_unknown();
            (
                text(arg),
                Some(MinMax {
                    min: size.min / 4,
                    max: size.max,
                }),
            )
        }
        ("startsWith" | "endsWith", Some(_), [arg]) => (text(arg), None),
        ("contains", Some(target), [part]) => (text(target).times(text(part)), None),
        (operators::IN, None, [_, container])
            if matches!(container.kind(), TypeKind::List(_) | TypeKind::Dyn) =>
        {
            (container.size_or_unknown(), None)
        }
        (operators::EQUALS | operators::NOT_EQUALS, None, [left, right]) => {
            (compared(left, right), None)
        }
        (
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS,
            None,
            [left, right],
        ) if is_text(left) && is_text(right) => (compared(left, right).union(one), None),
        (operators::ADD, None, [left, right]) => match left.kind() {
            TypeKind::String | TypeKind::Bytes => {
                let size = left.size_or_unknown().plus(right.size_or_unknown());
                (size.share(0.1), Some(size))
            }
            TypeKind::List(_) => (
                one,
                Some(left.size_or_unknown().plus(right.size_or_unknown())),
            ),
            _ => (one, None),
        },
        _ => (one, None),
    }
}

/// The cost of comparing two values.
fn compared(left: &ExprInfo, right: &ExprInfo) -> MinMax {
    let max = left.size_or_unknown().max.min(right.size_or_unknown().max);
    let size = MinMax {
        min: u64::from(max > 0),
        max,
    };
    size.share(0.1)
}
