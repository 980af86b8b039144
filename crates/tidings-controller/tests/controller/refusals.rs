//! What a controller refuses when it starts, and what stops it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tidings_controller::{
    Action, Cached, Context, Controller, ErrorPolicy, OwnerKind, RunSummary, Watches,
};
use tidings_kube::SourceError;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::log::ErrorLog;
use crate::server::{Server, idle};

const LONG: Duration = Duration::from_secs(20);

async fn look(_: Arc<Cached<ConfigMap>>, _: Context<()>) -> Result<Action, SourceError> {
    Ok(Action::AwaitChange)
}

/// The text of the panic with which a controller refuses to start.
fn refusal(controller: Controller<ConfigMap>) -> String {
    let refused = catch_unwind(AssertUnwindSafe(|| drop(controller.start(look, ()))));
    *refused.unwrap_err().downcast::<String>().unwrap()
}

#[tokio::test]
async fn an_error_policy_for_another_type_is_refused_with_both_types() {
    let server = Server::start().await;
    let controller = Controller::<ConfigMap>::new(&server.cluster());
    let text = refusal(controller.error_policy(|_: &std::fmt::Error| ErrorPolicy::GiveUp));
    assert!(text.contains("core::fmt::Error"), "{text}");
    assert!(text.contains("SourceError"), "{text}");
    assert!(text.contains("configmap"), "{text}");
    let controller = Controller::<ConfigMap>::new(&server.cluster());
    let controller = controller.error_policy(|_: &SourceError| ErrorPolicy::GiveUp);
    controller.start(look, ()).stop().await;
}

#[tokio::test]
async fn no_scope_is_refused() {
    let server = Server::start().await;
    let new = || Controller::<ConfigMap>::new(&server.cluster());
    let nothing = || Watches::<Secret>::all().scopes([]);
    let text = refusal(new().scopes([]));
    assert!(text.contains("no scope for ConfigMap"), "{text}");
    let text = refusal(new().owns_with::<Secret>(OwnerKind::Any, nothing()));
    assert!(text.contains("no scope for Secret"), "{text}");
    let text = refusal(new().watches_with(nothing(), |_: &Cached<Secret>| []));
    assert!(text.contains("no scope for Secret"), "{text}");
}

#[tokio::test]
async fn two_controllers_of_one_name_are_an_error_in_the_log() {
    let log = ErrorLog::start();
    let server = Server::start().await;
    let cluster = server.cluster();
    let start = |name: &'static str| {
        let controller = Controller::<ConfigMap>::new(&cluster).name(name);
        controller.start(look, ())
    };
    let (first, other) = (start("twin"), start("other"));
    assert_eq!(log.of_controller("twin"), [""; 0]);
    let second = start("twin");
    let lines = log.of_controller("twin");
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [r#"cluster="default""#, ".name(…)"] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
    for controller in [first, second, other] {
        controller.stop().await;
    }
    drop(start("twin"));
    start("twin").stop().await;
    assert_eq!(
        log.of_controller("twin").len(),
        1,
        "one after the other is no error"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn any_of_several_triggers_stops_a_controller() {
    let server = Server::start().await;
    for stops in 0..2 {
        let (mut stop, stopped): (Vec<_>, Vec<_>) =
            (0..2).map(|_| oneshot::channel::<()>()).unzip();
        let mut controller = Controller::<ConfigMap>::new(&server.cluster());
        for stopped in stopped {
            controller = controller.stop_on(async { drop(stopped.await) });
        }
        let handle = controller.shutdown_on_signal().start(look, ());
        idle(&handle).await;
        assert!(!handle.is_finished());
        drop(stop.remove(stops));
        let ended = timeout(LONG, handle.join()).await;
        assert_eq!(ended.unwrap(), RunSummary::default(), "trigger {stops}");
    }
}
