// Command interop does with client-go what controllers and tools do, and stops at the first thing that is not as a Kubernetes API
// server has it. It works in a namespace of its own, on the server that KUBECONFIG names.
package main

import (
	"context"
	"flag"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clients are all that client-go has, for one server.
type clients struct {
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	namespace string
	// collects is whether the server removes by itself what belongs to deleted objects.
	collects bool
}

func main() {
	collects := flag.Bool("collects", true, "the server, or a controller manager beside it, collects what belongs to deleted objects")
	flag.Parse()
	ctx := context.Background()
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config := try(clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig())
	// Nobody else uses the server, and client-go's five requests a second are few.
	config.QPS = -1
	config.UserAgent = "interop"

	c := clients{
		typed:    kubernetes.NewForConfigOrDie(config),
		dynamic:  dynamic.NewForConfigOrDie(config),
		metadata: metadata.NewForConfigOrDie(config),
		collects: *collects,
	}
	check("a namespace of our own", func() {
		wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "client-go-"}}
		namespace := try(c.typed.CoreV1().Namespaces().Create(ctx, wanted, metav1.CreateOptions{}))
		c.namespace = namespace.Name
		same("the phase", namespace.Status.Phase, corev1.NamespaceActive)
	})

	discover(ctx, c)
	// Without a content type typed clients send protobuf and accept both. Each round leaves nothing behind.
	for _, contentType := range []string{"", runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		round := c
		round.typed = kubernetes.NewForConfigOrDie(withContentType(config, contentType))
		name := contentType
		if name == "" {
			name = "default"
		}
		write(ctx, round, name)
		patch(ctx, round, name)
		apply(ctx, round, name)
		listAndWatch(ctx, round, name)
		remove(ctx, round, name)
		inform(ctx, round, name)
	}
	inProtobuf := kubernetes.NewForConfigOrDie(withContentType(config, runtime.ContentTypeProtobuf))
	inJSON := kubernetes.NewForConfigOrDie(withContentType(config, runtime.ContentTypeJSON))
	kinds(ctx, c, inProtobuf, inJSON)
	untyped(ctx, c)
	informUntyped(ctx, c)
	custom(ctx, c)
	elect(ctx, c)
	record(ctx, c)
	review(ctx, c)
	check("the namespace goes", func() {
		done(c.typed.CoreV1().Namespaces().Delete(ctx, c.namespace, metav1.DeleteOptions{}))
		if c.collects {
			gone(ctx, "the namespace", func() error {
				_, err := c.typed.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
				return err
			})
		}
	})
	fmt.Println("client-go is at home")
}

func withContentType(config *rest.Config, contentType string) *rest.Config {
	copied := rest.CopyConfig(config)
	copied.ContentType = contentType
	return copied
}
