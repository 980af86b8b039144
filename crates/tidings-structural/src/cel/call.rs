//! Calls CEL functions and counts what calls cost. Standard functions are here, those of Kubernetes in the library `kube-cel`.

use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::{Context, IdedExpr, Value as Cel};

use super::authorizer::{self, Access, AccessAnswer};
use super::url::CelUrl;
use super::val::{NO_OVERLOAD, Val};

/// Bytes that one call of `replace` may insert.
const MADE_BYTES_MAX: usize = 16 << 20;

static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Calls a function of the library `kube-cel`.
pub(crate) fn library<'a>(
    name: &str,
    args: &[Val<'_>],
    is_member: bool,
) -> Result<Val<'a>, String> {
    let mut context = LIBRARY.new_inner_scope();
    let mut idents = Vec::with_capacity(args.len());
    for (index, arg) in args.iter().enumerate() {
        let variable = format!("@arg{index}");
        context.add_variable_from_value(&variable, arg.to_cel()?);
        idents.push(IdedExpr {
            id: 0,
            expr: Expr::Ident(variable),
        });
    }
    let target = (is_member && !idents.is_empty()).then(|| Box::new(idents.remove(0)));
    let call = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target,
            args: idents,
        }),
    };
    context.resolve(&call).map(Val::from_cel).map_err(|error| {
        use kube_cel::cel::ExecutionError;
        match error {
            ExecutionError::NoSuchOverload
            | ExecutionError::UnexpectedType { .. }
            | ExecutionError::UnsupportedTargetType { .. }
            | ExecutionError::NotSupportedAsMethod { .. }
            | ExecutionError::InvalidArgumentCount { .. } => NO_OVERLOAD.to_owned(),
            ExecutionError::FunctionError { message, .. } => failure(name, args).unwrap_or(message),
            other => other.to_string(),
        }
    })
}

/// Upstream's error text for calls where the library's text differs.
fn failure(name: &str, args: &[Val<'_>]) -> Option<String> {
    Some(match (name, args) {
        ("quantity", [Val::Text(_)]) => {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned()
        }
        ("ip", [Val::Text(text)]) => {
            let text = tidings_go::quote(text.as_str());
            format!("IP Address {text} parse error during conversion from string: ParseAddr({text}): unable to parse IP")
        }
        ("min" | "max", [list]) if list.size() == Some(0) => format!("{name} called on empty list"),
        ("substring", [text, Val::Int(start), rest @ ..]) => {
            let len = i64::try_from(text.size()?).ok()?;
            let index = match rest {
                _ if *start < 0 || *start > len => start,
                [Val::Int(end)] => end,
                _ => start,
            };
            format!("index out of range: {index}")
        }
        ("slice", [list, Val::Int(start), Val::Int(end)]) => {
            let len = list.size()?;
            let why = if *start < 0 || *end < 0 {
                "negative indexes not supported".to_owned()
            } else if start > end {
                "start index must be less than or equal to end index".to_owned()
            } else {
                format!("list is length {len}")
            };
            format!("cannot slice({start}, {end}), {why}")
        }
        ("flatten", [_, Val::Int(..0)]) => "level must be non-negative".to_owned(),
        _ => return None,
    })
}

/// Calls a function. The target of a member call is the first argument.
pub(crate) fn call<'a>(name: &str, args: &[Val<'a>], is_member: bool) -> Result<Val<'a>, String> {
    let unsupported = || NO_OVERLOAD.to_owned();
    if let [Val::Access(access), args @ ..] = args
        && is_member
    {
        return ask(access, name, args);
    }
    Ok(match (name, args) {
        ("size", [value]) => Val::Int(
            value
                .size()
                .and_then(|size| i64::try_from(size).ok())
                .ok_or_else(unsupported)?,
        ),
        ("dyn", [value]) => value.clone(),
        ("type", [value]) => Val::Type(value.type_name()),
        ("contains", [Val::Text(text), Val::Text(part)]) => {
            Val::Bool(text.as_str().contains(part.as_str()))
        }
        ("startsWith", [Val::Text(text), Val::Text(part)]) => {
            Val::Bool(text.as_str().starts_with(part.as_str()))
        }
        ("endsWith", [Val::Text(text), Val::Text(part)]) => {
            Val::Bool(text.as_str().ends_with(part.as_str()))
        }
        ("contains" | "startsWith" | "endsWith", _) => return Err(unsupported()),
        ("int" | "uint" | "double" | "bool" | "bytes" | "string", [value]) => {
            return convert(name, value);
        }
        ("optional.of", [value]) => Val::Optional(Some(Arc::new(value.clone()))),
        ("optional.none", []) => Val::Optional(None),
        ("optional.ofNonZeroValue", [value]) => {
            let is_zero = matches!(
                value,
                Val::Null | Val::Bool(false) | Val::Int(0) | Val::Uint(0)
            ) || matches!(value, Val::Double(value) if *value == 0.0)
                || value.size() == Some(0)
                || matches!(value, Val::Other(Cel::Duration(length)) if length.is_zero())
                || matches!(value, Val::Other(Cel::Timestamp(time)) if time.timestamp() == FIRST_SECOND);
            Val::Optional((!is_zero).then(|| Arc::new(value.clone())))
        }
        ("hasValue", [Val::Optional(inner)]) => Val::Bool(inner.is_some()),
        ("value", [Val::Optional(inner)]) => match inner {
            Some(inner) => (**inner).clone(),
            None => return Err("optional.none() dereference".into()),
        },
        ("orValue", [Val::Optional(inner), other]) => inner.as_deref().unwrap_or(other).clone(),
        ("or", [optional @ Val::Optional(inner), other]) => {
            if inner.is_some() { optional } else { other }.clone()
        }
        ("sum", [list]) if let Some(sum) = sum_of_durations(list)? => sum,
        ("format.named", [Val::Text(name)]) => {
            let name = format!("format.{}", name.as_str());
            let format = library(&name, &[], false).ok();
            Val::Optional(format.map(Arc::new))
        }
        (name, [Val::Other(Cel::Timestamp(time)), Val::Text(zone)])
            if name.starts_with("get")
                && let Some(minutes) = offset_minutes(zone.as_str()) =>
        {
            let seconds = i128::from(time.timestamp().saturating_add(minutes * 60));
            let nanoseconds = seconds * 1_000_000_000 + i128::from(time.timestamp_subsec_nanos());
            let shifted = jiff::Timestamp::from_nanosecond(nanoseconds)
                .map_err(|_| NO_OVERLOAD.to_owned())?;
            return library(name, &[timestamp(&shifted.to_string())?], is_member);
        }
        ("format", [text @ Val::Text(_), list]) => {
            let elements = list.elements()?.ok_or_else(unsupported)?;
            // The library prints durations and times in its own way.
            let printed: Result<Vec<Val<'a>>, String> = elements
                .into_iter()
                .map(|element| match element {
                    Val::Other(Cel::Duration(_) | Cel::Timestamp(_)) => convert("string", &element),
                    other => Ok(other),
                })
                .collect();
            let list = Val::List(Arc::new(printed?));
            return library(name, &[text.clone(), list], is_member);
        }
        ("split", [Val::Text(text), Val::Text(separator)]) => {
            split(text.as_str(), separator.as_str(), -1)
        }
        ("split", [Val::Text(text), Val::Text(separator), Val::Int(parts)]) => {
            split(text.as_str(), separator.as_str(), *parts)
        }
        ("url", [Val::Text(text)]) => Val::Url(Arc::new(CelUrl::parse(text.as_str())?)),
        ("isURL", [Val::Text(text)]) => Val::Bool(CelUrl::parse(text.as_str()).is_ok()),
        (name, [Val::Url(url)]) => url_part(url, name).ok_or_else(unsupported)?,
        ("timestamp", [Val::Text(text)]) => return timestamp(text.as_str()),
        ("replace", [Val::Text(text), Val::Text(from), Val::Text(to), ..]) => {
            // The cost does not count the inserted bytes, so they have their own bound.
            let count = text.as_str().matches(from.as_str()).count();
            if count.saturating_mul(to.as_str().len()) > MADE_BYTES_MAX {
                return Err("the result of replace is too large".into());
            }
            return library(name, args, is_member);
        }
        _ => return library(name, args, is_member),
    })
}

/// Calls a function of a value of authorisation.
fn ask<'a>(access: &Access, name: &str, args: &[Val<'_>]) -> Result<Val<'a>, String> {
    let texts = args.iter().map(|arg| match arg {
        Val::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let texts: Option<Vec<&str>> = texts.collect();
    let answer = texts.and_then(|texts| access.call(name, &texts));
    Ok(match answer.ok_or(NO_OVERLOAD)?? {
        AccessAnswer::Access(access) => Val::Access(access),
        AccessAnswer::Bool(value) => Val::Bool(value),
        AccessAnswer::Text(text) => Val::text(text),
    })
}

/// The Unix time of 0001-01-01, which is Go's zero time.
const FIRST_SECOND: i64 = -62_135_596_800;

/// The minutes of an offset such as `-05:30`; the sign is optional.
fn offset_minutes(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str| -> Option<i64> {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    Some(sign * (number(hours)? * 60 + number(minutes)?))
}

/// The sum of a list of durations; `None` if it is a list of something else.
fn sum_of_durations<'a>(list: &Val<'a>) -> Result<Option<Val<'a>>, String> {
    let holds_durations = match list {
        Val::Elements(_, node) => node
            .items
            .as_ref()
            .is_some_and(|items| items.kind == "string" && items.format_text == "duration"),
        _ => false,
    };
    let elements = list.elements()?.unwrap_or_default();
    let is_duration = |value: &Val<'_>| matches!(value, Val::Other(Cel::Duration(_)));
    if !holds_durations && !elements.first().is_some_and(is_duration) {
        return Ok(None);
    }
    let mut sum = library("duration", &[Val::text("0s")], false)?;
    for element in &elements {
        let (Val::Other(left), Val::Other(right)) = (&sum, element) else {
            return Err(NO_OVERLOAD.to_owned());
        };
        let added = left.clone() + right.clone();
        sum = added
            .map(Val::from_cel)
            .map_err(|_| "integer overflow".to_owned())?;
    }
    Ok(Some(sum))
}

/// Go's `strings.SplitN`: an empty separator splits between all characters.
fn split<'a>(text: &str, separator: &str, parts: i64) -> Val<'a> {
    let parts = usize::try_from(parts).unwrap_or(usize::MAX);
    let found: Vec<&str> = match (separator, parts) {
        (_, 0) => Vec::new(),
        ("", parts) => {
            let mut places = text.char_indices().map(|(at, _)| at).skip(1);
            let mut found = Vec::new();
            let mut start = 0;
            while found.len() + 1 < parts
                && let Some(end) = places.next()
            {
                found.push(&text[start..end]);
                start = end;
            }
            if start < text.len() {
                found.push(&text[start..]);
            }
            found
        }
        (separator, parts) => text.splitn(parts, separator).collect(),
    };
    Val::List(Arc::new(found.into_iter().map(Val::text).collect()))
}

/// Reads a time and converts it to UTC, so that functions such as `getHours` return the parts in UTC.
pub(crate) fn timestamp<'a>(text: &str) -> Result<Val<'a>, String> {
    let text = match text.parse::<jiff::Timestamp>() {
        Ok(time) => time.to_string(),
        Err(_) => text.to_owned(),
    };
    library("timestamp", &[Val::text(text)], false)
}

fn convert<'a>(to: &str, value: &Val<'a>) -> Result<Val<'a>, String> {
    let range = || Err("integer overflow".to_owned());
    Ok(match (to, value) {
        ("int", Val::Int(_))
        | ("uint", Val::Uint(_))
        | ("double", Val::Double(_))
        | ("bool", Val::Bool(_))
        | ("bytes", Val::Bytes(_))
        | ("string", Val::Text(_)) => value.clone(),
        ("int", Val::Uint(number)) => match i64::try_from(*number) {
            Ok(number) => Val::Int(number),
            Err(_) => return range(),
        },
        ("int", Val::Double(number)) => {
            if !(-9.223_372_036_854_775e18..=9.223_372_036_854_775e18).contains(number) {
                return range();
            }
            Val::Int(*number as i64)
        }
        ("int", Val::Text(text)) => match text.as_str().parse() {
            Ok(number) => Val::Int(number),
            Err(_) => return Err(parse_error("int")),
        },
        ("uint", Val::Int(number)) => match u64::try_from(*number) {
            Ok(number) => Val::Uint(number),
            Err(_) => return Err("unsigned integer overflow".into()),
        },
        ("uint", Val::Double(number)) if (0.0..1.8e19).contains(number) => {
            Val::Uint(*number as u64)
        }
        ("uint", Val::Text(text)) => match text.as_str().parse() {
            Ok(number) => Val::Uint(number),
            Err(_) => return Err(parse_error("uint")),
        },
        ("double", Val::Int(number)) => Val::Double(*number as f64),
        ("double", Val::Uint(number)) => Val::Double(*number as f64),
        ("double", Val::Text(text)) => match text.as_str().parse() {
            Ok(number) => Val::Double(number),
            Err(_) => return Err(parse_error("double")),
        },
        ("bool", Val::Text(text)) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Val::Bool(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Val::Bool(false),
            _ => return Err(parse_error("bool")),
        },
        ("bytes", Val::Text(text)) => Val::Bytes(Arc::new(text.as_str().as_bytes().to_vec())),
        ("string", Val::Int(number)) => Val::text(number.to_string()),
        ("string", Val::Uint(number)) => Val::text(number.to_string()),
        ("string", Val::Double(number)) => Val::text(tidings_go::print_float(*number)),
        ("string", Val::Bool(value)) => Val::text(value.to_string()),
        ("string", Val::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => Val::text(text),
            Err(_) => return Err("invalid UTF-8 in bytes, cannot convert to string".into()),
        },
        ("string", Val::Other(Cel::Timestamp(time))) => {
            let text = time.to_utc().to_rfc3339();
            Val::text(text.replace("+00:00", "Z"))
        }
        ("string", Val::Other(Cel::Duration(duration))) => {
            let nanoseconds = duration
                .num_nanoseconds()
                .ok_or_else(|| "integer overflow".to_owned())?;
            Val::text(format!("{}s", nanoseconds as f64 / 1e9))
        }
        (_, Val::Other(_)) => return library(to, std::slice::from_ref(value), false),
        _ => {
            return Err(format!(
                "type conversion error from '{}' to '{to}'",
                value.type_name()
            ));
        }
    })
}

fn parse_error(to: &str) -> String {
    format!("type conversion error from 'string' to '{to}'")
}

fn size(value: &Val<'_>) -> u64 {
    match value {
        Val::Optional(Some(inner)) => size(inner),
        value => value.size().map_or(1, |size| size as u64),
    }
}

fn share(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The cost of walking through a value.
fn traversal(value: &Val<'_>) -> u64 {
    match value {
        Val::Text(text) => (text.as_str().len() as f64 * 0.1) as u64,
        Val::Bytes(bytes) => (bytes.len() as f64 * 0.1) as u64,
        Val::Elements(..) | Val::List(_) | Val::JsonList(_) => match value.elements() {
            Ok(Some(elements)) => elements.iter().map(traversal).sum(),
            _ => 1,
        },
        _ => 1,
    }
}

/// The cost of a call, as upstream counts it.
pub(crate) fn cost(name: &str, args: &[Val<'_>], result: Option<&Val<'_>>) -> u64 {
    let first = args.first();
    match (name, args) {
        (_, [Val::Access(_), ..]) => authorizer::cost(name),
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", _) => {
            first.map_or(0, traversal)
        }
        (
            "url"
            | "lowerAscii"
            | "upperAscii"
            | "substring"
            | "trim"
            | "jsonpatch.escapeKey"
            | "cidr"
            | "isIP"
            | "isCIDR"
            | "quantity"
            | "isQuantity"
            | "semver"
            | "isSemver"
            | "startsWith"
            | "endsWith"
            | "strings.quote"
            | "format",
            [first, ..],
        ) => share(size(first), 0.1),
        ("ip", [first]) => match first {
            Val::Text(_) => share(size(first), 0.1),
            _ => 1,
        },
        ("bytes", [text @ Val::Text(_)]) | ("string", [text @ Val::Bytes(_)]) => {
            share(size(text), 0.1)
        }
        ("replace" | "split" | "ip.isCanonical", [first, ..]) => share(size(first), 0.2),
        ("join", _) => result.map_or(1, |result| share(size(result), 0.2)),
        ("find" | "findAll" | "matches", [text, pattern, ..]) => {
            share(size(text) + 1, 0.1).saturating_mul(share(size(pattern), 0.25))
        }
        ("validate", [_, text]) => share(size(text) + 1, 0.1).saturating_mul(share(128, 0.25)),
        ("contains", [text, part]) => share(size(text), 0.1).saturating_mul(share(size(part), 0.1)),
        ("containsIP" | "containsCIDR", [_, other]) => {
            let parsing = if matches!(other, Val::Text(_)) {
                share(size(other), 0.1)
            } else {
                0
            };
            let masking = if name == "containsCIDR" {
                share(16, 0.1) + 1
            } else {
                0
            };
            share(32, 0.1) + masking + parsing
        }
        (
            "@in",
            [
                _,
                list @ (Val::Elements(..) | Val::List(_) | Val::JsonList(_)),
            ],
        ) => size(list),
        ("_==_" | "_!=_", [left, right]) => share(size(left).min(size(right)), 0.1),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left @ (Val::Text(_) | Val::Bytes(_)), right]) => {
            share(size(left).min(size(right)), 0.1)
        }
        ("_+_", [left @ (Val::Text(_) | Val::Bytes(_)), right]) => {
            share(size(left).saturating_add(size(right)), 0.1)
        }
        // Functions that walk a list: upstream counts them per element.
        ("sets.contains" | "sets.equivalent" | "sets.intersects", [left, right]) => {
            1_u64.saturating_add(size(left).saturating_mul(size(right)))
        }
        ("distinct" | "sort" | "slice" | "flatten" | "reverse" | "lists.range", [first, ..]) => {
            match first {
                Val::Int(length) => 10_u64.saturating_add(u64::try_from(*length).unwrap_or(0)),
                list if name == "distinct" || name == "sort" => {
                    10_u64.saturating_add(size(list).saturating_mul(size(list)))
                }
                list => 10_u64.saturating_add(size(list)),
            }
        }
        _ => 1,
    }
}

/// The result of a function of URLs such as `getHost`; `None` if URLs have no such function.
fn url_part<'a>(url: &CelUrl, function: &str) -> Option<Val<'a>> {
    let url = url.parts();
    Some(match function {
        "getScheme" => Val::text(url.scheme),
        "getHost" => Val::text(url.host),
        "getHostname" => Val::text(url.hostname()),
        "getPort" => Val::text(url.port()),
        "getEscapedPath" => Val::text(url.escaped_path()),
        "getQuery" => {
            let entries = url.query_values().into_iter().map(|(key, values)| {
                let values = values.into_iter().map(Val::text).collect();
                (Val::text(key), Val::List(Arc::new(values)))
            });
            Val::Map(Arc::new(entries.collect()))
        }
        _ => return None,
    })
}
