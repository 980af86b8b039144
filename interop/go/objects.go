package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

var (
	configMapResource  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deploymentResource = appsv1.SchemeGroupVersion.WithResource("deployments")
	deploymentKind     = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
)

func configMap(name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Data:       map[string]string{"colour": "blue"},
	}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template(labels)},
	}
}

// replicaSet is what a Deployment owns.
func replicaSet(owner *appsv1.Deployment) *appsv1.ReplicaSet {
	reference := *metav1.NewControllerRef(owner, deploymentKind)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: owner.Name, OwnerReferences: []metav1.OwnerReference{reference}},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](0), Selector: owner.Spec.Selector, Template: owner.Spec.Template,
		},
	}
}

func template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "main", Image: "nginx:1"},
			{Name: "side", Image: "busybox"},
		}},
	}
}

// gone waits until a get does not find its object any more.
func gone(ctx context.Context, what string, get func() error) {
	until(ctx, what+" is gone", func() bool {
		err := get()
		if err != nil && !apierrors.IsNotFound(err) {
			wrong("%s: %v", what, err)
		}
		return err != nil
	})
}
