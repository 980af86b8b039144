//! Evaluation of rules: cost limits, and the values that rules can use.

use tidings_api::FieldErrors;
use tidings_json::{Value, json};
use tidings_structural::{CompileOptions, Schema};

fn compile(properties: &Value) -> Schema {
    let schema = json!({"type": "object", "properties": properties});
    Schema::compile(&schema, "schema", CompileOptions::default())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

fn errors(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut errors = FieldErrors::new();
    schema.validate(new, old, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn ones(count: usize) -> Value {
    json!({"l": vec![1; count]})
}

/// Each rule visits every pair at a cost of about 7 per pair, so 350 elements cost some 850 000 and 400 over a million.
fn pairs(rules: usize) -> Schema {
    let rules: Vec<Value> = (0..rules)
        .map(|index| json!({"rule": format!("self.all(x, self.all(y, x + y > -{index}))")}))
        .collect();
    compile(
        &json!({"l": {"type": "array", "maxItems": 400, "items": {"type": "integer"}, "x-kubernetes-validations": rules}}),
    )
}

#[test]
fn a_call_may_not_cost_too_much() {
    assert_eq!(errors(&pairs(1), &ones(350), None), [""; 0]);
    assert_eq!(
        errors(&pairs(2), &ones(400), None),
        [
            "l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to \
          call cost exceeds limit for rule: self.all(x, self.all(y, x + y > -0))"
        ]
    );
}

#[test]
fn all_rules_of_an_object_share_a_budget() {
    assert_eq!(errors(&pairs(8), &ones(350), None), [""; 0]);
    assert_eq!(
        errors(&pairs(14), &ones(350), None),
        [
            "l: Invalid value: \"array\": validation failed due to running out of cost budget, no further validation rules will be run"
        ]
    );
}

#[test]
fn messages_share_the_budget() {
    let schema = compile(
        &json!({"l": {"type": "array", "maxItems": 400, "items": {"type": "integer"}, "x-kubernetes-validations": [
            {"rule": "false", "messageExpression": "self.all(x, self.all(y, x + y > 0)) ? 'made' : ''"},
            {"rule": "false", "message": "never told"},
        ]}}),
    );
    assert_eq!(
        errors(&schema, &ones(2), None),
        ["l: Invalid value: made", "l: Invalid value: never told"]
    );
    assert_eq!(
        errors(&schema, &ones(400), None),
        [
            "l: Invalid value: \"array\": no further validation rules will be run due to call cost exceeds limit for messageExpression: \
          \"self.all(x, self.all(y, x + y > 0)) ? 'made' : ''\""
        ]
    );
}

#[test]
fn a_text_may_not_grow_without_bound() {
    // The rule costs little, but its result would have gigabytes.
    let rule = json!([{"rule": "self.a.replace('a', self.b) == self.b"}]);
    let text = json!({"type": "string", "maxLength": 20000});
    let schema = compile(
        &json!({"o": {"type": "object", "properties": {"a": text, "b": text}, "x-kubernetes-validations": rule}}),
    );
    let long = "a".repeat(20000);
    let found = errors(&schema, &json!({"o": {"a": long, "b": long}}), None);
    assert_eq!(
        found,
        [
            "o: Invalid value: \"object\": the result of replace is too large evaluating rule: self.a.replace('a', self.b) == self.b"
        ]
    );
}

#[test]
fn rules_are_skipped_when_the_object_has_other_errors() {
    let schema = compile(&json!({
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]},
        "b": {"type": "string"},
    }));
    assert_eq!(
        errors(&schema, &json!({"a": 1, "b": "x"}), None),
        ["a: Invalid value: 1: failed rule: self > 5"]
    );
    let both = [
        "b: Invalid value: \"integer\": b in body must be of type string: \"integer\"",
        "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to \
         complete validation",
    ];
    assert_eq!(errors(&schema, &json!({"a": 1, "b": 2}), None), both);

    let mut found = FieldErrors::new();
    found.push(tidings_api::FieldError::required("metadata.name", ""));
    schema.validate(&json!({"a": 1}), None, &mut found);
    assert_eq!(found.len(), 2, "errors found before count too");
    assert!(
        found
            .to_string()
            .contains("some validation rules were not checked")
    );
}

#[test]
fn w181_a_status_is_validated_by_its_own_part() {
    let schema = compile(&json!({
        "spec": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5}}},
        "status": {"type": "object", "properties": {
            "a": {"type": "integer", "minimum": 5},
            "b": {"type": "integer", "minimum": 5},
            "c": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
        }},
    }));
    let old = json!({"spec": {"a": 1}, "status": {"a": 1, "b": 5, "c": 3}});
    let mut found = FieldErrors::new();
    let new = json!({"spec": {"a": 2}, "status": {"a": 1, "b": 2, "c": 2}});
    schema.validate_status(&new, &old, &mut found);
    assert_eq!(
        found.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "status.b: Invalid value: 2: b in body should be greater than or equal to 5",
            "status.c: Invalid value: 2: failed rule: self >= oldSelf",
        ],
        "the spec is not looked at, and what has not changed is let through"
    );
}

#[test]
fn a_definition_with_a_status_says_little_at_its_root() {
    let options = CompileOptions::default().with_status_subresource(true);
    let errors = Schema::compile(
        &json!({"type": "object", "maxProperties": 3}),
        "schema",
        options,
    )
    .expect_err("it says more");
    let text = errors.to_string();
    // The schema is printed as upstream's struct, with all its fields.
    assert!(
        text.starts_with(r#"schema: Invalid value: {"ID":"","Schema":"","Ref":null,"#),
        "{text}"
    );
    assert!(text.contains(r#","MaxProperties":3,"#), "{text}");
    assert!(
        text.contains(r#""XValidations":null}: only [Description Type "#),
        "{text}"
    );
    assert!(
        text.ends_with(
            "fields are allowed at the root of the schema if the status subresource is enabled"
        ),
        "{text}"
    );
    let fine = json!({"type": "object", "description": "d", "required": ["spec"], "properties": {"spec": {"type": "object"}}});
    assert!(Schema::compile(&fine, "schema", options).is_ok());
}

#[test]
fn defaults_must_satisfy_rules() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "integer", "default": 3, "x-kubernetes-validations": [{"rule": "self > 5"}]},
    }});
    let errors = Schema::compile(&schema, "schema", CompileOptions::default())
        .expect_err("3 is not more than 5");
    assert_eq!(
        errors.to_string(),
        "schema.properties[a].default: Invalid value: 3: failed rule: self > 5"
    );
}

#[test]
fn schemas_have_a_depth() {
    let nested = |levels: usize| {
        let rule = json!([{"rule": "self.size() < 3"}]);
        let deep = (0..levels).fold(json!({"type": "string", "default": "a"}), |inner, _| {
            json!({"type": "array", "maxItems": 1, "items": inner, "x-kubernetes-validations": rule})
        });
        Schema::compile(
            &json!({"type": "object", "properties": {"a": deep}}),
            "schema",
            CompileOptions::default(),
        )
    };
    let schema = nested(60).expect("it is not too deep");
    let object = (0..60).fold(json!(["x", "x"]), |inner, _| json!([inner]));
    let mut object = json!({"a": object});
    schema.prune(&mut object);
    schema.default(&mut object);
    assert!(
        !errors(&schema, &object, Some(&object.clone())).is_empty()
            || !errors(&schema, &object, None).is_empty()
    );

    let found = nested(200).expect_err("it is too deep");
    assert!(
        found
            .to_string()
            .ends_with("must not be nested deeper than 64 schemas"),
        "{found}"
    );
}

/// The errors of the integer 1 by a rule, or of the rule itself.
fn rule(text: &str) -> Result<Vec<String>, String> {
    // A rule with several lines needs a message.
    let rules = json!([{"rule": text, "message": "refused"}]);
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "x-kubernetes-validations": rules}}});
    let schema = Schema::compile(&schema, "schema", CompileOptions::default());
    schema
        .map(|schema| errors(&schema, &json!({"a": 1}), None))
        .map_err(|errors| errors.to_string())
}

fn is_too_deep(text: &str) {
    let found = rule(text).expect_err("it is too deep");
    assert!(
        found.contains("expression recursion limit exceeded: 125"),
        "{found}"
    );
}

#[test]
fn rules_have_a_depth() {
    let fine = [
        format!("{}true{}", "(".repeat(50), ")".repeat(50)),
        format!("{}true{}", "[1].all(x, ".repeat(30), ")".repeat(30)),
        format!("{} > 0", vec!["self"; 100].join(" + ")),
        vec!["self > 0"; 1000].join(" && "),
        format!(
            "optional.of(self){}.hasValue()",
            ".optMap(x, x + 1)".repeat(30)
        ),
    ];
    for text in fine {
        assert_eq!(rule(&text), Ok(Vec::new()), "{text}");
    }
    let too_deep = [
        format!("{}true{}", "(".repeat(5000), ")".repeat(5000)),
        format!("{}1{} == []", "[".repeat(1000), "]".repeat(1000)),
        format!("{} > 0", vec!["self"; 5000].join(" + ")),
        format!("{}false", "self > 0 ? true : ".repeat(1000)),
        format!("self{} == 1", ".x".repeat(3000)),
        format!(
            "optional.of(self){}.hasValue()",
            ".optMap(x, x + 1)".repeat(500)
        ),
    ];
    for text in too_deep {
        is_too_deep(&text);
    }
}

#[test]
fn quotes_do_not_hide_depth() {
    let deep = format!("{}1{} == []", "[".repeat(500), "]".repeat(500));
    // The lexer reads what follows each of these as part of the expression.
    for before in [
        "// it's\n",
        "'//'.size() == 1 || // \"\n",
        "r'\\' == '' || ",
        "'''\n\\'// ''' == '' ||",
        "'\n",
        "'\\q",
        "|'",
        "`a//b`",
    ] {
        is_too_deep(&format!("{before}{deep}"));
    }
    // And this as strings and comments.
    let quoted = "[".repeat(5000);
    for text in [
        format!("true // {quoted}"),
        format!("true // it's {quoted}\n|| 'a//' == '// {quoted}'"),
        format!(r"r'\' != '{quoted}' // '"),
        format!("'''\n{quoted}''' != \"'\""),
    ] {
        assert_eq!(rule(&text), Ok(Vec::new()), "{text}");
    }
}

#[test]
fn two_signs_mean_nothing() {
    let refused = Ok(vec!["a: Invalid value: 1: refused".to_owned()]);
    for (text, expected) in [
        ("!!(self == 1)", Ok(Vec::new())),
        ("!!(self == 2)", refused.clone()),
        ("! // not\n !!(self == 2)", Ok(Vec::new())),
        ("--self == 1 && ---self == -1", Ok(Vec::new())),
        ("2--self == 3 && 2---self == 1", Ok(Vec::new())),
        ("[self][0]--1 == 0", refused),
    ] {
        assert_eq!(rule(text), expected, "{text}");
    }
    // Each level would double the work.
    let nested = format!("{}self == 1{}", "(!!".repeat(31), ")".repeat(31));
    assert_eq!(rule(&nested), Ok(Vec::new()));
    for wrong in ["(]--", "()--", "!,!(", "(f(!}:!( in "] {
        is_too_deep(&wrong.repeat(31));
    }
}

#[test]
fn the_errors_of_a_rule_have_a_bound() {
    let told = |text: &str| rule(text).expect_err("it is wrong").len();
    // Each character is wrong, and a long line is not repeated.
    let found = rule(&"@".repeat(50_000)).expect_err("it is wrong");
    let first = "ERROR: <input>:1:1: Syntax error: token recognition error at: '@'\n";
    assert!(found.contains(first), "{found}");
    assert!(found.contains("\nERROR: <input>:1:100: "), "{found}");
    assert!(
        found.ends_with("'@'\n1 more errors were truncated"),
        "{found}"
    );
    assert!(found.len() < 100_000, "{}", found.len());
    // A shorter line is, with a hundred errors.
    let wrong_everywhere = [
        "@".repeat(10_000),
        format!("[{}]", "99999999999999999999,".repeat(700)),
        format!("[{}]", "z,".repeat(2000)),
    ];
    for text in wrong_everywhere {
        let bytes_max = 101 * (2 * text.len() + 300);
        assert!(told(&text) < bytes_max, "{}", told(&text));
    }
    let found = rule(&format!("[{}]", "z, ".repeat(130))).expect_err("it is wrong");
    assert!(
        found.ends_with("^\n30 more errors were truncated"),
        "{found}"
    );
    // Upstream does not even parse this.
    let found = rule(&format!("self > {}", " ".repeat(100_000))).expect_err("it is too long");
    let why = "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100007, limit 100000";
    assert!(found.ends_with(why), "{}", found.replace("  ", ""));
}

#[test]
fn the_errors_of_all_rules_of_a_schema_have_a_bound() {
    let rules: Vec<Value> = (0..500).map(|_| json!({"rule": "@".repeat(100)})).collect();
    let schema = json!({"type": "object", "x-kubernetes-validations": rules});
    let errors = Schema::compile(&schema, "schema", CompileOptions::default())
        .expect_err("all rules are wrong");
    assert_eq!(errors.len(), 500, "each is told");
    let bytes: usize = errors.iter().map(|error| error.to_string().len()).sum();
    assert!(bytes < 2 << 20, "{bytes}");
}

#[test]
fn transition_rules_are_never_let_through() {
    let schema = compile(&json!({
        "moves": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf"}]},
        "stays": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]},
    }));
    let object = json!({"moves": 1, "stays": 1});
    assert_eq!(
        errors(&schema, &object, Some(&object)),
        ["moves: Invalid value: 1: failed rule: self > oldSelf"]
    );
    assert_eq!(
        errors(&schema, &object, None),
        ["stays: Invalid value: 1: failed rule: self > 5"]
    );
}

#[test]
fn reserved_words_name_fields_as_they_are_or_escaped() {
    let schema = compile(&json!({"spec": {
        "type": "object",
        "properties": {"if": {"type": "integer"}, "namespace": {"type": "string"}},
        "x-kubernetes-validations": [
            {"rule": "self.if > 0 && self.__if__ > 0"},
            {"rule": "!has(self.namespace) || self.namespace == 'a'"},
        ],
    }}));
    for (spec, failed) in [
        (json!({"if": 1}), 0),
        (json!({"if": 1, "namespace": "a"}), 0),
        (json!({"if": 0, "namespace": "b"}), 2),
    ] {
        let mut found = FieldErrors::new();
        schema.validate(&json!({"spec": spec}), None, &mut found);
        assert_eq!(found.len(), failed, "{spec}: {found}");
    }
}
