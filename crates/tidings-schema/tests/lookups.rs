//! Facts about well-known types from the published definitions.

use tidings_schema::{
    Descriptions, Field, FieldKind, ItemType, ListKind, PatchStrategy, StructAlternative, Type,
    find, find_type,
};

fn kind(group: &str, version: &str, kind: &str) -> &'static Type {
    find(group, version, kind).unwrap_or_else(|| panic!("{group}/{version} {kind}"))
}

/// Follows member names from a type to a field.
fn field(start: &'static Type, path: &str) -> &'static Field {
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let parent = parents
        .split('.')
        .filter(|name| !name.is_empty())
        .fold(start, |found, name| {
            let field = found
                .field(name)
                .unwrap_or_else(|| panic!("{found:?} has no {name}"));
            field
                .struct_type()
                .unwrap_or_else(|| panic!("{field:?} is no struct"))
        });
    parent
        .field(last)
        .unwrap_or_else(|| panic!("{parent:?} has no {last}"))
}

#[test]
fn kinds_are_found_by_group_and_version() {
    for (group, version, name) in [
        ("", "v1", "Pod"),
        ("", "v1", "ConfigMapList"),
        ("", "v1", "Binding"),
        ("apps", "v1", "Deployment"),
        ("batch", "v1", "CronJob"),
        ("autoscaling", "v1", "Scale"),
        ("autoscaling", "v2", "HorizontalPodAutoscaler"),
        ("coordination.k8s.io", "v1", "Lease"),
        ("discovery.k8s.io", "v1", "EndpointSlice"),
        ("events.k8s.io", "v1", "Event"),
        ("networking.k8s.io", "v1", "Ingress"),
        ("node.k8s.io", "v1", "RuntimeClass"),
        ("policy", "v1", "Eviction"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
        ("scheduling.k8s.io", "v1", "PriorityClass"),
        ("storage.k8s.io", "v1", "CSIDriver"),
        ("certificates.k8s.io", "v1", "CertificateSigningRequest"),
        (
            "admissionregistration.k8s.io",
            "v1",
            "ValidatingAdmissionPolicy",
        ),
        ("authentication.k8s.io", "v1", "TokenRequest"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinitionList"),
    ] {
        let found = kind(group, version, name);
        assert_eq!(
            (found.group, found.version, found.name),
            (group, version, name)
        );
        assert!(found.field("kind").is_some() && found.field("apiVersion").is_some());
    }
    assert!(find("", "v1", "PodSpec").is_none());
    assert!(find("apps", "v1", "Pod").is_none());
    assert!(find("", "v2", "Pod").is_none());
}

#[test]
fn the_kinds_of_meta_are_in_every_group() {
    for (group, version) in [
        ("", "v1"),
        ("apps", "v1"),
        ("meta.k8s.io", "v1"),
        ("example.com", "v1"),
    ] {
        assert_eq!(kind(group, version, "DeleteOptions").package, "meta/v1");
    }
    assert_eq!(kind("", "v1", "Status").package, "meta/v1");
}

#[test]
fn types_are_found_by_package() {
    let meta = find_type("meta/v1", "ObjectMeta").expect("ObjectMeta");
    assert!(!meta.is_kind);
    assert_eq!(meta.field("labels").map(|field| field.number), Some(11));
    let managed = meta.field("managedFields").map(|field| field.number);
    assert_eq!(managed, Some(17));
    for name in [
        "ListMeta",
        "OwnerReference",
        "ManagedFieldsEntry",
        "LabelSelector",
        "Preconditions",
    ] {
        assert!(find_type("meta/v1", name).is_some(), "{name}");
    }
    assert!(find_type("meta/v2", "ObjectMeta").is_none());
}

#[test]
fn lists_know_how_they_merge() {
    let pod = kind("", "v1", "Pod");
    let ports = field(pod, "spec.containers.ports");
    assert_eq!(
        ports.list,
        ListKind::Map(["containerPort", "protocol"].into())
    );
    assert_eq!(ports.merge_key, Some("containerPort"));
    assert!(ports.patch_strategy.merge);
    assert!(
        matches!(ports.kind, FieldKind::List(ItemType::Struct(port)) if port.name == "ContainerPort")
    );
    assert_eq!(
        field(pod, "spec.containers.ports.protocol").default,
        Some("\"TCP\"")
    );
    assert_eq!(field(pod, "spec.containers.args").list, ListKind::Atomic);
    assert_eq!(field(pod, "metadata.finalizers").list, ListKind::Set);
    let volumes = PatchStrategy {
        merge: true,
        retain_keys: true,
        replace: false,
    };
    assert_eq!(field(pod, "spec.volumes").patch_strategy, volumes);
    let deployment = kind("apps", "v1", "Deployment");
    let strategy = PatchStrategy {
        merge: false,
        retain_keys: true,
        replace: false,
    };
    assert_eq!(field(deployment, "spec.strategy").patch_strategy, strategy);
    let budget = kind("policy", "v1", "PodDisruptionBudget");
    assert!(field(budget, "spec.selector").patch_strategy.replace);
}

#[test]
fn schemas_of_custom_resources_hold_more_than_one_type() {
    let schema = find_type("apiextensions/v1", "JSONSchemaProps").expect("JSONSchemaProps");
    for (name, other) in [
        ("items", StructAlternative::List),
        ("additionalProperties", StructAlternative::Bool),
        ("dependencies", StructAlternative::Strings),
    ] {
        let found = field(schema, name).item();
        let expected = matches!(found, ItemType::Either(of, as_well) if of.name == schema.name && as_well == other);
        assert!(expected, "{name}: {found:?}");
    }
    assert!(matches!(field(schema, "default").item(), ItemType::Raw));
    assert!(matches!(field(schema, "maximum").item(), ItemType::Double));
    assert_eq!(
        field(schema, "x-kubernetes-validations").list,
        ListKind::Map(["rule"].into())
    );
    let definition = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    assert_eq!(field(definition, "spec.versions").list, ListKind::Atomic);
    assert_eq!(
        field(definition, "status.conditions").list,
        ListKind::Map(["type"].into())
    );
}

#[test]
fn every_kind_and_its_fields_are_described() {
    let descriptions = Descriptions::unpack();
    for kind in tidings_schema::kinds().filter(|kind| kind.package != "meta/v1") {
        let described = descriptions.of(kind.package, kind.name);
        let described = described.unwrap_or_else(|| panic!("{kind:?}"));
        assert!(!described.text().is_empty(), "{kind:?}");
        let names: Vec<&str> = described.fields().map(|field| field.name).collect();
        for field in kind.members() {
            assert!(names.contains(&field.name), "{kind:?}.{}", field.name);
        }
    }
    for (package, name) in [
        ("meta/v1", "Time"),
        ("meta/v1", "MicroTime"),
        ("meta/v1", "FieldsV1"),
        ("api/resource", "Quantity"),
        ("util/intstr", "IntOrString"),
        ("pkg/runtime", "RawExtension"),
        ("apiextensions/v1", "JSON"),
        ("apiextensions/v1", "JSONSchemaPropsOrBool"),
    ] {
        assert!(descriptions.of(package, name).is_some(), "{name}");
    }
    let container = descriptions.of("core/v1", "Container").expect("Container");
    let mut fields = container.fields();
    let policy = fields.find(|field| field.name == "imagePullPolicy");
    let policy = policy.expect("imagePullPolicy");
    assert_eq!(policy.values, ["Always", "IfNotPresent", "Never"]);
    assert!(
        policy.text.contains("\n\nPossible enum values:\n"),
        "{}",
        policy.text
    );
    let claim = descriptions.of("core/v1", "PersistentVolumeClaimSpec");
    let mut fields = claim.expect("PersistentVolumeClaimSpec").fields();
    let modes = fields.find(|field| field.name == "accessModes");
    assert_eq!(modes.expect("accessModes").item_values.len(), 4);
}

#[test]
fn a_field_decides_over_its_type_what_is_atomic() {
    assert!(field(kind("", "v1", "Service"), "spec.selector").atomic);
    assert!(field(kind("apps", "v1", "Deployment"), "spec.selector").atomic);
    assert!(field(kind("", "v1", "Event"), "involvedObject").atomic);
    assert!(!field(kind("", "v1", "PersistentVolume"), "spec.claimRef").atomic);
}

#[test]
fn inlined_members_are_found_and_come_in_order() {
    let volume = field(kind("", "v1", "Pod"), "spec.volumes")
        .struct_type()
        .expect("a struct");
    assert_eq!(volume.fields().len(), 2);
    assert_eq!(volume.field("emptyDir").map(|field| field.number), Some(2));
    assert!(volume.field("").is_none());
    let names: Vec<&str> = volume.members().map(|field| field.name).take(3).collect();
    assert_eq!(names, ["name", "hostPath", "emptyDir"]);
}

#[test]
fn required_pointer_and_keep_are_told_apart() {
    let spec = field(kind("apps", "v1", "Deployment"), "spec")
        .struct_type()
        .expect("a struct");
    let facts = |name| field(spec, name);
    assert!(facts("selector").required && facts("selector").pointer && facts("selector").keep);
    assert!(facts("replicas").pointer && !facts("replicas").keep && !facts("replicas").required);
    assert!(!facts("minReadySeconds").pointer && !facts("minReadySeconds").keep);
}
