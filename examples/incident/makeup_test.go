package main

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Made-up traffic has the shape that it says it has, whatever the seed.
func TestMakeUp(t *testing.T) {
	for seed := range uint64(5) {
		requests := makeUp(100, time.Second, seed)
		require.Equal(t, requests, makeUp(100, time.Second, seed))
		require.NotEqual(t, requests, makeUp(100, time.Second, seed+1))
		require.True(t, slices.IsSortedFunc(requests, func(a, b request) int { return cmp.Compare(a.at, b.at) }))
		require.Zero(t, requests[0].at)
		require.Less(t, requests[len(requests)-1].at, span)

		var lasts []time.Duration
		var sum time.Duration
		for _, r := range requests {
			require.Equal(t, time.Second, r.head-r.at)
			lasts = append(lasts, r.end-r.at)
			sum += r.end - r.at
		}
		slices.Sort(lasts)
		require.InDelta(t, 107, lasts[len(lasts)/2].Seconds(), 1)
		require.InDelta(t, 274, lasts[len(lasts)*9/10].Seconds(), 1)
		require.Equal(t, 880*time.Second, lasts[len(lasts)-1])
		require.InDelta(t, 100, (sum/span).Seconds()*float64(time.Second), 1)
	}
}

// A request lasts no less than its response head takes.
func TestMakeUpSlowHeads(t *testing.T) {
	for _, r := range makeUp(10, 20*time.Minute, 1) {
		require.Equal(t, r.at+20*time.Minute, r.head)
		require.Equal(t, r.head, r.end)
	}
}
