package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// writer sends JSON over plain HTTP: encoding through typed clients would make the loader the bottleneck.
type writer struct {
	client *http.Client
	base   string
}

func newWriter(kubeconfig string) (*writer, error) {
	config, err := fastConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "peers-loader"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &writer{client, strings.TrimSuffix(config.Host, "/")}, nil
}

// send treats 409 on a POST as done, so that an interrupted load can be run again.
func (w *writer) send(method, path string, body object) error {
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, w.base+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode < 300 || method == http.MethodPost && response.StatusCode == http.StatusConflict {
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	reason, _ := io.ReadAll(io.LimitReader(response.Body, 300))
	return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, reason)
}

func configMapPath(i int) string {
	return "/api/v1/namespaces/" + namespaceOf(i) + "/configmaps"
}

func podPath(i int) string {
	return "/api/v1/namespaces/" + namespaceOf(i) + "/pods"
}

// inParallel hands the numbers below n to the writers and stops at the first error.
func inParallel(n, writers int, write func(i int) error) error {
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for i := int(next.Add(1) - 1); i < n && failure.Load() == nil; i = int(next.Add(1) - 1) {
				if err := write(i); err != nil {
					failure.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	group.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

func load(arguments []string) error {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "file that names the server")
	configMaps := flags.Int("configmaps", 0, "how many ConfigMaps to create")
	pods := flags.Int("pods", 0, "how many Pods to create")
	writers := flags.Int("writers", 32, "parallel writers")
	_ = flags.Parse(arguments)

	w, err := newWriter(*kubeconfig)
	if err != nil {
		return err
	}
	start := time.Now()
	err = inParallel(namespaces, 8, func(i int) error {
		return w.send(http.MethodPost, "/api/v1/namespaces", object{
			"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespaceOf(i)},
		})
	})
	if err != nil {
		return err
	}
	err = inParallel(*configMaps, *writers, func(i int) error {
		return w.send(http.MethodPost, configMapPath(i), configMap(i, 0))
	})
	if err != nil {
		return err
	}
	configMapsDone := time.Now()
	err = inParallel(*pods, *writers, func(i int) error {
		if err := w.send(http.MethodPost, podPath(i)+"?fieldManager=kube-controller-manager", pod(i)); err != nil {
			return err
		}
		// Servers drop status on create.
		return w.send(http.MethodPut, podPath(i)+"/"+podName(i)+"/status?fieldManager=kubelet", withStatus(pod(i), i))
	})
	if err != nil {
		return err
	}
	return print(report{
		"configmaps": *configMaps, "configmaps_seconds": configMapsDone.Sub(start).Seconds(),
		"pods": *pods, "pods_seconds": time.Since(configMapsDone).Seconds(),
	})
}

func print(r report) error {
	line, err := json.Marshal(r)
	if err == nil {
		fmt.Println(string(line))
	}
	return err
}
