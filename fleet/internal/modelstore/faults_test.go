package modelstore_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/modelstore"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

// That the model answers as the scripts do is tested in package redisstore.

const (
	ttl     = 30 * time.Second
	timeout = 250 * time.Millisecond
	shard   = 3
)

func call(ctx context.Context, s *modelstore.Store, id string, entries ...store.Entry) (store.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return s.Lease(ctx, shard, store.Call{ID: id, TTL: ttl, Entries: entries})
}

// learned gives leases to processes and waits until the shard has learned.
func learned(t *testing.T, s *modelstore.Store, ids ...string) {
	t.Helper()
	for range 4 {
		for _, id := range ids {
			_, err := call(t.Context(), s, id)
			require.NoError(t, err)
		}
		time.Sleep(ttl / 3)
	}
}

func TestTimeOfTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modelstore.New(modelstore.Options{})
		reply, err := call(t.Context(), s, "a")
		require.NoError(t, err)
		require.Equal(t, store.Reply{Epoch: time.Now().UnixMilli(), Learning: ttl, Ends: time.Now().Add(ttl).UnixMilli(), Live: 1}, reply)
		time.Sleep(ttl / 3)
		reply, err = call(t.Context(), s, "a")
		require.NoError(t, err)
		require.Equal(t, ttl-ttl/3, reply.Learning)
	})
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := 100 * time.Millisecond
		s := modelstore.New(modelstore.Options{Latency: func() time.Duration { return way }})
		sent := time.Now()
		reply, err := call(t.Context(), s, "a")
		require.NoError(t, err)
		require.Equal(t, 2*way, time.Since(sent))
		require.Equal(t, sent.Add(way).UnixMilli(), reply.Epoch, "when it arrived")

		// A call that its sender has given up is executed all the same, and after one that was sent later but is faster.
		learned(t, s, "a")
		way = 2 * timeout
		_, err = call(t.Context(), s, "a", store.Entry{Name: "x", Seq: 1, Have: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		way = 0
		_, err = call(t.Context(), s, "a", store.Entry{Name: "x", Seq: 0, Have: 2})
		require.NoError(t, err)
		require.Equal(t, 2, s.Granted(shard, "x", ttl))
		time.Sleep(timeout)
		synctest.Wait()
		require.Equal(t, 1, s.Granted(shard, "x", ttl))
	})
}

func TestFates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fate modelstore.Fate
		s := modelstore.New(modelstore.Options{Fate: func(id string, at int) modelstore.Fate {
			require.Equal(t, shard, at)
			if id != "a" {
				return modelstore.Delivered
			}
			return fate
		}})
		learned(t, s, "a", "b")
		for lost, granted := range map[modelstore.Fate]int{modelstore.CallLost: 0, modelstore.ReplyLost: 2} {
			fate = lost
			sent := time.Now()
			_, err := call(t.Context(), s, "a", store.Entry{Name: "x", Limit: 2, Seq: uint64(lost), Have: granted})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, timeout, time.Since(sent))
			require.Equal(t, granted, s.Granted(shard, "x", ttl))
			_, err = call(t.Context(), s, "b")
			require.NoError(t, err)
			s.Flush()
			fate = modelstore.Delivered
			learned(t, s, "a", "b")
		}
	})
}

func TestDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modelstore.New(modelstore.Options{})
		learned(t, s, "a")
		s.Down(true)
		_, err := call(t.Context(), s, "a")
		require.ErrorIs(t, err, modelstore.ErrDown)
		require.ErrorIs(t, s.Leave(t.Context(), shard, "a"), modelstore.ErrDown)
		s.Down(false)
		reply, err := call(t.Context(), s, "a")
		require.NoError(t, err)
		require.True(t, reply.Known)
	})
}

func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := time.Duration(0)
		s := modelstore.New(modelstore.Options{Latency: func() time.Duration { return way }})
		learned(t, s, "a", "b")
		s.Cut("a", true)
		_, err := call(t.Context(), s, "a", store.Entry{Name: "x", Have: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, s.Granted(shard, "x", ttl))
		_, err = call(t.Context(), s, "b")
		require.NoError(t, err)

		// A cut between a call and its answer loses the answer.
		s.Cut("a", false)
		way = timeout / 5
		time.AfterFunc(way+way/2, func() { s.Cut("a", true) })
		_, err = call(t.Context(), s, "a", store.Entry{Name: "x", Have: 1})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, s.Granted(shard, "x", ttl))
	})
}

func TestFlushAndRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := modelstore.New(modelstore.Options{})
		learned(t, s, "a")
		write := func(seq uint64, have int) {
			_, err := call(t.Context(), s, "a", store.Entry{Name: "x", Limit: 9, Seq: seq, Have: have})
			require.NoError(t, err)
		}
		write(1, 1)
		old := s.Snapshot()
		write(2, 2)
		s.Restore(old)
		require.Equal(t, 1, s.Granted(shard, "x", ttl))
		write(3, 3)
		_, err := call(t.Context(), s, "b")
		require.NoError(t, err)
		s.Restore(old)
		require.Equal(t, 1, s.Granted(shard, "x", ttl), "what comes after a snapshot does not change it")
		reply, err := call(t.Context(), s, "a")
		require.NoError(t, err)
		require.Zero(t, reply.Learning)
		require.Equal(t, 1, reply.Live)

		s.Flush()
		require.Zero(t, s.Granted(shard, "x", ttl))
		reply, err = call(t.Context(), s, "a")
		require.NoError(t, err)
		require.Equal(t, ttl, reply.Learning)

		time.Sleep(ttl)
		s.Restore(old)
		reply, err = call(t.Context(), s, "a")
		require.NoError(t, err)
		require.Equal(t, ttl, reply.Learning, "no lease in the snapshot is valid")
	})
}

func TestCounts(t *testing.T) {
	s := modelstore.New(modelstore.Options{})
	_, err := call(t.Context(), s, "a", store.Entry{Name: "x"}, store.Entry{Name: "y"})
	require.NoError(t, err)
	_, err = call(t.Context(), s, "b", store.Entry{Name: "x"})
	require.NoError(t, err)
	require.NoError(t, s.Leave(t.Context(), shard, "a"))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = call(ended, s, "c")
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, modelstore.Counts{Calls: 2, Entries: 3, Leaves: 1}, s.Counts(), "the last was not sent")
	reply, err := call(t.Context(), s, "b")
	require.NoError(t, err)
	require.Equal(t, 1, reply.Live)
}

func TestManyAtOnce(t *testing.T) {
	s := modelstore.New(modelstore.Options{})
	var running sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		running.Go(func() {
			for seq := range uint64(200) {
				if _, err := call(t.Context(), s, id, store.Entry{Name: "x", Limit: 9, Seq: seq, Have: 2}); err != nil {
					t.Error(err)
				}
				s.Restore(s.Snapshot())
				s.Cut("e", true)
				s.Down(false)
			}
		})
	}
	running.Wait()
	require.Equal(t, 800, s.Counts().Calls)
	require.Equal(t, 800, s.Counts().Entries)
}
