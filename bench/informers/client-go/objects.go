package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Objects are made from their number alone, so that two loads of the same size give the same cluster.

const namespaces = 50

type object = map[string]any
type list = []any

func namespaceOf(i int) string   { return fmt.Sprintf("bench-%02d", i%namespaces) }
func configMapName(i int) string { return fmt.Sprintf("settings-%06d", i) }
func podName(i int) string       { return fmt.Sprintf("web-%05d-7d9c6b8f4d-%05d", i/10, i) }

// filler is text that neither compresses to nothing nor looks the same in every object.
func filler(random *rand.Rand, bytes int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-./=,"
	var text strings.Builder
	for text.Len() < bytes {
		text.WriteByte(letters[random.IntN(len(letters))])
	}
	return text.String()
}

// configMap is about 1.5 KB of JSON as a server returns it, managedFields included.
// Generation differs from write to write, so that an update is never a no-op.
func configMap(i, generation int) object {
	random := rand.New(rand.NewPCG(uint64(i), 1))
	return object{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": object{
			"name": configMapName(i), "namespace": namespaceOf(i),
			"labels":      object{"app.kubernetes.io/name": fmt.Sprintf("app-%03d", i%200), "app.kubernetes.io/managed-by": "peers"},
			"annotations": object{"peers.tidings.dev/checksum": filler(random, 64)},
		},
		"data": object{
			"generation":  fmt.Sprint(generation),
			"LOG_LEVEL":   "info",
			"DATABASE":    "postgres://db." + namespaceOf(i) + ".svc:5432/" + filler(random, 24),
			"config.yaml": filler(random, 600),
		},
	}
}

// pod is about 7 KB of JSON as a server returns it, managedFields included.
func pod(i int) object {
	random := rand.New(rand.NewPCG(uint64(i), 2))
	app := fmt.Sprintf("web-%05d", i/10)
	probe := func(path string, initialDelay int) object {
		return object{
			"httpGet":             object{"path": path, "port": "http", "scheme": "HTTP"},
			"initialDelaySeconds": initialDelay, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
		}
	}
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{
			"name": podName(i), "namespace": namespaceOf(i),
			"generateName": app + "-7d9c6b8f4d-",
			"labels": object{
				"app": app, "app.kubernetes.io/name": app, "pod-template-hash": "7d9c6b8f4d",
			},
			"annotations": object{
				"kubectl.kubernetes.io/restartedAt": "2026-01-05T12:00:00Z",
				"checksum/config":                   filler(random, 64),
			},
			"ownerReferences": list{object{
				"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app + "-7d9c6b8f4d",
				"uid": uid(random), "controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": object{
			"volumes": list{
				object{"name": "config", "configMap": object{"name": configMapName(i), "defaultMode": 420}},
				object{"name": "kube-api-access-x7k2p", "projected": object{
					"defaultMode": 420,
					"sources": list{
						object{"serviceAccountToken": object{"expirationSeconds": 3607, "path": "token"}},
						object{"configMap": object{"name": "kube-root-ca.crt", "items": list{object{"key": "ca.crt", "path": "ca.crt"}}}},
						object{"downwardAPI": object{"items": list{object{
							"path": "namespace", "fieldRef": object{"apiVersion": "v1", "fieldPath": "metadata.namespace"},
						}}}},
					},
				}},
			},
			"containers": list{object{
				"name": "web", "image": "registry.example.com/shop/web:1.27.3", "imagePullPolicy": "IfNotPresent",
				"args":  list{"--listen=:8080", "--metrics=:9090", "--config=/etc/web/config.yaml"},
				"ports": list{object{"name": "http", "containerPort": 8080, "protocol": "TCP"}},
				"env": list{
					object{"name": "POD_NAME", "valueFrom": object{"fieldRef": object{"apiVersion": "v1", "fieldPath": "metadata.name"}}},
					object{"name": "DATABASE_URL", "valueFrom": object{"secretKeyRef": object{"name": app + "-db", "key": "url"}}},
					object{"name": "LOG_LEVEL", "value": "info"},
				},
				"resources":                object{"requests": object{"cpu": "100m", "memory": "128Mi"}, "limits": object{"cpu": "1", "memory": "512Mi"}},
				"volumeMounts":             list{object{"name": "config", "mountPath": "/etc/web", "readOnly": true}, object{"name": "kube-api-access-x7k2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}},
				"livenessProbe":            probe("/healthz", 10),
				"readinessProbe":           probe("/readyz", 2),
				"terminationMessagePath":   "/dev/termination-log",
				"terminationMessagePolicy": "File",
			}},
			"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
			"serviceAccountName": "default", "serviceAccount": "default",
			"nodeName":           fmt.Sprintf("node-%04d", i%400),
			"securityContext":    object{"runAsNonRoot": true, "runAsUser": 65532},
			"schedulerName":      "default-scheduler",
			"priority":           0,
			"enableServiceLinks": true,
			"preemptionPolicy":   "PreemptLowerPriority",
			"tolerations": list{
				object{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
				object{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
			},
		},
	}
}

// withStatus is the pod as its kubelet would report it.
func withStatus(pod object, i int) object {
	random := rand.New(rand.NewPCG(uint64(i), 3))
	condition := func(kind string) object {
		return object{"type": kind, "status": "True", "lastProbeTime": nil, "lastTransitionTime": "2026-01-05T12:00:07Z"}
	}
	ip := fmt.Sprintf("10.%d.%d.%d", 64+i/65536, i/256%256, i%256)
	host := fmt.Sprintf("192.168.%d.%d", i%400/250, i%400%250+1)
	pod["status"] = object{
		"phase": "Running", "qosClass": "Burstable", "startTime": "2026-01-05T12:00:01Z",
		"hostIP": host, "hostIPs": list{object{"ip": host}}, "podIP": ip, "podIPs": list{object{"ip": ip}},
		"conditions": list{
			condition("PodReadyToStartContainers"), condition("Initialized"), condition("Ready"),
			condition("ContainersReady"), condition("PodScheduled"),
		},
		"containerStatuses": list{object{
			"name": "web", "ready": true, "started": true, "restartCount": 0,
			"image": "registry.example.com/shop/web:1.27.3", "imageID": "registry.example.com/shop/web@sha256:" + hex(random, 64),
			"containerID": "containerd://" + hex(random, 64),
			"state":       object{"running": object{"startedAt": "2026-01-05T12:00:05Z"}}, "lastState": object{},
		}},
	}
	return pod
}

func hex(random *rand.Rand, digits int) string {
	text := make([]byte, digits)
	for i := range text {
		text[i] = "0123456789abcdef"[random.IntN(16)]
	}
	return string(text)
}

func uid(random *rand.Rand) string {
	return strings.Join([]string{hex(random, 8), hex(random, 4), "4" + hex(random, 3), "a" + hex(random, 3), hex(random, 12)}, "-")
}
