package inflight

import (
	"errors"
	"strconv"
)

// Errors of TryAcquire, Acquire and Shutdown. Use errors.Is.
var (
	// ErrLimit says that a limit is full, that the weight is above it, that MaxWait passed, or that the queue is full.
	// The error itself is a *LimitError.
	ErrLimit = errors.New("inflight: limit reached")

	// ErrTooManyWaiters says that there was no room in the queue. Such an error is also ErrLimit.
	ErrTooManyWaiters error = queueFullError{}

	// ErrClosed says that Close or Shutdown was called.
	ErrClosed = errors.New("inflight: registry closed")
)

// Causes of the end of a slot's context. Use context.Cause.
var (
	ErrReleased    = errors.New("inflight: slot released")
	ErrEvicted     = errors.New("inflight: slot evicted")
	ErrHeldTooLong = errors.New("inflight: slot held too long")
)

type queueFullError struct{}

func (queueFullError) Error() string { return "inflight: too many waiters" }

func (queueFullError) Is(target error) bool { return target == ErrLimit }

// A LimitError says which limit refused. Nothing was counted. It is ErrLimit to errors.Is, and also ErrTooManyWaiters
// if the queue was full.
type LimitError struct {
	Key     Key   // the key whose limit refused: the key asked for, or one of Also
	Scope   Scope // which of the key's limits
	InUse   int   // weight in use there at that moment
	Limit   int   // the limit; negative: it admits nothing
	Weight  int   // the weight asked for
	Waiters int   // those waiting at that limit

	cause refusal
}

// Error says the scope, key and numbers. It is for logs: it holds names that a client should not see.
func (e *LimitError) Error() string {
	text := "inflight: " + e.Scope.String() + " limit "
	switch {
	case e.Limit < 0:
		text += "blocks " + e.Key.String()
	case e.Weight > e.Limit:
		text += "too small for " + e.Key.String() + ": weight " + strconv.Itoa(e.Weight) + " of " + strconv.Itoa(e.Limit)
	default:
		text += "reached for " + e.Key.String() + ": " + strconv.Itoa(e.InUse) + " of " + strconv.Itoa(e.Limit) + " in use"
	}
	if e.Waiters > 0 {
		text += ", " + strconv.Itoa(e.Waiters) + " waiting"
	}
	if e.cause == refusedQueueFull {
		text += ": too many waiters"
	}
	return text
}

// Is makes the error ErrLimit, and ErrTooManyWaiters if it came from a full queue.
func (e *LimitError) Is(target error) bool {
	return target == ErrLimit || target == ErrTooManyWaiters && e.cause == refusedQueueFull
}

// A KeyError says that MiddlewareConfig.Key or TransportConfig.Key could not name the key of a request.
type KeyError struct{ Err error }

// Error gives the reason.
func (e *KeyError) Error() string { return "inflight: no key for the request: " + e.Err.Error() }

// Unwrap returns the error of the Key function.
func (e *KeyError) Unwrap() error { return e.Err }
