//go:build unix && !linux

package process

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

// halted cannot find out, and believes that the signal has arrived.
func halted(int) (bool, error) { return true, nil }
