package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// api is what the typed client of a kind does here.
type api[T metav1.Object] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// inBoth writes an object in protobuf and in JSON, and reads the same in both.
func inBoth[T metav1.Object](ctx context.Context, protobuf, json api[T], object T) {
	check(fmt.Sprintf("%T in protobuf and in JSON", object), func() {
		// Cluster-wide objects must not meet those of others.
		object.SetName("")
		object.SetGenerateName("interop-")
		created := try(protobuf.Create(ctx, object, metav1.CreateOptions{}))
		name := created.GetName()
		equal := func(what string, one, two T) {
			if !equality.Semantic.DeepEqual(one, two) {
				wrong("%s:\n%+v\n%+v", what, one, two)
			}
		}
		got := try(json.Get(ctx, name, metav1.GetOptions{}))
		equal("as created, and read in JSON", created, got)
		got.SetLabels(map[string]string{"step": "2"})
		updated := try(json.Update(ctx, got, metav1.UpdateOptions{}))
		equal("as updated, and read in protobuf", updated, try(protobuf.Get(ctx, name, metav1.GetOptions{})))
		again := try(protobuf.Update(ctx, updated, metav1.UpdateOptions{}))
		same("the version after an update that changes nothing", again.GetResourceVersion(), updated.GetResourceVersion())
		done(protobuf.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	})
}

// kinds tries one object of many kinds, with values of all sorts.
func kinds(ctx context.Context, c clients, protobuf, json kubernetes.Interface) {
	ns := c.namespace
	pods := template(map[string]string{"app": "kinds"})
	selector := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"app": "kinds"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}},
	}
	quantities := corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1.5Gi")}

	rich := pods.DeepCopy()
	rich.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultMode: ptr.To[int32](0o400),
		}}},
		{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{Optional: ptr.To(true), LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			}}},
		}}}},
	}
	main := &rich.Spec.Containers[0]
	main.Resources = corev1.ResourceRequirements{Limits: quantities, Requests: quantities}
	main.Ports = []corev1.ContainerPort{{ContainerPort: 80, Name: "http"}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}}
	main.Env = []corev1.EnvVar{
		{Name: "A", Value: "b"},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
	}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/tmp"}}
	main.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}}
	main.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}, PeriodSeconds: 3}
	main.SecurityContext = &corev1.SecurityContext{RunAsUser: ptr.To[int64](0), Privileged: ptr.To(false)}
	rich.Spec.Tolerations = []corev1.Toleration{
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](0)},
	}
	rich.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector},
	}

	inBoth(ctx, protobuf.CoreV1().Pods(ns), json.CoreV1().Pods(ns), &corev1.Pod{ObjectMeta: rich.ObjectMeta, Spec: rich.Spec})
	inBoth(ctx, protobuf.CoreV1().PodTemplates(ns), json.CoreV1().PodTemplates(ns), &corev1.PodTemplate{Template: *rich})
	inBoth(ctx, protobuf.CoreV1().Secrets(ns), json.CoreV1().Secrets(ns), &corev1.Secret{
		Data: map[string][]byte{"binary": {0, 128, 255}, "empty": {}}, Immutable: ptr.To(false),
	})
	inBoth(ctx, protobuf.CoreV1().Services(ns), json.CoreV1().Services(ns), &corev1.Service{Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: selector.MatchLabels, Ports: []corev1.ServicePort{
			{Name: "a", Port: 80, TargetPort: intstr.FromString("http")}, {Name: "b", Port: 53, Protocol: corev1.ProtocolUDP},
		},
	}})
	inBoth(ctx, protobuf.CoreV1().LimitRanges(ns), json.CoreV1().LimitRanges(ns), &corev1.LimitRange{Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: quantities}},
	}})
	inBoth(ctx, protobuf.CoreV1().Nodes(), json.CoreV1().Nodes(), &corev1.Node{
		Spec:   corev1.NodeSpec{Unschedulable: true, PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}},
		Status: corev1.NodeStatus{Capacity: quantities},
	})
	inBoth(ctx, protobuf.AppsV1().Deployments(ns), json.AppsV1().Deployments(ns), &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](0), Selector: selector, Template: *rich, Paused: true,
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
	}})
	inBoth(ctx, protobuf.CoreV1().PersistentVolumeClaims(ns), json.CoreV1().PersistentVolumeClaims(ns), &corev1.PersistentVolumeClaim{
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("10G")}},
		},
	})
	// Without claims: within another object they have their kind in JSON only.
	inBoth(ctx, protobuf.AppsV1().StatefulSets(ns), json.AppsV1().StatefulSets(ns), &appsv1.StatefulSet{
		Spec: appsv1.StatefulSetSpec{Selector: selector, Template: pods, ServiceName: "s"},
	})
	inBoth(ctx, protobuf.AppsV1().DaemonSets(ns), json.AppsV1().DaemonSets(ns), &appsv1.DaemonSet{
		Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pods},
	})
	once := *pods.DeepCopy()
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	job := batchv1.JobSpec{Template: once, BackoffLimit: ptr.To[int32](0), TTLSecondsAfterFinished: ptr.To[int32](60)}
	inBoth(ctx, protobuf.BatchV1().Jobs(ns), json.BatchV1().Jobs(ns), &batchv1.Job{Spec: job})
	inBoth(ctx, protobuf.BatchV1().CronJobs(ns), json.BatchV1().CronJobs(ns), &batchv1.CronJob{Spec: batchv1.CronJobSpec{
		Schedule: "@hourly", TimeZone: ptr.To("Etc/UTC"), JobTemplate: batchv1.JobTemplateSpec{Spec: job},
	}})
	inBoth(ctx, protobuf.AutoscalingV2().HorizontalPodAutoscalers(ns), json.AutoscalingV2().HorizontalPodAutoscalers(ns),
		&autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MaxReplicas:    5,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: "requests"},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: ptr.To(resource.MustParse("500m"))},
			}}},
		}})
	inBoth(ctx, protobuf.PolicyV1().PodDisruptionBudgets(ns), json.PolicyV1().PodDisruptionBudgets(ns), &policyv1.PodDisruptionBudget{
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: selector},
	})
	inBoth(ctx, protobuf.NetworkingV1().Ingresses(ns), json.NetworkingV1().Ingresses(ns), &networkingv1.Ingress{
		Spec: networkingv1.IngressSpec{
			DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
			}},
			TLS: []networkingv1.IngressTLS{{Hosts: []string{"a.example"}}},
		},
	})
	inBoth(ctx, protobuf.NetworkingV1().NetworkPolicies(ns), json.NetworkingV1().NetworkPolicies(ns), &networkingv1.NetworkPolicy{
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *selector,
			Egress: []networkingv1.NetworkPolicyEgressRule{
				{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: []string{"10.1.0.0/16"}}}}},
			},
		},
	})
	inBoth(ctx, protobuf.RbacV1().Roles(ns), json.RbacV1().Roles(ns), &rbacv1.Role{
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}}},
	})
	inBoth(ctx, protobuf.CoordinationV1().Leases(ns), json.CoordinationV1().Leases(ns), &coordinationv1.Lease{
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("me"), RenewTime: ptr.To(metav1.NewMicroTime(moment.Time))},
	})
	inBoth(ctx, protobuf.DiscoveryV1().EndpointSlices(ns), json.DiscoveryV1().EndpointSlices(ns), &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false)}}},
		Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
	})
	inBoth(ctx, protobuf.SchedulingV1().PriorityClasses(), json.SchedulingV1().PriorityClasses(), &schedulingv1.PriorityClass{Value: -5})
	inBoth(ctx, protobuf.StorageV1().StorageClasses(), json.StorageV1().StorageClasses(), &storagev1.StorageClass{
		Provisioner: "example.com/disk", Parameters: map[string]string{"a": "b"}, AllowVolumeExpansion: ptr.To(true),
	})
}

// moment has a fraction of a second, which must survive.
var moment = metav1.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
