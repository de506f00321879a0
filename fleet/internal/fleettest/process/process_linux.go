package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// halted says whether all threads of a process are stopped. A signal stops them one after another.
func halted(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path) //nolint:gosec // the path is ours
		if os.IsNotExist(err) {
			continue // the thread has ended
		}
		if err != nil {
			return false, err
		}
		// pid (name) state ..., where the name may contain anything
		_, state, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
		if !ok || state[0] != 'T' {
			return false, nil
		}
	}
	return len(stats) > 0, nil
}
