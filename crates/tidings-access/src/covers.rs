//! Escalation: nobody grants more than they have.

use std::collections::BTreeMap;

use tidings_go::quote;

use crate::policy::Policy;
use crate::rule::{PolicyRule, quoted};
use crate::user::User;

/// Into how many parts the rules of a role are divided to compare them with those that a user holds. What is beyond must be held by one rule as a
/// whole: a role of a few kilobytes can have thousands of millions of parts.
const PARTS_MAX: usize = 10_000;
/// How many lines a refusal has.
const MISSING_SHOWN_MAX: usize = 200;

/// The parts of `wanted` that no rule of `held` covers.
pub(crate) fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let is_held = |rule: &PolicyRule| held.iter().any(|known| known.covers(rule));
    let (mut missing, mut left) = (Vec::new(), PARTS_MAX);
    for rule in wanted.iter().filter(|rule| !is_held(rule)) {
        let count = rule.part_count();
        if count > left {
            missing.push(rule.clone());
            continue;
        }
        left -= count;
        missing.extend(rule.parts().into_iter().filter(|part| !is_held(part)));
    }
    missing
}

/// Puts rules together that differ only by their verbs.
fn compact(rules: Vec<PolicyRule>) -> Vec<PolicyRule> {
    let mut simple: BTreeMap<_, PolicyRule> = BTreeMap::new();
    let mut others = Vec::new();
    for rule in rules {
        if !rule.paths.is_empty() {
            others.push(rule);
            continue;
        }
        let key = (
            rule.api_groups.clone(),
            rule.resources.clone(),
            rule.resource_names.clone(),
        );
        match simple.get_mut(&key) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => {
                simple.insert(key, rule);
            }
        }
    }
    others.extend(simple.into_values());
    others
}

/// Why a user may not grant rules in a namespace (empty: everywhere): they do not hold all of them.
///
/// # Errors
/// With upstream's text.
pub fn check_escalation(
    policy: &Policy,
    user: &User,
    namespace: &str,
    wanted: &[PolicyRule],
) -> Result<(), String> {
    let (held, errors) = policy.rules_for(user, namespace);
    let missing = uncovered(&held, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = compact(missing).iter().map(PolicyRule::brief).collect();
    lines.sort();
    lines.dedup();
    if lines.len() > MISSING_SHOWN_MAX {
        let more = lines.len() - MISSING_SHOWN_MAX;
        lines.truncate(MISSING_SHOWN_MAX);
        lines.push(format!("and {more} more"));
    }
    let mut text = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quote(&user.name),
        quoted(&user.groups),
        lines.join("\n")
    );
    if !errors.is_empty() {
        text.push_str(&format!(
            "; resolution errors: [{}]",
            crate::policy::aggregate(&errors)
        ));
    }
    Err(text)
}

/// True if a user holds everything in a namespace (empty: everywhere).
pub fn covers_everything(policy: &Policy, user: &User, namespace: &str) -> bool {
    let all = || vec!["*".to_owned()];
    let resources = PolicyRule {
        verbs: all(),
        api_groups: all(),
        resources: all(),
        ..PolicyRule::default()
    };
    let paths = PolicyRule {
        verbs: all(),
        paths: all(),
        ..PolicyRule::default()
    };
    let (held, _) = policy.rules_for(user, namespace);
    uncovered(&held, &[resources, paths]).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: &str) -> Vec<PolicyRule> {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn what_is_granted_must_be_held_whole() {
        let held = rules(
            r#"[{"verbs":["get","list"],"apiGroups":[""],"resources":["pods","*/status"]},
                {"verbs":["*"],"apiGroups":["apps"],"resources":["*"],"resourceNames":["a"]},
                {"verbs":["get"],"nonResourceURLs":["/x/*"]}]"#,
        );
        for (wanted, missing) in [
            (
                r#"[{"verbs":["get"],"apiGroups":[""],"resources":["pods","nodes/status"]}]"#,
                0,
            ),
            (
                r#"[{"verbs":["get"],"apiGroups":[""],"resources":["nodes"]}]"#,
                1,
            ),
            (
                r#"[{"verbs":["*"],"apiGroups":[""],"resources":["pods"]}]"#,
                1,
            ),
            (
                r#"[{"verbs":["get"],"apiGroups":["apps"],"resources":["x"]}]"#,
                1,
            ),
            (
                r#"[{"verbs":["get"],"apiGroups":["apps"],"resources":["x"],"resourceNames":["a","b"]}]"#,
                1,
            ),
            (
                r#"[{"verbs":["get","put"],"nonResourceURLs":["/x/y","/y"]}]"#,
                3,
            ),
        ] {
            let found = uncovered(&held, &rules(wanted));
            assert_eq!(found.len(), missing, "{wanted}: {found:?}");
        }
    }

    #[test]
    fn a_small_role_with_countless_parts_is_compared_as_a_whole() {
        let many = |text: &str| (0..300).map(|number| format!("{text}{number}")).collect();
        let wide = PolicyRule {
            verbs: many("v"),
            api_groups: many("g"),
            resources: many("r"),
            resource_names: many("n"),
            ..PolicyRule::default()
        };
        let refused = check_escalation(
            &Policy::default(),
            &User::new("ann", &[]),
            "",
            std::slice::from_ref(&wide),
        );
        assert!(refused.unwrap_err().contains("not currently held"));
        let all = rules(r#"[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]"#);
        assert!(uncovered(&all, &[wide]).is_empty());
        let lines: Vec<PolicyRule> = (0..2000)
            .map(|number| {
                rules(&format!(
                    r#"[{{"verbs":["get"],"apiGroups":[""],"resources":["r{number}"]}}]"#
                ))
                .remove(0)
            })
            .collect();
        let refused = check_escalation(&Policy::default(), &User::new("ann", &[]), "", &lines);
        assert!(refused.unwrap_err().ends_with("\nand 1800 more"));
    }

    #[test]
    fn a_refusal_shows_what_is_missing_in_few_lines() {
        let wanted = rules(
            r#"[{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]},
                {"verbs":["get"],"nonResourceURLs":["/x"]},
                {"verbs":["get"],"apiGroups":["apps"],"resources":["d"],"resourceNames":["n"]}]"#,
        );
        let user = User::new("ann", &["a", "b"]);
        let refused = check_escalation(&Policy::default(), &user, "", &wanted).unwrap_err();
        let expected = concat!(
            "user \"ann\" (groups=[\"a\" \"b\"]) is attempting to grant RBAC permissions not currently held:\n",
            "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"list\"]}\n",
            "{APIGroups:[\"apps\"], Resources:[\"d\"], ResourceNames:[\"n\"], Verbs:[\"get\"]}\n",
            "{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}"
        );
        assert_eq!(refused, expected);
        let master = User::new("m", &[]);
        assert!(!covers_everything(&Policy::default(), &master, ""));
    }
}
