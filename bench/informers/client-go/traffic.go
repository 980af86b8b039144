package main

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// traffic counts requests, so that a report shows whether a mode did what its name says.
type traffic struct {
	lists, streams, watches atomic.Int64

	mu sync.Mutex
	// armed at the injected error; firstAfter is when the reflector spoke to the server again.
	armed      bool
	firstAfter time.Time
	// contentType of the last good answer.
	contentType string
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (t *traffic) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		query := request.URL.Query()
		switch {
		case query.Get("sendInitialEvents") == "true":
			t.streams.Add(1)
		case query.Get("watch") == "true":
			t.watches.Add(1)
		default:
			t.lists.Add(1)
		}
		t.mu.Lock()
		if t.armed {
			t.armed, t.firstAfter = false, time.Now()
		}
		t.mu.Unlock()

		response, err := next.RoundTrip(request)
		if err == nil && response.StatusCode == http.StatusOK {
			t.mu.Lock()
			t.contentType = strings.Split(response.Header.Get("Content-Type"), ";")[0]
			t.mu.Unlock()
		}
		return response, err
	})
}

// arm asks for the time of the next request.
func (t *traffic) arm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed, t.firstAfter = true, time.Time{}
}

// spoke is when the first request after arm was sent; zero if none was.
func (t *traffic) spoke() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.firstAfter
}

func (t *traffic) describe(into report) {
	into["lists"], into["streams"], into["watches"] = t.lists.Load(), t.streams.Load(), t.watches.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	into["content_type"] = t.contentType
}
