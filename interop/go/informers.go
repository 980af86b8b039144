package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// inform follows typed objects with the shared informers of a factory.
func inform(ctx context.Context, c clients, round string) {
	check(round+": shared informers", func() {
		ctx, stop := context.WithCancel(ctx)
		factory := informers.NewSharedInformerFactoryWithOptions(c.typed, 0, informers.WithNamespace(c.namespace))
		defer factory.Shutdown()
		defer stop()
		configMaps := factory.Core().V1().ConfigMaps()
		deployments := factory.Apps().V1().Deployments()
		same("deployments at the start", len(deployments.Informer().GetStore().List()), 0)
		follow(ctx, c, configMaps.Informer(), func() {
			factory.Start(ctx.Done())
			for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
				same(fmt.Sprint(kind, " is synced"), synced, true)
			}
		})
		until(ctx, "the lister is empty", func() bool {
			return len(try(configMaps.Lister().ConfigMaps(c.namespace).List(labels.Everything()))) == 0
		})
	})
}

// informUntyped follows objects whose types the program does not know.
func informUntyped(ctx context.Context, c clients) {
	check("dynamic: shared informers", func() {
		ctx, stop := context.WithCancel(ctx)
		factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, c.namespace, nil)
		defer factory.Shutdown()
		defer stop()
		informer := factory.ForResource(configMapResource).Informer()
		follow(ctx, c, informer, func() {
			factory.Start(ctx.Done())
			same("configmaps are synced", factory.WaitForCacheSync(ctx.Done())[configMapResource], true)
		})
	})
	check("metadata: shared informers", func() {
		ctx, stop := context.WithCancel(ctx)
		factory := metadatainformer.NewFilteredSharedInformerFactory(c.metadata, 0, c.namespace, nil)
		defer factory.Shutdown()
		defer stop()
		informer := factory.ForResource(configMapResource).Informer()
		follow(ctx, c, informer, func() {
			factory.Start(ctx.Done())
			same("configmaps are synced", factory.WaitForCacheSync(ctx.Done())[configMapResource], true)
		})
	})
}

// follow starts an informer, changes a ConfigMap, and hears of each change once and in order.
func follow(ctx context.Context, c clients, informer cache.SharedIndexInformer, start func()) {
	// More than there are changes, so that the handler never waits.
	heard := make(chan string, 16)
	tell := func(what string, object any) {
		accessor := try(meta.Accessor(object))
		heard <- fmt.Sprint(what, " ", accessor.GetName(), " ", accessor.GetLabels()["step"])
	}
	handler := cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if initial {
				tell("found", object)
			} else {
				tell("added", object)
			}
		},
		UpdateFunc: func(_, object any) { tell("updated", object) },
		DeleteFunc: func(object any) { tell("deleted", object) },
	}
	registration := try(informer.AddEventHandler(handler))
	configMaps := c.typed.CoreV1().ConfigMaps(c.namespace)
	create := func(name string) *corev1.ConfigMap {
		object := configMap(name, map[string]string{"step": "1"})
		return try(configMaps.Create(ctx, object, metav1.CreateOptions{}))
	}
	create("before")
	start()
	until(ctx, "the handler is synced", registration.HasSynced)
	same("heard", next("the state", heard), "found before 1")
	create("after")
	same("heard", next("a creation", heard), "added after 1")
	step := []byte(`{"metadata":{"labels":{"step":"2"}}}`)
	try(configMaps.Patch(ctx, "before", types.MergePatchType, step, metav1.PatchOptions{}))
	same("heard", next("a change", heard), "updated before 2")
	done(configMaps.Delete(ctx, "before", metav1.DeleteOptions{}))
	same("heard", next("a deletion", heard), "deleted before 2")
	done(configMaps.Delete(ctx, "after", metav1.DeleteOptions{}))
	same("heard", next("a deletion", heard), "deleted after 1")
}
