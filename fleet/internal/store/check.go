package store

import (
	"errors"
	"fmt"
	"time"
)

// Check returns an error if the call breaks a rule that an engine relies on. Engines refuse such a call as a whole.
func (c Call) Check() error {
	switch {
	case c.ID == "" || c.ID == "!": // where the engine notes the last denial of anybody, there is no process
		return fmt.Errorf("store: no process can have the ID %q", c.ID)
	case c.TTL < time.Millisecond:
		return fmt.Errorf("store: a lease of %v is too short", c.TTL)
	case c.Ends < 0 || c.Ends > Max:
		return fmt.Errorf("store: Ends %d is out of range", c.Ends)
	}
	for i := range c.Entries {
		if err := c.Entries[i].check(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Entry) check() error {
	if e.Name == "" {
		return errors.New("store: an entry has no name")
	}
	if e.Seq > Max {
		return fmt.Errorf("store: Seq %d of %q is out of range", e.Seq, e.Name)
	}
	if e.Head > e.Need {
		return fmt.Errorf("store: Head %d of %q is more than Need %d", e.Head, e.Name, e.Need)
	}
	for _, n := range [...]struct {
		field string
		value int
	}{{"Limit", e.Limit}, {"Have", e.Have}, {"Need", e.Need}, {"Head", e.Head}, {"Slack", e.Slack}, {"Floor", e.Floor}} {
		if n.value < 0 || n.value > Max {
			return fmt.Errorf("store: %s %d of %q is out of range", n.field, n.value, e.Name)
		}
	}
	return nil
}
