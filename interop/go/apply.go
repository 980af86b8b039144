package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applyautoscaling "k8s.io/client-go/applyconfigurations/autoscaling/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
)

// apply is server-side apply as controllers do it: with typed configurations, several managers, conflicts, and giving up of fields.
func apply(ctx context.Context, c clients, round string) {
	deployments := c.typed.AppsV1().Deployments(c.namespace)
	as := func(manager string) metav1.ApplyOptions { return metav1.ApplyOptions{FieldManager: manager} }
	force := func(manager string) metav1.ApplyOptions {
		return metav1.ApplyOptions{FieldManager: manager, Force: true}
	}

	check(round+": apply creates, and changes nothing the second time", func() {
		created := try(deployments.Apply(ctx, appliedDeployment(c.namespace, 2), as("first")))
		same("replicas", *created.Spec.Replicas, 2)
		again := try(deployments.Apply(ctx, appliedDeployment(c.namespace, 2), as("first")))
		same("the version", again.ResourceVersion, created.ResourceVersion)
		same("entries of managedFields", len(again.ManagedFields), 1)
		same("the manager is there", managed(again.ManagedFields, "first Apply apps/v1 "), true)
	})
	check(round+": apply is refused what another has applied", func() {
		_, err := deployments.Apply(ctx, appliedDeployment(c.namespace, 5), as("second"))
		refused("another number of replicas", err, apierrors.IsConflict)
		found := cause(err, metav1.CauseTypeFieldManagerConflict, ".spec.replicas")
		same("the message", found.Message, `conflict with "first"`)
		taken := try(deployments.Apply(ctx, appliedDeployment(c.namespace, 5), force("second")))
		same("replicas", *taken.Spec.Replicas, 5)
		_, err = deployments.Apply(ctx, appliedDeployment(c.namespace, 2), as("first"))
		refused("the old number of replicas", err, apierrors.IsConflict)
		same("the message", cause(err, metav1.CauseTypeFieldManagerConflict, ".spec.replicas").Message, `conflict with "second"`)
	})
	check(round+": apply is refused what another has written", func() {
		scale := []byte(`{"spec":{"replicas":6}}`)
		try(deployments.Patch(ctx, "applied", types.MergePatchType, scale, metav1.PatchOptions{FieldManager: "hand"}))
		_, err := deployments.Apply(ctx, appliedDeployment(c.namespace, 5), as("second"))
		refused("the applied number of replicas", err, apierrors.IsConflict)
		found := cause(err, metav1.CauseTypeFieldManagerConflict, ".spec.replicas")
		prefix := `conflict with "hand" using apps/v1`
		if len(found.Message) < len(prefix) || found.Message[:len(prefix)] != prefix {
			wrong("the message is %s", found.Message)
		}
	})
	check(round+": what is applied no more goes", func() {
		with := applyapps.Deployment("applied", c.namespace).WithAnnotations(map[string]string{"note": "mine"}).
			WithSpec(applyapps.DeploymentSpec().WithTemplate(applycore.PodTemplateSpec().WithSpec(applycore.PodSpec().
				WithContainers(applycore.Container().WithName("extra").WithImage("extra:1")))))
		applied := try(deployments.Apply(ctx, with, as("third")))
		same("images", images(applied.Spec.Template.Spec), "main=nginx:1 extra=extra:1")
		same("the annotation", applied.Annotations["note"], "mine")
		applied = try(deployments.Apply(ctx, applyapps.Deployment("applied", c.namespace), as("third")))
		same("images", images(applied.Spec.Template.Spec), "main=nginx:1")
		same("annotations", len(applied.Annotations), 0)
	})
	check(round+": what was applied is extracted and applied again", func() {
		object := try(deployments.Get(ctx, "applied", metav1.GetOptions{}))
		extracted := try(applyapps.ExtractDeployment(object, "first"))
		if extracted.Spec == nil || extracted.Spec.Replicas != nil || extracted.Spec.Template == nil {
			wrong("the first manager owns something else: %+v", extracted.Spec)
		}
		extracted.Spec.Template.Spec.Containers[0].WithImage("nginx:2")
		_, err := deployments.Apply(ctx, extracted, as("first"))
		refused("an image that two have applied", err, apierrors.IsConflict)
		applied := try(deployments.Apply(ctx, extracted, force("first")))
		same("images", images(applied.Spec.Template.Spec), "main=nginx:2")
	})
	check(round+": apply of the status", func() {
		condition := applyapps.DeploymentCondition().WithType("Available").WithStatus(corev1.ConditionTrue).WithReason("Tried")
		status := applyapps.Deployment("applied", c.namespace).
			WithStatus(applyapps.DeploymentStatus().WithReplicas(1).WithConditions(condition))
		applied := try(deployments.ApplyStatus(ctx, status, as("controller")))
		same("replicas", applied.Status.Replicas, 1)
		other := applyapps.DeploymentCondition().WithType("Progressing").WithStatus(corev1.ConditionTrue)
		applied = try(deployments.ApplyStatus(ctx, applyapps.Deployment("applied", c.namespace).
			WithStatus(applyapps.DeploymentStatus().WithConditions(other)), as("another-controller")))
		same("conditions", len(applied.Status.Conditions), 2)
		extracted := try(applyapps.ExtractDeploymentStatus(applied, "controller"))
		same("the reason", *extracted.Status.Conditions[0].Reason, "Tried")
	})
	check(round+": apply of the scale", func() {
		// The field belongs to the Deployment's manager, whichever way it is written.
		scale := applyautoscaling.Scale().WithName("applied").WithNamespace(c.namespace).
			WithSpec(applyautoscaling.ScaleSpec().WithReplicas(8))
		_, err := deployments.ApplyScale(ctx, "applied", scale, as("autoscaler"))
		refused("replicas of another", err, apierrors.IsConflict)
		cause(err, metav1.CauseTypeFieldManagerConflict, ".spec.replicas")
		scaled := try(deployments.ApplyScale(ctx, "applied", scale, force("autoscaler")))
		same("replicas", scaled.Spec.Replicas, 8)
		object := try(deployments.Get(ctx, "applied", metav1.GetOptions{}))
		same("replicas of the Deployment", *object.Spec.Replicas, 8)
		same("the autoscaler owns them", managed(object.ManagedFields, "autoscaler Apply apps/v1 scale"), true)
		done(deployments.Delete(ctx, "applied", metav1.DeleteOptions{}))
	})
	check(round+": apply to what is wrong", func() {
		nameless := applyapps.Deployment("applied", c.namespace).WithSpec(applyapps.DeploymentSpec().WithReplicas(1))
		_, err := deployments.Apply(ctx, nameless, as("first"))
		refused("a Deployment without a template", err, apierrors.IsInvalid)
		_, err = deployments.Apply(ctx, appliedDeployment(c.namespace, 1).WithUID("another"), as("first"))
		refused("the uid of another", err, apierrors.IsConflict)
		_, err = deployments.Apply(ctx, appliedDeployment(c.namespace, 1), metav1.ApplyOptions{})
		if err == nil {
			wrong("an apply by nobody is done")
		}
	})
}

func appliedDeployment(namespace string, replicas int32) *applyapps.DeploymentApplyConfiguration {
	labels := map[string]string{"app": "applied"}
	container := applycore.Container().WithName("main").WithImage("nginx:1").
		WithPorts(applycore.ContainerPort().WithContainerPort(80))
	return applyapps.Deployment("applied", namespace).WithSpec(applyapps.DeploymentSpec().
		WithReplicas(replicas).
		WithSelector(applymeta.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(applycore.PodTemplateSpec().WithLabels(labels).
			WithSpec(applycore.PodSpec().WithContainers(container))))
}
