//! Checks a rule when its schema is compiled: names, fields, types and the worst-case cost.

use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, SelectExpr, StructExpr, operators,
};

use super::authorizer;
use super::decl::{DeclType, TypeKind};
use super::estimate;
use super::info::ExprInfo;
use super::locate::RuleSource;
use super::min_max::MinMax;
use super::rule_errors::RuleErrors;
use crate::pattern::go_regex;

/// A variable of a comprehension, with the variables around it.
struct CheckScope<'s> {
    name: &'s str,
    info: ExprInfo,
    outer: Option<&'s CheckScope<'s>>,
}

/// The result type and the worst-case cost of an expression that passed the check.
pub(crate) struct CheckedRule {
    pub(crate) kind: TypeKind,
    pub(crate) cost_max: u64,
    pub(crate) uses_old: bool,
}

/// Checks an expression over its variables. The first is the one whose bounds upstream takes for sizes that it does not know.
///
/// # Errors
/// All type errors with line and column, in the format of cel-go.
pub(crate) fn check(
    text: &str,
    expr: &IdedExpr,
    variables: &[(&str, Arc<DeclType>)],
) -> Result<CheckedRule, String> {
    check_with(text, expr, variables, false)
}

/// As [`check`]. `makes_objects` allows expressions such as `Object.spec{replicas: 1}` and `JSONPatch{op: "remove"}`.
///
/// # Errors
/// As those of [`check`].
pub(crate) fn check_with(
    text: &str,
    expr: &IdedExpr,
    variables: &[(&str, Arc<DeclType>)],
    makes_objects: bool,
) -> Result<CheckedRule, String> {
    let mut checker = RuleChecker {
        source: RuleSource::new(text),
        variables,
        uses_old: false,
        allows_mixed: false,
        makes_objects,
        errors: RuleErrors::default(),
    };
    let info = checker.info(expr, None);
    if checker.errors.len() == 0 {
        return Ok(CheckedRule {
            kind: info.kind().clone(),
            cost_max: info.cost.max,
            uses_old: checker.uses_old,
        });
    }
    Err(checker.errors.into_text())
}

/// Walks an expression and collects its type errors.
struct RuleChecker<'s> {
    source: RuleSource<'s>,
    variables: &'s [(&'s str, Arc<DeclType>)],
    /// The expression reads `oldSelf`.
    uses_old: bool,
    /// Lists may hold values of several types, as the arguments of `format` do.
    allows_mixed: bool,
    /// Expressions may make objects and patches.
    makes_objects: bool,
    errors: RuleErrors,
}

/// The type of an object that an expression makes.
pub(crate) const OBJECT: &str = "Object";
/// The type of an operation of a patch that an expression makes.
pub(crate) const JSON_PATCH: &str = "JSONPatch";
/// The members of such an operation, and their types.
const PATCH_MEMBERS: [(&str, &str); 4] = [
    ("op", "string"),
    ("path", "string"),
    ("from", "string"),
    ("value", "dyn"),
];

/// The variable with the value before an update.
pub(crate) const OLD: &str = "oldSelf";

/// The prefix of errors that upstream reports after the type check, when it builds the program.
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
pub(crate) fn type_named(name: &str) -> Option<TypeKind> {
    Some(match name {
        "int" => TypeKind::Int,
        "uint" => TypeKind::Uint,
        "double" => TypeKind::Double,
        "bool" => TypeKind::Bool,
        "string" => TypeKind::String,
        "bytes" => TypeKind::Bytes,
        "null_type" => TypeKind::Null,
        "list" | "map" | "type" | "dyn" | "optional_type" => TypeKind::Dyn,
        name if QUALIFIED_TYPES.contains(&name) => TypeKind::Dyn,
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

impl RuleChecker<'_> {
    fn elements_max(&self) -> u64 {
        self.variables
            .first()
            .map_or(0, |(_, decl)| decl.elements_max)
    }

    fn fail(&mut self, at: usize, message: &str) -> ExprInfo {
        self.errors.push(|| self.source.error(at, message));
        ExprInfo::plain(TypeKind::Dyn, MinMax::fixed(0))
    }

    /// The character of the rule at which errors of an expression point.
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

    fn info(&mut self, expr: &IdedExpr, scope: Option<&CheckScope<'_>>) -> ExprInfo {
        match &expr.expr {
            Expr::Literal(literal) => literal_info(literal),
            Expr::Ident(name) => self.ident(name, scope),
            Expr::Select(select) => self.select(select, scope),
            Expr::List(list) => {
                let mut cost = MinMax::fixed(10);
                let mut element: Option<Arc<DeclType>> = None;
                let mut sizes: Option<MinMax> =
                    Some(MinMax::fixed(0)).filter(|_| list.elements.is_empty());
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
                        Some(known) if !known.kind.agrees(info.kind()) => {
                            Some(TypeKind::Dyn.plain())
                        }
                        known => known.or(Some(info.decl)),
                    };
                }
                let mut info = ExprInfo::plain(
                    TypeKind::List(element.unwrap_or_else(|| TypeKind::Dyn.plain())),
                    cost,
                );
                info.size = Some(MinMax::fixed(list.elements.len() as u64));
                info.elements = sizes;
                info
            }
            Expr::Map(map) => {
                let mut cost = MinMax::fixed(30);
                let mut kinds: Option<(Arc<DeclType>, Arc<DeclType>)> = None;
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
                let (key, value) =
                    kinds.unwrap_or_else(|| (TypeKind::Dyn.plain(), TypeKind::Dyn.plain()));
                let mut info = ExprInfo::plain(TypeKind::Map(key, value), cost);
                info.size = Some(MinMax::fixed(map.entries.len() as u64));
                info
            }
            Expr::Comprehension(fold) => self.fold(fold, scope),
            Expr::Call(call) => self.call(call, scope),
            Expr::Struct(made) => self.made(made, scope),
            Expr::Unspecified => self.fail(0, "unspecified expression"),
        }
    }

    /// An object or a patch that the expression makes.
    fn made(&mut self, made: &StructExpr, scope: Option<&CheckScope<'_>>) -> ExprInfo {
        let name = made.type_name.as_str();
        let inner = name.strip_prefix(OBJECT);
        let is_known = name == JSON_PATCH
            || inner.is_some_and(|inner| inner.is_empty() || inner.starts_with('.'));
        if !self.makes_objects || !is_known {
            let at = self.source.name(name) + name.chars().count();
            let message = format!("undeclared reference to '{name}' (in container '')");
            return self.fail(at, &message);
        }
        let mut cost = MinMax::fixed(40);
        for entry in &made.entries {
            let EntryExpr::StructField(field) = &entry.expr else {
                continue;
            };
            let info = self.info(&field.value, scope);
            cost = cost.plus(info.cost);
            if name != JSON_PATCH {
                continue;
            }
            let wanted = PATCH_MEMBERS
                .iter()
                .find(|(known, _)| *known == field.field);
            let wanted = wanted.map_or("", |(_, wanted)| wanted);
            let is = info.kind().to_string();
            if wanted != "dyn" && wanted != is && !info.kind().is_dyn() {
                let at = self.source.name(&field.field) + field.field.chars().count();
                let member = &field.field;
                let message = format!(
                    "expected type of field '{member}' is '{wanted}' but provided type is '{is}'"
                );
                return self.fail(at, &message);
            }
        }
        ExprInfo::plain(TypeKind::Made(name.into()), cost)
    }

    fn ident(&mut self, name: &str, mut scope: Option<&CheckScope<'_>>) -> ExprInfo {
        while let Some(inner) = scope {
            if inner.name == name {
                let mut info = inner.info.clone();
                info.cost = MinMax::fixed(1);
                return info;
            }
            scope = inner.outer;
        }
        if let Some((_, decl)) = self.variables.iter().find(|(known, _)| *known == name) {
            self.uses_old |= name == OLD;
            return ExprInfo::located(decl.clone(), MinMax::fixed(1));
        }
        match name {
            name if type_named(name).is_some() => {
                // Upstream estimates the size of every identifier with the bounds of `self`.
                let mut info = ExprInfo::plain(TypeKind::Type, MinMax::fixed(1));
                info.size = Some(MinMax {
                    min: 0,
                    max: self.elements_max(),
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

    fn select(&mut self, select: &SelectExpr, scope: Option<&CheckScope<'_>>) -> ExprInfo {
        let operand = self.info(&select.operand, scope);
        let step = if select.test { 0 } else { 1 };
        let cost = operand.cost.plus(MinMax::fixed(step));
        let (found, is_optional) = match operand.kind() {
            TypeKind::Optional(inner) => (self.member(inner, &select.field, select.test), true),
            _ => (
                self.member(&operand.decl, &select.field, select.test),
                false,
            ),
        };
        let Some((decl, has_place)) = found else {
            return ExprInfo::plain(TypeKind::Dyn, cost);
        };
        if select.test {
            return ExprInfo::plain(TypeKind::Bool, cost);
        }
        if is_optional {
            return ExprInfo::plain(TypeKind::Optional(decl), cost);
        }
        if operand.located && has_place {
            ExprInfo::located(decl, cost)
        } else {
            ExprInfo::new(decl, cost)
        }
    }

    /// The type of a field, and true if the schema bounds the field's size.
    fn member(
        &mut self,
        decl: &DeclType,
        field: &str,
        in_has: bool,
    ) -> Option<(Arc<DeclType>, bool)> {
        match &decl.kind {
            TypeKind::Object(fields) => match super::decl::field(fields, field) {
                Some(decl) => Some((decl.clone(), true)),
                None => {
                    let at = self.source.field(field, in_has);
                    self.fail(at, &format!("undefined field '{field}'"));
                    None
                }
            },
            TypeKind::Map(_, value) => Some((value.clone(), false)),
            TypeKind::Dyn => Some((TypeKind::Dyn.plain(), false)),
            TypeKind::Opaque(authorizer::AUTHORIZER) if field == authorizer::REQUEST_RESOURCE => {
                Some((TypeKind::Opaque(authorizer::RESOURCE_CHECK).plain(), false))
            }
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

    fn fold(&mut self, fold: &ComprehensionExpr, scope: Option<&CheckScope<'_>>) -> ExprInfo {
        let range = self.info(&fold.iter_range, scope);
        let start = self.info(&fold.accu_init, scope);
        let is_container = matches!(start.kind(), TypeKind::List(_) | TypeKind::Map(..));
        let (key, value) = match range.kind() {
            TypeKind::List(_) => (
                ExprInfo::plain(TypeKind::Int, MinMax::fixed(1)),
                range.element(),
            ),
            TypeKind::Map(key, value) => {
                let place = |decl: &Arc<DeclType>| {
                    if range.located {
                        ExprInfo::located(decl.clone(), MinMax::fixed(1))
                    } else {
                        ExprInfo::new(decl.clone(), MinMax::fixed(1))
                    }
                };
                (place(key), Some(place(value)))
            }
            TypeKind::Dyn => (
                ExprInfo::plain(TypeKind::Dyn, MinMax::fixed(1)),
                Some(ExprInfo::plain(TypeKind::Dyn, MinMax::fixed(1))),
            ),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                let at = self.place(&fold.iter_range);
                return self.fail(at, &message);
            }
        };
        let mut value = value.unwrap_or_else(|| ExprInfo::plain(TypeKind::Dyn, MinMax::fixed(1)));
        let mut key = key;
        if !range.located {
            // Upstream estimates the size of such an element with the bounds of `self`.
            for info in [&mut key, &mut value] {
                info.size = Some(MinMax {
                    min: 0,
                    max: self.elements_max(),
                });
            }
        }
        let is_list = matches!(range.kind(), TypeKind::List(_));
        let accumulator = CheckScope {
            name: &fold.accu_var,
            info: start.clone(),
            outer: scope,
        };
        let first = CheckScope {
            name: &fold.iter_var,
            info: if fold.iter_var2.is_some() || !is_list {
                key
            } else {
                value.clone()
            },
            outer: Some(&accumulator),
        };
        let second = fold.iter_var2.as_deref().map(|name| CheckScope {
            name,
            info: value,
            outer: Some(&first),
        });
        let inner = second.as_ref().unwrap_or(&first);
        let condition = self.info(&fold.loop_cond, Some(inner));
        let step = self.info(&fold.loop_step, Some(inner));
        let done = CheckScope {
            name: &fold.accu_var,
            info: ExprInfo {
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
        ExprInfo {
            located: false,
            cost,
            size: if is_container {
                Some(count)
            } else {
                Some(MinMax::fixed(1))
            },
            elements: if is_container { step.elements } else { None },
            decl: result.decl,
        }
    }

    fn call(&mut self, call: &CallExpr, scope: Option<&CheckScope<'_>>) -> ExprInfo {
        let name = call.func_name.as_str();
        if let (operators::OPT_SELECT, [operand, field]) = (name, call.args.as_slice()) {
            return self.optional_select(operand, field, scope);
        }
        let qualified = call
            .target
            .as_deref()
            .and_then(|target| qualified(target, name));
        let errors = self.errors.len();
        let target = match (&call.target, &qualified) {
            (Some(target), None) => Some(self.info(target, scope)),
            _ => None,
        };
        // What is called of something wrong is told only if nothing has that name.
        if self.errors.len() > errors && super::functions::is_known(name) {
            return ExprInfo::plain(TypeKind::Dyn, MinMax::fixed(0));
        }
        let errors = self.errors.len();
        let allowed_mixed = std::mem::replace(&mut self.allows_mixed, name == "format");
        let args: Vec<ExprInfo> = call.args.iter().map(|arg| self.info(arg, scope)).collect();
        self.allows_mixed = allowed_mixed;
        if self.errors.len() > errors {
            return ExprInfo::plain(TypeKind::Dyn, MinMax::fixed(0));
        }
        let full_name = qualified.as_deref().unwrap_or(name);
        if matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR) {
            for (arg, info) in call.args.iter().zip(&args) {
                if !info.kind().agrees(&TypeKind::Bool) {
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
                self.errors.push(|| format!("{NO_PROGRAM}: {why}"));
                return ExprInfo::plain(TypeKind::Dyn, MinMax::fixed(0));
            }
            let is_right = match full_name {
                "matches" => go_regex(text.inner()).is_ok(),
                "duration" => tidings_go::parse_duration(text.inner()).is_ok(),
                "timestamp" => text.inner().parse::<jiff::Timestamp>().is_ok(),
                _ => true,
            };
            if !is_right {
                let at = self.source.argument(name);
                return self.fail(at, &format!("invalid {name} argument"));
            }
        }
        let (cost, size) = estimate::call(full_name, target.as_ref(), &args);
        let mut info = ExprInfo::new(kind, cost);
        if let Some(size) = size {
            info.size = Some(size);
        }
        match (full_name, args.as_slice()) {
            (operators::INDEX, [container, _])
                if container.located && !matches!(container.kind(), TypeKind::Optional(_)) =>
            {
                return ExprInfo::located(info.decl, cost);
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
        scope: Option<&CheckScope<'_>>,
    ) -> ExprInfo {
        let operand = self.info(operand, scope);
        let cost = operand.cost.plus(MinMax::fixed(1));
        let name = match &field.expr {
            Expr::Literal(LiteralValue::String(name)) => name.inner().to_owned(),
            _ => String::new(),
        };
        let inner = match operand.kind() {
            TypeKind::Optional(inner) => inner.clone(),
            _ => operand.decl.clone(),
        };
        match self.member(&inner, &name, false) {
            Some((decl, _)) => ExprInfo::plain(TypeKind::Optional(decl), cost),
            None => ExprInfo::plain(TypeKind::Dyn, cost),
        }
    }

    fn unknown_call(
        &mut self,
        name: &str,
        target: Option<&ExprInfo>,
        args: &[ExprInfo],
    ) -> ExprInfo {
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

fn literal_info(literal: &LiteralValue) -> ExprInfo {
    let (kind, size) = match literal {
        LiteralValue::Boolean(_) => (TypeKind::Bool, 1),
        LiteralValue::Bytes(bytes) => (TypeKind::Bytes, bytes.inner().len() as u64),
        LiteralValue::Double(_) => (TypeKind::Double, 1),
        LiteralValue::Int(_) => (TypeKind::Int, 1),
        LiteralValue::Null => (TypeKind::Null, 1),
        LiteralValue::String(text) => (TypeKind::String, text.inner().chars().count() as u64),
        LiteralValue::UInt(_) => (TypeKind::Uint, 1),
    };
    let mut info = ExprInfo::plain(kind, MinMax::fixed(0));
    info.size = Some(MinMax::fixed(size));
    info
}
