package process_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inflight-go/inflight/fleet/internal/fleettest/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	soon         = 15 * time.Second
	parentToKill = "PROCESS_PARENT_TO_KILL"
)

// state is the letter that the system has for the state of a process, or "" if there is none any more.
func state(pid string) string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return ""
	}
	return string(stat[bytes.LastIndexByte(stat, ')')+2:][:1])
}

func sleep(t *testing.T, buried ...func()) (p *process.Process, pid string) {
	t.Helper()
	p, err := process.Start(t, exec.Command("sleep", "1000"), buried...)
	require.NoError(t, err)
	return p, strconv.Itoa(p.PID())
}

func TestProcessEndsWithItsTest(t *testing.T) {
	var pid string
	t.Run("its test", func(t *testing.T) {
		var p *process.Process
		p, pid = sleep(t)
		require.NoError(t, p.Stop())
	})
	require.Empty(t, state(pid))
}

func TestProcessEndsWithTheTestProcess(t *testing.T) {
	if os.Getenv(parentToKill) != "" {
		_, pid := sleep(t)
		fmt.Println("child:", pid)
		select {}
	}
	parent := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), parentToKill+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid := strings.TrimSpace(strings.TrimPrefix(line, "child:"))
	require.Contains(t, "SR", state(pid))

	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool { return slices.Contains([]string{"", "Z"}, state(pid)) }, soon, time.Millisecond,
		"neither gone nor a zombie that nobody has waited for yet")
}

func TestStop(t *testing.T) {
	p, pid := sleep(t)
	require.NoError(t, p.Stop())
	require.Equal(t, "T", state(pid))
	require.NoError(t, p.Stop(), "once more")
	require.NoError(t, p.Continue())
	require.Eventually(t, func() bool { return state(pid) == "S" }, soon, time.Millisecond)
	p.Kill()
	require.ErrorIs(t, p.Stop(), os.ErrProcessDone)
	require.ErrorIs(t, p.Continue(), os.ErrProcessDone)
}

func TestBuriedBeforeItEnds(t *testing.T) {
	buried := 0
	p, pid := sleep(t, func() { buried++ })
	require.NotEmpty(t, state(pid))
	p.Kill()
	p.Kill()
	require.Equal(t, 1, buried)
	require.ErrorContains(t, p.Wait(), "killed")
}

func TestOutput(t *testing.T) {
	p, err := process.Start(t, exec.Command("sh", "-c", "echo one; echo two >&2"))
	require.NoError(t, err)
	require.NoError(t, p.Wait())
	require.Equal(t, "one\ntwo\n", p.Output())
}

func TestStartFails(t *testing.T) {
	_, err := process.Start(t, exec.Command("/nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
