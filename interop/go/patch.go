package main

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patch tries the three types of patches that are no apply.
func patch(ctx context.Context, c clients, round string) {
	configMaps := c.typed.CoreV1().ConfigMaps(c.namespace)
	deployments := c.typed.AppsV1().Deployments(c.namespace)
	options := metav1.PatchOptions{}

	check(round+": JSON patch", func() {
		try(configMaps.Create(ctx, configMap("patched", nil), metav1.CreateOptions{}))
		operations := `[{"op":"test","path":"/data/colour","value":"blue"},{"op":"add","path":"/data/size","value":"1"}]`
		patched := try(configMaps.Patch(ctx, "patched", types.JSONPatchType, []byte(operations), options))
		same("the data", patched.Data["colour"]+" "+patched.Data["size"], "blue 1")
		operations = strings.Replace(operations, "blue", "red", 1)
		_, err := configMaps.Patch(ctx, "patched", types.JSONPatchType, []byte(operations), options)
		refused("a test that fails", err, apierrors.IsInvalid)
	})
	check(round+": merge patch", func() {
		merged := `{"metadata":{"labels":{"a":"b"}},"data":{"size":null,"shape":"round"}}`
		patched := try(configMaps.Patch(ctx, "patched", types.MergePatchType, []byte(merged), options))
		_, sized := patched.Data["size"]
		same("size is there", sized, false)
		same("the shape and the label", patched.Data["shape"]+" "+patched.Labels["a"], "round b")
		stale := `{"metadata":{"resourceVersion":"1"},"data":{"shape":"square"}}`
		_, err := configMaps.Patch(ctx, "patched", types.MergePatchType, []byte(stale), options)
		refused("a patch of an old version", err, apierrors.IsConflict)
		_, err = configMaps.Patch(ctx, "nosuch", types.MergePatchType, []byte(merged), options)
		refused("a patch of nothing", err, apierrors.IsNotFound)
		done(configMaps.Delete(ctx, "patched", metav1.DeleteOptions{}))
	})
	check(round+": strategic merge patch", func() {
		try(deployments.Create(ctx, deployment("patched"), metav1.CreateOptions{}))
		image := `{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"busybox:2"}]}}}}`
		patched := try(deployments.Patch(ctx, "patched", types.StrategicMergePatchType, []byte(image), options))
		same("images", images(patched.Spec.Template.Spec), "main=nginx:1 side=busybox:2")
		removed := `{"spec":{"template":{"spec":{"containers":[{"name":"side","$patch":"delete"}]}}}}`
		patched = try(deployments.Patch(ctx, "patched", types.StrategicMergePatchType, []byte(removed), options))
		same("images", images(patched.Spec.Template.Spec), "main=nginx:1")
		wrongType := `{"spec":{"replicas":"three"}}`
		_, err := deployments.Patch(ctx, "patched", types.StrategicMergePatchType, []byte(wrongType), options)
		if err == nil {
			wrong("a text is taken for a number")
		}
	})
	check(round+": patch of the status and of the scale", func() {
		status := `{"spec":{"replicas":9},"status":{"replicas":1,"conditions":[{"type":"Progressing","status":"True"}]}}`
		patched := try(deployments.Patch(ctx, "patched", types.StrategicMergePatchType, []byte(status), options, "status"))
		same("the status", patched.Status.Replicas, 1)
		same("the spec", *patched.Spec.Replicas, 1)
		same("conditions", len(patched.Status.Conditions), 1)
		// The answer is a Scale, which the typed client of Deployments reads what it can of.
		scale := `{"spec":{"replicas":4}}`
		try(c.dynamic.Resource(deploymentResource).Namespace(c.namespace).
			Patch(ctx, "patched", types.MergePatchType, []byte(scale), options, "scale"))
		same("replicas", *try(deployments.Get(ctx, "patched", metav1.GetOptions{})).Spec.Replicas, 4)
		done(deployments.Delete(ctx, "patched", metav1.DeleteOptions{}))
	})
}

// images is "name=image" of each container.
func images(spec corev1.PodSpec) string {
	var all []string
	for _, container := range spec.Containers {
		all = append(all, container.Name+"="+container.Image)
	}
	return strings.Join(all, " ")
}
