//! All functions and operators that rules can use, with their result types.

use std::sync::Arc;

use kube_cel::cel::common::ast::operators;

use super::authorizer;
use super::decl::{DeclType, TypeKind};
use super::info::ExprInfo;

const URL: TypeKind = TypeKind::Opaque("kubernetes.URL");
const IP: TypeKind = TypeKind::Opaque("net.IP");
const CIDR: TypeKind = TypeKind::Opaque("net.CIDR");
const QUANTITY: TypeKind = TypeKind::Opaque("kubernetes.Quantity");
const SEMVER: TypeKind = TypeKind::Opaque("kubernetes.Semver");
const FORMAT: TypeKind = TypeKind::Opaque("kubernetes.NamedFormat");

/// The function that `sortBy` expands to: sorts a list by a list of keys.
pub(crate) const SORT_BY: &str = "@sortBy";

/// The function that `transformMap` and `transformMapEntry` call in each step: inserts a key and a value, or a map's entries.
pub(crate) const MAP_INSERT: &str = "@mapInsert";

/// Member functions by target type and result type.
const TEXT_TO_BOOL: [&str; 4] = ["contains", "startsWith", "endsWith", "matches"];
const MEMBERS: [(&str, &[&str]); 3] = [
    (
        "bool",
        &[
            "isSorted",
            "isGreaterThan",
            "isLessThan",
            "containsIP",
            "containsCIDR",
            "isInteger",
            "isLoopback",
            "isUnspecified",
            "isLinkLocalMulticast",
            "isLinkLocalUnicast",
            "isGlobalUnicast",
            "hasValue",
        ],
    ),
    (
        "int",
        &[
            "compareTo",
            "sign",
            "asInteger",
            "family",
            "prefixLength",
            "major",
            "minor",
            "patch",
            "getFullYear",
            "getMonth",
            "getDayOfMonth",
            "getDate",
            "getDayOfWeek",
            "getDayOfYear",
            "getHours",
            "getMinutes",
            "getSeconds",
            "getMilliseconds",
            "indexOf",
            "lastIndexOf",
        ],
    ),
    (
        "string",
        &[
            "getScheme",
            "getHost",
            "getHostname",
            "getPort",
            "getEscapedPath",
        ],
    ),
];
const TEXT_TO_TEXT: [&str; 7] = [
    "lowerAscii",
    "upperAscii",
    "substring",
    "trim",
    "replace",
    "charAt",
    "find",
];
const OTHERS: [&str; 52] = [
    "size",
    "join",
    "split",
    "findAll",
    "format",
    "sum",
    "min",
    "max",
    "first",
    "last",
    "slice",
    "sort",
    "distinct",
    "reverse",
    "flatten",
    "lists.range",
    "getQuery",
    "asApproximateFloat",
    "masked",
    "add",
    "sub",
    "value",
    "or",
    "orValue",
    "validate",
    "int",
    "uint",
    "double",
    "bool",
    "bytes",
    "string",
    "duration",
    "timestamp",
    "type",
    "dyn",
    "url",
    "isURL",
    "ip",
    "isIP",
    "cidr",
    "isCIDR",
    "quantity",
    "isQuantity",
    "semver",
    "isSemver",
    "ip.isCanonical",
    "strings.quote",
    "jsonpatch.escapeKey",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "format.named",
];

/// True if a function of this name exists for any types.
pub(crate) fn is_known(name: &str) -> bool {
    TEXT_TO_BOOL.contains(&name)
        || authorizer::FUNCTIONS.contains(&name)
        || TEXT_TO_TEXT.contains(&name)
        || OTHERS.contains(&name)
        || MEMBERS.iter().any(|(_, names)| names.contains(&name))
        || name.starts_with("optional.")
        || name.starts_with("format.")
}

fn list(element: TypeKind) -> TypeKind {
    TypeKind::List(element.plain())
}

/// The result type of a call; `None` if the function does not exist for these argument types.
pub(crate) fn result(
    name: &str,
    target: Option<&ExprInfo>,
    args: &[ExprInfo],
) -> Option<Arc<DeclType>> {
    if let Some(operator) = operator(name, args) {
        return operator;
    }
    let kinds: Vec<&TypeKind> = args.iter().map(ExprInfo::kind).collect();
    let kind = match target {
        Some(target) => member(name, target, &kinds, args)?,
        None => global(name, &kinds)?,
    };
    Some(kind)
}

/// The result type of an operator. The outer `None` means that `name` is no operator, the inner that its types are wrong.
fn operator(name: &str, args: &[ExprInfo]) -> Option<Option<Arc<DeclType>>> {
    let kinds: Vec<&TypeKind> = args.iter().map(ExprInfo::kind).collect();
    let boolean = |holds: bool| holds.then(|| TypeKind::Bool.plain());
    let is_bool = |kind: &TypeKind| matches!(kind, TypeKind::Bool | TypeKind::Dyn);
    Some(match (name, kinds.as_slice()) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right]) => {
            boolean(is_bool(left) && is_bool(right))
        }
        (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [value]) => {
            boolean(is_bool(value))
        }
        (operators::NEGATE, [value @ (TypeKind::Int | TypeKind::Double | TypeKind::Dyn)]) => {
            Some((*value).clone().plain())
        }
        (operators::NEGATE, _) => None,
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => boolean(left.agrees(right)),
        (
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS,
            [left, right],
        ) => {
            let is_ordered = |kind: &TypeKind| {
                kind.is_number()
                    || matches!(
                        kind,
                        TypeKind::Dyn
                            | TypeKind::Bool
                            | TypeKind::String
                            | TypeKind::Bytes
                            | TypeKind::Duration
                            | TypeKind::Timestamp
                    )
            };
            let agree = left.agrees(right) || (left.is_number() && right.is_number());
            boolean(agree && is_ordered(left) && is_ordered(right))
        }
        (operators::IN, [value, container]) => boolean(match container {
            TypeKind::List(element) => element.kind.agrees(value),
            TypeKind::Map(key, _) => key.kind.agrees(value),
            container => container.is_dyn(),
        }),
        (operators::CONDITIONAL, [condition, yes, no]) => {
            if !is_bool(condition) || !yes.agrees(no) {
                None
            } else {
                // The result has the more specific type of the two branches.
                let vague = matches!(yes, TypeKind::Dyn | TypeKind::Null)
                    || matches!(yes, TypeKind::List(element) if element.kind.is_dyn());
                args.get(if vague { 2 } else { 1 })
                    .map(|info| info.decl.clone())
            }
        }
        (operators::INDEX | operators::OPT_INDEX, [container, index]) => {
            let (container, was_optional) = match container {
                TypeKind::Optional(inner) => (&inner.kind, true),
                container => (*container, false),
            };
            let element = match container {
                TypeKind::List(element) if index.is_number() || index.is_dyn() => {
                    Some(element.clone())
                }
                TypeKind::Map(key, value) if key.kind.agrees(index) => Some(value.clone()),
                TypeKind::Dyn => Some(TypeKind::Dyn.plain()),
                _ => None,
            };
            if was_optional || name == operators::OPT_INDEX {
                element.map(|element| TypeKind::Optional(element).plain())
            } else {
                element
            }
        }
        (
            operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO,
            [left, right],
        ) => arithmetic(name, left, right).map(TypeKind::plain),
        (
            SORT_BY,
            [
                TypeKind::List(_) | TypeKind::Dyn,
                TypeKind::List(_) | TypeKind::Dyn,
            ],
        ) => args.first().map(|list| list.decl.clone()),
        (MAP_INSERT, [TypeKind::Map(..), TypeKind::Map(..)]) => {
            args.get(1).map(|map| map.decl.clone())
        }
        (MAP_INSERT, [TypeKind::Map(..), _, _]) => {
            let decl = |at: usize| args.get(at).map(|info| info.decl.clone());
            decl(1)
                .zip(decl(2))
                .map(|(key, value)| TypeKind::Map(key, value).plain())
        }
        (MAP_INSERT, _) => None,
        _ => return None,
    })
}

fn arithmetic(name: &str, left: &TypeKind, right: &TypeKind) -> Option<TypeKind> {
    let is_sum = name == operators::ADD;
    let is_sum_or_difference = is_sum || name == operators::SUBSTRACT;
    Some(match (left, right) {
        (TypeKind::Dyn, other) | (other, TypeKind::Dyn) => other.clone(),
        (TypeKind::Int, TypeKind::Int) | (TypeKind::Uint, TypeKind::Uint) => left.clone(),
        (TypeKind::Double, TypeKind::Double) if name != operators::MODULO => TypeKind::Double,
        (TypeKind::String, TypeKind::String) | (TypeKind::Bytes, TypeKind::Bytes) if is_sum => {
            left.clone()
        }
        (TypeKind::List(a), TypeKind::List(b)) if is_sum && a.kind.agrees(&b.kind) => {
            if a.kind.is_dyn() {
                right.clone()
            } else {
                left.clone()
            }
        }
        (TypeKind::Duration, TypeKind::Duration) if is_sum_or_difference => TypeKind::Duration,
        (TypeKind::Timestamp, TypeKind::Duration) if is_sum_or_difference => TypeKind::Timestamp,
        (TypeKind::Duration, TypeKind::Timestamp) if is_sum => TypeKind::Timestamp,
        (TypeKind::Timestamp, TypeKind::Timestamp) if name == operators::SUBSTRACT => {
            TypeKind::Duration
        }
        _ => return None,
    })
}

/// The result type of a member function such as `text.contains(part)`.
fn member(
    name: &str,
    target: &ExprInfo,
    args: &[&TypeKind],
    infos: &[ExprInfo],
) -> Option<Arc<DeclType>> {
    let kind = target.kind();
    if let TypeKind::Opaque(name_of_type) = kind
        && authorizer::is_type(name_of_type)
    {
        return authorizer::result(name_of_type, name, args.len());
    }
    let is_text = matches!(kind, TypeKind::String | TypeKind::Dyn);
    let is_list = matches!(kind, TypeKind::List(_) | TypeKind::Dyn);
    let takes_text = |args: &[&TypeKind]| {
        args.iter()
            .all(|arg| matches!(arg, TypeKind::String | TypeKind::Dyn))
    };
    let element = || {
        target
            .element()
            .map_or_else(|| TypeKind::Dyn.plain(), |element| element.decl)
    };
    if TEXT_TO_BOOL.contains(&name) {
        return (is_text && args.len() == 1 && takes_text(args)).then(|| TypeKind::Bool.plain());
    }
    if TEXT_TO_TEXT.contains(&name) {
        return is_text.then(|| TypeKind::String.plain());
    }
    for (returns, names) in MEMBERS {
        if names.contains(&name) {
            return Some(match returns {
                "bool" => TypeKind::Bool.plain(),
                "int" => TypeKind::Int.plain(),
                _ => TypeKind::String.plain(),
            });
        }
    }
    Some(match name {
        "size" if args.is_empty() => match kind {
            TypeKind::String
            | TypeKind::Bytes
            | TypeKind::List(_)
            | TypeKind::Map(..)
            | TypeKind::Dyn => TypeKind::Int.plain(),
            _ => return None,
        },
        "join" if is_list => TypeKind::String.plain(),
        "split" | "findAll" if is_text => list(TypeKind::String).plain(),
        "format" if is_text => TypeKind::String.plain(),
        "sum" if is_list && is_summable(&element().kind) => element(),
        "min" | "max" if is_list && is_comparable(&element().kind) => element(),
        "first" | "last" if is_list => TypeKind::Optional(element()).plain(),
        "slice" | "sort" | "distinct" if is_list => target.decl.clone(),
        "reverse" if is_list => target.decl.clone(),
        "flatten" if is_list => list(TypeKind::Dyn).plain(),
        "getQuery" => {
            TypeKind::Map(TypeKind::String.plain(), list(TypeKind::String).plain()).plain()
        }
        "asApproximateFloat" => TypeKind::Double.plain(),
        "masked" => CIDR.plain(),
        "ip" => IP.plain(),
        "string" => TypeKind::String.plain(),
        "add" | "sub" => QUANTITY.plain(),
        "value" => match kind {
            TypeKind::Optional(inner) => inner.clone(),
            TypeKind::Dyn => TypeKind::Dyn.plain(),
            _ => return None,
        },
        "orValue" => match kind {
            TypeKind::Optional(inner) if !inner.kind.is_dyn() => inner.clone(),
            TypeKind::Optional(_) | TypeKind::Dyn => infos.first()?.decl.clone(),
            _ => return None,
        },
        "or" => target.decl.clone(),
        "validate" => TypeKind::Optional(list(TypeKind::String).plain()).plain(),
        _ => return None,
    })
}

fn is_summable(kind: &TypeKind) -> bool {
    kind.is_number() || matches!(kind, TypeKind::Duration | TypeKind::Dyn)
}

fn is_comparable(kind: &TypeKind) -> bool {
    is_summable(kind)
        || matches!(
            kind,
            TypeKind::Bool | TypeKind::String | TypeKind::Bytes | TypeKind::Timestamp
        )
}

/// The result type of a function without a target, such as `size(list)`.
fn global(name: &str, args: &[&TypeKind]) -> Option<Arc<DeclType>> {
    let kind = match (name, args) {
        (
            "size",
            [
                TypeKind::String
                | TypeKind::Bytes
                | TypeKind::List(_)
                | TypeKind::Map(..)
                | TypeKind::Dyn,
            ],
        ) => TypeKind::Int,
        (
            "matches",
            [
                TypeKind::String | TypeKind::Dyn,
                TypeKind::String | TypeKind::Dyn,
            ],
        ) => TypeKind::Bool,
        (
            "int",
            [
                TypeKind::Int
                | TypeKind::Uint
                | TypeKind::Double
                | TypeKind::String
                | TypeKind::Timestamp
                | TypeKind::Duration
                | TypeKind::Dyn,
            ],
        ) => TypeKind::Int,
        (
            "uint",
            [
                TypeKind::Int
                | TypeKind::Uint
                | TypeKind::Double
                | TypeKind::String
                | TypeKind::Dyn,
            ],
        ) => TypeKind::Uint,
        (
            "double",
            [
                TypeKind::Int
                | TypeKind::Uint
                | TypeKind::Double
                | TypeKind::String
                | TypeKind::Dyn,
            ],
        ) => TypeKind::Double,
        ("bool", [TypeKind::Bool | TypeKind::String | TypeKind::Dyn]) => TypeKind::Bool,
        ("bytes", [TypeKind::Bytes | TypeKind::String | TypeKind::Dyn]) => TypeKind::Bytes,
        (
            "string",
            [
                TypeKind::String
                | TypeKind::Bytes
                | TypeKind::Bool
                | TypeKind::Int
                | TypeKind::Uint
                | TypeKind::Double
                | TypeKind::Duration
                | TypeKind::Timestamp
                | TypeKind::Opaque(_)
                | TypeKind::Dyn,
            ],
        ) => TypeKind::String,
        ("duration", [TypeKind::Duration | TypeKind::Int | TypeKind::String | TypeKind::Dyn]) => {
            TypeKind::Duration
        }
        ("timestamp", [TypeKind::Timestamp | TypeKind::Int | TypeKind::String | TypeKind::Dyn]) => {
            TypeKind::Timestamp
        }
        ("type", [_]) => TypeKind::Type,
        ("dyn", [_]) => TypeKind::Dyn,
        ("url", [TypeKind::String | TypeKind::Dyn]) => URL,
        ("ip", [TypeKind::String | TypeKind::Dyn]) => IP,
        ("cidr", [TypeKind::String | TypeKind::Dyn]) => CIDR,
        ("quantity", [TypeKind::String | TypeKind::Dyn]) => QUANTITY,
        (
            "semver",
            [TypeKind::String | TypeKind::Dyn]
            | [
                TypeKind::String | TypeKind::Dyn,
                TypeKind::Bool | TypeKind::Dyn,
            ],
        ) => SEMVER,
        (
            "isURL" | "isIP" | "isCIDR" | "isQuantity" | "ip.isCanonical",
            [TypeKind::String | TypeKind::Dyn],
        ) => TypeKind::Bool,
        (
            "isSemver",
            [TypeKind::String | TypeKind::Dyn]
            | [
                TypeKind::String | TypeKind::Dyn,
                TypeKind::Bool | TypeKind::Dyn,
            ],
        ) => TypeKind::Bool,
        ("strings.quote" | "jsonpatch.escapeKey", [TypeKind::String | TypeKind::Dyn]) => {
            TypeKind::String
        }
        ("lists.range", [TypeKind::Int | TypeKind::Dyn]) => list(TypeKind::Int),
        (
            "sets.contains" | "sets.equivalent" | "sets.intersects",
            [
                TypeKind::List(_) | TypeKind::Dyn,
                TypeKind::List(_) | TypeKind::Dyn,
            ],
        ) => TypeKind::Bool,
        ("optional.of" | "optional.ofNonZeroValue", [inner]) => {
            TypeKind::Optional((*inner).clone().plain())
        }
        ("optional.none", []) => TypeKind::Optional(TypeKind::Dyn.plain()),
        ("format.named", [TypeKind::String | TypeKind::Dyn]) => TypeKind::Optional(FORMAT.plain()),
        (name, []) if name.starts_with("format.") => FORMAT,
        _ => return None,
    };
    Some(kind.plain())
}
