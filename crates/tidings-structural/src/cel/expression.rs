//! Expressions over one variable that is no object of a schema: the claims of a token, or a user.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr, LiteralValue, operators};
use tidings_json::Value;

use super::cel_type::CelType;
use super::decl::TypeKind;
use super::eval::Evaluation;
use super::fault::EvalFault;
use super::val::Val;
use super::{check, parse};

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
        let checked = check::check(text, &expr, &[(variable, kind.decl())])?;
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
        let this = Val::of_json(value);
        let (answer, _) = Evaluation::new(&[(self.variable, this)]).run(&self.expr);
        match answer {
            Ok(answer) => answer.to_json(),
            Err(EvalFault::Error(why)) => Err(why),
            Err(EvalFault::Cost) => Err("it takes too long".to_owned()),
        }
    }
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
