package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// at makes a request whose times are in seconds.
func at(at, head, end float64) request {
	second := float64(time.Second)
	return request{at: time.Duration(at * second), head: time.Duration(head * second), end: time.Duration(end * second)}
}

// Each outcome was worked out by hand.
func TestReplay(t *testing.T) {
	const ttl, head, exact = "counter in a TTL cache", "slot given back at the response head", "inflight"
	for name, c := range map[string]struct {
		limit    int
		requests []request
		want     []outcome
	}{
		"a counter expires under a request": {
			limit: 1,
			requests: []request{
				at(0, 0.2, 880),
				at(100, 100.2, 700),   // finds no room; the counter's time goes on from its first use
				at(600, 600.2, 1000),  // finds the counter expired
				at(880, 880.2, 890),   // comes as the first ends, whose release goes to nobody
				at(1000, 1000.2, 1e3), // comes as the third ends, whose release goes to its counter
			},
			want: []outcome{
				{design: ttl, admitted: 3, refused: 2, peak: 2, above: 280 * time.Second},
				{design: head, admitted: 5, refused: 0, peak: 3, above: 790 * time.Second},
				{design: exact, admitted: 3, refused: 2, peak: 1},
			},
		},
		"a counter lives on when nobody is counted": {
			limit:    1,
			requests: []request{at(0, 0, 1), at(599, 599, 700), at(601, 601, 650)},
			want: []outcome{
				{design: ttl, admitted: 3, peak: 2, above: 49 * time.Second},
				{design: head, admitted: 3, peak: 2, above: 49 * time.Second},
				{design: exact, admitted: 2, refused: 1, peak: 1},
			},
		},
		"arrivals of one instant": {
			limit:    2,
			requests: []request{at(0, 1, 5), at(0, 1, 5), at(0, 1, 5), at(1, 2, 6), at(5, 6, 6), at(5, 6, 6)},
			want: []outcome{
				{design: ttl, admitted: 4, refused: 2, peak: 2},
				{design: head, admitted: 5, refused: 1, peak: 3, above: 5 * time.Second},
				{design: exact, admitted: 4, refused: 2, peak: 2},
			},
		},
		"requests that take no time": {
			limit:    1,
			requests: []request{at(0, 0, 0), at(0, 0, 0), at(3, 3, 3)},
			want: []outcome{
				{design: ttl, admitted: 3, peak: 1},
				{design: head, admitted: 3, peak: 1},
				{design: exact, admitted: 3, peak: 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				outcomes, err := replayAll(c.requests, c.limit)
				require.NoError(t, err)
				for i := range outcomes {
					require.Zero(t, outcomes[i].course[len(outcomes[i].course)-1].inFlight)
					outcomes[i].course = nil
				}
				require.Equal(t, c.want, outcomes)
			})
		})
	}
}
