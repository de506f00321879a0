package inflight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	minBodyRead   = 512
	maxEmptyReads = 100   // in a row; then a body that gives neither bytes nor an error counts as broken
	maxJSONDepth  = 10000 // as in encoding/json
)

// A jsonScanner passes over JSON that is still arriving. It reads only when it has used up what is there, and does not
// need the byte after a string to know that the string has ended. (A json.Decoder waits for that byte.) Nested values
// are passed over in place, in time proportional to their length and without copies.
//
// The first failure sets err, and from then on there are no more bytes: every method returns soon, so that only the
// end of the scan has to look at err.
type jsonScanner struct {
	body    io.ReadCloser
	max     int64  // len(buf) never exceeds it
	buf     []byte // all that was read
	readErr error  // what ended the reading: the body is not read again
	pos     int    // the next byte in buf
	err     error
}

// field returns the string under name in the object that is the whole document, in its quotes.
func (s *jsonScanner) field(name string) []byte {
	if s.token() != '{' {
		s.fail("the body is not a JSON object")
	}
	c := s.token()
	for more := c != '}'; more; {
		if key := s.key(c); s.err == nil && unquote(key) == name {
			if s.token() != '"' {
				s.fail("field " + strconv.Quote(name) + " of the body is not a string")
			}
			return s.text()
		}
		s.skipValue(s.token(), 1)
		c, more = s.nextIn('}')
	}
	s.fail("the body has no field " + strconv.Quote(name))
	return nil
}

// skipValue passes over the value that starts with c, inside of depth lists.
func (s *jsonScanner) skipValue(c byte, depth int) {
	switch c {
	case '{':
		s.skipList('}', depth+1)
	case '[':
		s.skipList(']', depth+1)
	case '"':
		s.text()
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.number(c)
	}
}

// skipList passes over the rest of an array or object.
func (s *jsonScanner) skipList(end byte, depth int) {
	if depth > maxJSONDepth {
		s.fail("the body is nested too deeply")
	}
	c := s.token()
	for more := c != end; more; {
		if end == '}' {
			s.key(c)
			c = s.token()
		}
		s.skipValue(c, depth)
		c, more = s.nextIn(end)
	}
}

// nextIn passes over a comma and returns the first byte of what follows, or says that the list ends here.
func (s *jsonScanner) nextIn(end byte) (c byte, more bool) {
	switch s.token() {
	case ',':
		return s.token(), true
	case end:
		return 0, false
	default:
		s.invalid()
		return 0, false
	}
}

// key returns the key that starts with c, in its quotes, and passes over the colon.
func (s *jsonScanner) key(c byte) []byte {
	if c != '"' {
		s.invalid()
	}
	key := s.text()
	if s.token() != ':' {
		s.invalid()
	}
	return key
}

// text returns the string whose first quote has been passed, in its quotes.
func (s *jsonScanner) text() []byte {
	start := s.pos - 1
	for s.more() {
		c := s.buf[s.pos]
		s.pos++
		switch {
		case c == '"':
			return s.buf[start:s.pos]
		case c == '\\':
			s.escape()
		case c < ' ':
			s.invalid()
		}
	}
	return nil
}

func (s *jsonScanner) escape() {
	switch s.take() {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		for range 4 {
			if c := s.take(); !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
				s.invalid()
			}
		}
	default:
		s.invalid()
	}
}

// literal passes over the rest of a word whose first byte has been passed.
func (s *jsonScanner) literal(word string) {
	for _, c := range []byte(word[1:]) {
		if s.take() != c {
			s.invalid()
		}
	}
}

// number passes over the number that starts with c.
func (s *jsonScanner) number(c byte) {
	if c == '-' {
		c = s.take()
	}
	if !isDigit(c) {
		s.invalid()
	}
	for c != '0' && isDigit(s.peek()) { // no digit follows a leading zero
		s.pos++
	}
	if s.peek() == '.' {
		s.pos++
		s.digits()
	}
	if s.peek()|0x20 == 'e' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		s.digits()
	}
}

func (s *jsonScanner) digits() {
	if !isDigit(s.take()) {
		s.invalid()
	}
	for isDigit(s.peek()) {
		s.pos++
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// token passes over white space and returns the byte after it.
func (s *jsonScanner) token() byte {
	for {
		switch c := s.take(); c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
}

// take passes over one byte and returns it.
func (s *jsonScanner) take() byte {
	c := s.peek()
	s.pos++
	return c
}

// peek returns the next byte, and 0, which valid JSON does not hold, after a failure.
func (s *jsonScanner) peek() byte {
	if !s.more() {
		return 0
	}
	return s.buf[s.pos]
}

// more says whether there is a next byte, and reads if it has to.
func (s *jsonScanner) more() bool {
	return s.err == nil && (s.pos < len(s.buf) || s.read())
}

// read adds at least one byte to buf, or fails.
func (s *jsonScanner) read() bool {
	for empty := 0; s.readErr == nil; empty++ {
		if int64(len(s.buf)) == s.max {
			s.err = &http.MaxBytesError{Limit: s.max}
			return false
		}
		if cap(s.buf)-len(s.buf) < minBodyRead {
			s.buf = slices.Grow(s.buf, max(minBodyRead, len(s.buf))) // at least doubled: copying stays linear
		}
		free := s.buf[len(s.buf):cap(s.buf)]
		if room := s.max - int64(len(s.buf)); int64(len(free)) > room {
			free = free[:room]
		}
		n, err := s.body.Read(free)
		s.buf, s.readErr = s.buf[:len(s.buf)+n], err
		if n > 0 {
			return true
		}
		if err == nil && empty == maxEmptyReads {
			s.readErr = io.ErrNoProgress
		}
	}
	if s.readErr == io.EOF { //nolint:errorlint // as for every reader, only EOF itself is the end
		s.err = fmt.Errorf("inflight: the body is not valid JSON: %w", io.ErrUnexpectedEOF)
	} else {
		s.err = fmt.Errorf("inflight: the body could not be read: %w", s.readErr)
	}
	return false
}

// invalid fails at the byte before pos.
func (s *jsonScanner) invalid() {
	if s.err == nil {
		s.fail("the body is not valid JSON at byte " + strconv.Itoa(s.pos))
	}
}

// fail sets the first failure.
func (s *jsonScanner) fail(why string) {
	if s.err == nil {
		s.err = errors.New("inflight: " + why)
	}
}

// unquote returns what a valid JSON string says, as encoding/json would.
func unquote(text []byte) string {
	if inner := text[1 : len(text)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner)
	}
	var said string
	_ = json.Unmarshal(text, &said) // cannot fail: text was scanned
	return said
}
