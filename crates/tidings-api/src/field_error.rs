//! Errors of fields, in the words of upstream's validation (W52).

use std::collections::HashSet;
use std::fmt;

use crate::cause::Cause;
use tidings_go as go;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldErrorType {
    Required,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Duplicate,
    Mistyped,
    Internal,
}

impl FieldErrorType {
    fn text(self) -> &'static str {
        match self {
            FieldErrorType::Required => "Required value",
            FieldErrorType::Invalid | FieldErrorType::Mistyped => "Invalid value",
            FieldErrorType::NotSupported => "Unsupported value",
            FieldErrorType::Forbidden => "Forbidden",
            FieldErrorType::TooLong => "Too long",
            FieldErrorType::TooMany => "Too many",
            FieldErrorType::Duplicate => "Duplicate value",
            FieldErrorType::Internal => "Internal error",
        }
    }

    fn cause(self) -> &'static str {
        match self {
            FieldErrorType::Required => "FieldValueRequired",
            FieldErrorType::Invalid => "FieldValueInvalid",
            FieldErrorType::NotSupported => "FieldValueNotSupported",
            FieldErrorType::Forbidden => "FieldValueForbidden",
            FieldErrorType::TooLong => "FieldValueTooLong",
            FieldErrorType::TooMany => "FieldValueTooMany",
            FieldErrorType::Duplicate => "FieldValueDuplicate",
            FieldErrorType::Mistyped => "FieldValueTypeInvalid",
            FieldErrorType::Internal => "InternalError",
        }
    }
}

/// One wrong field: `path: type: value: detail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    path: String,
    kind: FieldErrorType,
    /// The wrong value as Go prints it; not for every type.
    value: Option<String>,
    detail: String,
}

impl FieldError {
    fn new(
        path: impl Into<String>,
        kind: FieldErrorType,
        value: Option<String>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError {
            path: path.into(),
            kind,
            value,
            detail: detail.into(),
        }
    }

    /// A required field is missing.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorType::Required, None, detail)
    }

    /// A text is invalid.
    pub fn invalid(path: impl Into<String>, value: &str, detail: impl Into<String>) -> FieldError {
        FieldError::new(
            path,
            FieldErrorType::Invalid,
            Some(go::quote(value)),
            detail,
        )
    }

    /// A value that is not text is invalid; `value` is printed without quotes.
    pub fn invalid_value(
        path: impl Into<String>,
        value: impl fmt::Display,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(
            path,
            FieldErrorType::Invalid,
            Some(value.to_string()),
            detail,
        )
    }

    /// A value is not one of the supported ones; `value` is printed without quotes.
    pub fn not_supported(
        path: impl Into<String>,
        value: impl fmt::Display,
        supported: &[&str],
    ) -> FieldError {
        let supported: Vec<String> = supported.iter().map(|value| go::quote(value)).collect();
        let detail = format!("supported values: {}", supported.join(", "));
        FieldError::new(
            path,
            FieldErrorType::NotSupported,
            Some(value.to_string()),
            detail,
        )
    }

    /// A field may not be set or changed.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorType::Forbidden, None, detail)
    }

    /// A value is longer than `bytes_max`.
    pub fn too_long(path: impl Into<String>, bytes_max: usize) -> FieldError {
        FieldError::new(
            path,
            FieldErrorType::TooLong,
            None,
            format!(
                "may not be more than {bytes_max} {}",
                if bytes_max == 1 { "byte" } else { "bytes" }
            ),
        )
    }

    /// A value is too long; the limit is not printed.
    pub fn too_long_unbounded(path: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorType::TooLong, None, "value is too long")
    }

    /// A list has too many elements.
    pub fn too_many(path: impl Into<String>, actual: usize, max: usize) -> FieldError {
        let items = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {items}");
        FieldError::new(
            path,
            FieldErrorType::TooMany,
            Some(actual.to_string()),
            detail,
        )
    }

    /// A value does not have the type of its schema; `value` is printed without quotes.
    pub fn type_invalid(
        path: impl Into<String>,
        value: impl fmt::Display,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(
            path,
            FieldErrorType::Mistyped,
            Some(value.to_string()),
            detail,
        )
    }

    /// A value is invalid and too large to be printed.
    pub fn invalid_omitted(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorType::Invalid, None, detail)
    }

    /// A check failed to run.
    pub fn internal(path: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(path, FieldErrorType::Internal, None, detail)
    }

    /// A value occurs twice where it may occur once.
    pub fn duplicate(path: impl Into<String>, value: &str) -> FieldError {
        FieldError::new(path, FieldErrorType::Duplicate, Some(go::quote(value)), "")
    }

    /// A value that is not text occurs twice; `value` is printed without quotes, and `None` stands for a value too large to print.
    pub fn duplicate_value(path: impl Into<String>, value: Option<String>) -> FieldError {
        FieldError::new(path, FieldErrorType::Duplicate, value, "")
    }

    /// The path of the field.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The reason as a cause of a `Status` names it, such as `FieldValueRequired`.
    pub fn reason(&self) -> &'static str {
        self.kind.cause()
    }

    /// The error without its path.
    fn body(&self) -> String {
        let mut body = self.kind.text().to_owned();
        for part in self
            .value
            .as_deref()
            .into_iter()
            .chain((!self.detail.is_empty()).then_some(self.detail.as_str()))
        {
            body.push_str(": ");
            body.push_str(part);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

/// All errors of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldErrors(Vec<FieldError>);

impl FieldErrors {
    /// No errors.
    pub fn new() -> FieldErrors {
        FieldErrors::default()
    }

    /// Adds an error.
    pub fn push(&mut self, error: FieldError) {
        self.0.push(error);
    }

    /// True if there are no errors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of errors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The errors, in the order in which they were found.
    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.0.iter()
    }

    pub(crate) fn causes(&self) -> Vec<Cause> {
        let cause = |error: &FieldError| Cause {
            reason: error.kind.cause().into(),
            message: error.body(),
            field: error.path.clone(),
        };
        self.0.iter().map(cause).collect()
    }
}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> FieldErrors {
        FieldErrors(vec![error])
    }
}

impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a FieldErrors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl FromIterator<FieldError> for FieldErrors {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> FieldErrors {
        FieldErrors(errors.into_iter().collect())
    }
}

impl Extend<FieldError> for FieldErrors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        self.0.extend(errors);
    }
}

impl fmt::Display for FieldErrors {
    /// One error is printed alone; several in brackets, without duplicates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut seen = HashSet::new();
        let texts = self.0.iter().map(FieldError::to_string);
        let texts: Vec<String> = texts.filter(|text| seen.insert(text.clone())).collect();
        match texts.as_slice() {
            [only] => f.write_str(only),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}
