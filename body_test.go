package inflight_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/inflight-go/inflight"
	"github.com/stretchr/testify/require"
)

func TestJSONField(t *testing.T) {
	for _, c := range []struct{ name, body, want, err string }{
		{name: "only field", body: `{"model":"m"}`, want: "m"},
		{name: "empty value", body: `{"model":""}`, want: ""},
		{name: "white space", body: " \t\r\n{ \"a\" : [ ] , \"model\" :\n\"m\" }", want: "m"},
		{name: "after every kind of value", want: "m", body: `{"s":"x","o":{"a":{},"b":[{}]},"a":[1,[],"]"],"t":true,` +
			`"f":false,"n":null,"i":-0,"d":10.25e+10,"e":1E-2,"z":0,"model":"m"}`},
		{name: "first occurrence", body: `{"model":"a","model":"b"}`, want: "a"},
		{name: "first occurrence is no string", body: `{"model":1,"model":"b"}`, err: `field "model" of the body: not a string`},
		{name: "nested name in an object", body: `{"a":{"model":"no"},"model":"m"}`, want: "m"},
		{name: "nested name in an array", body: `{"a":[{"model":"no"},"model"],"model":"m"}`, want: "m"},
		{name: "name as a value", body: `{"a":"model","b":"\"model\":\"no\"","model":"m"}`, want: "m"},
		{name: "brackets in a string", body: `{"a":"}]{[\\","model":"m"}`, want: "m"},
		{name: "another case is another name", body: `{"Model":"no","model":"m"}`, want: "m"},
		{name: "name as a prefix", body: `{"model2":"no","mode":"no","model":"m"}`, want: "m"},
		{name: "escaped key", body: `{"mod\u0065l":"m"}`, want: "m"},
		{name: "escaped key, capital hex", body: `{"\u006D\u006Fdel":"m"}`, want: "m"},
		{name: "every escape", body: `{"model":"\"\\\/\b\f\n\r\t\u00e9\u00C9\ud83d\ude00"}`, want: "\"\\/\b\f\n\r\té" + "É😀"},
		{name: "lone surrogate", body: `{"model":"\ud800x"}`, want: "\uFFFDx"},
		{name: "invalid UTF-8", body: "{\"model\":\"a\xffb\"}", want: "a\uFFFDb"},
		{name: "plain UTF-8", body: `{"é":1,"model":"glm-é"}`, want: "glm-é"},
		{name: "nothing after it is looked at", body: `{"model":"m"!`, want: "m"},

		{name: "missing", body: `{"a":1}`, err: "not there"},
		{name: "missing in an empty object", body: ` { } `, err: "not there"},
		{name: "only nested", body: `{"a":{"model":"no"}}`, err: "not there"},
		{name: "null", body: `{"model":null}`, err: "not a string"},
		{name: "object", body: `{"model":{"model":"no"}}`, err: "not a string"},
		{name: "array", body: `[{"model":"no"}]`, err: "not a JSON object"},
		{name: "string", body: `"model"`, err: "not a JSON object"},
		{name: "gzip", body: "\x1f\x8b\x08\x00\x00", err: "invalid character"},
		{name: "byte order mark", body: "\ufeff{\"model\":\"no\"}", err: "invalid character"},
		{name: "empty", body: "", err: "unexpected EOF"},
		{name: "space", body: " \n", err: "unexpected EOF"},
		{name: "ends in the value", body: `{"model":"m`, err: "unexpected EOF"},
		{name: "ends in an escape", body: `{"model":"m\u00`, err: "unexpected EOF"},
		{name: "ends in a literal", body: `{"a":tru`, err: "unexpected EOF"},
		{name: "ends in a number", body: `{"a":12`, err: "unexpected EOF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkField(t, c.body, c.want, c.err)
		})
	}
}

func TestJSONFieldRefusesInvalidJSON(t *testing.T) {
	for _, body := range []string{
		`{,"model":"no"}`, `{"a":1,,"model":"no"}`, `{"a":1 "model":"no"}`, `{"a" 1,"model":"no"}`, `{"a":1;"model":"no"}`,
		`{"a":,"model":"no"}`, `{a:1,"model":"no"}`, `{1:1,"model":"no"}`, `{"a":1,}`, `{"model" "no"}`, `{"a":1]`,
		`{"a":tru,"model":"no"}`, `{"a":fals!,"model":"no"}`, `{"a":nul,"model":"no"}`, `{"a":True,"model":"no"}`,
		`{"a":01,"model":"no"}`, `{"a":-,"model":"no"}`, `{"a":+1,"model":"no"}`, `{"a":.5,"model":"no"}`,
		`{"a":1.,"model":"no"}`, `{"a":1e,"model":"no"}`, `{"a":1e+,"model":"no"}`, `{"a":0x1,"model":"no"}`,
		`{"a":[1,],"model":"no"}`, `{"a":[,1],"model":"no"}`, `{"a":[1 2],"model":"no"}`, `{"a":[1},"model":"no"}`,
		`{"a":{"b"},"model":"no"}`, `{"a":{"b":1,},"model":"no"}`, `{"a":{"b":1],"model":"no"}`, `{"a":{1:1},"model":"no"}`,
		`{"a":"\x","model":"no"}`, `{"a":"\u12g4","model":"no"}`, `{"a":"\u123","model":"no"}`, `{"\u00/0":1,"model":"no"}`,
		"{\"a\":\"\n\",\"model\":\"no\"}", "{\"a\":\"\x00\",\"model\":\"no\"}", "{\"a\":\"\\u\x10\x10\x10\x10\",\"model\":\"no\"}",
		"{\"model\":\"\t\"}", "{\x00\"model\":\"no\"}", "{\v\"model\":\"no\"}",
	} {
		t.Run(body, func(t *testing.T) {
			require.False(t, json.Valid([]byte(body)))
			checkField(t, body, "", `inflight: field "model" of the body: `)
		})
	}
}

// checkField asks for the field "model" of body however the bytes arrive, and that the body is whole afterwards.
func checkField(t *testing.T, body, want, wantErr string) {
	t.Helper()
	for name, arriving := range map[string]func(io.Reader) io.Reader{
		"at once":          func(r io.Reader) io.Reader { return r },
		"byte by byte":     iotest.OneByteReader,
		"EOF with data":    iotest.DataErrReader,
		"byte by byte EOF": func(r io.Reader) io.Reader { return iotest.DataErrReader(iotest.OneByteReader(r)) },
	} {
		r := httptest.NewRequest(http.MethodPost, "/", arriving(strings.NewReader(body)))
		r.ContentLength = int64(len(body)) + 7 // whatever it says
		value, err := inflight.JSONField(r, "model", 0)
		require.Equal(t, want, value, name)
		if wantErr == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, wantErr, name)
			require.Regexp(t, "^inflight: ", err.Error(), name)
		}
		require.Equal(t, int64(len(body))+7, r.ContentLength, name)
		require.Equal(t, body, readAll(t, r), name)
	}
}

func readAll(t *testing.T, r *http.Request) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(body)
}

// A body that is still being written is not waited for behind the value.
func TestJSONFieldWaitsForNothingBehindTheValue(t *testing.T) {
	const start, rest = `{"messages":[{"content":"model"}],"model":"m",`, `"stream":true}`
	synctest.Test(t, func(t *testing.T) {
		body, client := io.Pipe()
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(client, start)
			sent <- err
		}()
		r := httptest.NewRequest(http.MethodPost, "/", body)
		model, err := inflight.JSONField(r, "model", 0) // a read too many would be a deadlock here
		require.NoError(t, err)
		require.Equal(t, "m", model)
		require.NoError(t, <-sent)

		go func() {
			_, err := io.WriteString(client, rest)
			sent <- errors.Join(err, client.Close())
		}()
		require.Equal(t, start+rest, readAll(t, r))
		require.NoError(t, <-sent)
	})
}

// Bad input is refused when it is seen, not when the rest has arrived.
func TestJSONFieldRefusesAtOnce(t *testing.T) {
	for _, start := range []string{`[`, `{"a":x`, `{"a":[[}`, `{}`, `{"a":"\x`} {
		synctest.Test(t, func(t *testing.T) {
			body, client := io.Pipe()
			defer func() { require.NoError(t, body.Close()) }()
			go func() { _, _ = io.WriteString(client, start) }()
			_, err := inflight.JSONField(httptest.NewRequest(http.MethodPost, "/", body), "model", 0)
			require.Error(t, err, start)
		})
	}
}

func TestJSONFieldBound(t *testing.T) {
	const body = `{"a":[1,2,3],"model":"m","b":0}`
	needed := int64(strings.Index(body, `,"b"`))

	t.Run("exactly enough", func(t *testing.T) {
		src := &countingBody{Reader: strings.NewReader(body)}
		r := httptest.NewRequest(http.MethodPost, "/", src)
		model, err := inflight.JSONField(r, "model", needed)
		require.NoError(t, err)
		require.Equal(t, "m", model)
		require.Equal(t, needed, src.bytes)
		require.Equal(t, body, readAll(t, r))
	})
	t.Run("one too few", func(t *testing.T) {
		src := &countingBody{Reader: strings.NewReader(body)}
		r := httptest.NewRequest(http.MethodPost, "/", src)
		_, err := inflight.JSONField(r, "model", needed-1)
		var tooLarge *http.MaxBytesError
		require.ErrorAs(t, err, &tooLarge)
		require.Equal(t, needed-1, tooLarge.Limit)
		require.Equal(t, needed-1, src.bytes)
		require.Equal(t, http.StatusRequestEntityTooLarge, inflight.StatusOf(&inflight.KeyError{Err: err}))
		require.Equal(t, body, readAll(t, r))
	})
	t.Run("whole body without the field", func(t *testing.T) {
		_, err := inflight.JSONField(httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{}`)), "model", 2)
		require.ErrorContains(t, err, "not there") // the bound was enough to know
	})
	t.Run("negative", func(t *testing.T) {
		src := &countingBody{Reader: strings.NewReader(body)}
		r := httptest.NewRequest(http.MethodPost, "/", src)
		_, err := inflight.JSONField(r, "model", -1)
		require.ErrorContains(t, err, "inflight: negative")
		require.Zero(t, src.reads)
		require.Equal(t, body, readAll(t, r))
	})
	for name, c := range map[string]struct{ size, limit int64 }{
		"0 is 1 MiB": {size: 1 << 20, limit: 0}, "larger": {size: 3<<20 + 5, limit: 3<<20 + 5},
	} {
		t.Run(name, func(t *testing.T) {
			end := `","model":"m"`
			fits := `{"a":"` + strings.Repeat("x", int(c.size)-len(`{"a":"`+end)) + end
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(fits))
			model, err := inflight.JSONField(r, "model", c.limit)
			require.NoError(t, err)
			require.Equal(t, "m", model)

			src := &countingBody{Reader: strings.NewReader(" " + fits)}
			r = httptest.NewRequest(http.MethodPost, "/", src)
			_, err = inflight.JSONField(r, "model", c.limit)
			var tooLarge *http.MaxBytesError
			require.ErrorAs(t, err, &tooLarge)
			require.Equal(t, c.size, tooLarge.Limit)
			require.Equal(t, c.size, src.bytes)
			require.True(t, " "+fits == readAll(t, r))
		})
	}
}

func TestJSONFieldPassesReadErrorsOn(t *testing.T) {
	broken := errors.New("connection reset")
	for name, src := range map[string]io.Reader{
		"after the data":    io.MultiReader(strings.NewReader(`{"a":"b`), iotest.ErrReader(broken)),
		"with the data":     &lastWords{data: `{"a":"b`, err: broken},
		"outer limit":       http.MaxBytesReader(nil, io.NopCloser(strings.NewReader(`{"a":"bc"}`)), 7),
		"EOF in disguise":   &lastWords{data: `{"a":"b`, err: errors.Join(broken, io.EOF)},
		"broken from start": iotest.ErrReader(broken),
	} {
		t.Run(name, func(t *testing.T) {
			body := &countingBody{Reader: src}
			r := httptest.NewRequest(http.MethodPost, "/", body)
			_, err := inflight.JSONField(r, "model", 0)
			require.ErrorContains(t, err, `inflight: field "model" of the body: `)
			if name == "outer limit" {
				var tooLarge *http.MaxBytesError
				require.ErrorAs(t, err, &tooLarge)
			} else {
				require.ErrorIs(t, err, broken)
			}

			// The handler meets the same error at the same place, and the broken body is left alone.
			reads := body.reads
			seen, again := io.ReadAll(r.Body)
			require.ErrorIs(t, err, again)
			require.Equal(t, body.bytes, int64(len(seen)))
			_, _ = r.Body.Read(make([]byte, 1))
			require.Equal(t, reads, body.reads)
		})
	}
}

// The error that comes with the last bytes of the value is the handler's, not ours.
func TestJSONFieldKeepsAnErrorBehindTheValue(t *testing.T) {
	broken := errors.New("connection reset")
	body := &countingBody{Reader: &lastWords{data: `{"model":"m"`, err: broken}}
	r := httptest.NewRequest(http.MethodPost, "/", body)
	for range 2 { // the second call meets what the first one put back
		model, err := inflight.JSONField(r, "model", 0)
		require.NoError(t, err)
		require.Equal(t, "m", model)
	}
	_, err := inflight.JSONField(r, "other", 0)
	require.ErrorIs(t, err, broken)
	seen, err := io.ReadAll(r.Body)
	require.Equal(t, broken, err)
	require.Equal(t, `{"model":"m"`, string(seen))
	require.Equal(t, 1, body.reads)
}

func TestJSONFieldTwice(t *testing.T) {
	body := `{"user":"u","pad":"` + strings.Repeat("x", 5000) + `","model":"m","rest":[]}`
	src := &countingBody{Reader: strings.NewReader(body)}
	r := httptest.NewRequest(http.MethodPost, "/", src)
	for _, name := range []string{"user", "model", "user"} {
		value, err := inflight.JSONField(r, name, 0)
		require.NoError(t, err)
		require.Equal(t, name[:1], value)
	}
	_, err := inflight.JSONField(r, "none", 0)
	require.ErrorContains(t, err, "not there")
	require.Equal(t, body, readAll(t, r))
	require.NoError(t, r.Body.Close())
	require.Equal(t, 1, src.closes)
}

func TestJSONFieldClosesTheOriginal(t *testing.T) {
	broken := errors.New("close failed")
	src := &countingBody{Reader: strings.NewReader(`{"model":"m"}`), closeErr: broken}
	r := httptest.NewRequest(http.MethodPost, "/", src)
	_, err := inflight.JSONField(r, "model", 0)
	require.NoError(t, err)
	require.Zero(t, src.closes)
	require.ErrorIs(t, r.Body.Close(), broken)
	require.Equal(t, 1, src.closes)
}

func TestJSONFieldWithoutBody(t *testing.T) {
	for _, body := range []io.ReadCloser{nil, http.NoBody} {
		r := &http.Request{Body: body}
		_, err := inflight.JSONField(r, "model", 0)
		require.ErrorContains(t, err, "inflight: the request has no body")
		require.Equal(t, body, r.Body)
	}
}

func TestJSONFieldNesting(t *testing.T) {
	const deepest = 10001 // with the object around it; the most that encoding/json takes inside
	nested := func(open, end string, depth int) string {
		return `{"a":` + strings.Repeat(open, depth-1) + "1" + strings.Repeat(end, depth-1) + `,"model":"m"}`
	}
	for _, kind := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
		body := nested(kind[0], kind[1], deepest)
		checkField(t, body, "m", "")

		body = nested(kind[0], kind[1], deepest+1)
		checkField(t, body, "", "exceeded max depth")

		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"a":`+strings.Repeat(kind[0], 1<<18)))
		_, err := inflight.JSONField(r, "model", 0)
		require.ErrorContains(t, err, "exceeded max depth")
	}
}

// A long prompt ahead of the field costs the memory to keep it for the handler, and nothing for each of its parts.
func TestJSONFieldAllocations(t *testing.T) {
	for name, part := range map[string]string{
		"numbers": `1.5e3,`, "strings": `"a\n",`, "objects": `{"model":[true,null,{}]},`,
	} {
		body := `{"messages":[` + strings.Repeat(part, 200_000/len(part)) + `0],"model":"m"}`
		src := strings.NewReader(body)
		r := &http.Request{}
		allocs := testing.AllocsPerRun(10, func() {
			src.Reset(body)
			r.Body = io.NopCloser(src)
			if _, err := inflight.JSONField(r, "model", 0); err != nil {
				panic(err)
			}
		})
		require.Less(t, allocs, 100.0, name) // buffers double about ten times
	}
}

func TestJSONFieldPutsBackWhenTheBodyPanics(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(`{"a":1`), panickingReader{}))
	require.PanicsWithValue(t, "from Read", func() { _, _ = inflight.JSONField(r, "model", 0) })
	start := make([]byte, 6)
	_, err := io.ReadFull(r.Body, start)
	require.NoError(t, err)
	require.Equal(t, `{"a":1`, string(start))
}

// A request that goes on for long does not keep the start of its body in memory.
func TestJSONFieldLetsGoOfWhatIsReadAgain(t *testing.T) {
	const size = 8 << 20
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	start, rest := io.LimitReader(spaces{}, size), strings.NewReader(`{"model":"m"}`)
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(start, rest))
	_, err := inflight.JSONField(r, "model", 2*size)
	require.NoError(t, err)
	require.Greater(t, inUse()-before, int64(size)/2)
	_, err = io.Copy(io.Discard, r.Body)
	require.NoError(t, err)
	require.Less(t, inUse()-before, int64(size)/2)
	runtime.KeepAlive(r)
}

// The body behind a real server: chunked, in more pieces than one, read to its end by the handler.
func TestJSONFieldOverHTTP(t *testing.T) {
	body := `{"messages":["` + strings.Repeat("é", 40_000) + `"],"model":"m","rest":"` + strings.Repeat("y", 40_000) + `"}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		model, err := inflight.JSONField(r, "model", 0)
		if err != nil || model != "m" {
			http.Error(w, "wrong model", http.StatusBadRequest)
			return
		}
		seen, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		_, _ = w.Write(seen)
	}))
	defer srv.Close()
	for _, src := range []io.Reader{strings.NewReader(body), io.MultiReader(strings.NewReader(body))} { // known length, chunked
		resp, err := srv.Client().Post(srv.URL, "application/json", src)
		require.NoError(t, err)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.True(t, bytes.Equal([]byte(body), got))
	}
}

// A countingBody counts what is done with it.
type countingBody struct {
	io.Reader
	reads, closes int
	bytes         int64
	closeErr      error
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.reads++
	b.bytes += int64(n)
	return n, err
}

func (b *countingBody) Close() error {
	b.closes++
	return b.closeErr
}

// lastWords gives its data together with its error, and more data afterwards, which nobody should see.
type lastWords struct {
	data string
	err  error
}

func (l *lastWords) Read(p []byte) (int, error) {
	n := copy(p, l.data)
	l.data = "resurrected"
	return n, l.err
}

// spaces is white space without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("from Read") }
