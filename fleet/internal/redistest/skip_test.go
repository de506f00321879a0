//go:build unix

package redistest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight/fleet/internal/redistest"
)

// A spy is a test that may be skipped or fail without the one around it.
type spy struct {
	testing.TB
	skipped, failed string
}

func (s *spy) Helper() {}
func (s *spy) Skip(args ...any) {
	s.skipped = fmt.Sprint(args...)
	runtime.Goexit()
}
func (s *spy) Errorf(format string, args ...any) { s.failed = fmt.Sprintf(format, args...) }
func (s *spy) FailNow()                          { runtime.Goexit() }

func TestWithoutServerInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	start := func() *spy {
		s := &spy{TB: t}
		var ended sync.WaitGroup
		ended.Go(func() { redistest.Start(s) })
		ended.Wait()
		return s
	}

	t.Setenv("E2E_SKIPS", "")
	s := start()
	require.Contains(t, s.skipped, "apt-get install redis-server")
	require.Empty(t, s.failed)

	t.Setenv("E2E_SKIPS", "fail")
	s = start()
	require.Empty(t, s.skipped)
	require.Contains(t, s.failed, "executable file not found")
}
