package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/fleet/internal/store"
)

var errBusy = errors.New("inflight: fleet: earlier calls have not returned")

// send makes a call and waits for its answer for as long as the fleet allows, whatever the client is set to. A call that has
// been given up goes on for a while: it may have to open a connection, which takes several round trips, and the next one
// finds that open. It may still be executed, too: the next one makes good what it says.
func (s *shard) send(ctx context.Context, c store.Call) (store.Reply, error) {
	select {
	case s.calls <- struct{}{}:
	default:
		return store.Reply{}, errBusy
	}
	type result struct {
		reply store.Reply
		err   error
	}
	done := make(chan result, 1)
	s.fleet.calls.Go(func() { //nolint:contextcheck // it may go on when ctx has ended
		call, cancel := context.WithTimeout(s.fleet.calling, s.fleet.patience())
		defer cancel()
		reply, err := s.fleet.store.Lease(call, s.n, c)
		<-s.calls
		done <- result{reply, err}
	})
	late := time.NewTimer(s.fleet.cfg.CallTimeout)
	defer late.Stop()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-late.C:
		return store.Reply{}, context.DeadlineExceeded
	case <-ctx.Done():
		return store.Reply{}, ctx.Err()
	}
}

func entryOf(l *inflight.Lease) store.Entry {
	return store.Entry{
		Name:  l.Scope.String() + " " + l.Key.String(),
		Limit: min(l.Limit, store.Max),
		Seq:   l.Seq,
		Have:  min(l.Have, store.Max),
		Need:  min(l.Need, store.Max),
		Head:  min(l.Head, store.Max),
		Slack: min(l.Slack, store.Max),
		Floor: min(l.Share, store.Max),
	}
}

// patience is how long a call may go on that may have to open a connection first.
func (f *Fleet) patience() time.Duration { return 8 * f.cfg.CallTimeout }
