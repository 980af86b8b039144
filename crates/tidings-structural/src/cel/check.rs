//! Checks a rule before it is ever evaluated: names, fields and types, and what it costs at worst.

use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators,
};

use super::decl::{Decl, Kind};
use super::estimate::{self, Range};
use super::info::Info;
use super::locate::Source;
use crate::pattern::go_regex;

struct Scope<'s> {
    name: &'s str,
    info: Info,
    outer: Option<&'s Scope<'s>>,
}

/// A rule that was checked.
pub(crate) struct Checked {
    pub(crate) kind: Kind,
    pub(crate) cost_max: u64,
    pub(crate) uses_old: bool,
}

/// Checks an expression over `self`, and over `oldSelf` if there is one.
///
/// # Errors
/// The messages of a compiler, with places.
pub(crate) fn check(
    text: &str,
    expr: &IdedExpr,
    this: &Arc<Decl>,
    old: &Arc<Decl>,
) -> Result<Checked, String> {
    let mut checker = Checker {
        source: Source::new(text),
        this,
        old,
        uses_old: false,
        allows_mixed: false,
        errors: Vec::new(),
    };
    let info = checker.info(expr, None);
    if checker.errors.is_empty() {
        return Ok(Checked {
            kind: info.kind().clone(),
            cost_max: info.cost.max,
            uses_old: checker.uses_old,
        });
    }
    Err(checker.errors.join("\n"))
}

struct Checker<'s> {
    source: Source<'s>,
    this: &'s Arc<Decl>,
    old: &'s Arc<Decl>,
    uses_old: bool,
    /// Lists may hold values of several types, as the arguments of `format` do.
    allows_mixed: bool,
    errors: Vec<String>,
}

/// What stands before errors that upstream finds after an expression was checked.
pub(crate) const NO_PROGRAM: &str = "program instantiation failed";

/// Types whose names have dots.
pub(crate) const QUALIFIED_TYPES: [&str; 8] = [
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "net.IP",
    "net.CIDR",
    "kubernetes.URL",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.NamedFormat",
];

/// The type that an identifier names.
pub(crate) fn type_named(name: &str) -> Option<Kind> {
    Some(match name {
        "int" => Kind::Int,
        "uint" => Kind::Uint,
        "double" => Kind::Double,
        "bool" => Kind::Bool,
        "string" => Kind::String,
        "bytes" => Kind::Bytes,
        "null_type" => Kind::Null,
        "list" | "map" | "type" | "dyn" | "optional_type" => Kind::Dyn,
        name if QUALIFIED_TYPES.contains(&name) => Kind::Dyn,
        _ => return None,
    })
}

/// The name of a function in a namespace, such as `sets.contains`.
pub(crate) fn qualified(target: &IdedExpr, name: &str) -> Option<String> {
    let Expr::Ident(prefix) = &target.expr else {
        return None;
    };
    let known = match prefix.as_str() {
        "optional" => matches!(name, "of" | "none" | "ofNonZeroValue"),
        "sets" => matches!(name, "contains" | "equivalent" | "intersects"),
        "ip" => name == "isCanonical",
        "strings" => name == "quote",
        "lists" => name == "range",
        "jsonpatch" => name == "escapeKey",
        "format" => {
            matches!(
                name,
                "named"
                    | "dns1123Label"
                    | "dns1123Subdomain"
                    | "dns1035Label"
                    | "qualifiedName"
                    | "dns1123LabelPrefix"
                    | "dns1123SubdomainPrefix"
                    | "dns1035LabelPrefix"
                    | "labelValue"
                    | "uri"
                    | "uuid"
                    | "byte"
                    | "date"
                    | "datetime"
            )
        }
        _ => false,
    };
    known.then(|| format!("{prefix}.{name}"))
}

impl Checker<'_> {
    fn fail(&mut self, at: usize, message: &str) -> Info {
        let text = self.source.error(at, message);
        self.errors.push(text);
        Info::plain(Kind::Dyn, Range::fixed(0))
    }

    /// Where an expression is.
    fn place(&self, expr: &IdedExpr) -> usize {
        match &expr.expr {
            Expr::Select(select) => self.source.field(&select.field, select.test),
            Expr::Ident(name) => self.source.name(name),
            Expr::Call(call) if call.func_name.starts_with(['_', '!', '-', '@']) => {
                self.source.operator(&call.func_name)
            }
            Expr::Call(call) => self.source.call(&call.func_name),
            _ => 0,
        }
    }

    fn info(&mut self, expr: &IdedExpr, scope: Option<&Scope<'_>>) -> Info {
        match &expr.expr {
            Expr::Literal(literal) => literal_info(literal),
            Expr::Ident(name) => self.ident(name, scope),
            Expr::Select(select) => self.select(select, scope),
            Expr::List(list) => {
                let mut cost = Range::fixed(10);
                let mut element: Option<Arc<Decl>> = None;
                let mut sizes: Option<Range> =
                    Some(Range::fixed(0)).filter(|_| list.elements.is_empty());
                for (index, item) in list.elements.iter().enumerate() {
                    let mut info = self.info(item, scope);
                    if list.optional_indices.contains(&index) {
                        info = info.inside_optional();
                    }
                    cost = cost.plus(info.cost);
                    sizes = Some(sizes.map_or(info.size_or_unknown(), |sizes| {
                        sizes.union(info.size_or_unknown())
                    }));
                    if let Some(known) = &element
                        && !self.allows_mixed
                        && !known.kind.agrees(info.kind())
                    {
                        let message =
                            format!("expected type '{}' but found '{}'", known.kind, info.kind());
                        let at = self.source.operator("_[_]");
                        return self.fail(at, &message);
                    }
                    element = match element {
                        Some(known) if !known.kind.agrees(info.kind()) => Some(Kind::Dyn.plain()),
                        known => known.or(Some(info.decl)),
                    };
                }
                let mut info = Info::plain(
                    Kind::List(element.unwrap_or_else(|| Kind::Dyn.plain())),
                    cost,
                );
                info.size = Some(Range::fixed(list.elements.len() as u64));
                info.elements = sizes;
                info
            }
            Expr::Map(map) => {
                let mut cost = Range::fixed(30);
                let mut kinds: Option<(Arc<Decl>, Arc<Decl>)> = None;
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        continue;
                    };
                    let key = self.info(&entry.key, scope);
                    let mut value = self.info(&entry.value, scope);
                    if entry.optional {
                        value = value.inside_optional();
                    }
                    cost = cost.plus(key.cost).plus(value.cost);
                    if let Some((_, known)) = &kinds
                        && !self.allows_mixed
                        && !known.kind.agrees(value.kind())
                    {
                        let message = format!(
                            "expected type '{}' but found '{}'",
                            known.kind,
                            value.kind()
                        );
                        return self.fail(0, &message);
                    }
                    kinds = kinds.or(Some((key.decl, value.decl)));
                }
                let (key, value) = kinds.unwrap_or_else(|| (Kind::Dyn.plain(), Kind::Dyn.plain()));
                let mut info = Info::plain(Kind::Map(key, value), cost);
                info.size = Some(Range::fixed(map.entries.len() as u64));
                info
            }
            Expr::Comprehension(fold) => self.fold(fold, scope),
            Expr::Call(call) => self.call(call, scope),
            Expr::Struct(message) => {
                let at = self.source.name(&message.type_name);
                self.fail(
                    at,
                    &format!(
                        "undeclared reference to '{}' (in container '')",
                        message.type_name
                    ),
                )
            }
            Expr::Unspecified => self.fail(0, "unspecified expression"),
        }
    }

    fn ident(&mut self, name: &str, mut scope: Option<&Scope<'_>>) -> Info {
        while let Some(inner) = scope {
            if inner.name == name {
                let mut info = inner.info.clone();
                info.cost = Range::fixed(1);
                return info;
            }
            scope = inner.outer;
        }
        match name {
            "self" => Info::located(self.this.clone(), Range::fixed(1)),
            "oldSelf" => {
                self.uses_old = true;
                Info::located(self.old.clone(), Range::fixed(1))
            }
            name if type_named(name).is_some() => {
                // Upstream takes every name for the object when it asks for sizes.
                let mut info = Info::plain(Kind::Type, Range::fixed(1));
                info.size = Some(Range {
                    min: 0,
                    max: self.this.elements_max,
                });
                info
            }
            name => {
                let at = self.source.name(name);
                self.fail(
                    at,
                    &format!("undeclared reference to '{name}' (in container '')"),
                )
            }
        }
    }

    fn select(&mut self, select: &SelectExpr, scope: Option<&Scope<'_>>) -> Info {
        let operand = self.info(&select.operand, scope);
        let step = if select.test { 0 } else { 1 };
        let cost = operand.cost.plus(Range::fixed(step));
        let (found, is_optional) = match operand.kind() {
            Kind::Optional(inner) => (self.member(inner, &select.field, select.test), true),
            _ => (
                self.member(&operand.decl, &select.field, select.test),
                false,
            ),
        };
        let Some((decl, has_place)) = found else {
            return Info::plain(Kind::Dyn, cost);
        };
        if select.test {
            return Info::plain(Kind::Bool, cost);
        }
        if is_optional {
            return Info::plain(Kind::Optional(decl), cost);
        }
        if operand.located && has_place {
            Info::located(decl, cost)
        } else {
            Info::new(decl, cost)
        }
    }

    /// The type of a field; the flag says whether its place is known.
    fn member(&mut self, decl: &Decl, field: &str, in_has: bool) -> Option<(Arc<Decl>, bool)> {
        match &decl.kind {
            Kind::Object(fields) => match super::decl::field(fields, field) {
                Some(decl) => Some((decl.clone(), true)),
                None => {
                    let at = self.source.field(field, in_has);
                    self.fail(at, &format!("undefined field '{field}'"));
                    None
                }
            },
            Kind::Map(_, value) => Some((value.clone(), false)),
            Kind::Dyn => Some((Kind::Dyn.plain(), false)),
            other => {
                let at = self.source.field(field, in_has);
                self.fail(
                    at,
                    &format!("type '{other}' does not support field selection"),
                );
                None
            }
        }
    }

    fn fold(&mut self, fold: &ComprehensionExpr, scope: Option<&Scope<'_>>) -> Info {
        let range = self.info(&fold.iter_range, scope);
        let start = self.info(&fold.accu_init, scope);
        let is_container = matches!(start.kind(), Kind::List(_) | Kind::Map(..));
        let (key, value) = match range.kind() {
            Kind::List(_) => (Info::plain(Kind::Int, Range::fixed(1)), range.element()),
            Kind::Map(key, value) => {
                let place = |decl: &Arc<Decl>| {
                    if range.located {
                        Info::located(decl.clone(), Range::fixed(1))
                    } else {
                        Info::new(decl.clone(), Range::fixed(1))
                    }
                };
                (place(key), Some(place(value)))
            }
            Kind::Dyn => (
                Info::plain(Kind::Dyn, Range::fixed(1)),
                Some(Info::plain(Kind::Dyn, Range::fixed(1))),
            ),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                let at = self.place(&fold.iter_range);
                return self.fail(at, &message);
            }
        };
        let mut value = value.unwrap_or_else(|| Info::plain(Kind::Dyn, Range::fixed(1)));
        let mut key = key;
        if !range.located {
            // Upstream asks for the size of a place without a root, and takes it for the object.
            for info in [&mut key, &mut value] {
                info.size = Some(Range {
                    min: 0,
                    max: self.this.elements_max,
                });
            }
        }
        let is_list = matches!(range.kind(), Kind::List(_));
        let accumulator = Scope {
            name: &fold.accu_var,
            info: start.clone(),
            outer: scope,
        };
        let first = Scope {
            name: &fold.iter_var,
            info: if fold.iter_var2.is_some() || !is_list {
                key
            } else {
                value.clone()
            },
            outer: Some(&accumulator),
        };
        let second = fold.iter_var2.as_deref().map(|name| Scope {
            name,
            info: value,
            outer: Some(&first),
        });
        let inner = second.as_ref().unwrap_or(&first);
        let condition = self.info(&fold.loop_cond, Some(inner));
        let step = self.info(&fold.loop_step, Some(inner));
        let done = Scope {
            name: &fold.accu_var,
            info: Info {
                decl: if is_container {
                    step.decl.clone()
                } else {
                    start.decl.clone()
                },
                ..start
            },
            outer: scope,
        };
        let result = self.info(&fold.result, Some(&done));
        let count = range.size_or_unknown();
        let cost = range
            .cost
            .plus(start.cost)
            .plus(result.cost)
            .plus(count.times(step.cost.plus(condition.cost)));
        Info {
            located: false,
            cost,
            size: if is_container {
                Some(count)
            } else {
                Some(Range::fixed(1))
            },
            elements: if is_container { step.elements } else { None },
            decl: result.decl,
        }
    }

    fn call(&mut self, call: &CallExpr, scope: Option<&Scope<'_>>) -> Info {
        let name = call.func_name.as_str();
        if let (operators::OPT_SELECT, [operand, field]) = (name, call.args.as_slice()) {
            return self.optional_select(operand, field, scope);
        }
        let qualified = call
            .target
            .as_deref()
            .and_then(|target| qualified(target, name));
        let target = match (&call.target, &qualified) {
            (Some(target), None) => Some(self.info(target, scope)),
            _ => None,
        };
        let errors = self.errors.len();
        let allowed_mixed = std::mem::replace(&mut self.allows_mixed, name == "format");
        let args: Vec<Info> = call.args.iter().map(|arg| self.info(arg, scope)).collect();
        self.allows_mixed = allowed_mixed;
        if self.errors.len() > errors {
            return Info::plain(Kind::Dyn, Range::fixed(0));
        }
        let full_name = qualified.as_deref().unwrap_or(name);
        if matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR) {
            for (arg, info) in call.args.iter().zip(&args) {
                if !info.kind().agrees(&Kind::Bool) {
                    let at = self.place(arg);
                    return self.fail(
                        at,
                        &format!("expected type 'bool' but found '{}'", info.kind()),
                    );
                }
            }
        }
        let Some(kind) = super::functions::result(full_name, target.as_ref(), &args) else {
            return self.unknown_call(full_name, target.as_ref(), &args);
        };
        if let Some(Expr::Literal(LiteralValue::String(text))) =
            call.args.first().map(|arg| &arg.expr)
        {
            if matches!(full_name, "find" | "findAll")
                && let Err(why) = go_regex(text.inner())
            {
                self.errors.push(format!("{NO_PROGRAM}: {why}"));
                return Info::plain(Kind::Dyn, Range::fixed(0));
            }
            let is_right = match full_name {
                "matches" => go_regex(text.inner()).is_ok(),
                "duration" => tidings_api::go::parse_duration(text.inner()).is_ok(),
                "timestamp" => text.inner().parse::<jiff::Timestamp>().is_ok(),
                _ => true,
            };
            if !is_right {
                let at = self.source.argument(name);
                return self.fail(at, &format!("invalid {name} argument"));
            }
        }
        let (cost, size) = estimate::call(full_name, target.as_ref(), &args);
        let mut info = Info::new(kind, cost);
        if let Some(size) = size {
            info.size = Some(size);
        }
        match (full_name, args.as_slice()) {
            (operators::INDEX, [container, _])
                if container.located && !matches!(container.kind(), Kind::Optional(_)) =>
            {
                return Info::located(info.decl, cost);
            }
            (operators::INDEX, [container, _]) => info.size = container.elements.or(info.size),
            (operators::CONDITIONAL, [_, yes, no]) => {
                info.elements = yes
                    .elements
                    .zip(no.elements)
                    .map(|(yes, no)| yes.union(no))
                    .or(yes.elements)
                    .or(no.elements);
            }
            (operators::ADD, [left, right]) => {
                info.elements = left
                    .elements
                    .zip(right.elements)
                    .map(|(left, right)| left.union(right));
            }
            ("dyn", [value]) => {
                info.size = value.size;
                info.elements = value.elements;
            }
            _ => {}
        }
        info
    }

    fn optional_select(
        &mut self,
        operand: &IdedExpr,
        field: &IdedExpr,
        scope: Option<&Scope<'_>>,
    ) -> Info {
        let operand = self.info(operand, scope);
        let cost = operand.cost.plus(Range::fixed(1));
        let name = match &field.expr {
            Expr::Literal(LiteralValue::String(name)) => name.inner().to_owned(),
            _ => String::new(),
        };
        let inner = match operand.kind() {
            Kind::Optional(inner) => inner.clone(),
            _ => operand.decl.clone(),
        };
        match self.member(&inner, &name, false) {
            Some((decl, _)) => Info::plain(Kind::Optional(decl), cost),
            None => Info::plain(Kind::Dyn, cost),
        }
    }

    fn unknown_call(&mut self, name: &str, target: Option<&Info>, args: &[Info]) -> Info {
        let is_operator = name.starts_with(['_', '!', '-', '@']);
        if !is_operator && !super::functions::is_known(name) {
            let short = name.rsplit('.').next().unwrap_or(name);
            let at = self.source.call(short);
            return self.fail(
                at,
                &format!("undeclared reference to '{name}' (in container '')"),
            );
        }
        let kinds: Vec<String> = args.iter().map(|arg| arg.kind().to_string()).collect();
        let applied = match target {
            Some(target) => format!("{}.({})", target.kind(), kinds.join(", ")),
            None => format!("({})", kinds.join(", ")),
        };
        let at = if is_operator {
            self.source.operator(name)
        } else {
            self.source.call(name)
        };
        self.fail(
            at,
            &format!("found no matching overload for '{name}' applied to '{applied}'"),
        )
    }
}

fn literal_info(literal: &LiteralValue) -> Info {
    let (kind, size) = match literal {
        LiteralValue::Boolean(_) => (Kind::Bool, 1),
        LiteralValue::Bytes(bytes) => (Kind::Bytes, bytes.inner().len() as u64),
        LiteralValue::Double(_) => (Kind::Double, 1),
        LiteralValue::Int(_) => (Kind::Int, 1),
        LiteralValue::Null => (Kind::Null, 1),
        LiteralValue::String(text) => (Kind::String, text.inner().chars().count() as u64),
        LiteralValue::UInt(_) => (Kind::Uint, 1),
    };
    let mut info = Info::plain(kind, Range::fixed(0));
    info.size = Some(Range::fixed(size));
    info
}
