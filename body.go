package inflight

import (
	"errors"
	"io"
	"net/http"
	"strconv"
)

const defaultMaxBody = 1 << 20

// JSONField returns a string field of the JSON object in the body of r, for a MiddlewareConfig.Key that needs one. It
// looks at the top level only, for exactly this name. The first occurrence decides and nothing after its value is
// looked at, so a parser of the whole body may find another value: handlers should use the slot's Key, not parse the
// field again.
//
// It waits for no byte after the value, and reads at most maxBytes: 0 means 1 MiB, negative is an error. Then it puts
// back what it read: whatever it returned, r.Body gives the whole body and then the error that ended the reading, if
// one did, and Close closes the original. So JSONField can be called again.
//
// A field that is missing or not a string is an error, and so is a body that is no JSON object, or no valid JSON up to
// there. A field not found within maxBytes is an *http.MaxBytesError; an error of reading the body is in the chain.
//
// It replaces r.Body, so nobody else may use r meanwhile.
func JSONField(r *http.Request, name string, maxBytes int64) (string, error) {
	if maxBytes < 0 {
		return "", errors.New("inflight: negative bound for a body: " + strconv.FormatInt(maxBytes, 10))
	}
	if maxBytes == 0 {
		maxBytes = defaultMaxBody
	}
	if r.Body == nil || r.Body == http.NoBody {
		return "", errors.New("inflight: the request has no body")
	}
	s := &jsonScanner{body: r.Body, max: maxBytes}
	defer func() { // also if reading panics
		r.Body = &rereadBody{start: s.buf, err: s.readErr, rest: s.body}
	}()
	value := s.field(name)
	if s.err != nil {
		return "", s.err
	}
	return unquote(value), nil
}

// A rereadBody is a body of which the start has been read before.
type rereadBody struct {
	start []byte
	err   error // what ended the reading: rest is not read again
	rest  io.ReadCloser
}

func (b *rereadBody) Read(p []byte) (int, error) {
	if len(b.start) > 0 {
		n := copy(p, b.start)
		if b.start = b.start[n:]; len(b.start) == 0 {
			b.start = nil // a long request need not keep its start in memory
		}
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.rest.Read(p)
}

func (b *rereadBody) Close() error { return b.rest.Close() }
