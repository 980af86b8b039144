// Command client-go-peer measures client-go's informers for comparison with Tidings.
//
// It prints one line of JSON on stdout for each run. `load` fills the server.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"k8s.io/klog/v2"
)

// run is one measurement as asked for on the command line.
type run struct {
	kubeconfig string
	resource   string
	mode       string
	scenario   string
	handlers   int
	stalled    bool
	stallLate  bool
	window     time.Duration
}

func main() {
	// Logs would share the core with what is measured.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)

	if len(os.Args) > 1 && os.Args[1] == "load" {
		exitOn(load(os.Args[2:]))
		return
	}

	var r run
	var seconds float64
	flag.StringVar(&r.kubeconfig, "kubeconfig", "", "file that names the server")
	flag.StringVar(&r.resource, "resource", "configmaps", "configmaps or pods")
	flag.StringVar(&r.mode, "mode", "list-json", "list-json, list-protobuf, stream-json, stream-protobuf, list-json-stripped or metadata")
	flag.StringVar(&r.scenario, "scenario", "sync", "sync, relist or events")
	flag.IntVar(&r.handlers, "handlers", -1, "event handlers on the informer (sync: 0, otherwise 1)")
	flag.BoolVar(&r.stalled, "stalled", false, "the first handler sleeps for ever in its first callback")
	flag.BoolVar(&r.stallLate, "stall-late", false, "with --stalled: it sleeps in the first callback of the events window, after the initial state")
	flag.Float64Var(&seconds, "seconds", 10, "how long the events scenario listens")
	flag.Parse()
	r.window = time.Duration(seconds * float64(time.Second))
	if r.handlers < 0 {
		r.handlers = 1
		if r.scenario == "sync" {
			r.handlers = 0
		}
	}

	result := report{
		"peer": "client-go", "version": clientGoVersion(),
		"mode": r.mode, "resource": r.resource, "scenario": r.scenario,
	}
	err := measure(r, result)
	if err != nil {
		result["error"] = err.Error()
	}
	line, _ := json.Marshal(result)
	fmt.Println(string(line))
	if err != nil {
		os.Exit(1)
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
