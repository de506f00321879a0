package inflight_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// drop has a response come, and drops it unread and unclosed.
func drop(ctx context.Context, t *testing.T, tr http.RoundTripper, url string) {
	t.Helper()
	_, err := tr.RoundTrip(newRequest(ctx, t, url))
	require.NoError(t, err)
}

// collect sweeps until a slot is found lost.
func collect(t *testing.T, w *web) inflight.SlotInfo {
	t.Helper()
	var lost []inflight.SlotInfo
	eventually(t, func() bool {
		runtime.GC()
		lost = append(lost, w.Sweep().Lost...)
		return len(lost) > 0
	})
	require.Len(t, lost, 1)
	return lost[0]
}

func TestC5Dropped(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			for name, reclaim := range map[string]bool{"reported": false, "reclaimed": true} {
				t.Run(name, func(t *testing.T) {
					w := newWebOf(t, inflight.Config{ReclaimLost: reclaim, LongHeld: time.Nanosecond})
					gone := make(chan struct{})
					s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_ = http.NewResponseController(w).Flush()
						<-r.Context().Done()
						close(gone)
					}))
					ctx, cancel := context.WithCancel(t.Context()) // long-lived, as that of a worker
					defer cancel()
					drop(ctx, t, w.over(s.transport), s.URL)
					require.Len(t, w.Sweep().NewlyLongHeld, 1)
					w.is(t, 1)
					require.Equal(t, webKey, collect(t, w).Key)
					if reclaim {
						w.is(t, 0)
						receive(t, gone) // the call ends with its slot
					} else {
						w.is(t, 1)
						cancel()
						w.becomes(t, 0) // also when nobody has the handle any more
					}
					w.empty(t)
				})
			}
		})
	}
}

func TestC5KeptIsNotLost(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			ended := make(chan struct{})
			s := newSite(t, protocol, streaming(ended))
			res, err := w.over(s.transport).RoundTrip(newRequest(t.Context(), t, s.URL))
			require.NoError(t, err)
			body := res.Body
			for range 3 {
				runtime.GC()
				require.Empty(t, w.Sweep().Lost)
			}
			close(ended)
			_, err = io.ReadAll(body)
			require.NoError(t, err)
			w.empty(t)
		})
	}
}

func TestC15EndedFromOutside(t *testing.T) {
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			for _, protocol := range protocols {
				t.Run(protocol, func(t *testing.T) {
					w := newEndableWeb(t)
					reached, upstream := make(chan bool, 1), make(chan error, 1)
					s := newSite(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						reached <- true
						if r.URL.Path == "/body" {
							_ = http.NewResponseController(w).Flush()
						}
						<-r.Context().Done()
						upstream <- r.Context().Err()
						panic(http.ErrAbortHandler) // a proper end might still reach the client over TLS
					}))
					tr := w.over(s.transport)
					t.Run("abort-before-header", func(t *testing.T) {
						failed := make(chan error, 1)
						req := newRequest(t.Context(), t, s.URL)
						go func() {
							_, err := tr.RoundTrip(req)
							failed <- err
						}()
						receive(t, reached)
						w.is(t, 1)
						end(t, w)
						require.Error(t, receive(t, failed))
						require.ErrorIs(t, receive(t, upstream), context.Canceled)
						w.empty(t)
					})
					t.Run("body", func(t *testing.T) {
						res, err := tr.RoundTrip(newRequest(t.Context(), t, s.URL+"/body"))
						require.NoError(t, err)
						receive(t, reached)
						end(t, w)
						_, err = io.ReadAll(res.Body)
						require.Error(t, err)
						require.ErrorIs(t, receive(t, upstream), context.Canceled)
						w.empty(t)
					})
				})
			}
		})
	}
}

// The end of the request's context releases the slot, which ends base's context: that must not hide the reason, however
// long the request's context takes to end all that hangs from it.
func TestC2ReleaseIsNotTheReason(t *testing.T) {
	w := newWeb(t, 1)
	for range 10 {
		parent, cancel := context.WithCancelCause(t.Context())
		for range 2000 {
			_, stop := context.WithCancel(parent)
			defer stop()
		}
		var ctx context.Context
		res, err := w.over(tripFunc(func(r *http.Request) (*http.Response, error) {
			ctx = r.Context() //nolint:fatcontext // to look at it from outside
			return answer(http.StatusOK, -1), nil
		})).RoundTrip(newRequest(parent, t, "http://upstream/"))
		require.NoError(t, err)
		cancel(errPanic)
		require.Equal(t, errPanic, context.Cause(ctx))
		w.becomes(t, 0)
		require.NoError(t, res.Body.Close())
	}
	w.empty(t)
}

func TestC2DeadlineIsTheReason(t *testing.T) {
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			w := newWeb(t, 1)
			s := newSite(t, protocol, streaming(nil))
			tr := w.over(s.transport)
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				res, err := tr.RoundTrip(newRequest(ctx, t, s.URL))
				if err == nil {
					w.becomes(t, 0)
					_, err = io.ReadAll(res.Body)
					_ = res.Body.Close()
				}
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancel()
			}
			w.empty(t)
		})
	}
}

func TestC15Cause(t *testing.T) {
	why := errors.New("the operator said so")
	w := newWeb(t, 1)
	tr := w.over(tripFunc(func(r *http.Request) (*http.Response, error) {
		require.True(t, w.Cancel(w.Slots(1)[0].ID, why))
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}))
	_, err := tr.RoundTrip(newRequest(t.Context(), t, "http://upstream/"))
	require.Equal(t, why, err)
	w.empty(t)
}

// What has no body, or whose slot was given back at the header, must not stay with a context that lives on.
func TestC14ContextEndsWithTheBody(t *testing.T) {
	w := newWeb(t, 1)
	var ctx context.Context
	tr := inflight.NewTransport(tripFunc(func(r *http.Request) (*http.Response, error) {
		ctx = r.Context() //nolint:fatcontext // to look at it from outside
		return answer(http.StatusOK, -1), nil
	}), w.Registry, inflight.TransportConfig{Key: asWebKey, ReleaseAtHeader: true})

	res, err := tr.RoundTrip(newRequest(t.Context(), t, "http://upstream/"))
	require.NoError(t, err)
	require.NoError(t, ctx.Err())
	require.NoError(t, res.Body.Close())
	require.Error(t, ctx.Err())

	drop(t.Context(), t, tr, "http://upstream/")
	require.NoError(t, ctx.Err())
	eventually(t, func() bool {
		runtime.GC()
		return ctx.Err() != nil
	})
	w.empty(t)
}
