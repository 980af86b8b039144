//! Messages on standard error: progress of the initial state, problems, and when the next retry is.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, bail};
use tidings_api::Object;
use tidings_informer::{Problem, ReflectorState, SharedInformer, SourceError};
use tidings_kube::ResolveError;
use tokio::time::Instant;

/// A wait that takes longer is reported.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits for an answer of a server, and reports it if it takes long.
pub(super) async fn patiently<T>(server: &str, waiting: impl Future<Output = T>) -> T {
    tokio::pin!(waiting);
    tokio::select! {
        done = &mut waiting => return done,
        () = tokio::time::sleep(PATIENCE) => say(&format!("still waiting for {server}")),
    }
    waiting.await
}

/// Waits for the initial state and shows its progress. Fails if the server cannot be reached or refuses; for other problems it
/// waits for the next retry.
pub(super) async fn sync(
    informer: &SharedInformer<Object>,
    server: &str,
    resource: &str,
) -> anyhow::Result<()> {
    let progress = std::io::stderr().is_terminal();
    let mut states = informer.watch_state();
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    ticks.tick().await;
    loop {
        tokio::select! {
            synced = informer.wait_synced() => {
                if progress {
                    eprint!("\r\x1b[K");
                }
                let Err(error) = synced else { return Ok(()) };
                return match error.state {
                    ReflectorState::Stopped { problem: Some(problem) } => Err(refusal(&problem)),
                    _ => Err(error.into()),
                };
            }
            changed = states.changed() => {
                changed.context("the informer has stopped")?;
                if let ReflectorState::Degraded { problem, next_retry, .. } = &*states.borrow_and_update() {
                    match problem.source_error() {
                        Some(SourceError::Transport(_)) => bail!(unreachable(server, problem)),
                        Some(error) if is_final(error) => return Err(refusal(problem)),
                        _ => say(&trouble(problem, until(*next_retry))),
                    }
                }
            }
            _ = ticks.tick(), if progress => {
                if let ReflectorState::Listing { received } | ReflectorState::Streaming { received } = informer.state() {
                    eprint!("\r\x1b[K{received} {resource} so far …");
                    let _ = std::io::stderr().flush();
                }
            }
        }
    }
}

/// Reports when the connection is lost, when the next retry is, and when it is back. Ends when the server refuses for good.
pub(super) async fn report(informer: &SharedInformer<Object>) -> anyhow::Result<()> {
    let mut states = informer.watch_state();
    let mut degraded = false;
    loop {
        match &*states.borrow_and_update() {
            ReflectorState::Degraded {
                problem,
                next_retry,
                ..
            } => {
                degraded = true;
                say(&trouble(problem, until(*next_retry)));
            }
            ReflectorState::Synced if degraded => {
                degraded = false;
                say("connected again");
            }
            ReflectorState::Stopped { .. } => return Ok(()),
            _ => {}
        }
        states.changed().await.context("the informer has stopped")?;
    }
}

/// Prints a line on standard error, over the progress line if there is one.
pub(super) fn say(text: &str) {
    let start = if std::io::stderr().is_terminal() {
        "\r\x1b[K"
    } else {
        ""
    };
    eprintln!("{start}tidings: {text}");
}

pub(super) fn refusal(problem: &Problem) -> anyhow::Error {
    anyhow::anyhow!("the server refuses: {}", problem.story())
}

pub(super) fn explain(error: ResolveError, server: &str) -> anyhow::Error {
    match error {
        ResolveError::Source(error) if error.code() == Some(401) => anyhow::anyhow!(
            "the server {server} does not know this user ({}): the token or certificate of the kubeconfig is not one of this server",
            error.story()
        ),
        ResolveError::Source(error) if error.status().is_some() => {
            anyhow::anyhow!("the server {server} refuses: {}", error.story())
        }
        ResolveError::Source(error) => anyhow::anyhow!(unreachable(server, &error)),
        // The part after the first dot may be wrong, and not the resource.
        ResolveError::Unknown(word) if word.contains('.') => {
            let name = word.split('.').next().unwrap_or_default();
            anyhow::anyhow!(
                "the server doesn't have a resource type {word:?}: write `{name}`, `{name}.GROUP` or `{name}.VERSION.GROUP`, with the whole group"
            )
        }
        other => other.into(),
    }
}

/// Why no answer of a server could be read, with what to change if the kubeconfig is the likely cause.
fn unreachable(server: &str, error: &dyn std::error::Error) -> String {
    let root = root(error);
    let hint = match root.as_str() {
        text if server.starts_with("http:") && text.contains("invalid HTTP version") => {
            ": it seems to speak TLS, write https:// in the kubeconfig"
        }
        text if text.contains("UnknownIssuer") => {
            ": the certificate authority of the kubeconfig is not that of this server"
        }
        _ => "",
    };
    format!("the server {server} cannot be reached: {root}{hint}")
}

/// True if a retry cannot help: the server rejects the selector, or does not have the resource.
fn is_final(error: &SourceError) -> bool {
    matches!(
        error.code(),
        Some(400 | 401 | 403 | 404 | 405 | 406 | 415 | 422)
    )
}

fn until(next_retry: Instant) -> Duration {
    next_retry.saturating_duration_since(Instant::now())
}

fn trouble(problem: &Problem, wait: Duration) -> String {
    let what = match problem.source_error() {
        Some(error) if error.status().is_some() => {
            format!("the server refuses: {}", error.story())
        }
        Some(error) => format!("lost the server: {}", root(error)),
        None => format!("lost the server: {}", problem.story()),
    };
    format!("{what}; trying again in {:.1} s", wait.as_secs_f64())
}

/// The innermost cause of an error: a refused connection, an unknown certificate. The errors around it add nothing.
fn root(error: &dyn std::error::Error) -> String {
    let mut root = error;
    while let Some(cause) = root.source() {
        root = cause;
    }
    root.to_string()
}

#[cfg(test)]
mod tests {
    use tidings_api::Status;

    use super::*;

    #[test]
    fn a_problem_is_told_with_the_wait() {
        let broken = SourceError::transport(std::io::Error::other("Connection refused"));
        let busy = SourceError::from(Status::too_many_requests("come later", 3));
        for (problem, what) in [
            (broken.into(), "lost the server: Connection refused"),
            (busy.into(), "the server refuses: come later"),
            (
                Problem::Silent(Duration::from_secs(75)),
                "lost the server: the server sent nothing for 75 seconds",
            ),
        ] {
            assert_eq!(
                trouble(&problem, Duration::from_millis(3210)),
                format!("{what}; trying again in 3.2 s")
            );
        }
    }

    #[test]
    fn a_wrong_kubeconfig_is_told_what_to_change() {
        for (server, cause, hint) in [
            ("http://a:1", "invalid HTTP version parsed", "https://"),
            (
                "https://a:1",
                "invalid peer certificate: UnknownIssuer",
                "certificate authority",
            ),
            ("https://a:1", "Connection refused", "Connection refused"),
        ] {
            let error = SourceError::transport(std::io::Error::other(cause));
            let said = unreachable(server, &error);
            assert!(said.contains(cause) && said.contains(hint), "{said}");
        }
    }

    #[test]
    fn what_no_second_try_can_change_is_final() {
        let is_final = |status: Status| is_final(&status.into());
        assert!(is_final(Status::bad_request("no such field")));
        assert!(is_final(Status::unauthorized()));
        assert!(is_final(Status::no_such_resource()));
        assert!(is_final(Status::method_not_allowed()));
        assert!(!is_final(Status::too_many_requests("come later", 3)));
        assert!(!is_final(Status::expired("too old")));
        assert!(!is_final(Status::internal("broken")));
    }
}
