package main

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
)

var (
	definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	gadgetResource     = schema.GroupVersionResource{Group: "interop.tidings.dev", Version: "v1", Resource: "gadgets"}
)

// custom does what an operator does: it defines a resource, waits until it is there, and works with its objects.
func custom(ctx context.Context, c clients) {
	definitions := c.dynamic.Resource(definitionResource)
	gadgets := c.dynamic.Resource(gadgetResource).Namespace(c.namespace)
	const definition = "gadgets.interop.tidings.dev"
	check("custom: a definition is established", func() {
		events := try(definitions.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + definition}))
		defer events.Stop()
		try(definitions.Create(ctx, gadgetDefinition(definition), metav1.CreateOptions{}))
		for !established(nextEvent(events).Object.(*unstructured.Unstructured)) {
		}
		// Whoever is told so can use it at once.
		same("the list", len(try(gadgets.List(ctx, metav1.ListOptions{})).Items), 0)
		mapper := restmapper.NewDiscoveryRESTMapper(try(restmapper.GetAPIGroupResources(c.typed.Discovery())))
		mapping := try(mapper.RESTMapping(schema.GroupKind{Group: gadgetResource.Group, Kind: "Gadget"}))
		same("the resource", mapping.Resource, gadgetResource)
	})
	check("custom: create, update, status, scale", func() {
		created := try(gadgets.Create(ctx, gadget("one", 1), metav1.CreateOptions{}))
		same("the default", text(created, "spec", "colour"), "red")
		same("the generation", created.GetGeneration(), 1)
		done(unstructured.SetNestedField(created.Object, int64(2), "spec", "size"))
		updated := try(gadgets.Update(ctx, created, metav1.UpdateOptions{}))
		same("the generation", updated.GetGeneration(), 2)
		_, err := gadgets.Update(ctx, created, metav1.UpdateOptions{})
		refused("a stale update", err, apierrors.IsConflict)
		done(unstructured.SetNestedField(updated.Object, int64(7), "status", "size"))
		updated = try(gadgets.UpdateStatus(ctx, updated, metav1.UpdateOptions{}))
		same("the status", number(updated, "status", "size"), 7)
		scale := try(gadgets.Get(ctx, "one", metav1.GetOptions{}, "scale"))
		same("replicas", number(scale, "status", "replicas"), 7)
		_, err = gadgets.Create(ctx, gadget("wrong", -1), metav1.CreateOptions{})
		refused("a size below zero", err, apierrors.IsInvalid)
		cause(err, metav1.CauseTypeFieldValueInvalid, "spec.size")
	})
	check("custom: patch and apply", func() {
		size := []byte(`{"spec":{"size":5}}`)
		patched := try(gadgets.Patch(ctx, "one", types.MergePatchType, size, metav1.PatchOptions{}))
		same("the size", number(patched, "spec", "size"), 5)
		_, err := gadgets.Patch(ctx, "one", types.StrategicMergePatchType, size, metav1.PatchOptions{})
		refused("a strategic patch", err, apierrors.IsUnsupportedMediaType)
		_, err = gadgets.Apply(ctx, "one", gadget("one", 6), metav1.ApplyOptions{FieldManager: "operator"})
		refused("a size that another has written", err, apierrors.IsConflict)
		applied := try(gadgets.Apply(ctx, "one", gadget("one", 6), metav1.ApplyOptions{FieldManager: "operator", Force: true}))
		same("the size", number(applied, "spec", "size"), 6)
	})
	check("custom: informers", func() {
		factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, c.namespace, nil)
		seen := make(chan string, 16)
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { seen <- "added " + object.(*unstructured.Unstructured).GetName() },
			DeleteFunc: func(object any) { seen <- "deleted " + object.(*unstructured.Unstructured).GetName() },
		}
		informer := factory.ForResource(gadgetResource).Informer()
		try(informer.AddEventHandler(handler))
		running, stop := context.WithCancel(ctx)
		defer stop()
		factory.Start(running.Done())
		same("the event", next("an event", seen), "added one")
		// A change of the definition goes unnoticed.
		category := []byte(`{"spec":{"names":{"categories":["interop"]}}}`)
		try(definitions.Patch(ctx, definition, types.MergePatchType, category, metav1.PatchOptions{}))
		try(gadgets.Create(ctx, gadget("two", 1), metav1.CreateOptions{}))
		same("the event", next("an event", seen), "added two")
		done(gadgets.Delete(ctx, "two", metav1.DeleteOptions{}))
		same("the event", next("an event", seen), "deleted two")
	})
	check("custom: the definition goes with its objects", func() {
		list := try(gadgets.List(ctx, metav1.ListOptions{}))
		events := try(gadgets.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}))
		defer events.Stop()
		done(definitions.Delete(ctx, definition, metav1.DeleteOptions{}))
		event := nextEvent(events)
		same("the event", event.Type, watch.Deleted)
		same("its object", event.Object.(*unstructured.Unstructured).GetName(), "one")
		gone(ctx, "the definition", func() error {
			_, err := definitions.Get(ctx, definition, metav1.GetOptions{})
			return err
		})
		until(ctx, "the resource is gone", func() bool {
			_, err := gadgets.List(ctx, metav1.ListOptions{})
			return apierrors.IsNotFound(err)
		})
	})
}

func gadget(name string, size int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "interop.tidings.dev/v1", "kind": "Gadget", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": size},
	}}
}

func gadgetDefinition(name string) *unstructured.Unstructured {
	whole := map[string]any{"type": "integer"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"group": "interop.tidings.dev",
			"names": map[string]any{"plural": "gadgets", "kind": "Gadget"},
			"scope": "Namespaced",
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"subresources": map[string]any{
					"status": map[string]any{},
					"scale":  map[string]any{"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
				},
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{
						"spec": map[string]any{"type": "object", "properties": map[string]any{
							"size":   map[string]any{"type": "integer", "minimum": int64(0)},
							"colour": map[string]any{"type": "string", "default": "red"},
						}},
						"status": map[string]any{"type": "object", "properties": map[string]any{"size": whole}},
					},
				}},
			}},
		},
	}}
}

func established(definition *unstructured.Unstructured) bool {
	// A definition that is new has null there.
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, condition := range conditions {
		condition := condition.(map[string]any)
		if condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, err := unstructured.NestedString(object.Object, path...)
	return try(value, err)
}
