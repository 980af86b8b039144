//! The built-in kinds, as one table.

use super::{Kind, Member, NameRule, SelectableField, Shape, Special};

const fn member(name: &'static str, shape: Shape, absent: &'static str) -> Member {
    Member {
        name,
        shape,
        absent,
    }
}

const fn spec(go_type: &'static str) -> Member {
    member("spec", Shape::Object(go_type), "{}")
}

const fn status(go_type: &'static str, absent: &'static str) -> Member {
    member("status", Shape::Object(go_type), absent)
}

const fn field(name: &'static str, paths: &'static [&'static [&'static str]]) -> SelectableField {
    SelectableField {
        name,
        paths,
        absent: "",
    }
}

/// What most kinds have; an entry of the table changes what is different.
const PLAIN: Kind = Kind {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    namespaced: true,
    members: &[],
    fields: &[],
    name_rule: NameRule::Subdomain,
    generation: false,
    status: false,
    create_on_update: false,
    conditional_update: false,
    returns_deleted: false,
    special: Special::None,
    bookmark: "",
};

/// The kinds that this server has.
pub(crate) static KINDS: &[Kind] = &[
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        namespaced: false,
        members: &[spec("v1.NamespaceSpec"), status("v1.NamespaceStatus", "{}")],
        fields: &[field("status.phase", &[&["status", "phase"]])],
        name_rule: NameRule::Label,
        status: true,
        returns_deleted: true,
        special: Special::Namespace,
        bookmark: ",\"spec\":{},\"status\":{}",
        ..PLAIN
    },
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        members: &[
            member("immutable", Shape::Bool, ""),
            member("data", Shape::Strings, ""),
            member("binaryData", Shape::Bytes, ""),
        ],
        special: Special::ConfigMap,
        ..PLAIN
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        members: &[
            member("immutable", Shape::Bool, ""),
            member("data", Shape::Bytes, ""),
            member("stringData", Shape::Strings, ""),
            member("type", Shape::String, "\"Opaque\""),
        ],
        fields: &[field("type", &[&["type"]])],
        special: Special::Secret,
        ..PLAIN
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        members: &[
            spec("v1.PodSpec"),
            status("v1.PodStatus", "{\"phase\":\"Pending\"}"),
        ],
        fields: &[
            field("spec.nodeName", &[&["spec", "nodeName"]]),
            field("spec.host", &[&["spec", "nodeName"]]), // what it was called long ago
            field("spec.restartPolicy", &[&["spec", "restartPolicy"]]),
            field("spec.schedulerName", &[&["spec", "schedulerName"]]),
            field(
                "spec.serviceAccountName",
                &[&["spec", "serviceAccountName"]],
            ),
            SelectableField {
                absent: "false",
                ..field("spec.hostNetwork", &[&["spec", "hostNetwork"]])
            },
            field("status.phase", &[&["status", "phase"]]),
            field("status.podIP", &[&["status", "podIP"]]),
            field("status.podIPs", &[&["status", "podIP"]]),
            field(
                "status.nominatedNodeName",
                &[&["status", "nominatedNodeName"]],
            ),
        ],
        generation: true,
        status: true,
        returns_deleted: true,
        special: Special::Pod,
        bookmark: ",\"spec\":{\"containers\":null},\"status\":{}",
        ..PLAIN
    },
    Kind {
        kind: "PodTemplate",
        plural: "podtemplates",
        members: &[member(
            "template",
            Shape::Object("v1.PodTemplateSpec"),
            "{}",
        )],
        generation: true,
        returns_deleted: true,
        bookmark: ",\"template\":{\"metadata\":{},\"spec\":{\"containers\":null}}",
        ..PLAIN
    },
    Kind {
        kind: "Service",
        plural: "services",
        members: &[
            spec("v1.ServiceSpec"),
            status("v1.ServiceStatus", "{\"loadBalancer\":{}}"),
        ],
        fields: &[
            SelectableField {
                absent: "",
                ..field("spec.clusterIP", &[&["spec", "clusterIP"]])
            },
            SelectableField {
                absent: "ClusterIP",
                ..field("spec.type", &[&["spec", "type"]])
            },
        ],
        name_rule: NameRule::Label,
        status: true,
        create_on_update: true,
        returns_deleted: true,
        bookmark: ",\"spec\":{},\"status\":{\"loadBalancer\":{}}",
        ..PLAIN
    },
    Kind {
        kind: "Event",
        plural: "events",
        members: &[
            member("involvedObject", Shape::Object("v1.ObjectReference"), "{}"),
            member("reason", Shape::String, ""),
            member("message", Shape::String, ""),
            member("source", Shape::Object("v1.EventSource"), "{}"),
            member("firstTimestamp", Shape::Any, "null"),
            member("lastTimestamp", Shape::Any, "null"),
            member("count", Shape::Any, ""),
            member("type", Shape::String, ""),
            member("eventTime", Shape::Any, "null"),
            member("series", Shape::Object("v1.EventSeries"), ""),
            member("action", Shape::String, ""),
            member("related", Shape::Object("v1.ObjectReference"), ""),
            member("reportingComponent", Shape::String, "\"\""),
            member("reportingInstance", Shape::String, "\"\""),
        ],
        fields: &[
            field("involvedObject.kind", &[&["involvedObject", "kind"]]),
            field(
                "involvedObject.namespace",
                &[&["involvedObject", "namespace"]],
            ),
            field("involvedObject.name", &[&["involvedObject", "name"]]),
            field("involvedObject.uid", &[&["involvedObject", "uid"]]),
            field(
                "involvedObject.apiVersion",
                &[&["involvedObject", "apiVersion"]],
            ),
            field(
                "involvedObject.resourceVersion",
                &[&["involvedObject", "resourceVersion"]],
            ),
            field(
                "involvedObject.fieldPath",
                &[&["involvedObject", "fieldPath"]],
            ),
            field("reason", &[&["reason"]]),
            field("reportingComponent", &[&["reportingComponent"]]),
            field(
                "source",
                &[&["source", "component"], &["reportingComponent"]],
            ),
            field("type", &[&["type"]]),
        ],
        name_rule: NameRule::Segment,
        create_on_update: true,
        special: Special::Event,
        bookmark: ",\"involvedObject\":{},\"source\":{},\"firstTimestamp\":null,\"lastTimestamp\":null,\
                   \"eventTime\":null,\"reportingComponent\":\"\",\"reportingInstance\":\"\"",
        ..PLAIN
    },
    Kind {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        members: &[spec("v1.LeaseSpec")],
        create_on_update: true,
        conditional_update: true,
        bookmark: ",\"spec\":{}",
        ..PLAIN
    },
    Kind {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        members: &[
            spec("v1.DeploymentSpec"),
            status("v1.DeploymentStatus", "{}"),
        ],
        generation: true,
        status: true,
        special: Special::Deployment,
        bookmark: ",\"spec\":{\"replicas\":0,\"selector\":null,\"template\":{\"metadata\":{},\"spec\":{\"containers\":null}},\
                   \"strategy\":{}},\"status\":{}",
        ..PLAIN
    },
];
