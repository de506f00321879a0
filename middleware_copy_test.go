package inflight_test

import (
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// upload is a multipart body with a field and a file of 1 MiB.
func upload(t *testing.T) (body *bytes.Buffer, contentType string) {
	t.Helper()
	body = &bytes.Buffer{}
	form := multipart.NewWriter(body)
	require.NoError(t, form.WriteField("name", "value"))
	file, err := form.CreateFormFile("file", "big")
	require.NoError(t, err)
	_, err = file.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	return body, form.FormDataContentType()
}

func TestS24UploadedFilesAreRemoved(t *testing.T) {
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic(http.ErrAbortHandler) }} {
		t.Run(name, func(t *testing.T) {
			for _, protocol := range protocols {
				t.Run(protocol, func(t *testing.T) {
					dir := t.TempDir()
					t.Setenv("TMPDIR", dir)
					w := newWeb(t, 1)
					files := make(chan int, 1)
					s := newSite(t, protocol, w.behind(func(_ http.ResponseWriter, r *http.Request) {
						_ = r.ParseMultipartForm(1)
						entries, _ := os.ReadDir(dir)
						files <- len(entries)
						end()
					}))
					body, contentType := upload(t)
					res, err := s.client.Post(s.URL, contentType, body)
					if err == nil {
						require.NoError(t, res.Body.Close())
					}
					require.Equal(t, 1, receive(t, files))
					if protocol == "h1" || protocol == "tls" {
						if name == "panics" {
							return // net/http itself then leaves the file
						}
					}
					eventually(t, func() bool {
						entries, err := os.ReadDir(dir)
						return err == nil && len(entries) == 0
					})
				})
			}
		})
	}
}

func TestS24CopiedBack(t *testing.T) {
	w := newWeb(t, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/{id}", func(_ http.ResponseWriter, r *http.Request) { _ = r.ParseMultipartForm(1 << 30) })
	mux.HandleFunc("POST /panic/{id}", func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseMultipartForm(1 << 30)
		panic(errPanic)
	})
	h := w.behind(mux.ServeHTTP)
	for path, pattern := range map[string]string{"/v1/7": "POST /v1/{id}", "/panic/7": "POST /panic/{id}"} {
		t.Run(path, func(t *testing.T) {
			body, contentType := upload(t)
			r := httptest.NewRequest(http.MethodPost, path+"?q=1", body)
			r.Header.Set("Content-Type", contentType)
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			require.Equal(t, pattern, r.Pattern)
			require.NotNil(t, r.MultipartForm)
			require.Equal(t, "1", r.Form.Get("q"))
			require.Equal(t, "value", r.PostForm.Get("name"))
			require.Nil(t, inflight.FromContext(r.Context()), "the context is not copied back")
		})
	}
}

// unsafeToCompare is a body of a type that cannot be compared.
type unsafeToCompare struct {
	io.Reader

	_ []byte
}

func (unsafeToCompare) Close() error { return nil }

func TestS24BodyPutBack(t *testing.T) {
	w := newWeb(t, 1)
	key := func(r *http.Request) (inflight.Key, error) {
		model, err := inflight.JSONField(r, "model", 0)
		return inflight.Key{Org: "acme", Model: model}, err
	}
	var seen string
	h := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{Key: key})(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			seen = string(text)
		}))
	const text = `{"model":"glm","prompt":"hello"}`
	original := &countedBody{Reader: strings.NewReader(text)}
	r := httptest.NewRequest(http.MethodPost, "/", original)
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, text, seen)
	require.Same(t, original, r.Body)

	r = httptest.NewRequest(http.MethodPost, "/", unsafeToCompare{Reader: strings.NewReader(text)})
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, text, seen)
	require.IsType(t, unsafeToCompare{}, r.Body)
	w.behind(func(http.ResponseWriter, *http.Request) {}).ServeHTTP(httptest.NewRecorder(), r)
	require.IsType(t, unsafeToCompare{}, r.Body)

	held, err := w.TryAcquire(webKey)
	require.NoError(t, err)
	defer held.Release()
	original = &countedBody{Reader: strings.NewReader(text)}
	r = httptest.NewRequest(http.MethodPost, "/", original)
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Same(t, original, r.Body, "refused")
}

// A body that a handler closes unread, and that is too long for net/http to read the rest, must not be taken for the
// next request. net/http tells by the body that it finds in its request.
func TestS24UnreadBodyIsNoRequest(t *testing.T) {
	w := newWeb(t, 1)
	key := func(r *http.Request) (inflight.Key, error) {
		model, err := inflight.JSONField(r, "model", 0)
		return inflight.Key{Org: "acme", Model: model}, err
	}
	requests := make(chan string, 10)
	h := inflight.Middleware(w.Registry, inflight.MiddlewareConfig{Key: key})(http.HandlerFunc(
		func(_ http.ResponseWriter, r *http.Request) { _ = r.Body.Close() }))
	s := newSite(t, "h1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path
		h.ServeHTTP(w, r)
	}))
	p := dialSite(t, s)
	const evil = "GET /evil HTTP/1.1\r\nHost: x\r\n\r\n"
	body := `{"model":"glm","prompt":"` + strings.Repeat(evil, 1<<20/len(evil)) + `"}`
	sent := make(chan bool)
	go func() {
		defer close(sent)
		_, _ = io.WriteString(p, "POST /good HTTP/1.1\r\nHost: x\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
	}()
	require.Equal(t, http.StatusOK, p.response().StatusCode)
	_, err := io.Copy(io.Discard, p.in)
	_ = err // reset or closed
	<-sent
	require.Equal(t, "/good", receive(t, requests))
	s.Close()
	require.Empty(t, requests)
}
