//! The kinds of the group without a name, which upstream calls core.

use super::{PLAIN, field, member, spec, status};
use crate::printers::{core, events};
use crate::registry::{
    Generation, Kind, NameRule, Scale, ScaleSelector, SelectableField, Shape, Special,
};

const CORE: Kind = Kind {
    go_package: "core",
    ..PLAIN
};

pub(super) static KINDS: &[Kind] = &[
    Kind {
        kind: "ConfigMap",
        plural: "configmaps",
        printer: &core::CONFIG_MAP,
        short_names: &["cm"],
        members: &[
            member("immutable", Shape::Bool, ""),
            member("data", Shape::Strings, ""),
            member("binaryData", Shape::Bytes, ""),
        ],
        special: Special::ConfigMap,
        ..CORE
    },
    Kind {
        kind: "Endpoints",
        deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
        plural: "endpoints",
        printer: &core::ENDPOINTS,
        short_names: &["ep"],
        members: &[member("subsets", Shape::Array("[]v1.EndpointSubset"), "")],
        create_on_update: true,
        ..CORE
    },
    Kind {
        kind: "Event",
        plural: "events",
        printer: &events::EVENT,
        short_names: &["ev"],
        members: &[
            member("involvedObject", Shape::Object("v1.ObjectReference"), "{}"),
            member("reason", Shape::String, ""),
            member("message", Shape::String, ""),
            member("source", Shape::Object("v1.EventSource"), "{}"),
            member("firstTimestamp", Shape::Any, "null"),
            member("lastTimestamp", Shape::Any, "null"),
            member("count", Shape::Number("int32"), ""),
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
        bookmark: concat!(
            r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"#,
            r#""eventTime":null,"reportingComponent":"","reportingInstance":"""#
        ),
        ..CORE
    },
    Kind {
        kind: "LimitRange",
        plural: "limitranges",
        short_names: &["limits"],
        members: &[member(
            "spec",
            Shape::Object("v1.LimitRangeSpec"),
            r#"{"limits":null}"#,
        )],
        create_on_update: true,
        bookmark: r#","spec":{"limits":null}"#,
        ..CORE
    },
    Kind {
        kind: "Namespace",
        plural: "namespaces",
        printer: &core::NAMESPACE,
        short_names: &["ns"],
        namespaced: false,
        members: &[spec("v1.NamespaceSpec"), status("v1.NamespaceStatus", "{}")],
        fields: &[field("status.phase", &[&["status", "phase"]])],
        name_rule: NameRule::Label,
        status: true,
        collection_delete: false,
        returns_deleted: true,
        special: Special::Namespace,
        bookmark: r#","spec":{},"status":{}"#,
        ..CORE
    },
    Kind {
        kind: "Node",
        special: Special::Node,
        plural: "nodes",
        printer: &core::NODE,
        short_names: &["no"],
        namespaced: false,
        members: &[
            spec("v1.NodeSpec"),
            // Unlike with other kinds, a new object keeps the status that the client sends: kubelets
            // register themselves that way.
            status("v1.NodeStatus", NODE_STATUS),
        ],
        fields: &[SelectableField {
            absent: "false",
            ..field("spec.unschedulable", &[&["spec", "unschedulable"]])
        }],
        status: true,
        bookmark: concat!(
            r#","spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"#,
            r#""nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","#,
            r#""containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","#,
            r#""architecture":""}}"#
        ),
        ..CORE
    },
    Kind {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        printer: &core::PERSISTENT_VOLUME_CLAIM,
        short_names: &["pvc"],
        members: &[
            spec("v1.PersistentVolumeClaimSpec"),
            status("v1.PersistentVolumeClaimStatus", r#"{"phase":"Pending"}"#),
        ],
        status: true,
        returns_deleted: true,
        bookmark: r#","spec":{"resources":{}},"status":{}"#,
        ..CORE
    },
    Kind {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        printer: &core::PERSISTENT_VOLUME,
        short_names: &["pv"],
        namespaced: false,
        members: &[
            spec("v1.PersistentVolumeSpec"),
            // Upstream adds `lastPhaseTransitionTime`, the time of the creation.
            status("v1.PersistentVolumeStatus", r#"{"phase":"Pending"}"#),
        ],
        status: true,
        returns_deleted: true,
        bookmark: r#","spec":{},"status":{}"#,
        ..CORE
    },
    Kind {
        kind: "Pod",
        plural: "pods",
        printer: &core::POD,
        short_names: &["po"],
        categories: &["all"],
        members: &[
            spec("v1.PodSpec"),
            status("v1.PodStatus", r#"{"phase":"Pending"}"#),
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
            field("status.podIPs", &[]), // upstream knows the name, but never fills in a value
            field(
                "status.nominatedNodeName",
                &[&["status", "nominatedNodeName"]],
            ),
        ],
        generation: Generation::Counted,
        status: true,
        returns_deleted: true,
        special: Special::Pod,
        bookmark: r#","spec":{"containers":null},"status":{}"#,
        ..CORE
    },
    Kind {
        kind: "PodTemplate",
        plural: "podtemplates",
        printer: &core::POD_TEMPLATE,
        members: &[member(
            "template",
            Shape::Object("v1.PodTemplateSpec"),
            "{}",
        )],
        generation: Generation::Counted,
        returns_deleted: true,
        bookmark: r#","template":{"metadata":{},"spec":{"containers":null}}"#,
        ..CORE
    },
    Kind {
        kind: "ReplicationController",
        orphans: true,
        plural: "replicationcontrollers",
        printer: &core::REPLICATION_CONTROLLER,
        short_names: &["rc"],
        categories: &["all"],
        members: &[
            spec("v1.ReplicationControllerSpec"),
            status("v1.ReplicationControllerStatus", r#"{"replicas":0}"#),
        ],
        fields: &[SelectableField {
            absent: "0",
            ..field("status.replicas", &[&["status", "replicas"]])
        }],
        generation: Generation::Counted,
        status: true,
        scale: Some(Scale {
            selector: ScaleSelector::Map,
        }),
        bookmark: r#","spec":{},"status":{"replicas":0}"#,
        ..CORE
    },
    Kind {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        printer: &core::RESOURCE_QUOTA,
        short_names: &["quota"],
        members: &[
            spec("v1.ResourceQuotaSpec"),
            status("v1.ResourceQuotaStatus", "{}"),
        ],
        status: true,
        returns_deleted: true,
        bookmark: r#","spec":{},"status":{}"#,
        ..CORE
    },
    Kind {
        kind: "Secret",
        plural: "secrets",
        printer: &core::SECRET,
        members: &[
            member("immutable", Shape::Bool, ""),
            member("data", Shape::Bytes, ""),
            member("stringData", Shape::Strings, ""),
            member("type", Shape::Named("v1.SecretType"), "\"Opaque\""),
        ],
        fields: &[field("type", &[&["type"]])],
        special: Special::Secret,
        ..CORE
    },
    Kind {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        printer: &core::SERVICE_ACCOUNT,
        short_names: &["sa"],
        members: &[
            member("secrets", Shape::Array("[]v1.ObjectReference"), ""),
            member(
                "imagePullSecrets",
                Shape::Array("[]v1.LocalObjectReference"),
                "",
            ),
            member("automountServiceAccountToken", Shape::Bool, ""),
        ],
        returns_deleted: true,
        ..CORE
    },
    Kind {
        kind: "Service",
        plural: "services",
        printer: &core::SERVICE,
        short_names: &["svc"],
        categories: &["all"],
        members: &[
            spec("v1.ServiceSpec"),
            status("v1.ServiceStatus", r#"{"loadBalancer":{}}"#),
        ],
        fields: &[
            field("spec.clusterIP", &[&["spec", "clusterIP"]]),
            SelectableField {
                absent: "ClusterIP",
                ..field("spec.type", &[&["spec", "type"]])
            },
        ],
        name_rule: NameRule::Label, // before 1.36 it also had to begin with a letter
        status: true,
        create_on_update: true,
        returns_deleted: true,
        bookmark: r#","spec":{},"status":{"loadBalancer":{}}"#,
        ..CORE
    },
];

const NODE_STATUS: &str = concat!(
    r#"{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"#,
    r#""nodeInfo":{"machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","#,
    r#""containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","operatingSystem":"","#,
    r#""architecture":""}}"#
);
