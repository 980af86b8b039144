//! `/healthz`, `/livez`, `/readyz` and `/version` (W35, W36).

use http::{Response, StatusCode};

use super::request::{HealthRequest, Query};
use super::respond::{self, ResponseBody};

/// One health check: its name, and why it fails, if it does.
pub(crate) type HealthCheck = (&'static str, Option<String>);

/// Leaves out why checks fail: reasons name objects, disks and other services. Whoever shows a credential gets them, and the log has them.
pub(crate) fn withhold(checks: &mut [HealthCheck]) {
    for why in checks.iter_mut().filter_map(|(_, why)| why.as_mut()) {
        "reason withheld".clone_into(why);
    }
}

/// Answers a health request.
pub(crate) fn answer(
    health: &HealthRequest,
    query: &Query,
    checks: &[HealthCheck],
) -> Response<ResponseBody> {
    let HealthRequest { endpoint, check } = health;
    let wanted: Vec<&HealthCheck> = checks
        .iter()
        .filter(|(name, _)| check.is_empty() || name == check)
        .collect();
    if wanted.is_empty() {
        return respond::page_not_found();
    }
    let excluded = query.all("exclude");
    let fails = |(name, why): &&HealthCheck| why.is_some() && !excluded.contains(name);
    let failed = wanted.iter().any(fails);
    let verbose = query.get("verbose").is_some();
    if !failed && (!verbose || !check.is_empty()) {
        return respond::text(StatusCode::OK, "ok");
    }
    let mut text = String::new();
    for (name, why) in wanted {
        match why {
            _ if excluded.contains(name) => text.push_str(&format!("[+]{name} excluded: ok\n")),
            None => text.push_str(&format!("[+]{name} ok\n")),
            Some(why) => text.push_str(&format!("[-]{name} failed: {why}\n")),
        }
    }
    let code = if failed {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        StatusCode::OK
    };
    text.push_str(&format!(
        "{endpoint} check {}\n",
        if failed { "failed" } else { "passed" }
    ));
    respond::text(code, text)
}

/// Answers `/version` with the Kubernetes version whose API this server implements, so that clients see no version skew.
pub(crate) fn version() -> Response<ResponseBody> {
    let platform = format!(
        "{}/{}",
        std::env::consts::OS,
        match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    );
    let text = format!(
        r#"{{
  "major": "1",
  "minor": "36",
  "emulationMajor": "1",
  "emulationMinor": "36",
  "minCompatibilityMajor": "1",
  "minCompatibilityMinor": "35",
  "gitVersion": "v1.36.4",
  "gitCommit": "tidings-{}",
  "gitTreeState": "clean",
  "buildDate": "1970-01-01T00:00:00Z",
  "goVersion": "none, this is Rust",
  "compiler": "rustc",
  "platform": "{platform}"
}}"#,
        env!("CARGO_PKG_VERSION")
    );
    respond::json_response(StatusCode::OK, ResponseBody::bytes(text))
}

/// Answers `/` with a list of paths.
pub(crate) fn root() -> Response<ResponseBody> {
    let paths = ["/healthz", "/livez", "/metrics", "/readyz", "/version"];
    let list: Vec<String> = paths.iter().map(|path| format!("    \"{path}\"")).collect();
    respond::json_response(
        StatusCode::OK,
        ResponseBody::bytes(format!("{{\n  \"paths\": [\n{}\n  ]\n}}", list.join(",\n"))),
    )
}
