package main

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// discover asks what there is, as tools do before anything else.
func discover(ctx context.Context, c clients) {
	client := c.typed.Discovery()
	check("discovery: version, groups, resources", func() {
		same("the minor version", try(client.ServerVersion()).Minor, "36")
		groups, lists, err := client.ServerGroupsAndResources()
		done(err)
		same("there are groups", len(groups) > 10, true)
		deployments := slices.IndexFunc(lists, func(list *metav1.APIResourceList) bool { return list.GroupVersion == "apps/v1" })
		same("apps/v1 is there", deployments >= 0, true)
		preferred := try(discovery.ServerPreferredNamespacedResources(client))
		listed := discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch", "patch", "deletecollection"}}, preferred)
		resources := try(discovery.GroupVersionResources(listed))
		_, found := resources[deploymentResource]
		same("Deployments are listed", found, true)
		same("apps/v1 is known", discovery.ServerSupportsVersion(client, schema.GroupVersion{Group: "apps", Version: "v1"}), nil)
	})
	check("discovery: OpenAPI", func() {
		paths := try(client.OpenAPIV3().Paths())
		document := try(paths["apis/apps/v1"].Schema("application/json"))
		same("apps/v1 is described", len(document) > 1000, true)
		same("the old document too", len(try(client.OpenAPISchema()).Definitions.AdditionalProperties) > 300, true)
	})
	check("discovery: RESTMapper", func() {
		mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
		mapping := try(mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"}))
		same("the resource", mapping.Resource, deploymentResource)
		same("the scope", mapping.Scope.Name(), meta.RESTScopeNameNamespace)
		node := try(mapper.RESTMapping(schema.GroupKind{Kind: "Node"}))
		same("the scope of Nodes", node.Scope.Name(), meta.RESTScopeNameRoot)
		short := restmapper.NewShortcutExpander(mapper, client, nil)
		same("deploy", try(short.ResourceFor(schema.GroupVersionResource{Resource: "deploy"})), deploymentResource)
		_, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Foo"})
		refused("an unknown kind", err, meta.IsNoMatchError)
		all, _ := restmapper.NewDiscoveryCategoryExpander(client).Expand("all")
		same("Deployments are in the category all", slices.Contains(all, deploymentResource.GroupResource()), true)
	})
}
