package inflight_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// alike returns limits that show whether they were set as a whole: all fields are n.
func alike(n int) inflight.Limits { return inflight.Limits{Key: n, Org: n, Model: n, Total: n} }

// whole returns the n that all fields are, or an error if they come from several.
func whole(l inflight.Limits) (int, error) {
	if l != alike(l.Key) {
		return 0, fmt.Errorf("torn: %+v", l)
	}
	return l.Key, nil
}

// A crowd runs functions at the same time: some a number of times, others over and over as long as those run. The first
// error of each fails the test.
type crowd struct {
	t                *testing.T
	workers, onlooks sync.WaitGroup
	done             atomic.Bool
}

func (c *crowd) times(n int, f func(i int) error) {
	c.workers.Go(func() {
		for i := range n {
			if err := f(i); err != nil {
				c.t.Error(err)
				return
			}
		}
	})
}

func (c *crowd) meanwhile(f func() error) {
	c.onlooks.Go(func() {
		for last := false; !last; {
			last = c.done.Load() // once more after all is done
			if err := f(); err != nil {
				c.t.Error(err)
				return
			}
		}
	})
}

func (c *crowd) wait() {
	c.workers.Wait()
	c.done.Store(true)
	c.onlooks.Wait()
}

// Each writer has a rule of its own, and finds it as it left it: no writer loses what another one wrote. Readers see
// what was set as a whole, and the newer never before the older. Each change is told of once.
func TestLimitTableRaceOfWriters(t *testing.T) {
	const writers = 4
	changes := sized(2000)
	var table inflight.LimitTable
	var told atomic.Int64
	table.OnChange(func() { told.Add(1) })
	keyOf := func(w int) inflight.Key { return inflight.Key{Org: strconv.Itoa(w), Model: "glm"} }

	c := crowd{t: t}
	for w := range writers {
		c.times(changes, func(i int) error {
			k := keyOf(w)
			if err := table.Set(k, alike(1+i)); err != nil {
				return err
			}
			if l := table.Limits(k); l != alike(1+i) {
				return fmt.Errorf("%v: set to %d, is %+v", k, 1+i, l)
			}
			table.Delete(k)
			if l := table.Limits(k); l != (inflight.Limits{}) {
				return fmt.Errorf("%v: deleted, is %+v", k, l)
			}
			return nil
		})
		newest := 0
		c.meanwhile(func() error {
			n, err := whole(table.Limits(keyOf(w)))
			if err == nil && n != 0 && n < newest {
				err = fmt.Errorf("%v: %d after %d", keyOf(w), n, newest)
			}
			newest = max(newest, n)
			return err
		})
	}
	c.meanwhile(func() error {
		for _, r := range table.Rules() {
			if n, err := whole(r.Limits); n == 0 {
				return fmt.Errorf("%v: a rule that sets nothing, or: %w", r.Key, err)
			}
		}
		return nil
	})
	c.meanwhile(func() error { table.OnChange(func() {})(); return nil })
	c.wait()
	require.Empty(t, table.Rules())
	require.EqualValues(t, 2*writers*changes, told.Load())
}

// Loads replace all rules at once, while others Set and Delete one of them: whoever looks sees all rules of one load, with
// that one as the load or a later change left it. When a load returns, its change has been told of.
func TestLimitTableRaceOfLoads(t *testing.T) {
	const set = 1 << 20 // above every version
	document := func(version int) []byte {
		return fmt.Appendf(nil, `{"defaults": {"key": %[1]d, "org": %[1]d, "model": %[1]d, "total": %[1]d}, "rules": [
			{"org": "acme", "model": "glm", "limits": {"key": %[1]d, "org": %[1]d, "model": %[1]d, "total": %[1]d}},
			{"org": "acme", "limits": {"key": %[1]d, "org": %[1]d, "model": %[1]d, "total": %[1]d}}]}`, version)
	}
	shared := inflight.Key{Org: "acme", Model: "glm"}
	var table inflight.LimitTable
	require.NoError(t, table.UnmarshalJSON(document(1)))
	var told atomic.Int64
	table.OnChange(func() {
		n := int64(table.Limits(inflight.Key{}).Key)
		for {
			old := told.Load()
			if n <= old || told.CompareAndSwap(old, n) {
				return
			}
		}
	})

	c := crowd{t: t}
	c.times(sized(2000), func(i int) error {
		version := 2 + i
		if err := json.Unmarshal(document(version), &table); err != nil {
			return err
		}
		if told.Load() < int64(version) {
			return fmt.Errorf("version %d is loaded, but %d is the last that was told of", version, told.Load())
		}
		if err := table.UnmarshalJSON(document(0)); err == nil {
			return errors.New("a bad version was loaded")
		}
		return nil
	})
	c.times(sized(2000), func(i int) error {
		table.Delete(shared)
		return table.Set(shared, alike(set+i))
	})
	for range 2 {
		newest := 0
		c.meanwhile(func() error {
			versions := make(map[inflight.Key]int)
			for _, r := range table.Rules() {
				n, err := whole(r.Limits)
				if err != nil {
					return err
				}
				versions[r.Key] = n
			}
			version, one := versions[inflight.Key{}], versions[shared]
			if versions[inflight.Key{Org: "acme"}] != version || one != 0 && one != version && one < set {
				return fmt.Errorf("of several loads: %v", versions)
			}
			if version < newest {
				return fmt.Errorf("version %d after %d", version, newest)
			}
			newest = version
			return nil
		})
	}
	c.meanwhile(func() error {
		if _, err := whole(table.Limits(shared)); err != nil {
			return err
		}
		text, err := json.Marshal(&table)
		if err == nil {
			err = new(inflight.LimitTable).UnmarshalJSON(text)
		}
		return err
	})
	c.wait()
}
