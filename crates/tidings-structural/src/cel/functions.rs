//! Which functions and operators there are, and what they return.

use std::sync::Arc;

use kube_cel::cel::common::ast::operators;

use super::decl::{Decl, Kind};
use super::info::Info;

const URL: Kind = Kind::Opaque("kubernetes.URL");
const IP: Kind = Kind::Opaque("net.IP");
const CIDR: Kind = Kind::Opaque("net.CIDR");
const QUANTITY: Kind = Kind::Opaque("kubernetes.Quantity");
const SEMVER: Kind = Kind::Opaque("kubernetes.Semver");
const FORMAT: Kind = Kind::Opaque("kubernetes.NamedFormat");

/// What `sortBy` becomes: a list, sorted by a list of keys.
pub(crate) const SORT_BY: &str = "@sortBy";

/// What `transformMap` and `transformMapEntry` do in each step: a map with one more key and value, or with those of another map.
pub(crate) const MAP_INSERT: &str = "@mapInsert";

/// Functions of one value, by what they return.
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

/// True if there is a function of this name, for whatever types.
pub(crate) fn is_known(name: &str) -> bool {
    TEXT_TO_BOOL.contains(&name)
        || TEXT_TO_TEXT.contains(&name)
        || OTHERS.contains(&name)
        || MEMBERS.iter().any(|(_, names)| names.contains(&name))
        || name.starts_with("optional.")
        || name.starts_with("format.")
}

fn list(element: Kind) -> Kind {
    Kind::List(element.plain())
}

/// The type of a call; `None` if there is no such function for these types.
pub(crate) fn result(name: &str, target: Option<&Info>, args: &[Info]) -> Option<Arc<Decl>> {
    if let Some(operator) = operator(name, args) {
        return operator;
    }
    let kinds: Vec<&Kind> = args.iter().map(Info::kind).collect();
    let kind = match target {
        Some(target) => member(name, target, &kinds, args)?,
        None => global(name, &kinds)?,
    };
    Some(kind)
}

/// The outer option says whether it is an operator at all.
fn operator(name: &str, args: &[Info]) -> Option<Option<Arc<Decl>>> {
    let kinds: Vec<&Kind> = args.iter().map(Info::kind).collect();
    let boolean = |holds: bool| holds.then(|| Kind::Bool.plain());
    let is_bool = |kind: &Kind| matches!(kind, Kind::Bool | Kind::Dyn);
    Some(match (name, kinds.as_slice()) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [left, right]) => {
            boolean(is_bool(left) && is_bool(right))
        }
        (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, [value]) => {
            boolean(is_bool(value))
        }
        (operators::NEGATE, [value @ (Kind::Int | Kind::Double | Kind::Dyn)]) => {
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
            let is_ordered = |kind: &Kind| {
                kind.is_number()
                    || matches!(
                        kind,
                        Kind::Dyn
                            | Kind::Bool
                            | Kind::String
                            | Kind::Bytes
                            | Kind::Duration
                            | Kind::Timestamp
                    )
            };
            let agree = left.agrees(right) || (left.is_number() && right.is_number());
            boolean(agree && is_ordered(left) && is_ordered(right))
        }
        (operators::IN, [value, container]) => boolean(match container {
            Kind::List(element) => element.kind.agrees(value),
            Kind::Map(key, _) => key.kind.agrees(value),
            container => container.is_dyn(),
        }),
        (operators::CONDITIONAL, [condition, yes, no]) => {
            if !is_bool(condition) || !yes.agrees(no) {
                None
            } else {
                // The more specific of the two.
                let vague = matches!(yes, Kind::Dyn | Kind::Null)
                    || matches!(yes, Kind::List(element) if element.kind.is_dyn());
                args.get(if vague { 2 } else { 1 })
                    .map(|info| info.decl.clone())
            }
        }
        (operators::INDEX | operators::OPT_INDEX, [container, index]) => {
            let (container, was_optional) = match container {
                Kind::Optional(inner) => (&inner.kind, true),
                container => (*container, false),
            };
            let element = match container {
                Kind::List(element) if index.is_number() || index.is_dyn() => Some(element.clone()),
                Kind::Map(key, value) if key.kind.agrees(index) => Some(value.clone()),
                Kind::Dyn => Some(Kind::Dyn.plain()),
                _ => None,
            };
            if was_optional || name == operators::OPT_INDEX {
                element.map(|element| Kind::Optional(element).plain())
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
        ) => arithmetic(name, left, right).map(Kind::plain),
        (SORT_BY, [Kind::List(_) | Kind::Dyn, Kind::List(_) | Kind::Dyn]) => {
            args.first().map(|list| list.decl.clone())
        }
        (MAP_INSERT, [Kind::Map(..), Kind::Map(..)]) => args.get(1).map(|map| map.decl.clone()),
        (MAP_INSERT, [Kind::Map(..), _, _]) => {
            let decl = |at: usize| args.get(at).map(|info| info.decl.clone());
            decl(1)
                .zip(decl(2))
                .map(|(key, value)| Kind::Map(key, value).plain())
        }
        (MAP_INSERT, _) => None,
        _ => return None,
    })
}

fn arithmetic(name: &str, left: &Kind, right: &Kind) -> Option<Kind> {
    let is_sum = name == operators::ADD;
    let is_sum_or_difference = is_sum || name == operators::SUBSTRACT;
    Some(match (left, right) {
        (Kind::Dyn, other) | (other, Kind::Dyn) => other.clone(),
        (Kind::Int, Kind::Int) | (Kind::Uint, Kind::Uint) => left.clone(),
        (Kind::Double, Kind::Double) if name != operators::MODULO => Kind::Double,
        (Kind::String, Kind::String) | (Kind::Bytes, Kind::Bytes) if is_sum => left.clone(),
        (Kind::List(a), Kind::List(b)) if is_sum && a.kind.agrees(&b.kind) => {
            if a.kind.is_dyn() {
                right.clone()
            } else {
                left.clone()
            }
        }
        (Kind::Duration, Kind::Duration) if is_sum_or_difference => Kind::Duration,
        (Kind::Timestamp, Kind::Duration) if is_sum_or_difference => Kind::Timestamp,
        (Kind::Duration, Kind::Timestamp) if is_sum => Kind::Timestamp,
        (Kind::Timestamp, Kind::Timestamp) if name == operators::SUBSTRACT => Kind::Duration,
        _ => return None,
    })
}

fn member(name: &str, target: &Info, args: &[&Kind], infos: &[Info]) -> Option<Arc<Decl>> {
    let kind = target.kind();
    let is_text = matches!(kind, Kind::String | Kind::Dyn);
    let is_list = matches!(kind, Kind::List(_) | Kind::Dyn);
    let takes_text = |args: &[&Kind]| {
        args.iter()
            .all(|arg| matches!(arg, Kind::String | Kind::Dyn))
    };
    let element = || {
        target
            .element()
            .map_or_else(|| Kind::Dyn.plain(), |element| element.decl)
    };
    if TEXT_TO_BOOL.contains(&name) {
        return (is_text && args.len() == 1 && takes_text(args)).then(|| Kind::Bool.plain());
    }
    if TEXT_TO_TEXT.contains(&name) {
        return is_text.then(|| Kind::String.plain());
    }
    for (returns, names) in MEMBERS {
        if names.contains(&name) {
            return Some(match returns {
                "bool" => Kind::Bool.plain(),
                "int" => Kind::Int.plain(),
                _ => Kind::String.plain(),
            });
        }
    }
    Some(match name {
        "size" if args.is_empty() => match kind {
            Kind::String | Kind::Bytes | Kind::List(_) | Kind::Map(..) | Kind::Dyn => {
                Kind::Int.plain()
            }
            _ => return None,
        },
        "join" if is_list => Kind::String.plain(),
        "split" | "findAll" if is_text => list(Kind::String).plain(),
        "format" if is_text => Kind::String.plain(),
        "sum" if is_list && is_summable(&element().kind) => element(),
        "min" | "max" if is_list && is_comparable(&element().kind) => element(),
        "first" | "last" if is_list => Kind::Optional(element()).plain(),
        "slice" | "sort" | "distinct" if is_list => target.decl.clone(),
        "reverse" if is_list => target.decl.clone(),
        "flatten" if is_list => list(Kind::Dyn).plain(),
        "getQuery" => Kind::Map(Kind::String.plain(), list(Kind::String).plain()).plain(),
        "asApproximateFloat" => Kind::Double.plain(),
        "masked" => CIDR.plain(),
        "ip" => IP.plain(),
        "string" => Kind::String.plain(),
        "add" | "sub" => QUANTITY.plain(),
        "value" => match kind {
            Kind::Optional(inner) => inner.clone(),
            Kind::Dyn => Kind::Dyn.plain(),
            _ => return None,
        },
        "orValue" => match kind {
            Kind::Optional(inner) if !inner.kind.is_dyn() => inner.clone(),
            Kind::Optional(_) | Kind::Dyn => infos.first()?.decl.clone(),
            _ => return None,
        },
        "or" => target.decl.clone(),
        "validate" => Kind::Optional(list(Kind::String).plain()).plain(),
        _ => return None,
    })
}

fn is_summable(kind: &Kind) -> bool {
    kind.is_number() || matches!(kind, Kind::Duration | Kind::Dyn)
}

fn is_comparable(kind: &Kind) -> bool {
    is_summable(kind)
        || matches!(
            kind,
            Kind::Bool | Kind::String | Kind::Bytes | Kind::Timestamp
        )
}

fn global(name: &str, args: &[&Kind]) -> Option<Arc<Decl>> {
    let kind = match (name, args) {
        ("size", [Kind::String | Kind::Bytes | Kind::List(_) | Kind::Map(..) | Kind::Dyn]) => {
            Kind::Int
        }
        ("matches", [Kind::String | Kind::Dyn, Kind::String | Kind::Dyn]) => Kind::Bool,
        (
            "int",
            [
                Kind::Int
                | Kind::Uint
                | Kind::Double
                | Kind::String
                | Kind::Timestamp
                | Kind::Duration
                | Kind::Dyn,
            ],
        ) => Kind::Int,
        ("uint", [Kind::Int | Kind::Uint | Kind::Double | Kind::String | Kind::Dyn]) => Kind::Uint,
        ("double", [Kind::Int | Kind::Uint | Kind::Double | Kind::String | Kind::Dyn]) => {
            Kind::Double
        }
        ("bool", [Kind::Bool | Kind::String | Kind::Dyn]) => Kind::Bool,
        ("bytes", [Kind::Bytes | Kind::String | Kind::Dyn]) => Kind::Bytes,
        (
            "string",
            [
                Kind::String
                | Kind::Bytes
                | Kind::Bool
                | Kind::Int
                | Kind::Uint
                | Kind::Double
                | Kind::Duration
                | Kind::Timestamp
                | Kind::Opaque(_)
                | Kind::Dyn,
            ],
        ) => Kind::String,
        ("duration", [Kind::Duration | Kind::Int | Kind::String | Kind::Dyn]) => Kind::Duration,
        ("timestamp", [Kind::Timestamp | Kind::Int | Kind::String | Kind::Dyn]) => Kind::Timestamp,
        ("type", [_]) => Kind::Type,
        ("dyn", [_]) => Kind::Dyn,
        ("url", [Kind::String | Kind::Dyn]) => URL,
        ("ip", [Kind::String | Kind::Dyn]) => IP,
        ("cidr", [Kind::String | Kind::Dyn]) => CIDR,
        ("quantity", [Kind::String | Kind::Dyn]) => QUANTITY,
        (
            "semver",
            [Kind::String | Kind::Dyn] | [Kind::String | Kind::Dyn, Kind::Bool | Kind::Dyn],
        ) => SEMVER,
        (
            "isURL" | "isIP" | "isCIDR" | "isQuantity" | "ip.isCanonical",
            [Kind::String | Kind::Dyn],
        ) => Kind::Bool,
        (
            "isSemver",
            [Kind::String | Kind::Dyn] | [Kind::String | Kind::Dyn, Kind::Bool | Kind::Dyn],
        ) => Kind::Bool,
        ("strings.quote" | "jsonpatch.escapeKey", [Kind::String | Kind::Dyn]) => Kind::String,
        ("lists.range", [Kind::Int | Kind::Dyn]) => list(Kind::Int),
        (
            "sets.contains" | "sets.equivalent" | "sets.intersects",
            [Kind::List(_) | Kind::Dyn, Kind::List(_) | Kind::Dyn],
        ) => Kind::Bool,
        ("optional.of" | "optional.ofNonZeroValue", [inner]) => {
            Kind::Optional((*inner).clone().plain())
        }
        ("optional.none", []) => Kind::Optional(Kind::Dyn.plain()),
        ("format.named", [Kind::String | Kind::Dyn]) => Kind::Optional(FORMAT.plain()),
        (name, []) if name.starts_with("format.") => FORMAT,
        _ => return None,
    };
    Some(kind.plain())
}
