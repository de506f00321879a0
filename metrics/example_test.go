package metrics_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/metrics"
)

func ExampleNewCollector() {
	reg, err := inflight.New(inflight.Config{Name: "gateway"})
	if err != nil {
		panic(err)
	}
	defer func() { _ = reg.Close() }()
	slot, err := reg.TryAcquire(inflight.Key{Org: "acme", Model: "glm"})
	if err != nil {
		panic(err)
	}
	defer slot.Release()

	all := prometheus.NewRegistry()
	all.MustRegister(metrics.NewCollector(reg, metrics.WithKeys(inflight.Key{Org: "acme", Model: "glm"})))
	handler := promhttp.HandlerFor(all, promhttp.HandlerOpts{}) // to be served at /metrics

	scrape := httptest.NewRecorder()
	handler.ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for lines := bufio.NewScanner(scrape.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "inflight_slots{") || strings.HasPrefix(lines.Text(), "inflight_key_limit{") {
			fmt.Println(lines.Text())
		}
	}
	// Output:
	// inflight_key_limit{key="acme/glm",registry="gateway"} 64
	// inflight_slots{registry="gateway"} 1
}
