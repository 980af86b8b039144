//! Reads a file of cases, and implements `Schema` for the types that it describes.
//!
//! A type is a word (`string`, `number`, `bool`, `any`, `atomic`, `unknown`), `{"type": name}`, `{"struct": {member: type}}` with
//! the `defaults` of members and the type of `others`, `{"map": type}`, `{"set": type}` or `{"keyed": type, "by": [member]}`.

use tidings_json::Value;
use tidings_merge::{ListKeys, MergeShape, Scalar, Schema};

/// A file of cases and the types that they use.
pub(crate) struct Cases(Value);

impl Cases {
    pub(crate) fn read(text: &str) -> Cases {
        Cases(serde_json::from_str(text).expect("a file of cases"))
    }

    /// Runs all cases and reports those that fail.
    #[track_caller]
    pub(crate) fn check(&self, check: impl Fn(&Value, Described<'_>) -> Result<(), String>) {
        let cases = self.0["cases"].as_array().expect("cases");
        assert!(!cases.is_empty());
        let failures: Vec<String> = cases
            .iter()
            .filter_map(|case| {
                let why = check(case, self.schema(&case["schema"])).err()?;
                Some(format!("{}: {why}", case["name"]))
            })
            .collect();
        let (bad, all) = (failures.len(), cases.len());
        assert!(bad == 0, "{bad} of {all} cases:\n{}", failures.join("\n"));
    }

    fn schema(&self, name: &Value) -> Described<'_> {
        let schema = &self.0["schemas"][name.as_str().expect("the name of a schema")];
        Described {
            types: &schema["types"],
            at: &schema["root"],
        }
        .resolved()
    }
}

/// A type of a file of cases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described<'a> {
    types: &'a Value,
    at: &'a Value,
}

impl<'a> Described<'a> {
    fn to(self, at: &'a Value) -> Described<'a> {
        let types = self.types;
        Described { types, at }.resolved()
    }

    fn resolved(self) -> Described<'a> {
        match self.at.get("type").and_then(Value::as_str) {
            Some(name) => {
                let at = &self.types[name];
                assert!(!at.is_null(), "no type {name}");
                self.to(at)
            }
            None => self,
        }
    }

    /// An optional member of the description.
    fn part(self, name: &str) -> Option<&'a Value> {
        self.at.get(name)
    }
}

impl Schema for Described<'_> {
    fn shape(self) -> MergeShape<Self> {
        if let Some(word) = self.at.as_str() {
            return match word {
                "string" => MergeShape::Scalar(Scalar::String),
                "number" => MergeShape::Scalar(Scalar::Number),
                "bool" => MergeShape::Scalar(Scalar::Bool),
                "any" => MergeShape::Scalar(Scalar::Any),
                "atomic" => MergeShape::Atomic,
                "unknown" => MergeShape::Unknown,
                other => panic!("no type is called {other}"),
            };
        }
        if self.part("struct").is_some() {
            MergeShape::Struct
        } else if let Some(item) = self.part("map") {
            MergeShape::Map(self.to(item))
        } else if let Some(item) = self.part("set") {
            MergeShape::Set(self.to(item))
        } else if let Some(item) = self.part("keyed") {
            MergeShape::Keyed(self.to(item))
        } else {
            panic!("not a type: {}", self.at)
        }
    }

    fn field(self, name: &str) -> Option<Self> {
        if self.at == "unknown" {
            return Some(self);
        }
        let named = self.part("struct").and_then(|members| members.get(name));
        let member = named.or_else(|| self.part("others"))?;
        Some(self.to(member))
    }

    fn keys(self) -> ListKeys {
        let Some(item) = self.part("keyed").map(|item| self.to(item)) else {
            return ListKeys::default();
        };
        let default = |name: &str| item.part("defaults")?.get(name).cloned();
        let names = self.part("by").and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| (name.into(), default(name))).collect()
    }
}
