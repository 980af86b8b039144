package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const protobufType = "application/vnd.kubernetes.protobuf"

// mode is what a --mode name stands for.
type mode struct {
	stream, protobuf, stripped, metadata bool
}

var modes = map[string]mode{
	"list-json":          {},
	"list-protobuf":      {protobuf: true},
	"stream-json":        {stream: true},
	"stream-protobuf":    {stream: true, protobuf: true},
	"list-json-stripped": {stripped: true},
	"metadata":           {metadata: true},
}

// peer is an informer ready to run, with the taps that the scenarios read.
type peer struct {
	informer cache.SharedIndexInformer
	traffic  *traffic
	faults   *faults
	failed   chan error
}

// newPeer builds the informer as the generated factories do: same ListWatch shape, namespace index, no resync.
func newPeer(r run) (*peer, error) {
	m, ok := modes[r.mode]
	if !ok {
		return nil, fmt.Errorf("unknown mode %q", r.mode)
	}
	// The gate is read once, at the first query, so it must be set before any client exists.
	os.Setenv("KUBE_FEATURE_WatchListClient", fmt.Sprint(m.stream))
	if clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient) != m.stream {
		return nil, fmt.Errorf("the WatchListClient gate did not take the value %v", m.stream)
	}

	config, err := fastConfig(r.kubeconfig)
	if err != nil {
		return nil, err
	}
	if m.protobuf {
		// No JSON after it: a server without protobuf must say so rather than be measured as if it had it.
		config.AcceptContentTypes, config.ContentType = protobufType, protobufType
	}
	p := &peer{traffic: &traffic{}, failed: make(chan error, 1)}
	config.Wrap(p.traffic.wrap)

	source, object, client, err := newSource(config, r.resource, m)
	if err != nil {
		return nil, err
	}
	if r.scenario == "relist" {
		// Only here: forwarding every event through one more channel would tax the other scenarios.
		p.faults = newFaults(source)
		source = p.faults.listWatch()
	}
	p.informer = cache.NewSharedIndexInformerWithOptions(
		cache.ToListWatcherWithWatchListSemantics(source, client), object,
		cache.SharedIndexInformerOptions{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}},
	)
	err = p.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		select {
		case p.failed <- err:
		default:
		}
	})
	return p, err
}

// fastConfig is what a component sets that is never to wait for its own client.
func fastConfig(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.DisableCompression = true
	config.UserAgent = "client-go-peer"
	return config, nil
}

func newSource(config *rest.Config, resource string, m mode) (*cache.ListWatch, runtime.Object, any, error) {
	if m.metadata {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, nil, nil, err
		}
		objects := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource})
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return objects.Watch(ctx, o)
			},
		}, &metav1.PartialObjectMetadata{}, client, nil
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, nil, err
	}
	switch resource {
	case "configmaps":
		objects := client.CoreV1().ConfigMaps(metav1.NamespaceAll)
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return objects.Watch(ctx, o)
			},
		}, &corev1.ConfigMap{}, client, nil
	case "pods":
		objects := client.CoreV1().Pods(metav1.NamespaceAll)
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return objects.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return objects.Watch(ctx, o)
			},
		}, &corev1.Pod{}, client, nil
	}
	return nil, nil, nil, fmt.Errorf("unknown resource %q", resource)
}

// dropManagedFields is the transform that client-go's documentation recommends against large caches.
func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
