//! Values of the wrong type, in objects of built-in kinds, of custom resources, and in embedded resources.

use serde_json::{Value, json};

use super::{define, version, widgets};
use crate::support::TestServer;

const RECORDED: &str = include_str!("type_errors.txt");

#[tokio::test]
async fn w132_w173_values_of_the_wrong_type_are_refused_in_gos_words() {
    let server = TestServer::start().await;
    let embedded = json!({"e": {
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    }});
    define(&server, &widgets(&[version("v1", true, &embedded)])).await;
    let mut requests = 0;
    let mut lines = RECORDED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .peekable();
    while let Some(line) = lines.next() {
        let request = line.strip_prefix("POST ").unwrap();
        let (path, body) = request.split_once(' ').unwrap();
        let answer = server.request("POST", path, body).await;
        let said = match answer.code {
            201 => answer
                .json()
                .get("spec")
                .unwrap_or(&Value::Null)
                .to_string(),
            _ => answer.message(),
        };
        let answered = format!("{} {said}", answer.code);
        assert_eq!(answered, lines.next().unwrap(), "{body}");
        for warning in answer.headers.get_all("warning") {
            let warning = format!("warning: {}", warning.to_str().unwrap());
            assert_eq!(Some(&*warning), lines.next(), "{body}");
        }
        let is_done = lines.peek().is_none_or(|line| line.starts_with("POST "));
        assert!(is_done, "{body}: a warning is missing: {:?}", lines.peek());
        requests += 1;
    }
    assert!(requests > 150, "{requests}");
}
