package main

import (
	"context"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// faults stands between a reflector and its client and can end the running watch with 410 Expired.
type faults struct {
	real   *cache.ListWatch
	expire chan struct{}
}

func newFaults(real *cache.ListWatch) *faults {
	return &faults{real: real, expire: make(chan struct{})}
}

// expireNow returns once the running watch has taken the error.
func (f *faults) expireNow() { f.expire <- struct{}{} }

func (f *faults) listWatch() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: f.real.ListWithContextFunc,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			inner, err := f.real.WatchFuncWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			w := &faultyWatch{inner: inner, events: make(chan watch.Event), done: make(chan struct{})}
			go w.forward(f.expire)
			return w, nil
		},
	}
}

type faultyWatch struct {
	inner  watch.Interface
	events chan watch.Event
	done   chan struct{}
	once   sync.Once
}

func (w *faultyWatch) ResultChan() <-chan watch.Event { return w.events }

func (w *faultyWatch) Stop() {
	w.once.Do(func() { close(w.done) })
	w.inner.Stop()
}

func (w *faultyWatch) forward(expire <-chan struct{}) {
	defer close(w.events)
	for {
		var event watch.Event
		select {
		case <-w.done:
			return
		case <-expire:
			event = watch.Event{Type: watch.Error, Object: &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
				Message: "too old resource version (injected)",
			}}
		case next, open := <-w.inner.ResultChan():
			if !open {
				return
			}
			event = next
		}
		select {
		case <-w.done:
			return
		case w.events <- event:
		}
	}
}
