package inflight_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// Cancel ends the call of a transport, and the slot counts on until the body has ended or, if nobody looks at that,
// until the request's context has.
func TestC15CancelledCallCounts(t *testing.T) {
	aborted := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		aborted <- struct{}{}
	}))
	t.Cleanup(server.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	for name, end := range map[string]func(cancel func(), body func() error){
		"body":    func(_ func(), body func() error) { _ = body() },
		"context": func(cancel func(), _ func() error) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			reg := newRegistry(t, inflight.Limits{})
			client := &http.Client{Transport: inflight.NewTransport(base, reg, inflight.TransportConfig{
				Key: func(*http.Request) (inflight.Key, error) { return acmeGLM, nil },
			})}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			res, err := client.Do(r)
			require.NoError(t, err)
			defer func() { _ = res.Body.Close() }()

			require.True(t, reg.Cancel(reg.Slots(1)[0].ID, nil))
			<-aborted
			require.Equal(t, 1, reg.InUse(acmeGLM))
			end(cancel, res.Body.Close)
			eventually(t, func() bool { return reg.InUse(acmeGLM) == 0 })
		})
	}
}
