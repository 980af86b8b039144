//! Levels of pod security, and the labels of namespaces that choose them.

use std::collections::BTreeMap;
use std::fmt;

use tidings_api::{FieldError, FieldErrors};

/// How strict a policy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn read(text: &str) -> Result<Level, &'static str> {
        match text {
            "privileged" => Ok(Level::Privileged),
            "baseline" => Ok(Level::Baseline),
            "restricted" => Ok(Level::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

/// The version of a policy: of Kubernetes 1, or the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PolicyVersion {
    Minor(u32),
    Latest,
}

impl PolicyVersion {
    fn read(text: &str) -> Result<PolicyVersion, &'static str> {
        const WRONG: &str = "must be \"latest\" or \"v1.x\"";
        if text == "latest" {
            return Ok(PolicyVersion::Latest);
        }
        let digits = text.strip_prefix("v1.").ok_or(WRONG)?;
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let leading = digits.len() > 1 && digits.starts_with('0');
        match digits.parse() {
            Ok(minor) if plain && !leading => Ok(PolicyVersion::Minor(minor)),
            _ => Err(WRONG),
        }
    }

    /// The minor version that counts.
    pub(super) fn minor(self) -> u32 {
        match self {
            PolicyVersion::Minor(minor) => minor,
            PolicyVersion::Latest => u32::MAX,
        }
    }
}

/// A level in a version, as messages write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: PolicyVersion,
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged:",
            Level::Baseline => "baseline:",
            Level::Restricted => "restricted:",
        })?;
        match self.version {
            PolicyVersion::Minor(minor) => write!(f, "v1.{minor}"),
            PolicyVersion::Latest => f.write_str("latest"),
        }
    }
}

/// What a namespace wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Policy {
    /// Pods that violate it are refused.
    pub(super) enforce: LevelVersion,
    /// The audit log tells of Pods that violate it.
    pub(super) audit: LevelVersion,
    /// Whoever writes Pods that violate it is warned.
    pub(super) warn: LevelVersion,
}

impl Policy {
    /// The policy that labels choose, and what is wrong with them. Labels that cannot be read enforce the strictest level, and warn of nothing.
    pub(super) fn of(labels: &BTreeMap<String, String>) -> (Policy, FieldErrors) {
        let mut errors = FieldErrors::default();
        let mut wrong = |label: &str, value: &str, why: &str| {
            let path = format!("metadata.labels[{label}]");
            errors.push(FieldError::invalid(path, value, why));
        };
        let mut read = |mode: &str, otherwise: Level| {
            let mut chosen = LevelVersion {
                level: Level::Privileged,
                version: PolicyVersion::Latest,
            };
            let label = format!("pod-security.kubernetes.io/{mode}");
            let level = labels.get(&label).map(|text| (text, Level::read(text)));
            if let Some((text, level)) = &level {
                chosen.level = level.unwrap_or(otherwise);
                if let Err(why) = level {
                    wrong(&label, text, why);
                }
            }
            let label = format!("{label}-version");
            let version = labels.get(&label);
            if let Some(text) = version {
                match PolicyVersion::read(text) {
                    Ok(version) => chosen.version = version,
                    Err(why) => wrong(&label, text, why),
                }
            }
            let is_read = level.as_ref().is_some_and(|(_, level)| level.is_ok());
            (chosen, level.is_some(), is_read, version.is_some())
        };
        let (enforce, _, enforces, _) = read("enforce", Level::Restricted);
        let (audit, ..) = read("audit", Level::Privileged);
        let (mut warn, warns, _, has_version) = read("warn", Level::Privileged);
        if !warns && enforces && enforce.level > warn.level {
            warn.level = enforce.level;
            if !has_version {
                warn.version = enforce.version;
            }
        }
        let policy = Policy {
            enforce,
            audit,
            warn,
        };
        (policy, errors)
    }

    /// True if nothing is asked.
    pub(super) fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn]
            .iter()
            .all(|mode| mode.level == Level::Privileged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(labels: &[(&str, &str)]) -> (String, Vec<String>) {
        let labels = labels.iter().map(|(mode, text)| {
            let label = format!("pod-security.kubernetes.io/{mode}");
            (label, (*text).to_owned())
        });
        let (policy, errors) = Policy::of(&labels.collect());
        let Policy {
            enforce,
            audit,
            warn,
        } = policy;
        let errors = errors.iter().map(ToString::to_string).collect();
        (format!("{enforce} {audit} {warn}"), errors)
    }

    #[test]
    fn labels_choose_levels() {
        for (labels, chosen) in [
            (
                &[][..],
                "privileged:latest privileged:latest privileged:latest",
            ),
            (
                &[("enforce", "baseline")],
                "baseline:latest privileged:latest baseline:latest",
            ),
            (
                &[("enforce", "restricted"), ("enforce-version", "v1.24")],
                "restricted:v1.24 privileged:latest restricted:v1.24",
            ),
            (
                &[("enforce", "restricted"), ("warn-version", "v1.20")],
                "restricted:latest privileged:latest restricted:v1.20",
            ),
            (
                &[("enforce", "restricted"), ("warn", "privileged")],
                "restricted:latest privileged:latest privileged:latest",
            ),
            (
                &[("audit", "baseline"), ("audit-version", "v1.0")],
                "privileged:latest baseline:v1.0 privileged:latest",
            ),
        ] {
            assert_eq!(policy(labels), (chosen.to_owned(), vec![]), "{labels:?}");
        }
    }

    #[test]
    fn labels_that_cannot_be_read_enforce_the_strictest_level() {
        let (chosen, errors) = policy(&[
            ("enforce", "strict"),
            ("warn", "no"),
            ("audit-version", "v1.01"),
        ]);
        assert_eq!(
            chosen,
            "restricted:latest privileged:latest privileged:latest"
        );
        assert_eq!(
            errors,
            [
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of privileged, baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"v1.01\": must be \"latest\" or \"v1.x\"",
                "metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"no\": must be one of privileged, baseline, restricted",
            ]
        );
    }
}
