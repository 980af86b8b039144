//! `ListOptions`: the options of LIST and WATCH, and which of them may be combined (W63–W65).

use crate::field_error::{FieldError, FieldErrors};
use crate::resource::GroupVersionKind;
use crate::status::Status;
use tidings_go as go;

/// How `resourceVersion` is to be understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceVersionMatch {
    /// The state at exactly that version.
    Exact,
    /// A state that is at least as new.
    NotOlderThan,
    /// An unknown value; kept for the error message.
    Unsupported(String),
}

impl ResourceVersionMatch {
    fn parse(text: &str) -> Option<ResourceVersionMatch> {
        match text {
            "" => None,
            "Exact" => Some(ResourceVersionMatch::Exact),
            "NotOlderThan" => Some(ResourceVersionMatch::NotOlderThan),
            other => Some(ResourceVersionMatch::Unsupported(other.to_owned())),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            ResourceVersionMatch::Exact => "Exact",
            ResourceVersionMatch::NotOlderThan => "NotOlderThan",
            ResourceVersionMatch::Unsupported(text) => text,
        }
    }
}

/// The options of LIST, WATCH and DELETE of a collection. Empty text means unset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// The label selector.
    pub label_selector: String,
    /// The field selector.
    pub field_selector: String,
    /// The shard selector.
    pub shard_selector: String,
    /// Watch changes instead of listing.
    pub watch: bool,
    /// The client accepts bookmarks.
    pub allow_watch_bookmarks: bool,
    /// The version of the state to list, or to watch from.
    pub resource_version: String,
    /// How the version is to be understood.
    pub resource_version_match: Option<ResourceVersionMatch>,
    /// The time after which the server ends a watch.
    pub timeout_seconds: Option<i64>,
    /// The size of a page; zero and less mean no limit (W79).
    pub limit: i64,
    /// The continue token: where the page starts.
    pub continue_token: String,
    /// The watch begins with the current state, as events.
    pub send_initial_events: Option<bool>,
}

/// Why options are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A parameter that cannot be read: 400 (W22).
    #[error("{0}")]
    Unreadable(#[from] go::ParseNumberError),
    /// Options that cannot be combined: 422 (W64).
    #[error("{0}")]
    Invalid(FieldErrors),
}

impl From<OptionsError> for Status {
    fn from(error: OptionsError) -> Status {
        match error {
            OptionsError::Unreadable(error) => Status::bad_request(error.to_string()),
            OptionsError::Invalid(errors) => {
                let kind = GroupVersionKind {
                    group: "meta.k8s.io",
                    version: "v1",
                    kind: "ListOptions",
                };
                Status::invalid(kind, "", &errors)
            }
        }
    }
}

impl ListOptions {
    /// Reads the options from query parameters; `parameter` gives the first value of a name (W13).
    ///
    /// # Errors
    /// If a number cannot be read.
    pub fn from_query<'q>(
        parameter: impl Fn(&str) -> Option<&'q str>,
    ) -> Result<ListOptions, OptionsError> {
        let text = |name| parameter(name).unwrap_or_default();
        let flag = |name| parameter(name).map(go::query_bool);
        let number = |name| parameter(name).map(go::parse_int).transpose();
        Ok(ListOptions {
            label_selector: text("labelSelector").to_owned(),
            field_selector: text("fieldSelector").to_owned(),
            shard_selector: text("shardSelector").to_owned(),
            watch: flag("watch").unwrap_or(false),
            allow_watch_bookmarks: flag("allowWatchBookmarks").unwrap_or(false),
            resource_version: text("resourceVersion").to_owned(),
            resource_version_match: ResourceVersionMatch::parse(text("resourceVersionMatch")),
            timeout_seconds: number("timeoutSeconds")?,
            limit: number("limit")?.unwrap_or(0),
            continue_token: text("continue").to_owned(),
            send_initial_events: flag("sendInitialEvents"),
        })
    }

    /// The query parameters of these options, without unset ones. The inverse of [`ListOptions::from_query`].
    pub fn to_query(&self) -> Vec<(&'static str, String)> {
        let flag = |set: bool| if set { "true" } else { "" }.to_owned();
        let matching = self.resource_version_match.as_ref();
        let pairs = [
            ("labelSelector", self.label_selector.clone()),
            ("fieldSelector", self.field_selector.clone()),
            ("shardSelector", self.shard_selector.clone()),
            ("watch", flag(self.watch)),
            ("allowWatchBookmarks", flag(self.allow_watch_bookmarks)),
            ("resourceVersion", self.resource_version.clone()),
            (
                "resourceVersionMatch",
                matching.map_or_else(String::new, |matching| matching.as_str().to_owned()),
            ),
            (
                "timeoutSeconds",
                self.timeout_seconds
                    .map_or_else(String::new, |seconds| seconds.to_string()),
            ),
            (
                "limit",
                if self.limit > 0 {
                    self.limit.to_string()
                } else {
                    String::new()
                },
            ),
            ("continue", self.continue_token.clone()),
            (
                "sendInitialEvents",
                self.send_initial_events
                    .map_or_else(String::new, |send| send.to_string()),
            ),
        ];
        pairs
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect()
    }

    /// True if the version is unset or "0".
    pub fn any_version(&self) -> bool {
        matches!(self.resource_version.as_str(), "" | "0")
    }

    /// Sets the defaults of a watch: without a version it begins with the current state (W63).
    pub fn apply_watch_defaults(&mut self) {
        let silent = self.send_initial_events.is_none() && self.resource_version_match.is_none();
        if self.watch && silent && self.any_version() {
            self.send_initial_events = Some(true);
            self.resource_version_match = Some(ResourceVersionMatch::NotOlderThan);
        }
    }

    /// Checks that the options may be combined (W64).
    ///
    /// # Errors
    /// With all errors, in upstream's order.
    pub fn validate(&self) -> Result<(), OptionsError> {
        const MATCH: &str = "resourceVersionMatch";
        let mut errors = FieldErrors::new();
        let mut forbid =
            |field: &str, detail: &str| errors.push(FieldError::forbidden(field, detail));
        let version_match = self.resource_version_match.as_ref();
        if self.watch {
            let not_older_than = version_match == Some(&ResourceVersionMatch::NotOlderThan);
            if self.send_initial_events.is_some() && !not_older_than {
                forbid(
                    MATCH,
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                );
            }
            if let Some(version_match) = version_match {
                if self.send_initial_events.is_none() {
                    forbid(
                        MATCH,
                        "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
                    );
                }
                if !not_older_than {
                    let value = go::quote(version_match.as_str());
                    errors.push(FieldError::not_supported(MATCH, value, &["NotOlderThan"]));
                }
                if !self.continue_token.is_empty() {
                    errors.push(FieldError::forbidden(
                        MATCH,
                        "resourceVersionMatch is forbidden when continue is provided",
                    ));
                }
            }
        } else {
            if let Some(version_match) = version_match {
                if self.resource_version.is_empty() {
                    forbid(
                        MATCH,
                        "resourceVersionMatch is forbidden unless resourceVersion is provided",
                    );
                }
                if !self.continue_token.is_empty() {
                    forbid(
                        MATCH,
                        "resourceVersionMatch is forbidden when continue is provided",
                    );
                }
                match version_match {
                    ResourceVersionMatch::Unsupported(text) => {
                        let value = go::quote(text);
                        errors.push(FieldError::not_supported(
                            MATCH,
                            value,
                            &["Exact", "NotOlderThan", ""],
                        ));
                    }
                    ResourceVersionMatch::Exact if self.resource_version == "0" => {
                        forbid(
                            MATCH,
                            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                        );
                    }
                    _ => {}
                }
            }
            if self.send_initial_events.is_some() {
                errors.push(FieldError::forbidden(
                    "sendInitialEvents",
                    "sendInitialEvents is forbidden for list",
                ));
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(OptionsError::Invalid(errors))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> ListOptions {
        let pairs: Vec<(&str, &str)> = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .collect();
        ListOptions::from_query(|name| {
            pairs
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
        })
        .unwrap()
    }

    fn check(query: &str, expected: &str) {
        let mut options = parse(query);
        options.apply_watch_defaults();
        let text = options
            .validate()
            .map_or_else(|error| Status::from(error).message, |()| "ok".to_owned());
        let prefix = "ListOptions.meta.k8s.io \"\" is invalid: ";
        assert_eq!(
            text.strip_prefix(prefix).unwrap_or(&text),
            expected,
            "{query}"
        );
    }

    #[test]
    fn options_survive_the_way_through_a_query() {
        let options = ListOptions {
            label_selector: "a in (b,c)".into(),
            shard_selector: "s".into(),
            field_selector: "metadata.name=x".into(),
            watch: true,
            allow_watch_bookmarks: true,
            resource_version: "0".into(),
            resource_version_match: Some(ResourceVersionMatch::NotOlderThan),
            timeout_seconds: Some(300),
            limit: 500,
            continue_token: "next".into(),
            send_initial_events: Some(false),
        };
        let pairs = options.to_query();
        assert_eq!(pairs.len(), 11, "a field is missing: {pairs:?}");
        let value = |name: &str| {
            let found = pairs.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(ListOptions::from_query(value), Ok(options));
        assert_eq!(ListOptions::default().to_query(), []);
    }

    #[test]
    fn w64_the_matrix_for_lists() {
        check(
            "resourceVersionMatch=Exact",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        );
        check(
            "resourceVersionMatch=Exact&resourceVersion=5&continue=x",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        );
        check(
            "resourceVersionMatch=Foo&resourceVersion=5",
            r#"resourceVersionMatch: Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", """#,
        );
        check(
            "resourceVersionMatch=Exact&resourceVersion=0",
            r#"resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0""#,
        );
        check(
            "sendInitialEvents=false",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        );
        check("resourceVersionMatch=Exact&resourceVersion=5", "ok");
        check("resourceVersionMatch=NotOlderThan&resourceVersion=0", "ok");
    }

    #[test]
    fn w64_the_matrix_for_watches() {
        check(
            "watch=1&sendInitialEvents=true",
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        );
        check(
            "watch=1&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        );
        check(
            "watch=1&resourceVersionMatch=Exact&sendInitialEvents=true",
            "[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, \
             resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
        );
        check(
            "watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&continue=x",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        );
        check("watch=1&resourceVersion=5&limit=5&continue=x", "ok");
        // The default of W63 sets the match, and the original then refuses the token with these words.
        check(
            "watch=1&limit=5&continue=x",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        );
    }

    #[test]
    fn w63_a_silent_watch_wants_the_state_first() {
        for (query, expected) in [
            ("watch=1", Some(true)),
            ("watch=1&resourceVersion=0", Some(true)),
            ("watch=1&resourceVersion=5", None),
            ("watch=1&sendInitialEvents=false", Some(false)),
            ("", None),
        ] {
            let mut options = parse(query);
            options.apply_watch_defaults();
            assert_eq!(options.send_initial_events, expected, "{query}");
        }
    }

    #[test]
    fn w21_w22_parameters() {
        assert!(parse("watch=").watch);
        assert!(parse("watch=foo").watch);
        assert!(!parse("watch=False").watch);
        let bad = ListOptions::from_query(|name| (name == "limit").then_some("abc")).unwrap_err();
        let status = Status::from(bad);
        assert_eq!(
            (status.code, status.message.as_str()),
            (400, r#"strconv.ParseInt: parsing "abc": invalid syntax"#)
        );
    }
}
