//! Expressions over several variables, of which some are expressions themselves: those of admission.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{EntryExpr, Expr};
use tidings_json::Value;

use super::authorizer::{Access, AccessCheck, CelAuthorizer};
use super::cel_type::CelType;
use super::decl::{DeclType, TypeKind};
use super::eval::{COMPOSED, Evaluation, Variables};
use super::fault::{EvalFault, EvalResult};
use super::val::{NO_OVERLOAD, Val};
use super::{check, parse};

/// The variables that expressions can use.
#[derive(Clone, Default)]
pub struct CelEnvironment {
    variables: Vec<(&'static str, Arc<DeclType>)>,
    /// The types of `variables.name`, if there is such a variable.
    composed: Option<BTreeMap<String, Arc<DeclType>>>,
    /// Expressions may make objects and patches.
    makes_objects: bool,
}

impl fmt::Debug for CelEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.variables.iter().map(|(name, _)| name);
        f.debug_list().entries(names).finish()
    }
}

/// A compiled expression.
pub struct CelProgram {
    expr: IdedExpr,
    kind: TypeKind,
    cost_max: u64,
    /// The variables that are expressions, and that this one reads.
    uses: Vec<String>,
}

impl fmt::Debug for CelProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CelProgram({})", self.kind)
    }
}

/// Why an expression has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CelFault {
    /// It failed, with this message.
    Failed(String),
    /// It takes too long.
    TooExpensive,
}

/// The value of a variable.
pub enum CelValue<'a> {
    /// JSON without a schema.
    Json(&'a Value),
    /// Asks what a user may do; with what `authorizer.requestResource` means.
    Authorizer(Arc<dyn CelAuthorizer>, Arc<AccessCheck>),
}

/// The values of all variables, for the expressions of one request.
pub struct CelInput<'a> {
    values: Vec<(&'static str, Val<'a>)>,
    composed: HashMap<String, EvalResult<'a>>,
    /// What all expressions together may still cost.
    budget: u64,
}

impl fmt::Debug for CelInput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CelInput(budget {})", self.budget)
    }
}

impl CelEnvironment {
    /// Expressions over these variables.
    pub fn new(variables: &[(&'static str, CelType)]) -> CelEnvironment {
        let variables = variables.iter();
        CelEnvironment {
            variables: variables.map(|(name, kind)| (*name, kind.decl())).collect(),
            composed: None,
            makes_objects: false,
        }
    }

    /// Expressions that may also make objects, `Object.spec{replicas: 1}`, and operations of patches, `JSONPatch{op: "remove", path: "/spec"}`.
    #[must_use]
    pub fn making_objects(mut self) -> CelEnvironment {
        self.makes_objects = true;
        self
    }

    /// Expressions that may also use `variables`, of which there is none yet.
    #[must_use]
    pub fn composing(mut self) -> CelEnvironment {
        self.composed = Some(BTreeMap::new());
        self
    }

    /// Adds a variable that is an expression: `variables.name`.
    pub fn compose(&mut self, name: &str, program: &CelProgram) {
        let kind = program.kind.clone().plain();
        self.composed
            .get_or_insert_default()
            .insert(name.to_owned(), kind);
    }

    /// Compiles an expression.
    ///
    /// # Errors
    /// If it cannot be read, or its types do not fit: all errors with line and column, in the format of cel-go.
    pub fn compile(&self, text: &str) -> Result<CelProgram, String> {
        let expr = parse::parse(text)?;
        let mut variables = self.variables.clone();
        if let Some(composed) = &self.composed {
            let members = TypeKind::Object(Arc::new(composed.clone()));
            variables.push((COMPOSED, members.plain()));
        }
        let checked = check::check_with(text, &expr, &variables, self.makes_objects)?;
        let mut uses = Vec::new();
        composed_names(&expr, &mut uses);
        Ok(CelProgram {
            expr,
            kind: checked.kind,
            cost_max: checked.cost_max,
            uses,
        })
    }
}

impl CelProgram {
    /// The name of the type of the result.
    pub fn type_name(&self) -> String {
        self.kind.to_string()
    }

    /// True if the result is true or false.
    pub fn is_bool(&self) -> bool {
        matches!(self.kind, TypeKind::Bool)
    }

    /// True if the result is a text.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, TypeKind::String)
    }

    /// True if the result is an object that the expression makes.
    pub fn is_object(&self) -> bool {
        matches!(&self.kind, TypeKind::Made(name) if **name == *check::OBJECT)
    }

    /// True if the result is a list of operations of a patch.
    pub fn is_patch(&self) -> bool {
        let TypeKind::List(element) = &self.kind else {
            return false;
        };
        matches!(&element.kind, TypeKind::Made(name) if **name == *check::JSON_PATCH)
    }

    /// True if the result is null.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, TypeKind::Null)
    }

    /// The most that an evaluation may cost, as estimated from the types.
    pub fn cost_max(&self) -> u64 {
        self.cost_max
    }

    /// The variables that are expressions, and that this one reads.
    pub fn uses(&self) -> impl Iterator<Item = &str> {
        self.uses.iter().map(String::as_str)
    }
}

impl<'a> CelInput<'a> {
    /// The values of the variables, and what all evaluations together may cost.
    pub fn new(values: Vec<(&'static str, CelValue<'a>)>, budget: u64) -> CelInput<'a> {
        let values = values.into_iter().map(|(name, value)| {
            let value = match value {
                CelValue::Json(json) => Val::of_json(json),
                CelValue::Authorizer(authorizer, request) => {
                    Val::Access(Arc::new(Access::new(authorizer, request)))
                }
            };
            (name, value)
        });
        CelInput {
            values: values.collect(),
            composed: HashMap::new(),
            budget,
        }
    }

    /// True if `variables.name` has been evaluated.
    pub fn has(&self, name: &str) -> bool {
        self.composed.contains_key(name)
    }

    /// Evaluates an expression whose result becomes `variables.name`.
    pub fn compose(&mut self, name: &str, program: &CelProgram) {
        if self.composed.contains_key(name) {
            return;
        }
        let value = self.run(program).map_err(|fault| match fault {
            EvalFault::Error(why) => EvalFault::Error(format!(
                "composited variable {} fails to evaluate: {why}",
                tidings_go::quote(name)
            )),
            EvalFault::Cost => EvalFault::Cost,
        });
        self.composed.insert(name.to_owned(), value);
    }

    /// Evaluates an expression.
    ///
    /// # Errors
    /// If it fails, or takes too long.
    pub fn evaluate(&mut self, program: &CelProgram) -> Result<Value, CelFault> {
        let answer = self.run(program).and_then(|value| match &value {
            Val::Access(_) => Err(EvalFault::Error(NO_OVERLOAD.to_owned())),
            value => value.to_json().map_err(EvalFault::Error),
        });
        answer.map_err(|fault| match fault {
            EvalFault::Error(why) => CelFault::Failed(why),
            EvalFault::Cost => CelFault::TooExpensive,
        })
    }

    fn run(&mut self, program: &CelProgram) -> EvalResult<'a> {
        let variables = Variables {
            values: &self.values,
            composed: Some(&self.composed),
        };
        let (answer, cost) = Evaluation::of(variables).run(&program.expr);
        if cost > self.budget {
            self.budget = 0;
            return Err(EvalFault::Cost);
        }
        self.budget -= cost;
        answer
    }
}

/// Finds the names in `variables.name`.
fn composed_names(expr: &IdedExpr, found: &mut Vec<String>) {
    if let Expr::Select(select) = &expr.expr
        && matches!(&select.operand.expr, Expr::Ident(name) if name == COMPOSED)
    {
        found.push(select.field.clone());
        return;
    }
    let mut inner = |expr: &IdedExpr| composed_names(expr, found);
    match &expr.expr {
        Expr::Select(select) => inner(&select.operand),
        Expr::Call(call) => {
            if let Some(target) = &call.target {
                inner(target);
            }
            call.args.iter().for_each(inner);
        }
        Expr::List(list) => list.elements.iter().for_each(inner),
        Expr::Map(map) => {
            for entry in &map.entries {
                match &entry.expr {
                    EntryExpr::MapEntry(entry) => {
                        inner(&entry.key);
                        inner(&entry.value);
                    }
                    EntryExpr::StructField(field) => inner(&field.value),
                }
            }
        }
        Expr::Struct(made) => {
            for entry in &made.entries {
                if let EntryExpr::StructField(field) = &entry.expr {
                    inner(&field.value);
                }
            }
        }
        Expr::Comprehension(fold) => {
            let parts = [
                &fold.iter_range,
                &fold.accu_init,
                &fold.loop_cond,
                &fold.loop_step,
                &fold.result,
            ];
            parts.into_iter().for_each(inner);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use crate::CelDecision;

    use tidings_json::json;

    use super::*;

    fn environment() -> CelEnvironment {
        CelEnvironment::new(&[
            ("object", CelType::Any),
            ("oldObject", CelType::Any),
            ("authorizer", CelType::Authorizer),
        ])
    }

    /// Allows the verb `get`, and remembers what it was asked.
    #[derive(Default)]
    struct Reader(Mutex<Vec<AccessCheck>>);

    impl CelAuthorizer for Reader {
        fn decide(&self, check: &AccessCheck) -> CelDecision {
            self.0.lock().unwrap().push(check.clone());
            CelDecision {
                allowed: check.verb == "get",
                reason: "asked".into(),
                error: None,
            }
        }
    }

    #[test]
    fn expressions_make_objects_and_patches_where_they_may() {
        let object = json!({"list": ["a", "b"]});
        let environment = environment().making_objects();
        for (text, expected) in [
            ("Object{}", json!({})),
            (
                "Object{spec: Object.spec{size: 1 + 1, ?gone: optional.none()}}",
                json!({"spec": {"size": 2}}),
            ),
            (
                "object.list.map(x, JSONPatch{op: 'add', path: '/' + x})",
                json!([{"op": "add", "path": "/a"}, {"op": "add", "path": "/b"}]),
            ),
        ] {
            let program = environment.compile(text).unwrap();
            assert_eq!(program.is_object(), text.starts_with("Object"));
            assert_eq!(program.is_patch(), text.starts_with("object"));
            let values = vec![("object", CelValue::Json(&object))];
            let made = CelInput::new(values, 1000).evaluate(&program);
            assert_eq!(made, Ok(expected), "{text}");
        }
        for (text, why) in [
            ("Odd{}", "undeclared reference to 'Odd'"),
            (
                "JSONPatch{op: 1}",
                "expected type of field 'op' is 'string' but provided type is 'int'",
            ),
            ("Object{spec: odd}", "undeclared reference to 'odd'"),
        ] {
            let error = environment.compile(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let elsewhere = super::tests::environment().compile("Object{}").unwrap_err();
        assert!(elsewhere.contains("undeclared reference to 'Object'"));
    }

    #[test]
    fn expressions_read_several_variables_without_a_schema() {
        let (object, none) = (
            json!({"metadata": {"labels": {"a-b": "c"}}, "spec": {"replicas": 3, "list": [1, {"x": "y"}]}}),
            Value::Null,
        );
        for (text, expected) in [
            ("object.spec.replicas > 2", Ok(json!(true))),
            ("object.metadata.labels['a-b']", Ok(json!("c"))),
            ("oldObject == null", Ok(json!(true))),
            ("object.spec.list[1].x", Ok(json!("y"))),
            ("object.spec.list.exists(e, e == 1)", Ok(json!(true))),
            ("object.spec", Ok(object["spec"].clone())),
            ("has(object.spec.missing)", Ok(json!(false))),
            (
                "object.spec == {'list': dyn([dyn(1), dyn({'x': 'y'})]), 'replicas': dyn(3)}",
                Ok(json!(true)),
            ),
            (
                "object.spec.missing",
                Err(CelFault::Failed("no such key: missing".into())),
            ),
        ] {
            let program = environment().compile(text).unwrap();
            let values = vec![
                ("object", CelValue::Json(&object)),
                ("oldObject", CelValue::Json(&none)),
            ];
            let mut input = CelInput::new(values, 1_000_000);
            assert_eq!(input.evaluate(&program), expected, "{text}");
        }
        let wrong = environment().compile("object.a && missing").unwrap_err();
        assert!(
            wrong.contains("undeclared reference to 'missing'"),
            "{wrong}"
        );
    }

    #[test]
    fn a_variable_that_is_an_expression_fails_only_where_it_is_read() {
        let mut environment = environment();
        let object = json!({"spec": {"replicas": 3}});
        let mut input = CelInput::new(vec![("object", CelValue::Json(&object))], 1_000_000);
        for (name, text) in [
            ("replicas", "object.spec.replicas"),
            ("twice", "variables.replicas * 2"),
            ("broken", "object.spec.missing"),
        ] {
            let program = environment.compile(text).unwrap();
            environment.compose(name, &program);
            input.compose(name, &program);
        }
        let mut run = |text: &str| {
            let program = environment.compile(text).unwrap();
            input.evaluate(&program)
        };
        assert_eq!(
            run("variables.twice == 6 || variables.broken == 1"),
            Ok(json!(true))
        );
        let why = "composited variable \"broken\" fails to evaluate: no such key: missing";
        assert_eq!(run("variables.broken"), Err(CelFault::Failed(why.into())));
        let wrong = environment.compile("variables.other").unwrap_err();
        assert!(wrong.contains("undefined field 'other'"), "{wrong}");
        let program = environment
            .compile("variables.twice + variables.replicas")
            .unwrap();
        assert_eq!(program.uses().collect::<Vec<_>>(), ["twice", "replicas"]);
    }

    #[test]
    fn an_authorizer_is_asked() {
        let reader = Arc::new(Reader::default());
        let request = AccessCheck {
            resource: "pods".into(),
            name: "p".into(),
            ..AccessCheck::default()
        };
        let asks = "authorizer.group('apps').resource('deployments').namespace('n').check('get').allowed()";
        for (text, expected) in [
            (asks, json!(true)),
            (
                "authorizer.path('/healthz').check('post').allowed()",
                json!(false),
            ),
            (
                "authorizer.requestResource.check('get').reason()",
                json!("asked"),
            ),
            (
                "authorizer.serviceAccount('n', 'a').group('').resource('pods').check('list').errored()",
                json!(false),
            ),
        ] {
            let program = environment().compile(text).unwrap();
            let authorizer = CelValue::Authorizer(reader.clone(), Arc::new(request.clone()));
            let mut input = CelInput::new(vec![("authorizer", authorizer)], 10_000_000);
            assert_eq!(input.evaluate(&program), Ok(expected), "{text}");
        }
        let asked = reader.0.lock().unwrap();
        assert_eq!((&*asked[0].group, &*asked[0].namespace), ("apps", "n"));
        assert_eq!(asked[1].path.as_deref(), Some("/healthz"));
        assert_eq!((&*asked[2].resource, &*asked[2].verb), ("pods", "get"));
        assert_eq!(asked[3].service_account, Some(("n".into(), "a".into())));
        let wrong = environment()
            .compile("authorizer.resource('x')")
            .unwrap_err();
        assert!(wrong.contains("no matching overload"), "{wrong}");
    }

    #[test]
    fn all_expressions_of_a_request_share_a_budget() {
        let list: Value = (0..1000).map(Value::from).collect::<Vec<_>>().into();
        let program = environment().compile("object.all(e, e >= 0)").unwrap();
        let mut input = CelInput::new(vec![("object", CelValue::Json(&list))], 10_000);
        assert_eq!(input.evaluate(&program), Ok(json!(true)));
        assert_eq!(input.evaluate(&program), Err(CelFault::TooExpensive));
    }
}
