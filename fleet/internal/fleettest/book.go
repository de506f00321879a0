//go:build unix

package fleettest

import (
	"fmt"
	"io"
)

// A book is what the log adds up to, as far as it was read.
type book struct {
	keys []string
	log  io.ReaderAt
	read int64 // bytes of the log

	inUse []int   // by key
	peak  []int   // by key
	cells []cells // by process
	fault error   // the first thing in the log that cannot be
}

// cells are the numbers of one process, or of several that had its place one after another; each by key.
type cells struct {
	inUse, admitted, refused []int
	buried                   int // how many were in use when a process died
}

func newBook(log io.ReaderAt, keys []string, procs int) *book {
	n := len(keys)
	b := &book{keys: keys, log: log, inUse: make([]int, n), peak: make([]int, n), cells: make([]cells, procs)}
	for i := range b.cells {
		b.cells[i] = cells{inUse: make([]int, n), admitted: make([]int, n), refused: make([]int, n)}
	}
	return b
}

// catchUp reads what has been appended to the log.
func (b *book) catchUp() error {
	buf := make([]byte, 4096*eventSize)
	for {
		n, err := b.log.ReadAt(buf, b.read)
		whole := n - n%eventSize
		for i := 0; i < whole; i += eventSize {
			b.apply(decode(buf[i:]))
		}
		b.read += int64(whole)
		if err == io.EOF {
			return b.fault
		}
		if err != nil {
			return err
		}
	}
}

func (b *book) apply(e event) {
	c := &b.cells[e.proc]
	switch e.kind {
	case entered:
		c.admitted[e.key]++
		c.inUse[e.key]++
		b.inUse[e.key]++
		b.peak[e.key] = max(b.peak[e.key], b.inUse[e.key])
	case left:
		c.inUse[e.key]--
		b.inUse[e.key]--
		if c.inUse[e.key] < 0 && b.fault == nil {
			b.fault = fmt.Errorf("fleettest: process %d left %q more often than it entered", e.proc, b.keys[e.key])
		}
	case refused:
		c.refused[e.key]++
	case buried:
		for key, n := range c.inUse {
			b.inUse[key] -= n
			c.buried += n
			c.inUse[key] = 0
		}
	default:
		b.fault = fmt.Errorf("fleettest: the log has an event of kind %d", e.kind)
	}
}
