//! Expressions over one variable that is no object of a schema: the claims of a token, or a user.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr, LiteralValue, operators};
use tidings_go::GoNumber;
use tidings_json::{Map, Value};

use super::decl::{DeclType, TypeKind};
use super::eval::Evaluation;
use super::fault::EvalFault;
use super::val::Val;
use super::{check, parse};

/// The type of a variable, or of a member of one.
#[derive(Debug, Clone)]
pub enum CelType {
    /// Anything.
    Any,
    /// A text.
    Text,
    /// Texts.
    Texts,
    /// Lists of texts by name.
    TextsByName,
    /// Anything, by name.
    AnyByName,
    /// These members and no others.
    Members(Vec<(&'static str, CelType)>),
}

impl CelType {
    fn decl(&self) -> Arc<DeclType> {
        let text = || TypeKind::String.plain();
        match self {
            CelType::Any => TypeKind::Dyn.plain(),
            CelType::Text => text(),
            CelType::Texts => TypeKind::List(text()).plain(),
            CelType::TextsByName => TypeKind::Map(text(), TypeKind::List(text()).plain()).plain(),
            CelType::AnyByName => TypeKind::Map(text(), TypeKind::Dyn.plain()).plain(),
            CelType::Members(members) => {
                let members = members.iter();
                let members: BTreeMap<String, Arc<DeclType>> = members
                    .map(|(name, kind)| ((*name).to_owned(), kind.decl()))
                    .collect();
                TypeKind::Object(Arc::new(members)).plain()
            }
        }
    }
}

/// An expression over one variable.
#[derive(Debug)]
pub struct CelExpression {
    variable: &'static str,
    expr: IdedExpr,
    kind: TypeKind,
}

impl CelExpression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// If it cannot be read, or its types do not fit.
    pub fn compile(
        text: &str,
        variable: &'static str,
        kind: &CelType,
    ) -> Result<CelExpression, String> {
        let expr = parse::parse(text)?;
        let checked = check::check_named(text, &expr, variable, &kind.decl())?;
        Ok(CelExpression {
            variable,
            expr,
            kind: checked.kind,
        })
    }

    /// True if the result may be true or false.
    pub fn may_be_bool(&self) -> bool {
        matches!(self.kind, TypeKind::Bool | TypeKind::Dyn)
    }

    /// True if the expression reads a member of its variable.
    pub fn reads(&self, member: &str) -> bool {
        reads(&self.expr, self.variable, member)
    }

    /// Evaluates the expression with a value of its variable.
    ///
    /// # Errors
    /// If it fails, takes too long, or its result is no JSON.
    pub fn evaluate(&self, value: &Value) -> Result<Value, String> {
        let this = plain(value);
        let (answer, _) = Evaluation::named(self.variable, this).run(&self.expr);
        match answer {
            Ok(answer) => to_json(&answer),
            Err(EvalFault::Error(why)) => Err(why),
            Err(EvalFault::Cost) => Err("it takes too long".to_owned()),
        }
    }
}

/// The value of JSON without a schema.
fn plain(value: &Value) -> Val<'static> {
    match value {
        Value::Null => Val::Null,
        Value::Bool(value) => Val::Bool(*value),
        Value::String(text) => Val::text(text.clone()),
        Value::Number(_) => match GoNumber::of(value) {
            Some(GoNumber::Int(number)) => Val::Int(number),
            Some(GoNumber::Float(number)) => Val::Double(number),
            None => Val::Null,
        },
        Value::Array(elements) => Val::List(Arc::new(elements.iter().map(plain).collect())),
        Value::Object(members) => {
            let members = members.iter();
            let entries = members.map(|(name, value)| (Val::text(name.clone()), plain(value)));
            Val::Map(Arc::new(entries.collect()))
        }
    }
}

fn to_json(value: &Val<'_>) -> Result<Value, String> {
    Ok(match value {
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Optional(Some(inner)) => to_json(inner)?,
        Val::Bool(value) => (*value).into(),
        Val::Int(number) => (*number).into(),
        Val::Uint(number) => (*number).into(),
        Val::Double(number) => (*number).into(),
        Val::Text(text) => text.as_str().into(),
        Val::List(elements) => {
            let elements: Result<Vec<Value>, String> = elements.iter().map(to_json).collect();
            elements?.into()
        }
        Val::Map(entries) => {
            let mut members = Map::new();
            for (key, value) in entries.iter() {
                let Val::Text(key) = key else {
                    return Err("a key of the result is no text".to_owned());
                };
                members.insert(key.as_str().to_owned(), to_json(value)?);
            }
            members.into()
        }
        other => return Err(format!("the result is of the type {}", other.type_name())),
    })
}

fn is_variable(expr: &IdedExpr, variable: &str) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name == variable)
}

fn reads(expr: &IdedExpr, variable: &str, member: &str) -> bool {
    let inner = |expr: &IdedExpr| reads(expr, variable, member);
    match &expr.expr {
        Expr::Select(select) => {
            is_variable(&select.operand, variable) && select.field == member
                || inner(&select.operand)
        }
        Expr::Call(call) => {
            let is_named = |expr: &IdedExpr| matches!(&expr.expr, Expr::Literal(LiteralValue::String(text)) if text.inner() == member);
            let selects = match call.args.as_slice() {
                [operand, name]
                    if matches!(&*call.func_name, operators::OPT_SELECT | operators::INDEX) =>
                {
                    is_variable(operand, variable) && is_named(name)
                }
                _ => false,
            };
            selects || call.args.iter().any(inner) || call.target.as_deref().is_some_and(inner)
        }
        Expr::List(list) => list.elements.iter().any(inner),
        Expr::Map(map) => map.entries.iter().any(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => inner(&entry.key) || inner(&entry.value),
            EntryExpr::StructField(field) => inner(&field.value),
        }),
        Expr::Comprehension(fold) => [
            &fold.iter_range,
            &fold.accu_init,
            &fold.loop_cond,
            &fold.loop_step,
            &fold.result,
        ]
        .into_iter()
        .any(inner),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_json::json;

    fn claims(text: &str) -> Result<CelExpression, String> {
        CelExpression::compile(text, "claims", &CelType::AnyByName)
    }

    #[test]
    fn claims_are_read_by_expressions() {
        let token = json!({
            "sub": "u1", "email": "a@example.com", "email_verified": true, "roles": ["a", "b"], "n": 3,
            "realm": {"name": "x"}, "https://x/y": "z",
        });
        for (text, expected) in [
            ("claims.sub", json!("u1")),
            ("'oidc:' + claims.sub", json!("oidc:u1")),
            ("claims.roles.map(role, 'x:' + role)", json!(["x:a", "x:b"])),
            ("claims.roles.filter(role, role != 'a')", json!(["b"])),
            ("claims.realm.name == 'x' && claims.n > 2", json!(true)),
            (
                "has(claims.missing) ? claims.missing : 'none'",
                json!("none"),
            ),
            ("claims['https://x/y']", json!("z")),
            ("claims.?missing.orValue('')", json!("")),
            (
                "claims.sub.startsWith('u') ? claims.email.split('@')[0] : ''",
                json!("a"),
            ),
            ("null", json!(null)),
        ] {
            let found = claims(text).unwrap().evaluate(&token);
            assert_eq!(found, Ok(expected), "{text}");
        }
        let missing = claims("claims.missing")
            .unwrap()
            .evaluate(&token)
            .unwrap_err();
        assert_eq!(missing, "no such key: missing");
        assert!(
            claims("self.sub")
                .unwrap_err()
                .contains("undeclared reference to 'self'")
        );
        assert!(claims("claims.sub +").is_err());
        assert!(claims("claims.sub == 'a'").unwrap().may_be_bool());
        assert!(!claims("'a'").unwrap().may_be_bool());
        assert!(
            claims("claims.email + claims.?x.orValue('')")
                .unwrap()
                .reads("email")
        );
        assert!(
            claims("claims.?email_verified.orValue(true)")
                .unwrap()
                .reads("email_verified")
        );
        assert!(!claims("claims.sub").unwrap().reads("email"));
    }

    #[test]
    fn a_user_has_only_its_members() {
        let kind = CelType::Members(vec![
            ("username", CelType::Text),
            ("groups", CelType::Texts),
            ("extra", CelType::TextsByName),
        ]);
        let compile = |text: &str| CelExpression::compile(text, "user", &kind);
        let user = json!({"username": "ann", "groups": ["dev"], "extra": {"a/b": ["c"]}});
        let rule = "!user.username.startsWith('system:') && user.groups.all(group, !group.startsWith('system:'))";
        assert_eq!(compile(rule).unwrap().evaluate(&user), Ok(json!(true)));
        assert_eq!(
            compile("user.extra['a/b'][0]").unwrap().evaluate(&user),
            Ok(json!("c"))
        );
        assert!(
            compile("user.name")
                .unwrap_err()
                .contains("undefined field 'name'")
        );
    }
}
