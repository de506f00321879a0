package main

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter([]int{10, 30})
		add := func(limit, n int) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.addLocked(limit, n)
		}
		add(0, 9)
		require.True(t, m.room(0))
		add(0, 1)
		require.False(t, m.room(0))
		add(0, -6)
		m.begin(time.Second)
		time.Sleep(1500 * time.Millisecond)
		add(0, 4)
		add(1, 30)
		add(1, -30)
		time.Sleep(500 * time.Millisecond)
		add(0, -8)
		time.Sleep(2 * time.Second)

		r := m.read()
		require.InDelta(t, (1.5*4+0.5*8)/4/40, r.utilisation, 1e-9)
		require.InDelta(t, 1, r.peak, 0, "that of the other limit")
		require.Equal(t, []bin{{used: 4, peak: 4}, {used: 6, peak: 8}, {peak: 8}, {}, {}}, r.bins)
	})
}

func TestCourse(t *testing.T) {
	event := int(lead / step)
	c := course{used: make([]float64, 2*event), peaks: make([]float64, 2*event), before: 1}
	for i := range c.used {
		c.used[i], c.peaks[i] = 1, 1
	}
	require.Zero(t, c.recovered())
	require.InDelta(t, 1, c.worst(), 0)
	peak, above := c.peak()
	require.InDelta(t, 1, peak, 0)
	require.Zero(t, above)

	c.used[event], c.used[event+3], c.peaks[event+4] = 0.5, 0.7, 1.25
	require.Equal(t, 7*step, c.recovered(), "the 2 s that begin with the fourth step are the last that are too low")
	require.InDelta(t, 0.5, c.worst(), 0)
	peak, above = c.peak()
	require.InDelta(t, 1.25, peak, 0)
	require.Equal(t, 5*step, above)
}

func TestJain(t *testing.T) {
	require.InDelta(t, 1, jain([]float64{7, 7, 7}), 1e-9)
	require.InDelta(t, 0.25, jain([]float64{0, 9, 0, 0}), 1e-9)
	require.Zero(t, jain([]float64{0, 0}))
}
