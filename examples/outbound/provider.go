package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A provider stands in for a real one: it counts what is in flight, turns down what is above its limit, and now and then
// something else. It knows nothing of inflight.
type provider struct {
	limit  int
	grumpy int           // turns down one in so many
	pace   time.Duration // from word to word

	mu                sync.Mutex
	total, here, peak int
}

const story = "A stream is in flight until its very last word."

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.total++
	p.here++ // also if it is turned down: the peak shows by how much the limit was missed
	p.peak = max(p.peak, p.here)
	down := p.here > p.limit || p.total%p.grumpy == 0
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.here--
	}()

	if down {
		w.Header().Set("Retry-After", "1")
		http.Error(w, `{"error":{"message":"Too many requests."}}`, http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for word := range strings.SplitAfterSeq(story, " ") {
		_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", word)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(p.pace):
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, "data: [DONE]\n\n")
}

// saw is the most that was there at once.
func (p *provider) saw() string {
	if p.total == 0 {
		return "?" // a real one answered
	}
	return strconv.Itoa(p.peak)
}
