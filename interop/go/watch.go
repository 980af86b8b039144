package main

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"
)

// listAndWatch lists in pages and with selectors, and watches.
func listAndWatch(ctx context.Context, c clients, round string) {
	configMaps := c.typed.CoreV1().ConfigMaps(c.namespace)
	const count = 7
	check(round+": list in pages", func() {
		for i := range count {
			labels := map[string]string{"half": fmt.Sprint(i % 2)}
			try(configMaps.Create(ctx, configMap(fmt.Sprintf("item-%d", i), labels), metav1.CreateOptions{}))
		}
		first := try(configMaps.List(ctx, metav1.ListOptions{Limit: 3}))
		same("the first page", len(first.Items), 3)
		same("what remains", ptr.Deref(first.RemainingItemCount, 0), count-3)
		rest := try(configMaps.List(ctx, metav1.ListOptions{Limit: 100, Continue: first.Continue}))
		same("the rest", len(rest.Items), count-3)
		same("the token at the end", rest.Continue, "")
		same("the version of the pages", rest.ResourceVersion, first.ResourceVersion)

		pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return configMaps.List(ctx, options)
		})
		pages.PageSize = 2
		var names []string
		done(pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			names = append(names, object.(*corev1.ConfigMap).Name)
			return nil
		}))
		same("names", strings.Join(names, " "), "item-0 item-1 item-2 item-3 item-4 item-5 item-6")
	})
	check(round+": list with selectors and versions", func() {
		half := try(configMaps.List(ctx, metav1.ListOptions{LabelSelector: "half in (1)"}))
		same("with the label", len(half.Items), 3)
		one := try(configMaps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=item-4"}))
		same("with the name", len(one.Items), 1)
		exact := metav1.ListOptions{ResourceVersion: half.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
		same("the exact version", try(configMaps.List(ctx, exact)).ResourceVersion, half.ResourceVersion)
		_, err := configMaps.List(ctx, metav1.ListOptions{Continue: "nonsense"})
		refused("a token that is none", err, apierrors.IsBadRequest)
	})
	check(round+": watch", func() {
		list := try(configMaps.List(ctx, metav1.ListOptions{}))
		options := metav1.ListOptions{ResourceVersion: list.ResourceVersion, LabelSelector: "half=1", AllowWatchBookmarks: true}
		events := try(configMaps.Watch(ctx, options))
		defer events.Stop()
		try(configMaps.Create(ctx, configMap("seen", map[string]string{"half": "1"}), metav1.CreateOptions{}))
		try(configMaps.Create(ctx, configMap("unseen", nil), metav1.CreateOptions{}))
		relabel := func(half string) {
			label := fmt.Sprintf(`{"metadata":{"labels":{"half":%q}}}`, half)
			try(configMaps.Patch(ctx, "seen", types.MergePatchType, []byte(label), metav1.PatchOptions{}))
		}
		change := []byte(`{"data":{"colour":"green"}}`)
		try(configMaps.Patch(ctx, "seen", types.MergePatchType, change, metav1.PatchOptions{}))
		relabel("2")
		relabel("1")
		done(configMaps.Delete(ctx, "seen", metav1.DeleteOptions{}))
		for _, wanted := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Added, watch.Deleted} {
			event := nextEvent(events)
			same("the event", event.Type, wanted)
			same("its object", event.Object.(*corev1.ConfigMap).Name, "seen")
		}
		done(configMaps.Delete(ctx, "unseen", metav1.DeleteOptions{}))
	})
	check(round+": watch of a streamed list", func() {
		options := metav1.ListOptions{
			SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		}
		events := try(configMaps.Watch(ctx, options))
		defer events.Stop()
		for range count {
			same("the event", next("the streamed state", events.ResultChan()).Type, watch.Added)
		}
		mark := next("the end of the state", events.ResultChan())
		same("the event", mark.Type, watch.Bookmark)
		annotations := try(meta.Accessor(mark.Object)).GetAnnotations()
		same("the annotation", annotations[metav1.InitialEventsAnnotationKey], "true")
	})
}

// nextEvent is the next event that is no bookmark.
func nextEvent(events watch.Interface) watch.Event {
	for {
		event := next("an event", events.ResultChan())
		if event.Type == watch.Error {
			wrong("the watch ends: %v", apierrors.FromObject(event.Object))
		}
		if event.Type != watch.Bookmark {
			return event
		}
	}
}

// remove deletes with each policy, and collections.
func remove(ctx context.Context, c clients, round string) {
	configMaps := c.typed.CoreV1().ConfigMaps(c.namespace)
	deployments := c.typed.AppsV1().Deployments(c.namespace)
	replicaSets := c.typed.AppsV1().ReplicaSets(c.namespace)
	const hold = "interop.tidings.dev/hold"
	pair := func(name string) *appsv1.Deployment {
		owner := try(deployments.Create(ctx, deployment(name), metav1.CreateOptions{}))
		owned := replicaSet(owner)
		owned.Finalizers = []string{hold}
		try(replicaSets.Create(ctx, owned, metav1.CreateOptions{}))
		return owner
	}
	// Lets the owned object go, if it is on its way.
	release := func(name string) {
		freed := []byte(`{"metadata":{"finalizers":null}}`)
		try(replicaSets.Patch(ctx, name, types.MergePatchType, freed, metav1.PatchOptions{}))
		if !c.collects {
			err := replicaSets.Delete(ctx, name, metav1.DeleteOptions{})
			done(err)
		}
		gone(ctx, "the ReplicaSet", func() error {
			_, err := replicaSets.Get(ctx, name, metav1.GetOptions{})
			return err
		})
	}
	policy := func(policy metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &policy}
	}
	deleting := func(name string) func() bool {
		return func() bool {
			return try(replicaSets.Get(ctx, name, metav1.GetOptions{})).DeletionTimestamp != nil
		}
	}

	check(round+": delete in the background", func() {
		pair("background")
		done(deployments.Delete(ctx, "background", policy(metav1.DeletePropagationBackground)))
		_, err := deployments.Get(ctx, "background", metav1.GetOptions{})
		refused("get of the owner", err, apierrors.IsNotFound)
		if c.collects {
			until(ctx, "the owned object is deleted", deleting("background"))
		}
		release("background")
	})
	check(round+": delete in the foreground", func() {
		pair("foreground")
		done(deployments.Delete(ctx, "foreground", policy(metav1.DeletePropagationForeground)))
		owner := try(deployments.Get(ctx, "foreground", metav1.GetOptions{}))
		same("the owner is being deleted", owner.DeletionTimestamp != nil, true)
		same("its finalizers", strings.Join(owner.Finalizers, " "), metav1.FinalizerDeleteDependents)
		if c.collects {
			until(ctx, "the owned object is deleted", deleting("foreground"))
			owner = try(deployments.Get(ctx, "foreground", metav1.GetOptions{}))
			same("the owner waits", owner.DeletionTimestamp != nil, true)
		} else {
			owner.Finalizers = nil
			try(deployments.Update(ctx, owner, metav1.UpdateOptions{}))
		}
		release("foreground")
		gone(ctx, "the Deployment", func() error {
			_, err := deployments.Get(ctx, "foreground", metav1.GetOptions{})
			return err
		})
	})
	check(round+": delete and orphan", func() {
		pair("orphan")
		done(deployments.Delete(ctx, "orphan", policy(metav1.DeletePropagationOrphan)))
		if c.collects {
			gone(ctx, "the Deployment", func() error {
				_, err := deployments.Get(ctx, "orphan", metav1.GetOptions{})
				return err
			})
			orphan := try(replicaSets.Get(ctx, "orphan", metav1.GetOptions{}))
			same("owners", len(orphan.OwnerReferences), 0)
			same("the orphan stays", orphan.DeletionTimestamp == nil, true)
			done(replicaSets.Delete(ctx, "orphan", metav1.DeleteOptions{}))
		} else {
			owner := try(deployments.Get(ctx, "orphan", metav1.GetOptions{}))
			same("its finalizers", strings.Join(owner.Finalizers, " "), metav1.FinalizerOrphanDependents)
			owner.Finalizers = nil
			try(deployments.Update(ctx, owner, metav1.UpdateOptions{}))
		}
		release("orphan")
	})
	check(round+": delete a collection", func() {
		selected := metav1.ListOptions{LabelSelector: "half=1"}
		done(configMaps.DeleteCollection(ctx, metav1.DeleteOptions{}, selected))
		same("what is selected", len(try(configMaps.List(ctx, selected)).Items), 0)
		same("what is not", len(try(configMaps.List(ctx, metav1.ListOptions{})).Items), 4)
		done(configMaps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
		same("everything", len(try(configMaps.List(ctx, metav1.ListOptions{})).Items), 0)
	})
}
