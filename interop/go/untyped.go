package main

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// untyped does with the dynamic and the metadata client what the typed ones do.
func untyped(ctx context.Context, c clients) {
	deployments := c.dynamic.Resource(deploymentResource).Namespace(c.namespace)
	configMaps := c.dynamic.Resource(configMapResource).Namespace(c.namespace)
	check("dynamic: create, update, status", func() {
		created := try(deployments.Create(ctx, unstructuredDeployment(), metav1.CreateOptions{}))
		same("replicas", number(created, "spec", "replicas"), 1)
		same("the kind", created.GetAPIVersion()+" "+created.GetKind(), "apps/v1 Deployment")
		done(unstructured.SetNestedField(created.Object, int64(2), "spec", "replicas"))
		updated := try(deployments.Update(ctx, created, metav1.UpdateOptions{}))
		same("replicas", number(updated, "spec", "replicas"), 2)
		_, err := deployments.Update(ctx, created, metav1.UpdateOptions{})
		refused("a stale update", err, apierrors.IsConflict)
		done(unstructured.SetNestedField(updated.Object, int64(1), "status", "replicas"))
		updated = try(deployments.UpdateStatus(ctx, updated, metav1.UpdateOptions{}))
		same("the status", number(updated, "status", "replicas"), 1)
		scale := try(deployments.Get(ctx, "untyped", metav1.GetOptions{}, "scale"))
		same("the kind", scale.GetAPIVersion()+" "+scale.GetKind(), "autoscaling/v1 Scale")
	})
	check("dynamic: apply", func() {
		applied := unstructuredDeployment()
		applied.SetAnnotations(map[string]string{"note": "mine"})
		options := metav1.ApplyOptions{FieldManager: "dynamic"}
		same("the note", try(deployments.Apply(ctx, "untyped", applied, options)).GetAnnotations()["note"], "mine")
		done(unstructured.SetNestedField(applied.Object, int64(3), "spec", "replicas"))
		_, err := deployments.Apply(ctx, "untyped", applied, options)
		refused("replicas of another", err, apierrors.IsConflict)
		options.Force = true
		same("replicas", number(try(deployments.Apply(ctx, "untyped", applied, options)), "spec", "replicas"), 3)
		status := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "untyped"},
			"status": map[string]any{"readyReplicas": int64(1)},
		}}
		same("ready", number(try(deployments.ApplyStatus(ctx, "untyped", status, options)), "status", "readyReplicas"), 1)
	})
	check("dynamic: list, watch, delete", func() {
		list := try(deployments.List(ctx, metav1.ListOptions{Limit: 1}))
		same("the list", list.GetKind()+" of "+list.Items[0].GetKind(), "DeploymentList of Deployment")
		events := try(deployments.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}))
		defer events.Stop()
		done(deployments.Delete(ctx, "untyped", metav1.DeleteOptions{}))
		event := nextEvent(events)
		same("the event", event.Type, watch.Deleted)
		same("its object", event.Object.(*unstructured.Unstructured).GetName(), "untyped")
		_, err := deployments.Get(ctx, "untyped", metav1.GetOptions{})
		refused("get", err, apierrors.IsNotFound)
		nosuch := configMapResource
		nosuch.Resource = "nosuch"
		_, err = c.dynamic.Resource(nosuch).List(ctx, metav1.ListOptions{})
		refused("list of no resource", err, apierrors.IsNotFound)
	})
	check("metadata: get, list, patch, watch, delete", func() {
		only := c.metadata.Resource(configMapResource).Namespace(c.namespace)
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "meta", "labels": map[string]any{"a": "b"}},
		}}
		try(configMaps.Create(ctx, object, metav1.CreateOptions{}))
		got := try(only.Get(ctx, "meta", metav1.GetOptions{}))
		same("the label", got.Labels["a"], "b")
		list := try(only.List(ctx, metav1.ListOptions{LabelSelector: "a=b"}))
		same("the list", len(list.Items), 1)
		events := try(only.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion}))
		defer events.Stop()
		label := []byte(`{"metadata":{"labels":{"a":"c"}}}`)
		same("the label", try(only.Patch(ctx, "meta", types.MergePatchType, label, metav1.PatchOptions{})).Labels["a"], "c")
		done(only.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "a=c"}))
		for _, wanted := range []watch.EventType{watch.Modified, watch.Deleted} {
			event := nextEvent(events)
			same("the event", event.Type, wanted)
			same("the label", event.Object.(*metav1.PartialObjectMetadata).Labels["a"], "c")
		}
		refused("delete", only.Delete(ctx, "meta", metav1.DeleteOptions{}), apierrors.IsNotFound)
	})
}

func unstructuredDeployment() *unstructured.Unstructured {
	labels := map[string]any{"app": "untyped"}
	container := map[string]any{"name": "main", "image": "nginx:1"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "untyped"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{container}},
			},
		},
	}}
}

func number(object *unstructured.Unstructured, path ...string) int64 {
	value, _, err := unstructured.NestedInt64(object.Object, path...)
	return try(value, err)
}
