//! What a chart of a small application renders to, applied as a whole.

use interop::Server;

const BUNDLE: &str = include_str!("bundle.yaml");

const OBJECTS: [&str; 15] = [
    "namespace/shop",
    "customresourcedefinition.apiextensions.k8s.io/promotions.shop.example.com",
    "serviceaccount/web",
    "role.rbac.authorization.k8s.io/web",
    "rolebinding.rbac.authorization.k8s.io/web",
    "clusterrole.rbac.authorization.k8s.io/shop-reader",
    "configmap/web",
    "secret/web",
    "deployment.apps/web",
    "service/web",
    "ingress.networking.k8s.io/web",
    "horizontalpodautoscaler.autoscaling/web",
    "poddisruptionbudget.policy/web",
    "cronjob.batch/report",
    "networkpolicy.networking.k8s.io/web",
];

fn said_of_each(what: &str) -> Vec<String> {
    OBJECTS.map(|object| format!("{object} {what}")).into()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// Waits until the definition can be used, and uses it.
fn promote(server: &Server) {
    let definition = "crd/promotions.shop.example.com";
    let wait = ["wait", "--for=condition=Established", definition];
    server.run(&wait).unwrap();
    let promotion = "\
apiVersion: shop.example.com/v1
kind: Promotion
metadata: {name: winter, namespace: shop}
spec: {percent: 20, articles: [coat, hat]}
";
    let file = server.file("promotion.yaml", promotion).unwrap();
    let apply = ["apply", "--server-side", "-f", &file];
    assert_eq!(
        server.run(&apply).unwrap(),
        "promotion.shop.example.com/winter serverside-applied\n"
    );
}

fn versions(server: &Server, file: &str) -> String {
    let form = "jsonpath={range .items[*]}{.metadata.resourceVersion} {end}";
    server.run(&["get", "-f", file, "-o", form]).unwrap()
}

#[tokio::test]
async fn applied_twice() {
    let server = Server::start().await.unwrap();
    let file = server.file("bundle.yaml", BUNDLE).unwrap();
    let created = server.run(&["apply", "-f", &file]).unwrap();
    assert_eq!(lines(&created), said_of_each("created"));
    promote(&server);
    let before = versions(&server, &file);
    let again = server.run(&["apply", "-f", &file]).unwrap();
    // kubectl patches what looks different to it: what the server keeps in another form, as `stringData`, and lists that are replaced
    // as a whole. Then it says "configured", against any server, although nothing changes.
    let patched = ["secret/", "deployment", "poddisruption", "networkpolicy"];
    for line in again.lines() {
        let said = patched.iter().any(|kind| line.starts_with(kind));
        assert!(
            line.ends_with(" unchanged") || said && line.ends_with(" configured"),
            "{line}"
        );
    }
    assert_eq!(again.lines().count(), OBJECTS.len());
    assert_eq!(versions(&server, &file), before);
    assert_eq!(server.run(&["diff", "-f", &file]).unwrap(), "");
    // Some of it goes with its namespace before kubectl comes to it.
    let delete = ["delete", "-f", &file, "--ignore-not-found"];
    server.run(&delete).unwrap();
    let left = ["get", "-f", &file, "--ignore-not-found", "-o", "name"];
    assert_eq!(server.run(&left).unwrap(), "");
}

#[tokio::test]
async fn applied_twice_by_the_server() {
    let server = Server::start().await.unwrap();
    let file = server.file("bundle.yaml", BUNDLE).unwrap();
    let apply = ["apply", "--server-side", "-f", &file];
    let applied = said_of_each("serverside-applied");
    assert_eq!(lines(&server.run(&apply).unwrap()), applied);
    promote(&server);
    let before = versions(&server, &file);
    assert_eq!(lines(&server.run(&apply).unwrap()), applied);
    assert_eq!(versions(&server, &file), before);
    let diff = ["diff", "--server-side", "-f", &file];
    assert_eq!(server.run(&diff).unwrap(), "");
    let password = ["get", "secret", "web", "-n", "shop", "-o"];
    let password = [&password[..], &["jsonpath={.data.password}"]].concat();
    assert_eq!(server.run(&password).unwrap(), "c3dvcmRmaXNo");
}
