//! Conditions in the status of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tidings_informer::Cached;
use tidings_kube::KubeObject;

/// A condition to set with [`set_condition`]: a type, whether it holds, why, and what people should know.
///
/// ```
/// use tidings_controller::{NewCondition, set_condition};
///
/// let mut conditions = Vec::new();
/// assert!(set_condition(&mut conditions, NewCondition::is_true("Ready", "AllReplicas", "3 of 3 run")));
/// assert!(!set_condition(&mut conditions, NewCondition::is_true("Ready", "AllReplicas", "3 of 3 run")));
/// assert_eq!(conditions[0].status, "True");
/// ```
#[derive(Debug, Clone)]
pub struct NewCondition<'a> {
    kind: &'a str,
    status: &'a str,
    reason: &'a str,
    message: String,
    observed_generation: Option<i64>,
}

impl<'a> NewCondition<'a> {
    fn new(kind: &'a str, status: &'a str, reason: &'a str, message: impl Into<String>) -> Self {
        NewCondition {
            kind,
            status,
            reason,
            message: message.into(),
            observed_generation: None,
        }
    }

    /// Something holds.
    pub fn is_true(kind: &'a str, reason: &'a str, message: impl Into<String>) -> Self {
        NewCondition::new(kind, "True", reason, message)
    }

    /// Something does not hold.
    pub fn is_false(kind: &'a str, reason: &'a str, message: impl Into<String>) -> Self {
        NewCondition::new(kind, "False", reason, message)
    }

    /// Nobody knows whether something holds.
    pub fn is_unknown(kind: &'a str, reason: &'a str, message: impl Into<String>) -> Self {
        NewCondition::new(kind, "Unknown", reason, message)
    }

    /// Sets the generation that the condition is about: that of the object that was reconciled.
    #[must_use]
    pub fn observed<K: KubeObject>(mut self, object: &Cached<K>) -> Self {
        self.observed_generation = object.meta().generation;
        self
    }
}

/// Sets a condition in a list. `lastTransitionTime` changes only if the status does. True if anything changed.
pub fn set_condition(conditions: &mut Vec<Condition>, new: NewCondition<'_>) -> bool {
    let known = conditions.iter_mut().find(|known| known.type_ == new.kind);
    let transition = match &known {
        Some(known) if known.status == new.status => known.last_transition_time.clone(),
        _ => Time(whole_seconds(jiff::Timestamp::now())),
    };
    let condition = Condition {
        type_: new.kind.to_owned(),
        status: new.status.to_owned(),
        reason: new.reason.to_owned(),
        message: new.message,
        observed_generation: new.observed_generation,
        last_transition_time: transition,
    };
    match known {
        Some(known) if *known == condition => false,
        Some(known) => {
            *known = condition;
            true
        }
        None => {
            conditions.push(condition);
            true
        }
    }
}

/// True if a condition of this type has the status `True`.
///
/// ```
/// use tidings_controller::{NewCondition, has_condition, set_condition};
///
/// let mut conditions = Vec::new();
/// assert!(!has_condition(&conditions, "Ready"));
/// set_condition(&mut conditions, NewCondition::is_true("Ready", "AllReplicas", "3 of 3 run"));
/// assert!(has_condition(&conditions, "Ready"));
/// ```
pub fn has_condition(conditions: &[Condition], kind: &str) -> bool {
    let mut conditions = conditions.iter();
    conditions.any(|condition| condition.type_ == kind && condition.status == "True")
}

/// The server keeps whole seconds: a condition with more would differ from the stored one.
fn whole_seconds(time: jiff::Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_changes_with_the_status_only() {
        let mut conditions = Vec::new();
        assert!(set_condition(
            &mut conditions,
            NewCondition::is_false("Ready", "Starting", "0 of 3")
        ));
        let past = Time(jiff::Timestamp::UNIX_EPOCH);
        conditions[0].last_transition_time = past.clone();
        assert!(set_condition(
            &mut conditions,
            NewCondition::is_false("Ready", "Starting", "1 of 3")
        ));
        assert_eq!(conditions[0].last_transition_time, past);
        assert!(!has_condition(&conditions, "Ready"));
        assert!(set_condition(
            &mut conditions,
            NewCondition::is_true("Ready", "Started", "3 of 3")
        ));
        assert_ne!(conditions[0].last_transition_time, past);
        assert!(has_condition(&conditions, "Ready"));
        assert!(set_condition(
            &mut conditions,
            NewCondition::is_unknown("Other", "Why", "")
        ));
        assert_eq!(conditions.len(), 2);
    }
}
