//! From the claims of a token to a user.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tidings_access::User;
use tidings_structural::{CelExpression, CelType};

/// The id of a credential, in what is known of a user.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Where a part of a user comes from.
#[derive(Debug)]
pub(crate) enum Mapping {
    /// A claim, behind a prefix.
    Claim {
        name: String,
        prefix: String,
    },
    Expression(CelExpression),
}

/// How claims become a user.
#[derive(Debug)]
pub(crate) struct Mappings {
    pub(crate) username: Mapping,
    pub(crate) groups: Option<Mapping>,
    pub(crate) uid: Option<Mapping>,
    pub(crate) extra: Vec<(String, CelExpression)>,
    /// Claims that must have these values.
    pub(crate) required: BTreeMap<String, String>,
    /// What claims must fulfil, and what is said if they do not.
    pub(crate) claim_rules: Vec<(CelExpression, String)>,
    /// What users must fulfil.
    pub(crate) user_rules: Vec<(CelExpression, String)>,
}

/// The type of `user` in expressions.
pub(crate) fn user_type() -> CelType {
    CelType::Members(vec![
        ("username", CelType::Text),
        ("uid", CelType::Text),
        ("groups", CelType::Texts),
        ("extra", CelType::TextsByName),
    ])
}

fn tree(value: &Value) -> tidings_json::Value {
    serde_json::from_str(&value.to_string()).unwrap_or_default()
}

fn expression_failed(what: &str, why: &str) -> String {
    format!("oidc: error evaluating {what} expression: {why}")
}

/// Texts from the result of an expression: one, several, or none.
fn texts(value: &tidings_json::Value) -> Result<Vec<String>, String> {
    use tidings_json::Value;
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) if text.is_empty() => Ok(Vec::new()),
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(elements) => {
            let mut all = Vec::new();
            for element in elements {
                match element {
                    Value::String(text) if text.is_empty() => {}
                    Value::String(text) => all.push(text.clone()),
                    _ => {
                        return Err(
                            "expression must return a string or a list of strings".to_owned()
                        );
                    }
                }
            }
            Ok(all)
        }
        _ => Err("expression must return a string or a list of strings".to_owned()),
    }
}

impl Mappings {
    /// The user of a token with these claims.
    pub(crate) fn user(&self, claims: &Map<String, Value>) -> Result<User, String> {
        let value = tree(&Value::Object(claims.clone()));
        let mut user = User {
            name: self.username(claims, &value)?,
            groups: self.groups(claims, &value)?,
            uid: self.uid(claims, &value)?,
            extra: BTreeMap::new(),
        };
        if let Some(id) = claims
            .get("jti")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty())
        {
            user.extra
                .insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        for (key, expression) in &self.extra {
            let what = "extra claim";
            let found = expression
                .evaluate(&value)
                .map_err(|why| expression_failed(what, &why))?;
            let found = texts(&found).map_err(|why| expression_failed(what, &why))?;
            if !found.is_empty() {
                user.extra.insert(key.clone(), found);
            }
        }
        for (claim, wanted) in &self.required {
            match claims.get(claim) {
                None => {
                    return Err(format!(
                        "oidc: required claim {claim} not present in ID token"
                    ));
                }
                Some(Value::String(found)) if found == wanted => {}
                Some(Value::String(found)) => {
                    return Err(format!(
                        "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
                    ));
                }
                Some(_) => return Err(format!("oidc: parse claim {claim}: it is not a text")),
            }
        }
        check_rules(&self.claim_rules, &value, "claim validation")?;
        if !self.user_rules.is_empty() {
            let shown = serde_json::json!({
                "username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra,
            });
            check_rules(&self.user_rules, &tree(&shown), "user info validation rule")?;
        }
        Ok(user)
    }

    fn username(
        &self,
        claims: &Map<String, Value>,
        value: &tidings_json::Value,
    ) -> Result<String, String> {
        match &self.username {
            Mapping::Expression(expression) => {
                let what = "username claim";
                let found = expression
                    .evaluate(value)
                    .map_err(|why| expression_failed(what, &why))?;
                match found.as_str() {
                    Some("") => {
                        Err("oidc: empty username via CEL expression is not allowed".to_owned())
                    }
                    Some(name) => Ok(name.to_owned()),
                    None => Err(expression_failed(
                        what,
                        "username claim expression must return a string",
                    )),
                }
            }
            Mapping::Claim { name, prefix } => {
                let found = claims.get(name).and_then(Value::as_str);
                let found = found.ok_or_else(|| {
                    format!("oidc: parse username claims {name:?}: claim not present")
                })?;
                let verified = claims.get("email_verified").filter(|_| name == "email");
                match verified {
                    None | Some(Value::Bool(true)) => Ok(format!("{prefix}{found}")),
                    Some(Value::Bool(false)) => Err("oidc: email not verified".to_owned()),
                    Some(_) => Err(
                        "oidc: parse 'email_verified' claim: it is not true or false".to_owned(),
                    ),
                }
            }
        }
    }

    fn groups(
        &self,
        claims: &Map<String, Value>,
        value: &tidings_json::Value,
    ) -> Result<Vec<String>, String> {
        match &self.groups {
            None => Ok(Vec::new()),
            Some(Mapping::Expression(expression)) => {
                let found = expression.evaluate(value).and_then(|found| texts(&found));
                found.map_err(|why| expression_failed("group claim", &why))
            }
            Some(Mapping::Claim { name, prefix }) => {
                let wrong = || {
                    format!(
                        "oidc: parse groups claim {name:?}: it is neither a text nor a list of texts"
                    )
                };
                let found: Vec<&str> = match claims.get(name) {
                    None => Vec::new(),
                    Some(Value::String(one)) => vec![one],
                    Some(Value::Array(many)) => {
                        let many: Option<Vec<&str>> = many.iter().map(Value::as_str).collect();
                        many.ok_or_else(wrong)?
                    }
                    Some(_) => return Err(wrong()),
                };
                Ok(found
                    .into_iter()
                    .map(|group| format!("{prefix}{group}"))
                    .collect())
            }
        }
    }

    fn uid(
        &self,
        claims: &Map<String, Value>,
        value: &tidings_json::Value,
    ) -> Result<String, String> {
        match &self.uid {
            None => Ok(String::new()),
            Some(Mapping::Claim { name, .. }) => {
                let found = claims.get(name).and_then(Value::as_str);
                let found = found
                    .ok_or_else(|| format!("oidc: parse uid claim {name:?}: claim not present"))?;
                Ok(found.to_owned())
            }
            Some(Mapping::Expression(expression)) => {
                let found = expression
                    .evaluate(value)
                    .map_err(|why| expression_failed("uid claim", &why))?;
                let found = found.as_str();
                let found = found.ok_or_else(|| {
                    expression_failed("uid claim", "uid claim expression must return a string")
                })?;
                Ok(found.to_owned())
            }
        }
    }
}

fn check_rules(
    rules: &[(CelExpression, String)],
    value: &tidings_json::Value,
    what: &str,
) -> Result<(), String> {
    let separator = match what {
        "claim validation" => "claim validation expression",
        what => what,
    };
    for (rule, message) in rules {
        let failed = |why: &str| Err(format!("oidc: error evaluating {separator}: {why}"));
        match rule.evaluate(value) {
            Ok(tidings_json::Value::Bool(true)) => {}
            Ok(_) if message.is_empty() => return failed("validation expression failed"),
            Ok(_) => return failed(&format!("validation expression failed: {message}")),
            Err(why) => return failed(&why),
        }
    }
    Ok(())
}
