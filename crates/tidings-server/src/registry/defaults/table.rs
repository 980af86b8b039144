//! Defaults that depend on nothing else, type by type.

/// Types with the fields that are set if they are absent or empty, and what to.
pub(super) static DEFAULTS: &[(&str, &[(&str, &str)])] = &[
    ("admissionregistration/v1.MatchResources", WEBHOOK_MATCH),
    (
        "admissionregistration/v1.MutatingAdmissionPolicySpec",
        &[("failurePolicy", r#""Fail""#)],
    ),
    (
        "admissionregistration/v1.MutatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
            ("reinvocationPolicy", r#""Never""#),
        ],
    ),
    ("admissionregistration/v1.Rule", RULE_SCOPE),
    ("admissionregistration/v1.RuleWithOperations", RULE_SCOPE),
    (
        "admissionregistration/v1.NamedRuleWithOperations",
        RULE_SCOPE,
    ),
    (
        "admissionregistration/v1.ServiceReference",
        &[("port", "443")],
    ),
    (
        "admissionregistration/v1.ValidatingAdmissionPolicySpec",
        &[("failurePolicy", r#""Fail""#)],
    ),
    (
        "admissionregistration/v1.ValidatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
        ],
    ),
    ("apps/v1.DaemonSetSpec", &[("revisionHistoryLimit", "10")]),
    (
        "apps/v1.DaemonSetUpdateStrategy",
        &[("type", r#""RollingUpdate""#)],
    ),
    (
        "apps/v1.DeploymentSpec",
        &[
            ("replicas", "1"),
            ("revisionHistoryLimit", "10"),
            ("progressDeadlineSeconds", "600"),
        ],
    ),
    (
        "apps/v1.DeploymentStrategy",
        &[("type", r#""RollingUpdate""#)],
    ),
    ("apps/v1.ReplicaSetSpec", &[("replicas", "1")]),
    (
        "apps/v1.StatefulSetSpec",
        &[
            ("replicas", "1"),
            ("podManagementPolicy", r#""OrderedReady""#),
            ("revisionHistoryLimit", "10"),
            ("persistentVolumeClaimRetentionPolicy", "{}"),
        ],
    ),
    (
        "apps/v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[
            ("whenDeleted", r#""Retain""#),
            ("whenScaled", r#""Retain""#),
        ],
    ),
    (
        "autoscaling/v2.HorizontalPodAutoscalerSpec",
        &[("minReplicas", "1")],
    ),
    (
        "batch/v1.CronJobSpec",
        &[
            ("concurrencyPolicy", r#""Allow""#),
            ("suspend", "false"),
            ("successfulJobsHistoryLimit", "3"),
            ("failedJobsHistoryLimit", "1"),
        ],
    ),
    (
        "batch/v1.PodFailurePolicyOnPodConditionsPattern",
        &[("status", r#""True""#)],
    ),
    ("core/v1.ConfigMapVolumeSource", &[("defaultMode", "420")]),
    ("core/v1.Container", CONTAINER),
    ("core/v1.ContainerPort", &[("protocol", r#""TCP""#)]),
    ("core/v1.DownwardAPIVolumeSource", &[("defaultMode", "420")]),
    ("core/v1.EndpointPort", &[("protocol", r#""TCP""#)]),
    ("core/v1.EphemeralContainer", CONTAINER),
    ("core/v1.EphemeralContainerCommon", CONTAINER),
    ("core/v1.GRPCAction", &[("service", r#""""#)]),
    (
        "core/v1.HTTPGetAction",
        &[("path", r#""/""#), ("scheme", r#""HTTP""#)],
    ),
    ("core/v1.HostPathVolumeSource", &[("type", r#""""#)]),
    (
        "core/v1.ISCSIVolumeSource",
        &[("iscsiInterface", r#""default""#)],
    ),
    ("core/v1.ObjectFieldSelector", &[("apiVersion", r#""v1""#)]),
    (
        "core/v1.PersistentVolumeClaimSpec",
        &[("volumeMode", r#""Filesystem""#)],
    ),
    (
        "core/v1.PersistentVolumeSpec",
        &[
            ("persistentVolumeReclaimPolicy", r#""Retain""#),
            ("volumeMode", r#""Filesystem""#),
        ],
    ),
    (
        "core/v1.PodSpec",
        &[
            ("restartPolicy", r#""Always""#),
            ("terminationGracePeriodSeconds", "30"),
            ("dnsPolicy", r#""ClusterFirst""#),
            ("securityContext", "{}"),
            ("schedulerName", r#""default-scheduler""#),
        ],
    ),
    (
        "core/v1.Probe",
        &[
            ("timeoutSeconds", "1"),
            ("periodSeconds", "10"),
            ("successThreshold", "1"),
            ("failureThreshold", "3"),
        ],
    ),
    ("core/v1.ProjectedVolumeSource", &[("defaultMode", "420")]),
    ("core/v1.ReplicationControllerSpec", &[("replicas", "1")]),
    ("core/v1.SecretVolumeSource", &[("defaultMode", "420")]),
    (
        "core/v1.ServiceAccountTokenProjection",
        &[("expirationSeconds", "3600")],
    ),
    ("core/v1.ServicePort", &[("protocol", r#""TCP""#)]),
    (
        "core/v1.ServiceSpec",
        &[("sessionAffinity", r#""None""#), ("type", r#""ClusterIP""#)],
    ),
    (
        "discovery/v1.EndpointPort",
        &[("name", r#""""#), ("protocol", r#""TCP""#)],
    ),
    (
        "networking/v1.NetworkPolicyPort",
        &[("protocol", r#""TCP""#)],
    ),
    (
        "networking/v1.IngressClassParametersReference",
        &[("scope", r#""Cluster""#)],
    ),
    (
        "rbac/v1.RoleRef",
        &[("apiGroup", r#""rbac.authorization.k8s.io""#)],
    ),
    (
        "scheduling/v1.PriorityClass",
        &[("preemptionPolicy", r#""PreemptLowerPriority""#)],
    ),
    (
        "storage/v1.CSIDriverSpec",
        &[
            ("attachRequired", "true"),
            ("podInfoOnMount", "false"),
            ("storageCapacity", "false"),
            ("fsGroupPolicy", r#""ReadWriteOnceWithFSType""#),
            ("volumeLifecycleModes", r#"["Persistent"]"#),
            ("requiresRepublish", "false"),
            ("seLinuxMount", "false"),
        ],
    ),
    (
        "storage/v1.StorageClass",
        &[
            ("reclaimPolicy", r#""Delete""#),
            ("volumeBindingMode", r#""Immediate""#),
        ],
    ),
];

const WEBHOOK_MATCH: &[(&str, &str)] = &[
    ("matchPolicy", r#""Equivalent""#),
    ("namespaceSelector", "{}"),
    ("objectSelector", "{}"),
];
const RULE_SCOPE: &[(&str, &str)] = &[("scope", r#""*""#)];
const CONTAINER: &[(&str, &str)] = &[
    ("terminationMessagePath", r#""/dev/termination-log""#),
    ("terminationMessagePolicy", r#""File""#),
];
