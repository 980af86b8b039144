//! Definitions of custom resources and their objects, as people use them.

use interop::{Server, said};

use crate::{refused, value};

const DEFINITION: &str = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: crontabs.stable.example.com
spec:
  group: stable.example.com
  scope: Namespaced
  names:
    plural: crontabs
    kind: CronTab
    shortNames: [ct]
    categories: [all]
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    additionalPrinterColumns:
    - {name: Spec, type: string, jsonPath: .spec.cronSpec, description: When it runs}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    schema:
      openAPIV3Schema:
        description: CronTab runs an image now and then.
        type: object
        properties:
          spec:
            type: object
            required: [cronSpec]
            properties:
              cronSpec:
                description: When it runs, in five fields.
                type: string
                pattern: '^(\\S+\\s+){4}\\S+$'
              image: {type: string, default: busybox}
              replicas: {type: integer, minimum: 1, maximum: 10, default: 1}
            x-kubernetes-validations:
            - {rule: 'self.replicas == oldSelf.replicas || self.replicas < 9', message: nine copies are too many to go to}
          status:
            type: object
            properties:
              replicas: {type: integer}
";

const OBJECT: &str = "\
apiVersion: stable.example.com/v1
kind: CronTab
metadata:
  name: nightly
spec:
  cronSpec: '0 3 * * *'
";

async fn with_definition() -> Server {
    let server = Server::start().await.unwrap();
    let file = server.file("definition.yaml", DEFINITION).unwrap();
    let created = server.run(&["apply", "-f", &file]).unwrap();
    assert_eq!(
        created,
        "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com created\n"
    );
    let wait = ["wait", "--for=condition=Established", "-f", &file];
    server.run(&wait).unwrap();
    server
}

#[tokio::test]
async fn the_life_of_a_custom_resource() {
    let server = with_definition().await;
    let file = server.file("object.yaml", OBJECT).unwrap();
    let apply = ["apply", "-f", &file];
    let object = "crontab.stable.example.com/nightly";
    assert_eq!(server.run(&apply).unwrap(), format!("{object} created\n"));
    assert_eq!(server.run(&apply).unwrap(), format!("{object} unchanged\n"));
    assert_eq!(server.run(&["diff", "-f", &file]).unwrap(), "");
    let table = server.run(&["get", "ct"]).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(crate::fields).collect();
    assert_eq!(rows[0], ["NAME", "SPEC", "REPLICAS"]);
    assert_eq!(rows[1], ["nightly", "0", "3", "*", "*", "*", "1"]);
    let all = server.run(&["get", "all", "-o", "name"]).unwrap();
    assert!(all.contains(object), "{all}");
    assert_eq!(value(&server, "ct/nightly", ".spec.image"), "busybox");

    let scale = ["scale", "ct", "nightly", "--replicas=4"];
    assert_eq!(server.run(&scale).unwrap(), format!("{object} scaled\n"));
    assert_eq!(value(&server, "ct/nightly", ".spec.replicas"), "4");
    let label = ["label", "ct", "nightly", "team=shop"];
    assert_eq!(server.run(&label).unwrap(), format!("{object} labeled\n"));
    let patch = |kind: &str, patch: &str| {
        let kind = format!("--type={kind}");
        server.run(&["patch", "ct", "nightly", &kind, "-p", patch])
    };
    let patched = format!("{object} patched\n");
    assert_eq!(
        patch("merge", r#"{"spec":{"image":"a"}}"#).unwrap(),
        patched
    );
    let replace = r#"[{"op":"replace","path":"/spec/image","value":"b"}]"#;
    assert_eq!(patch("json", replace).unwrap(), patched);
    let status = ["patch", "ct", "nightly", "--subresource=status"];
    let status = [&status[..], &["--type=merge", "-p"]].concat();
    let status = [&status[..], &[r#"{"status":{"replicas":4}}"#]].concat();
    assert_eq!(server.run(&status).unwrap(), patched);
    assert_eq!(value(&server, "ct/nightly", ".status.replicas"), "4");

    let mut edit = server.kubectl(&["edit", "ct", "nightly"]);
    edit.env("KUBE_EDITOR", "sed -i 's/image: b/image: edited/'");
    let edited = said(&edit.output().unwrap()).unwrap();
    assert_eq!(edited, format!("{object} edited\n"));
    assert_eq!(value(&server, "ct/nightly", ".spec.image"), "edited");

    let delete = ["delete", "ct", "nightly"];
    let deleted = server.run(&delete).unwrap();
    assert!(
        deleted.starts_with("crontab.stable.example.com \"nightly\" deleted"),
        "{deleted}"
    );
}

#[tokio::test]
async fn a_definition_is_patched_and_edited() {
    let server = with_definition().await;
    let name = "crontabs.stable.example.com";
    let object = format!("customresourcedefinition.apiextensions.k8s.io/{name}");
    let patch = |kind: &str, patch: &str| {
        let kind = format!("--type={kind}");
        server.run(&["patch", "crd", name, &kind, "-p", patch])
    };
    let categories = || value(&server, &format!("crd/{name}"), ".spec.names.categories[*]");
    let patched = format!("{object} patched\n");
    let names = r#"{"spec":{"names":{"categories":["a"]}}}"#;
    assert_eq!(patch("strategic", names).unwrap(), patched);
    assert_eq!(categories(), "a");
    let names = r#"{"spec":{"names":{"categories":["b"]}}}"#;
    assert_eq!(patch("merge", names).unwrap(), patched);
    let added = r#"[{"op":"add","path":"/spec/names/categories/-","value":"c"}]"#;
    assert_eq!(patch("json", added).unwrap(), patched);
    assert_eq!(categories(), "b c");
    let mut edit = server.kubectl(&["edit", "crd", name]);
    edit.env("KUBE_EDITOR", "sed -i 's/- c$/- edited/'");
    let edited = said(&edit.output().unwrap()).unwrap();
    assert_eq!(edited, format!("{object} edited\n"));
    assert_eq!(categories(), "b edited");
    let scope = r#"{"spec":{"scope":"Cluster"}}"#;
    let wrong = refused(
        &server,
        &["patch", "crd", name, "--type=merge", "-p", scope],
    );
    assert!(
        wrong.contains("spec.scope: Invalid value: \"Cluster\": field is immutable"),
        "{wrong}"
    );
    let explained = server
        .run(&["explain", "crd.spec.versions.schema"])
        .unwrap();
    assert!(explained.contains("openAPIV3Schema"), "{explained}");
    let file = server.file("definition.yaml", DEFINITION).unwrap();
    let mut diff = server.kubectl(&["diff", "-f", &file]);
    let difference = diff.output().unwrap();
    let text = String::from_utf8_lossy(&difference.stdout);
    assert!(text.contains("-    - edited"), "{text}");
}

#[tokio::test]
async fn explained() {
    let server = with_definition().await;
    let explain = |what: &str| server.run(&["explain", what]).unwrap();
    let whole = explain("crontab");
    for said in [
        "KIND:       CronTab",
        "CronTab runs an image now and then.",
        "Standard object's metadata.",
    ] {
        assert!(whole.contains(said), "{said} is not in\n{whole}");
    }
    let field = explain("ct.spec.cronSpec");
    assert!(field.contains("When it runs, in five fields."), "{field}");
    let spec = explain("ct.spec");
    assert!(spec.contains("cronSpec\t<string> -required-"), "{spec}");
}

#[tokio::test]
async fn applied_by_the_server() {
    let server = with_definition().await;
    let definition = server.file("definition.yaml", DEFINITION).unwrap();
    let apply = ["apply", "--server-side", "--force-conflicts", "-f"];
    let apply_definition = [&apply[..], &[&definition]].concat();
    server.run(&apply_definition).unwrap();
    let diff = ["diff", "--server-side", "-f", &definition];
    assert_eq!(server.run(&diff).unwrap(), "");
    let file = server.file("object.yaml", OBJECT).unwrap();
    let apply = ["apply", "--server-side", "-f", &file];
    let applied = "crontab.stable.example.com/nightly serverside-applied\n";
    assert_eq!(server.run(&apply).unwrap(), applied);
    let before = value(&server, "ct/nightly", ".metadata.resourceVersion");
    assert_eq!(server.run(&apply).unwrap(), applied);
    let after = value(&server, "ct/nightly", ".metadata.resourceVersion");
    assert_eq!(after, before);
    let other = server
        .file("other.yaml", &OBJECT.replace("0 3", "0 4"))
        .unwrap();
    let other = [
        "apply",
        "--server-side",
        "--field-manager=other",
        "-f",
        &other,
    ];
    let conflict = refused(&server, &other);
    assert!(
        conflict.contains("conflict with \"kubectl\": .spec.cronSpec"),
        "{conflict}"
    );
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let server = with_definition().await;
    let wrong = |object: &str| {
        let file = server.file("wrong.yaml", object).unwrap();
        refused(&server, &["apply", "-f", &file])
    };
    let pattern = wrong(&OBJECT.replace("0 3 * * *", "at night"));
    assert!(
        pattern.starts_with("The CronTab \"nightly\" is invalid: ")
            && pattern.contains(
                "spec.cronSpec: Invalid value: \"at night\": spec.cronSpec in body should match"
            ),
        "{pattern}"
    );
    let unknown = wrong(&format!("{OBJECT}  junk: 1\n"));
    assert!(
        unknown.contains("strict decoding error: unknown field \"spec.junk\""),
        "{unknown}"
    );
    let several = wrong(&format!("{OBJECT}  replicas: 11\n  image: 7\n"));
    assert!(
        several.contains("* spec.replicas: Invalid value: 11: spec.replicas in body should be less than or equal to 10")
            && several.contains("* spec.image: Invalid value: \"integer\": spec.image in body must be of type string: \"integer\""),
        "{several}"
    );
    let file = server.file("object.yaml", OBJECT).unwrap();
    server.run(&["apply", "-f", &file]).unwrap();
    let rule = refused(&server, &["scale", "ct", "nightly", "--replicas=9"]);
    assert!(
        rule.contains("spec: Invalid value: nine copies are too many to go to"),
        "{rule}"
    );
    let typeless = DEFINITION.replace("type: string, default: busybox", "default: busybox");
    let refused_definition = wrong(&typeless);
    assert!(
        refused_definition.contains("properties[spec].properties[image].type: Required value: must not be empty for specified object fields"),
        "{refused_definition}"
    );
}

#[tokio::test]
async fn a_definition_is_deleted_with_its_objects() {
    let server = with_definition().await;
    let file = server.file("object.yaml", OBJECT).unwrap();
    server.run(&["apply", "-f", &file]).unwrap();
    let delete = ["delete", "crd", "crontabs.stable.example.com"];
    assert_eq!(
        server.run(&delete).unwrap(),
        "customresourcedefinition.apiextensions.k8s.io \"crontabs.stable.example.com\" deleted\n"
    );
    let gone = refused(&server, &["get", "ct"]);
    // kubectl remembers that there was one.
    assert!(
        gone.contains("the server could not find the requested resource"),
        "{gone}"
    );
    let again = server.file("definition.yaml", DEFINITION).unwrap();
    server.run(&["apply", "-f", &again]).unwrap();
    server
        .run(&["wait", "--for=condition=Established", "-f", &again])
        .unwrap();
    let left = server.run(&["get", "ct", "-o", "name"]).unwrap();
    assert_eq!(left, "");
}
