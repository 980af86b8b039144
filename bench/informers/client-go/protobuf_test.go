package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// Tidings speaks JSON only, so the protobuf modes have nobody to talk to there.
// This server shows that they work against one that does.
func TestProtobufModesSyncAgainstAServerThatSpeaksIt(t *testing.T) {
	for _, scenario := range []string{"sync", "relist"} {
		for _, name := range []string{"list-protobuf", "stream-protobuf"} {
			if os.Getenv("PEER_MODE") != name+" "+scenario {
				continue
			}
			server := httptest.NewServer(http.HandlerFunc(serveProtobuf))
			defer server.Close()
			out := report{}
			err := measure(run{kubeconfig: kubeconfigFor(t, server.URL), resource: "configmaps", mode: name, scenario: scenario, handlers: 1}, out)
			if err != nil || out["objects"] != 3 || out["note"] != nil {
				t.Fatalf("%s %s: %v, %v", name, scenario, err, out)
			}
			return
		}
	}
	t.Skip(`set PEER_MODE="list-protobuf sync" or the like: the feature gate can be set once in a process`)
}

func kubeconfigFor(t *testing.T, url string) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"users":[{"name":"u","user":{}}]}`, url)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func serveProtobuf(w http.ResponseWriter, request *http.Request) {
	items := []corev1.ConfigMap{}
	for i := range 3 {
		items = append(items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: configMapName(i), Namespace: namespaceOf(i), ResourceVersion: fmt.Sprint(i + 1),
		}})
	}
	query := request.URL.Query()
	if query.Get("watch") != "true" {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		body := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: items}
		_, _ = w.Write(encode(body, false))
		return
	}
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	w.WriteHeader(http.StatusOK)
	framer := protobuf.LengthDelimitedFramer.NewFrameWriter(w)
	send := func(kind string, object runtime.Object) {
		event := &metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: encode(object, false)}}
		_, _ = framer.Write(encode(event, true))
	}
	if query.Get("sendInitialEvents") == "true" {
		for i := range items {
			send("ADDED", &items[i])
		}
		send("BOOKMARK", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "9", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	}
	w.(http.Flusher).Flush()
	<-request.Context().Done()
}

// encode uses the raw form for the watch envelope, which carries no type of its own.
func encode(object runtime.Object, raw bool) []byte {
	var buffer bytes.Buffer
	var err error
	if raw {
		err = protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &buffer)
	} else {
		codec := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), schema.GroupVersion{Version: "v1"})
		err = codec.Encode(object, &buffer)
	}
	if err != nil {
		panic(err)
	}
	return buffer.Bytes()
}
