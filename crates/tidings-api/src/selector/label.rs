//! Label selectors: `app=web,tier in (a,b),!legacy`.

use super::SelectorError;
use crate::labels::Labels;
use crate::validate;
use tidings_go as go;
use tidings_json::Value;

/// Requirements on labels, all of which must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: LabelTest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum LabelTest {
    Exists,
    DoesNotExist,
    In(Vec<String>),
    NotIn(Vec<String>),
    GreaterThan(i64),
    LessThan(i64),
}

impl std::str::FromStr for LabelSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<LabelSelector, SelectorError> {
        LabelSelector::parse(text)
    }
}

impl LabelSelector {
    /// Reads a selector. The empty text selects everything.
    ///
    /// # Errors
    /// With upstream's message, if the text does not follow the grammar or a key or value is not that of a label.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        SelectorParser {
            tokens: lex(text),
            position: 0,
        }
        .parse()
        .map_err(SelectorError)
    }

    /// Reads a selector of an object, with `matchLabels` and `matchExpressions`. `null` selects everything.
    ///
    /// # Errors
    /// If a key, a value or an operator is invalid.
    pub fn of_json(selector: &Value) -> Result<LabelSelector, SelectorError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let mut terms: Vec<String> = labels
            .map(|(key, value)| format!("{key}={}", text(value)))
            .collect();
        let expressions = selector["matchExpressions"].as_array();
        for term in expressions.into_iter().flatten() {
            let (key, operator) = (text(&term["key"]), text(&term["operator"]));
            let values = term["values"].as_array().into_iter().flatten();
            let values: Vec<String> = values.map(text).collect();
            let values = values.join(",");
            terms.push(match &*operator {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key,
                "DoesNotExist" => format!("!{key}"),
                other => {
                    let why = format!(
                        "{} is not a valid label selector operator",
                        go::quote(other)
                    );
                    return Err(SelectorError(why));
                }
            });
        }
        LabelSelector::parse(&terms.join(","))
    }

    /// True if it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The requirements: key, operator as in the API (`In`, `NotIn`, `Exists`, `DoesNotExist`), and values. Comparisons of numbers are left out:
    /// they have no such form.
    pub fn requirements(&self) -> impl Iterator<Item = (&str, &'static str, &[String])> {
        let none: &[String] = &[];
        self.requirements.iter().filter_map(move |requirement| {
            let (operator, values) = match &requirement.test {
                LabelTest::In(values) => ("In", values.as_slice()),
                LabelTest::NotIn(values) => ("NotIn", values.as_slice()),
                LabelTest::Exists => ("Exists", none),
                LabelTest::DoesNotExist => ("DoesNotExist", none),
                LabelTest::GreaterThan(_) | LabelTest::LessThan(_) => return None,
            };
            Some((requirement.key.as_str(), operator, values))
        })
    }

    /// A label and value that all selected objects have, for a lookup in an index; `None` if the selector requires no exact value.
    pub fn required_label(&self) -> Option<(&str, &str)> {
        self.requirements
            .iter()
            .find_map(|requirement| match &requirement.test {
                LabelTest::In(values) if values.len() == 1 => {
                    Some((&*requirement.key, &*values[0]))
                }
                _ => None,
            })
    }

    /// True if the labels fulfil every requirement. Absent labels fulfil `!=` and `notin`.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match (&requirement.test, value) {
                (LabelTest::Exists, value) => value.is_some(),
                (LabelTest::DoesNotExist, value) => value.is_none(),
                (LabelTest::In(values), Some(value)) => {
                    values.iter().any(|candidate| candidate == value)
                }
                (LabelTest::NotIn(values), Some(value)) => {
                    values.iter().all(|candidate| candidate != value)
                }
                (LabelTest::NotIn(_), None) => true,
                (LabelTest::GreaterThan(bound), Some(value)) => {
                    go::parse_int(value).is_ok_and(|number| number > *bound)
                }
                (LabelTest::LessThan(bound), Some(value)) => {
                    go::parse_int(value).is_ok_and(|number| number < *bound)
                }
                (LabelTest::In(_) | LabelTest::GreaterThan(_) | LabelTest::LessThan(_), None) => {
                    false
                }
            }
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SelectorToken {
    Identifier,
    In,
    NotIn,
    Not,
    Equals,
    NotEquals,
    Greater,
    Less,
    Open,
    Close,
    Comma,
    End,
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn lex(text: &str) -> Vec<(SelectorToken, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(is_blank);
        let Some(first) = rest.chars().next().filter(|c| *c != '\0') else {
            tokens.push((SelectorToken::End, ""));
            return tokens;
        };
        let (token, length) = if is_special(first) {
            match first {
                '=' if rest.starts_with("==") => (SelectorToken::Equals, 2),
                '=' => (SelectorToken::Equals, 1),
                '!' if rest.starts_with("!=") => (SelectorToken::NotEquals, 2),
                '!' => (SelectorToken::Not, 1),
                '(' => (SelectorToken::Open, 1),
                ')' => (SelectorToken::Close, 1),
                ',' => (SelectorToken::Comma, 1),
                '>' => (SelectorToken::Greater, 1),
                _ => (SelectorToken::Less, 1),
            }
        } else {
            let length = rest
                .find(|c| is_special(c) || is_blank(c) || c == '\0')
                .unwrap_or(rest.len());
            match &rest[..length] {
                "in" => (SelectorToken::In, length),
                "notin" => (SelectorToken::NotIn, length),
                _ => (SelectorToken::Identifier, length),
            }
        };
        tokens.push((token, &rest[..length]));
        rest = &rest[length..];
    }
}

struct SelectorParser<'a> {
    tokens: Vec<(SelectorToken, &'a str)>,
    position: usize,
}

impl<'a> SelectorParser<'a> {
    /// `in` and `notin` are operators only after a key; elsewhere they are keys or values.
    fn peek(&self) -> (SelectorToken, &'a str) {
        match self.operator() {
            (SelectorToken::In | SelectorToken::NotIn, text) => (SelectorToken::Identifier, text),
            other => other,
        }
    }

    fn operator(&self) -> (SelectorToken, &'a str) {
        self.tokens[self.position.min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> (SelectorToken, &'a str) {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn parse(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                (SelectorToken::Identifier | SelectorToken::Not, _) => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match self.next() {
                        (SelectorToken::End, _) => return Ok(LabelSelector { requirements }),
                        (SelectorToken::Comma, _) => {
                            let (token, text) = self.peek();
                            if !matches!(token, SelectorToken::Identifier | SelectorToken::Not) {
                                return Err(format!(
                                    "found '{text}', expected: identifier after ','"
                                ));
                            }
                        }
                        (_, text) => {
                            return Err(format!(
                                "found '{text}', expected: ',' or 'end of string'"
                            ));
                        }
                    }
                }
                (SelectorToken::End, _) => return Ok(LabelSelector { requirements }),
                (_, text) => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == SelectorToken::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != SelectorToken::Identifier {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let errors = validate::qualified_name(key);
        if !errors.is_empty() {
            return Err(format!(
                "<nil>: Invalid value: {}: {}",
                go::quote(key),
                errors.join("; ")
            ));
        }
        if negated {
            return Ok(Requirement {
                key: key.to_owned(),
                test: LabelTest::DoesNotExist,
            });
        }
        if matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma) {
            return Ok(Requirement {
                key: key.to_owned(),
                test: LabelTest::Exists,
            });
        }
        let (operator, text) = self.operator();
        self.position += 1;
        let mut values = match operator {
            SelectorToken::In | SelectorToken::NotIn => self.values()?,
            SelectorToken::Equals
            | SelectorToken::NotEquals
            | SelectorToken::Greater
            | SelectorToken::Less => {
                vec![self.exact_value()?]
            }
            _ => {
                return Err(format!(
                    "found '{text}', expected: in, notin, =, ==, !=, gt, lt"
                ));
            }
        };
        values.sort_unstable();
        values.dedup();
        let test = test(key, operator, &values)?;
        Ok(Requirement {
            key: key.to_owned(),
            test,
        })
    }

    fn values(&mut self) -> Result<Vec<&'a str>, String> {
        let (token, text) = self.next();
        if token != SelectorToken::Open {
            return Err(format!("found '{text}' expected: '('"));
        }
        match self.peek() {
            (SelectorToken::Identifier | SelectorToken::Comma, text) => {
                let values = self.identifiers()?;
                match self.next() {
                    (SelectorToken::Close, _) => Ok(values),
                    _ => Err(format!("found '{text}', expected: ')'")),
                }
            }
            (SelectorToken::Close, _) => {
                self.position += 1;
                Ok(vec![""])
            }
            (_, text) => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<&'a str>, String> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                (SelectorToken::Identifier, text) => {
                    values.push(text);
                    match self.peek() {
                        (SelectorToken::Comma, _) => {}
                        (SelectorToken::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (SelectorToken::Comma, _) => {
                    if values.is_empty() {
                        values.push("");
                    }
                    match self.peek().0 {
                        SelectorToken::Close => {
                            values.push("");
                            return Ok(values);
                        }
                        SelectorToken::Comma => values.push(""),
                        _ => {}
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek().0, SelectorToken::End | SelectorToken::Comma) {
            return Ok("");
        }
        match self.next() {
            (SelectorToken::Identifier, text) => Ok(text),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }
}

fn test(key: &str, operator: SelectorToken, values: &[&str]) -> Result<LabelTest, String> {
    let mut errors = Vec::new();
    let mut bound = 0;
    if matches!(operator, SelectorToken::Greater | SelectorToken::Less) {
        match go::parse_int(values[0]) {
            Ok(number) => bound = number,
            Err(_) => errors.push(format!(
                "values[0]: Invalid value: {}: for 'Gt', 'Lt' operators, the value must be an integer",
                go::quote(values[0])
            )),
        }
    }
    for (index, value) in values.iter().enumerate() {
        let wrong = validate::label_value(value);
        if !wrong.is_empty() {
            errors.push(format!(
                "values[{index}][{key}]: Invalid value: {}: {}",
                go::quote(value),
                wrong.join("; ")
            ));
        }
    }
    match errors.as_slice() {
        [] => {}
        [only] => return Err(only.clone()),
        several => return Err(format!("[{}]", several.join(", "))),
    }
    let values = || values.iter().map(|value| (*value).to_owned()).collect();
    Ok(match operator {
        SelectorToken::NotIn | SelectorToken::NotEquals => LabelTest::NotIn(values()),
        SelectorToken::Greater => LabelTest::GreaterThan(bound),
        SelectorToken::Less => LabelTest::LessThan(bound),
        _ => LabelTest::In(values()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels: Labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        LabelSelector::parse(selector).unwrap().matches(&labels)
    }

    fn error(selector: &str) -> String {
        LabelSelector::parse(selector).unwrap_err().to_string()
    }

    #[test]
    fn w66_matching() {
        let web = [("app", "web"), ("n", "5")];
        for selector in [
            "",
            "app",
            "!b",
            "app=web",
            "app==web",
            "app!=x",
            "b!=x",
            "app in (web,x)",
            "app notin (x)",
            "b notin (x)",
            "n>4",
            "n<6",
            " app = web , n ",
            "app in (in,web)",
        ] {
            assert!(matches(selector, &web), "{selector}");
        }
        for selector in [
            "b",
            "!app",
            "app=x",
            "app in ()",
            "app=",
            "n>5",
            "app>1",
            "b in (x)",
            "b=",
            "app notin (web)",
        ] {
            assert!(!matches(selector, &web), "{selector}");
        }
        assert!(
            matches("app in ()", &[("app", "")]),
            "an empty set matches the empty value"
        );
        assert!(matches("app in (,x)", &[("app", "")]));
        assert!(
            matches("in=in", &[("in", "in")]),
            "keywords are words where no operator stands"
        );
    }

    #[test]
    fn w66_errors() {
        assert_eq!(
            error("a=b=c"),
            "found '=', expected: ',' or 'end of string'"
        );
        assert_eq!(
            error("!"),
            "unable to parse requirement: found '', expected: identifier"
        );
        assert_eq!(error("a,"), "found '', expected: identifier after ','");
        assert_eq!(
            error("=a"),
            "found '=', expected: !, identifier, or 'end of string'"
        );
        assert_eq!(
            error("a in b"),
            "unable to parse requirement: found 'b' expected: '('"
        );
        assert_eq!(
            error("a b"),
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert_eq!(
            error("a>x"),
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer"
        );
        assert!(error("-a=b").starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of"
        ));
        assert!(error("a=-b").starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be an empty string"
        ));
    }
}
