//go:build unix

package fleettest

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
)

// The log is a file to which all processes append, each event by one write. It is the whole truth about the order of
// events, because the system is what keeps it:
//
//   - Writes to a file opened with O_APPEND happen one after another. So the sum over all processes is known after every
//     event, and its peak is exact; nothing is sampled.
//   - What was written stays, also if the writer is killed in its next instruction. There is no state between two writes
//     that a process could leave behind half changed, as there would be between a counter of its own and a common one.
//   - Nobody waits for anybody: a process that is stopped holds no lock.
type event struct {
	kind kind
	proc int
	key  int
}

type kind byte

const (
	entered kind = iota + 1
	left
	refused
	buried // the process is gone, and with it all that it had entered
)

// eventSize is how long an event is in the file: the kind, then process and key of two bytes each.
const eventSize = 5

const most = 1 << 16 // processes, and keys

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600) //nolint:gosec // the referee has chosen the path
}

// appendTo writes an event. A failure is fatal for the test, so it panics: without the event, the log would be a lie.
func (e event) appendTo(file io.Writer) {
	var b [eventSize]byte
	b[0] = byte(e.kind)
	binary.LittleEndian.PutUint16(b[1:], uint16(e.proc)) //nolint:gosec // less than most
	binary.LittleEndian.PutUint16(b[3:], uint16(e.key))  //nolint:gosec // less than most
	if _, err := file.Write(b[:]); err != nil {
		panic(fmt.Sprintf("fleettest: cannot write to the log: %v", err))
	}
}

func decode(b []byte) event {
	return event{
		kind: kind(b[0]),
		proc: int(binary.LittleEndian.Uint16(b[1:])),
		key:  int(binary.LittleEndian.Uint16(b[3:])),
	}
}
