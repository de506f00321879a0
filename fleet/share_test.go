package fleet_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// The parts of an uneven division add up to the limit, whatever calls were the last before the engine was lost.
func TestSharesAddUp(t *testing.T) {
	inBubble(t, inflight.Limits{Key: 8}, func(w *bubble) {
		members := []*process{w.join(), w.join(), w.join()}
		time.Sleep(2 * syncing)
		for _, m := range members {
			m.take(acme).Release() // by a call for that alone
		}
		w.Down(true)
		time.Sleep(ttl + denial)
		admitted := 0
		for _, m := range members {
			var held []*inflight.Slot
			for {
				s, err := m.Acquire(t.Context(), acme, inflight.MaxWait(0))
				if err != nil {
					break
				}
				held = append(held, s)
			}
			require.GreaterOrEqual(t, len(held), 2)
			admitted += len(held)
			defer releaseAll(held)
		}
		require.Equal(t, 8, admitted)
	})
}
