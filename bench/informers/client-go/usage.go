package main

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// report is the JSON line; a map, because each scenario adds fields of its own.
type report map[string]any

// settleTime lets background work (GC, connection set-up) end before the steady figure is read.
const settleTime = 2 * time.Second

// cpuSeconds is user plus system time of this process so far.
func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return -1
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// statusMiB reads one kB field of /proc/self/status.
func statusMiB(field string) float64 {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return -1
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) >= 2 && words[0] == field+":" {
			kib, _ := strconv.ParseFloat(words[1], 64)
			return kib / 1024
		}
	}
	return -1
}

func peakMiB() float64 { return statusMiB("VmHWM") }

// steadyMiB gives garbage back to the system first: what remains is what the cache needs.
func steadyMiB() float64 {
	time.Sleep(settleTime)
	runtime.GC()
	debug.FreeOSMemory()
	return statusMiB("VmRSS")
}

// resetPeak makes VmHWM count from now, so that a later scenario does not report the peak of the first sync.
func resetPeak() bool { return os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil }

func clientGoVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, module := range info.Deps {
		if module.Path == "k8s.io/client-go" {
			return module.Version
		}
	}
	return "unknown"
}
