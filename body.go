package inflight

import (
	"encoding/json"
	"errors"
	"fmt"
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
// It reads in pieces as they arrive, no more of them than it takes to find the field, and at most maxBytes: 0 means
// 1 MiB, negative is an error. Then it puts back what it read: whatever it returned, r.Body gives the whole body and then
// the error that ended the reading, if one did, and Close closes the original. So JSONField can be called again.
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
	start := &bodyStart{body: r.Body, limit: maxBytes}
	defer func() { // also if reading panics
		r.Body = &rereadBody{start: start.read, err: start.err, rest: start.body}
	}()
	value, err := fieldOf(json.NewDecoder(start), name)
	var syntax *json.SyntaxError
	if start.spaced && errors.As(err, &syntax) {
		_, err = start.Read(nil) // not the space is wrong: there was nothing more to read
	}
	if err == io.EOF { //nolint:errorlint // only EOF itself is the end
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", fmt.Errorf("inflight: field %q of the body: %w", name, err)
	}
	return value, nil
}

// fieldOf returns the string that comes under name in the object that dec is to read, looking at nothing behind it.
func fieldOf(dec *json.Decoder, name string) (string, error) {
	if open, err := dec.Token(); err != nil {
		return "", err
	} else if open != json.Delim('{') {
		return "", errors.New("the body is not a JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return "", err
		}
		if key != name {
			var skipped json.RawMessage
			if err := dec.Decode(&skipped); err != nil {
				return "", err
			}
			continue
		}
		value, err := dec.Token()
		if err != nil {
			return "", err
		}
		text, ok := value.(string)
		if !ok {
			return "", errors.New("not a string")
		}
		return text, nil
	}
	if _, err := dec.Token(); err != nil { // there is no closing brace
		return "", err
	}
	return "", errors.New("not there")
}

// A bodyStart reads the first bytes of a body, up to a limit, and remembers them.
type bodyStart struct {
	body   io.ReadCloser
	limit  int64
	read   []byte
	err    error // what ended the reading: the body is not read again
	spaced bool  // see Read
}

// Read gives a space before it fails: a decoder asks for a byte behind a string before it believes that the string has
// ended, and a field that is there whole is to be found, whatever comes behind it.
func (s *bodyStart) Read(p []byte) (int, error) {
	room := s.limit - int64(len(s.read))
	switch {
	case s.err == nil && room > 0:
		n, err := s.body.Read(p[:min(int64(len(p)), room)])
		s.read, s.err = append(s.read, p[:n]...), err
		return n, nil
	case !s.spaced:
		s.spaced = true
		return copy(p, " "), nil
	case s.err != nil:
		return 0, s.err
	default:
		return 0, &http.MaxBytesError{Limit: s.limit}
	}
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
