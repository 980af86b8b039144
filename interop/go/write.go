package main

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// write creates, reads and updates, and makes the mistakes that programs tell apart.
func write(ctx context.Context, c clients, round string) {
	configMaps := c.typed.CoreV1().ConfigMaps(c.namespace)
	deployments := c.typed.AppsV1().Deployments(c.namespace)

	check(round+": create and get", func() {
		created := try(configMaps.Create(ctx, configMap("one", nil), metav1.CreateOptions{}))
		got := try(configMaps.Get(ctx, "one", metav1.GetOptions{}))
		same("the uid", got.UID, created.UID)
		same("the version", got.ResourceVersion, created.ResourceVersion)
		same("the data", got.Data["colour"], "blue")
		binary := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Data: map[string][]byte{"key": {0, 255, 10}}}
		secret := try(c.typed.CoreV1().Secrets(c.namespace).Create(ctx, binary, metav1.CreateOptions{}))
		same("the secret", string(secret.Data["key"]), "\x00\xff\n")
		same("its type", secret.Type, corev1.SecretTypeOpaque)
	})
	check(round+": create with a generated name, and without a trace", func() {
		generated := configMap("", nil)
		generated.GenerateName = "many-"
		first := try(configMaps.Create(ctx, generated, metav1.CreateOptions{}))
		second := try(configMaps.Create(ctx, generated, metav1.CreateOptions{}))
		if first.Name == second.Name || len(first.Name) != len("many-")+5 {
			wrong("generated names are %s and %s", first.Name, second.Name)
		}
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		try(configMaps.Create(ctx, configMap("dry", nil), dry))
		_, err := configMaps.Get(ctx, "dry", metav1.GetOptions{})
		refused("get of what was tried only", err, apierrors.IsNotFound)
	})
	check(round+": defaults", func() {
		created := try(deployments.Create(ctx, deployment("web"), metav1.CreateOptions{}))
		same("replicas", ptr.Deref(created.Spec.Replicas, 0), 1)
		same("the strategy", created.Spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		same("maxSurge", created.Spec.Strategy.RollingUpdate.MaxSurge.String(), "25%")
		same("restartPolicy", created.Spec.Template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
		same("imagePullPolicy", created.Spec.Template.Spec.Containers[0].ImagePullPolicy, corev1.PullIfNotPresent)
		same("the generation", created.Generation, 1)
	})
	check(round+": update, and the generation that follows the spec", func() {
		object := try(deployments.Get(ctx, "web", metav1.GetOptions{}))
		object.Spec.Replicas = ptr.To[int32](2)
		object = try(deployments.Update(ctx, object, metav1.UpdateOptions{FieldManager: "interop-update"}))
		same("the generation", object.Generation, 2)
		object.Labels = map[string]string{"tier": "front"}
		object = try(deployments.Update(ctx, object, metav1.UpdateOptions{}))
		same("the generation after a label", object.Generation, 2)
		same("the manager is there", managed(object.ManagedFields, "interop-update Update apps/v1 "), true)
	})
	check(round+": update of the status", func() {
		object := try(deployments.Get(ctx, "web", metav1.GetOptions{}))
		object.Spec.Replicas = ptr.To[int32](7)
		object.Status.Replicas = 2
		object.Status.ObservedGeneration = object.Generation
		object = try(deployments.UpdateStatus(ctx, object, metav1.UpdateOptions{}))
		same("the status", object.Status.Replicas, 2)
		same("the spec", *object.Spec.Replicas, 2)
		object.Status.Replicas = 9
		object = try(deployments.Update(ctx, object, metav1.UpdateOptions{}))
		same("the status after an update of the spec", object.Status.Replicas, 2)
	})
	check(round+": scale", func() {
		scale := try(deployments.GetScale(ctx, "web", metav1.GetOptions{}))
		same("the selector", scale.Status.Selector, "app=web")
		wanted := &autoscalingv1.Scale{ObjectMeta: scale.ObjectMeta, Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
		scale = try(deployments.UpdateScale(ctx, "web", wanted, metav1.UpdateOptions{}))
		same("replicas", scale.Spec.Replicas, 3)
		same("replicas of the Deployment", *try(deployments.Get(ctx, "web", metav1.GetOptions{})).Spec.Replicas, 3)
	})
	check(round+": conflicts, and trying again", func() {
		stale := try(configMaps.Get(ctx, "one", metav1.GetOptions{}))
		fresh := stale.DeepCopy()
		fresh.Data["colour"] = "green"
		try(configMaps.Update(ctx, fresh, metav1.UpdateOptions{}))
		stale.Data["colour"] = "red"
		_, err := configMaps.Update(ctx, stale, metav1.UpdateOptions{})
		refused("a stale update", err, apierrors.IsConflict)
		tries := 0
		done(retry.RetryOnConflict(retry.DefaultRetry, func() error {
			if tries++; tries > 1 {
				stale = try(configMaps.Get(ctx, "one", metav1.GetOptions{}))
				stale.Data["colour"] = "red"
			}
			_, err := configMaps.Update(ctx, stale, metav1.UpdateOptions{})
			return err
		}))
		same("tries", tries, 2)
		another := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}
		err = configMaps.Delete(ctx, "one", another)
		refused("a deletion of another object", err, apierrors.IsConflict)
	})
	check(round+": errors that programs tell apart", func() {
		_, err := configMaps.Get(ctx, "nosuch", metav1.GetOptions{})
		refused("get", err, apierrors.IsNotFound)
		_, err = configMaps.Update(ctx, configMap("nosuch", nil), metav1.UpdateOptions{})
		refused("update", err, apierrors.IsNotFound)
		refused("delete", configMaps.Delete(ctx, "nosuch", metav1.DeleteOptions{}), apierrors.IsNotFound)
		_, err = configMaps.Create(ctx, configMap("one", nil), metav1.CreateOptions{})
		refused("create", err, apierrors.IsAlreadyExists)
		_, err = c.typed.CoreV1().ConfigMaps("nosuch").Create(ctx, configMap("one", nil), metav1.CreateOptions{})
		refused("create in no namespace", err, apierrors.IsNotFound)
		_, err = configMaps.List(ctx, metav1.ListOptions{LabelSelector: "a=(b"})
		refused("list with half a selector", err, apierrors.IsBadRequest)

		bad := deployment("bad")
		bad.Spec.Template.Labels = map[string]string{"app": "another"}
		bad.Spec.Template.Spec.Containers[0].Name = "Not A Label"
		_, err = deployments.Create(ctx, bad, metav1.CreateOptions{})
		refused("create", err, apierrors.IsInvalid)
		status := err.(apierrors.APIStatus).Status()
		same("the kind", status.Details.Group+" "+status.Details.Kind+" "+status.Details.Name, "apps Deployment bad")
		for _, field := range []string{"spec.template.metadata.labels", "spec.template.spec.containers[0].name"} {
			cause(err, metav1.CauseTypeFieldValueInvalid, field)
		}
		object := try(deployments.Get(ctx, "web", metav1.GetOptions{}))
		object.Spec.Selector.MatchLabels["app"] = "another"
		object.Spec.Template.Labels["app"] = "another"
		_, err = deployments.Update(ctx, object, metav1.UpdateOptions{})
		refused("update of the selector", err, apierrors.IsInvalid)
		cause(err, metav1.CauseTypeFieldValueInvalid, "spec.selector")
	})
	check(round+": delete", func() {
		uid := try(deployments.Get(ctx, "web", metav1.GetOptions{})).UID
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(uid))}
		done(deployments.Delete(ctx, "web", options))
		_, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		refused("get of a deleted Deployment", err, apierrors.IsNotFound)
		done(c.typed.CoreV1().Secrets(c.namespace).Delete(ctx, "one", metav1.DeleteOptions{}))
		done(configMaps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		same("what is left", len(try(configMaps.List(ctx, metav1.ListOptions{})).Items), 0)
	})
}

// managed is whether there is an entry "manager operation version subresource".
func managed(entries []metav1.ManagedFieldsEntry, wanted string) bool {
	return slices.ContainsFunc(entries, func(entry metav1.ManagedFieldsEntry) bool {
		return fmt.Sprint(entry.Manager, " ", entry.Operation, " ", entry.APIVersion, " ", entry.Subresource) == wanted
	})
}

// cause finds the cause of a refusal that is about a field.
func cause(err error, kind metav1.CauseType, field string) metav1.StatusCause {
	for _, found := range err.(apierrors.APIStatus).Status().Details.Causes {
		if found.Type == kind && found.Field == field {
			return found
		}
	}
	wrong("no cause %s of %s in: %v", kind, field, err)
	panic("wrong returned")
}
