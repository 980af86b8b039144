package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"k8s.io/client-go/tools/cache"
)

const syncLimit = 10 * time.Minute

// counts are what the handlers and the transform saw.
type counts struct {
	changes    atomic.Int64 // objects that went towards the store
	deliveries atomic.Int64 // callbacks that returned, over all handlers
	stalling   atomic.Bool  // from when on the stalled handler sleeps
	synced     []cache.ResourceEventHandlerRegistration
}

// measure runs one scenario and fills in the report.
func measure(r run, out report) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	start := time.Now()
	p, err := newPeer(r)
	if err != nil {
		return err
	}
	var c counts
	c.stalling.Store(!r.stallLate)
	if err := p.attach(r, &c); err != nil {
		return err
	}
	go p.informer.RunWithContext(ctx)
	err = p.waitForSync()
	seconds, cpu, peak := time.Since(start).Seconds(), cpuSeconds(), peakMiB()
	p.traffic.describe(out)
	if err != nil {
		return err
	}
	if modes[r.mode].protobuf && p.traffic.contentType != protobufType {
		return fmt.Errorf("the server answered %s to a request for protobuf", p.traffic.contentType)
	}
	if modes[r.mode].stream && p.traffic.lists.Load() > 0 {
		out["note"] = "the reflector fell back from streaming to LIST"
	}
	out["objects"] = len(p.informer.GetIndexer().ListKeys())

	switch r.scenario {
	case "sync":
		out["seconds"], out["cpu_seconds"], out["peak_mib"] = seconds, cpu, peak
		out["steady_mib"] = steadyMiB()
		return nil
	case "relist":
		return p.relist(&c, out)
	case "events":
		return p.listen(r, &c, out)
	}
	return fmt.Errorf("unknown scenario %q", r.scenario)
}

func (p *peer) attach(r run, c *counts) error {
	// A transform sees each object on its way into the store exactly once after the first sync.
	// It is the one tap that a stalled handler cannot hold up.
	transform := func(object any) (any, error) {
		c.changes.Add(1)
		return object, nil
	}
	if modes[r.mode].stripped {
		transform = func(object any) (any, error) {
			c.changes.Add(1)
			return dropManagedFields(object)
		}
	} else if r.scenario == "sync" {
		transform = nil
	}
	if transform != nil {
		if err := p.informer.SetTransform(transform); err != nil {
			return err
		}
	}
	for i := range r.handlers {
		deliver := func() { c.deliveries.Add(1) }
		if i == 0 && r.stalled {
			deliver = func() {
				if c.stalling.Load() {
					select {}
				}
				c.deliveries.Add(1)
			}
		}
		registration, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { deliver() },
			UpdateFunc: func(_, _ any) { deliver() },
			DeleteFunc: func(any) { deliver() },
		})
		if err != nil {
			return err
		}
		if i > 0 || !r.stalled || r.stallLate {
			c.synced = append(c.synced, registration)
		}
	}
	return nil
}

func (p *peer) waitForSync() error {
	select {
	case <-p.informer.HasSyncedChecker().Done():
		return nil
	case err := <-p.failed:
		return err
	case <-time.After(syncLimit):
		return errors.New("not synced in time")
	}
}

// waitForHandlers returns once every handler that is not stalled has seen the initial state.
func (c *counts) waitForHandlers() {
	for _, registration := range c.synced {
		<-registration.HasSyncedChecker().Done()
	}
}

// identity tells whether the store still holds the very same object under a key.
func (p *peer) identity(key string) unsafe.Pointer {
	object, _, _ := p.informer.GetIndexer().GetByKey(key)
	return (*[2]unsafe.Pointer)(unsafe.Pointer(&object))[1]
}

// relist ends the watch with 410 and waits until a reader sees the new objects.
func (p *peer) relist(c *counts, out report) error {
	keys := p.informer.GetIndexer().ListKeys()
	if len(keys) == 0 {
		return errors.New("nothing to relist")
	}
	c.waitForHandlers()
	steadyMiB()
	out["peak_reset"] = resetPeak()

	before := p.identity(keys[0])
	delivered := c.deliveries.Load()
	lists, streams := p.traffic.lists.Load(), p.traffic.streams.Load()
	cpu := cpuSeconds()
	p.traffic.arm()
	injected := time.Now()
	p.faults.expireNow()
	for p.identity(keys[0]) == before {
		if time.Since(injected) > syncLimit {
			return errors.New("not relisted in time")
		}
		time.Sleep(time.Millisecond)
	}
	done := time.Now()
	cpuInCache := cpuSeconds() - cpu

	// The callbacks of a relist are part of its cost: wait for them before the CPU is read.
	for calls := int64(-1); calls != c.deliveries.Load(); {
		calls = c.deliveries.Load()
		time.Sleep(500 * time.Millisecond)
	}
	spoke := p.traffic.spoke()
	out["seconds"] = done.Sub(spoke).Seconds()
	out["backoff_seconds"] = spoke.Sub(injected).Seconds()
	out["cpu_seconds"] = cpuSeconds() - cpu
	out["cpu_seconds_in_cache"] = cpuInCache
	out["handler_calls"] = c.deliveries.Load() - delivered
	out["relist_lists"], out["relist_streams"] = p.traffic.lists.Load()-lists, p.traffic.streams.Load()-streams
	out["peak_mib"] = peakMiB()
	out["steady_mib"] = steadyMiB()
	return nil
}

// listen counts what arrives in the window; somebody else writes.
func (p *peer) listen(r run, c *counts, out report) error {
	c.waitForHandlers()
	steadyMiB()
	out["peak_reset"] = resetPeak()
	c.stalling.Store(true)
	// Whoever drives the churn waits for this line.
	fmt.Fprintln(os.Stderr, "ready")

	changes, delivered, cpu := c.changes.Load(), c.deliveries.Load(), cpuSeconds()
	time.Sleep(r.window)
	out["events"] = c.changes.Load() - changes
	out["deliveries"] = c.deliveries.Load() - delivered
	out["cpu_seconds"] = cpuSeconds() - cpu
	out["handlers"], out["stalled"], out["seconds"] = r.handlers, r.stalled, r.window.Seconds()
	out["stall_late"] = r.stallLate
	out["sharing"] = "one SharedIndexInformer"
	out["peak_mib"] = peakMiB()
	out["steady_mib"] = steadyMiB()
	return nil
}
