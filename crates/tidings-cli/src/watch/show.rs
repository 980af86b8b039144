//! Formats events as lines, JSON, YAML or names.

use std::fmt::Write as _;

use serde_json::Value;
use tidings_api::{EventType, Object, ServedObject};

use super::diff::{FieldChange, diff};

/// How events are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum OutputFormat {
    /// A line of JSON for each event: its type and the object
    Json,
    /// A YAML document for each event
    Yaml,
    /// The name of the object, as kubectl has it: configmap/web, and with -A: configmap/web -n default
    Name,
}

/// One event to show.
pub(super) struct ShownEvent<'a> {
    pub(super) event: EventType,
    pub(super) object: &'a Object,
    /// The state before an update.
    pub(super) old: Option<&'a Object>,
    /// The deletion event was missed.
    pub(super) unseen: bool,
}

/// How events are formatted.
pub(super) struct LineStyle {
    pub(super) output: Option<OutputFormat>,
    /// With `OutputFormat::Name`, put the type of the event before the name.
    pub(super) events: bool,
    pub(super) color: bool,
    /// Show the namespace with the name.
    pub(super) namespaces: bool,
    /// The prefix of names: `configmap`, or `deployment.apps` with a group.
    pub(super) prefix: String,
    /// Do not show values: the objects are Secrets.
    pub(super) secret: bool,
}

/// Changes of one update that are shown; further ones are only counted.
const CHANGES_MAX: usize = 8;
/// Characters of a value that are shown.
const VALUE_CHARS_MAX: usize = 48;

const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const DIM: &str = "\x1b[2m";
const RESET: &str = "\x1b[0m";

impl LineStyle {
    fn paint(&self, color: &str, text: &str) -> String {
        if self.color {
            format!("{color}{text}{RESET}")
        } else {
            text.to_owned()
        }
    }

    /// The text of an event, with a newline at its end.
    pub(super) fn text(&self, shown: &ShownEvent<'_>, time: &str) -> String {
        match self.output {
            Some(OutputFormat::Name) => self.name(shown),
            Some(OutputFormat::Json) => {
                String::from_utf8_lossy(&shown.object.event_bytes(shown.event)).into_owned()
            }
            Some(OutputFormat::Yaml) => {
                let object: Value =
                    serde_json::from_slice(shown.object.as_bytes()).unwrap_or_default();
                let event = serde_json::json!({ "type": word(shown.event), "object": object });
                let yaml = serde_saphyr::to_string(&event).unwrap_or_default();
                format!("---\n{}\n", yaml.trim_end())
            }
            None => self.line(shown, time),
        }
    }

    /// A name that can be pasted after `kubectl get`.
    fn name(&self, shown: &ShownEvent<'_>) -> String {
        let mut name = format!("{}/{}", self.prefix, printable(&shown.object.name()));
        if self.namespaces {
            let _ = write!(name, " -n {}", printable(&shown.object.namespace()));
        }
        let name = self.paint(color(shown.event), &name);
        if self.events {
            format!("{:<8} {name}\n", word(shown.event))
        } else {
            format!("{name}\n")
        }
    }

    fn line(&self, shown: &ShownEvent<'_>, time: &str) -> String {
        let mut line = String::new();
        if !time.is_empty() {
            line = self.paint(DIM, time);
            line.push(' ');
        }
        let event = format!("{:<8}", word(shown.event));
        line += &self.paint(color(shown.event), &event);
        line.push(' ');
        if self.namespaces {
            let _ = write!(line, "{}/", printable(&shown.object.namespace()));
        }
        line += &printable(&shown.object.name());
        if shown.unseen {
            line += " (the deletion was not seen; this is the last known state)";
        }
        if let Some(old) = shown.old {
            line += &self.changes(old, shown.object);
        }
        line.push('\n');
        line
    }

    fn changes(&self, old: &Object, new: &Object) -> String {
        let value = |object: &Object| -> Value {
            serde_json::from_slice(object.as_bytes()).unwrap_or_default()
        };
        let changes = diff(&value(old), &value(new));
        let mut text = String::new();
        for change in changes.iter().take(CHANGES_MAX) {
            text.push_str("  ");
            text += &self.change(change);
        }
        if changes.len() > CHANGES_MAX {
            let _ = write!(text, "  and {} more", changes.len() - CHANGES_MAX);
        }
        text
    }

    fn change(&self, change: &FieldChange) -> String {
        let path = printable(&change.path);
        // An annotation may contain the applied Secret.
        let is_plain = path.starts_with("metadata") && !path.starts_with("metadata.annotations");
        if self.secret && !is_plain {
            return match (&change.old, &change.new) {
                (None, _) => self.paint(GREEN, &format!("+{path}")),
                (_, None) => self.paint(RED, &format!("-{path}")),
                _ => format!("{path} {}", self.paint(YELLOW, "changed")),
            };
        }
        let old = change
            .old
            .as_ref()
            .map(|value| self.paint(RED, &brief(value)));
        let new = change
            .new
            .as_ref()
            .map(|value| self.paint(GREEN, &brief(value)));
        match (old, new) {
            (Some(old), Some(new)) => format!("{path}: {old} → {new}"),
            (None, Some(new)) => format!("+{path}: {new}"),
            (Some(old), None) => format!("-{path}: {old}"),
            (None, None) => path,
        }
    }
}

fn color(event: EventType) -> &'static str {
    match event {
        EventType::Added => GREEN,
        EventType::Deleted => RED,
        _ => YELLOW,
    }
}

fn word(event: EventType) -> &'static str {
    match event {
        EventType::Added => "ADDED",
        EventType::Modified => "MODIFIED",
        EventType::Deleted => "DELETED",
        EventType::Bookmark => "BOOKMARK",
        EventType::Error => "ERROR",
    }
}

/// A value in one short line: strings without quotes, the rest as JSON.
fn brief(value: &Value) -> String {
    let text = match value {
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    };
    if text.chars().count() <= VALUE_CHARS_MAX {
        return text;
    }
    let cut: String = text.chars().take(VALUE_CHARS_MAX - 1).collect();
    format!("{cut}…")
}

/// Replaces control characters, so that an object can neither control the terminal nor break the line.
fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character {
            '\n' => '⏎',
            character if character.is_control() => '\u{fffd}',
            character => character,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Object {
        Object::parse(json).unwrap()
    }

    fn style() -> LineStyle {
        LineStyle {
            output: None,
            events: false,
            color: false,
            namespaces: true,
            prefix: "configmap".into(),
            secret: false,
        }
    }

    fn update(style: &LineStyle, old: &str, new: &str) -> String {
        let (old, new) = (object(old), object(new));
        let shown = ShownEvent {
            event: EventType::Modified,
            object: &new,
            old: Some(&old),
            unseen: false,
        };
        style.text(&shown, "12:00:00")
    }

    const OLD: &str = r#"{"metadata":{"name":"a","namespace":"n"},"data":{"k":"v","gone":"x"}}"#;
    const NEW: &str =
        r#"{"metadata":{"name":"a","namespace":"n"},"data":{"k":"w\u001b[2J\nz","come":1}}"#;

    #[test]
    fn an_update_is_one_line_with_what_changed() {
        assert_eq!(
            update(&style(), OLD, NEW),
            "12:00:00 MODIFIED n/a  data.k: v → w\u{fffd}[2J⏎z  +data.come: 1  -data.gone: x\n"
        );
    }

    #[test]
    fn colors_tell_old_from_new() {
        let colored = LineStyle {
            color: true,
            ..style()
        };
        let line = update(&colored, OLD, NEW);
        assert!(
            line.contains("data.k: \x1b[31mv\x1b[0m → \x1b[32mw"),
            "{line:?}"
        );
    }

    #[test]
    fn values_of_secrets_are_not_shown() {
        let secret = LineStyle {
            secret: true,
            ..style()
        };
        let line = update(&secret, OLD, NEW);
        assert_eq!(
            line,
            "12:00:00 MODIFIED n/a  data.k changed  +data.come  -data.gone\n"
        );
    }

    #[test]
    fn what_was_applied_as_a_secret_is_not_shown() {
        let secret = LineStyle {
            secret: true,
            ..style()
        };
        let applied = |value: &str| {
            format!(
                r#"{{"metadata":{{"name":"a","namespace":"n","labels":{{"app":"{value}"}},"annotations":{{"note":"{value}"}}}},"type":"{value}"}}"#
            )
        };
        assert_eq!(
            update(&secret, &applied("hunter1"), &applied("hunter2")),
            "12:00:00 MODIFIED n/a  metadata.labels.app: hunter1 → hunter2  \
             metadata.annotations.note changed  type changed\n"
        );
    }

    #[test]
    fn long_values_and_many_changes_are_cut() {
        let many = |value: &str| {
            let fields: Vec<String> = (0..20)
                .map(|index| format!(r#""k{index:02}":"{}""#, value.repeat(100)))
                .collect();
            format!(
                r#"{{"metadata":{{"name":"a"}},"data":{{{}}}}}"#,
                fields.join(",")
            )
        };
        let line = update(&style(), &many("x"), &many("y"));
        assert!(line.ends_with("  and 12 more\n"), "{line}");
        assert!(line.chars().count() < 1100, "{}", line.len());
        assert_eq!(line.lines().count(), 1);
    }

    #[test]
    fn the_other_outputs_have_the_whole_object_or_its_name() {
        let object = object(r#"{"metadata":{"name":"a"},"data":{"k":"v"}}"#);
        let shown = ShownEvent {
            event: EventType::Deleted,
            object: &object,
            old: None,
            unseen: true,
        };
        let text = |output| {
            LineStyle {
                output: Some(output),
                namespaces: false,
                ..style()
            }
            .text(&shown, "")
        };
        assert_eq!(text(OutputFormat::Name), "configmap/a\n");
        assert_eq!(
            text(OutputFormat::Json),
            "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"v\"}}}\n"
        );
        assert_eq!(
            text(OutputFormat::Yaml),
            "---\ntype: DELETED\nobject:\n  metadata:\n    name: a\n  data:\n    k: v\n"
        );
    }

    #[test]
    fn names_can_have_their_namespace_and_what_happened() {
        let object = object(OLD);
        let shown = ShownEvent {
            event: EventType::Deleted,
            object: &object,
            old: None,
            unseen: false,
        };
        let name = |events, color| {
            LineStyle {
                output: Some(OutputFormat::Name),
                events,
                color,
                ..style()
            }
            .text(&shown, "")
        };
        assert_eq!(name(false, false), "configmap/a -n n\n");
        assert_eq!(name(true, false), "DELETED  configmap/a -n n\n");
        assert_eq!(name(false, true), "\x1b[31mconfigmap/a -n n\x1b[0m\n");
    }
}
