package main

import (
	"cmp"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

const token = "correct horse"

// A dbSite is a gateway with a database of limits.
type dbSite struct {
	site
	log *syncBuffer
}

// openDB starts a gateway with a database of limits. What is not configured does not get in the way.
func openDB(t *testing.T, cfg config, table *inflight.LimitTable, upstream http.Handler) dbSite {
	t.Helper()
	cfg.db = cmp.Or(cfg.db, filepath.Join(t.TempDir(), "limits.db"))
	cfg.dbTTL = cmp.Or(cfg.dbTTL, time.Hour)
	cfg.adminToken = token
	log := &syncBuffer{}
	g, err := build(t.Context(), cfg, table, upstream, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	return dbSite{serving(t, g), log}
}

// admin asks the admin API about the limit of an organisation, "acme", or of a model, "acme/models/glm".
func (s site) admin(t *testing.T, method, whose, body string, header ...string) *http.Response {
	t.Helper()
	header = append([]string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}, header...)
	return s.do(t, method, adminPath+"organizations/"+whose+"/concurrent-limit", body, header...)
}

// setLimit sets a limit by the admin API.
func (s site) setLimit(t *testing.T, whose, limit string) {
	t.Helper()
	resp := s.admin(t, http.MethodPut, whose, `{"limit": `+limit+`}`)
	require.Equal(t, http.StatusOK, resp.StatusCode, text(t, resp))
}

// refuses checks that nothing more is admitted now.
func (s site) refuses(t *testing.T, body string) {
	t.Helper()
	require.Equal(t, http.StatusTooManyRequests, s.do(t, http.MethodPost, chatPath, body).StatusCode)
}

func TestAdminLimits(t *testing.T) {
	table := inflight.NewLimitTable(inflight.Limits{})
	require.NoError(t, table.Set(inflight.Key{Org: "globex"}, inflight.Limits{Key: 5, Org: inflight.Unlimited}))
	s := openDB(t, config{}, table, newModelServer(1))
	for _, step := range []struct{ method, whose, body, limit, source string }{
		{"GET", "acme", "", `"unlimited"`, "default"},
		{"GET", "acme/models/glm", "", `64`, "default"},
		{"PUT", "acme", `{"limit": 300}`, `300`, "database"},
		{"PUT", "acme/models/glm", ` { "limit" : 1000000 } `, `1000000`, "database"},
		{"PUT", "acme/models/meta-llama%2FLlama-3", `{"limit": 1}`, `1`, "database"},
		{"PUT", "acme/models/%2e%2e", `{"limit": 2}`, `2`, "database"},
		{"PUT", "acme/models/" + strings.Repeat("%20", 256), `{"limit": 3}`, `3`, "database"},
		{"PUT", strings.Repeat("a", 64), `{"limit": 4}`, `4`, "database"},
		{"GET", "acme", "", `300`, "database"},
		{"GET", "acme/models/glm", "", `1000000`, "database"},
		{"GET", "acme/models/meta-llama%2FLlama-3", "", `1`, "database"},
		{"GET", "acme/models/meta-llama%2fLlama-3", "", `1`, "database"},
		{"GET", "acme/models/%2E%2E", "", `2`, "database"},
		{"GET", "acme/models/GLM", "", `64`, "default"},
		{"GET", "Acme", "", `"unlimited"`, "default"},
		{"PUT", "acme", `{"limit": "blocked"}`, `"blocked"`, "database"},
		{"PUT", "acme/models/glm", `{"limit": "unlimited"}`, `"unlimited"`, "database"},
		{"GET", "acme", "", `"blocked"`, "database"},
		{"GET", "acme/models/glm", "", `"unlimited"`, "database"},
		{"DELETE", "acme", "", `"unlimited"`, "default"},
		{"DELETE", "acme", "", `"unlimited"`, "default"},
		{"GET", "acme", "", `"unlimited"`, "default"},
		{"GET", "acme/models/glm", "", `"unlimited"`, "database"},
		{"DELETE", "acme/models/glm", "", `64`, "default"},
		{"GET", "globex", "", `"unlimited"`, "limits_file"},
		{"GET", "globex/models/glm", "", `5`, "limits_file"},
		{"PUT", "globex/models/glm", `{"limit": 6}`, `6`, "database"},
		{"DELETE", "globex/models/glm", "", `5`, "limits_file"},
	} {
		resp := s.admin(t, step.method, step.whose, step.body)
		body := text(t, resp)
		require.Equal(t, http.StatusOK, resp.StatusCode, body)
		var model any
		org, name, ok := strings.Cut(step.whose, "/models/")
		if ok {
			model = strings.NewReplacer("%2F", "/", "%2f", "/", "%2e", ".", "%2E", ".", "%20", " ").Replace(name)
		}
		require.Equal(t, map[string]any{
			"object": "concurrent_limit", "organization": org, "model": model,
			"limit": decode(t, step.limit), "source": step.source,
		}, decode(t, body), "%s %s", step.method, step.whose)
	}
	require.Empty(t, text(t, s.admin(t, http.MethodHead, "acme", "")))
}

// What is wrong is said, with what to write, and changes nothing.
func TestAdminRefuses(t *testing.T) {
	s := openDB(t, config{}, inflight.NewLimitTable(inflight.Limits{}), newModelServer(1))
	s.setLimit(t, "acme", "7")
	const glm, write = "acme/models/glm", `: write {"limit": N}, N from 1 to 1000000, or "unlimited" or "blocked" for N`
	for _, c := range []struct {
		method, whose, body string
		status              int
		code, says          string
	}{
		{"PUT", "acme", `{"limit": 0}`, 400, "invalid_limit", "limit is 0" + write},
		{"PUT", glm, `{"limit": -1}`, 400, "invalid_limit", "limit is -1" + write},
		{"PUT", "acme", `{"limit": 1000001}`, 400, "invalid_limit", "limit is 1000001" + write},
		{"PUT", "acme", `{"limit": 9223372036854775808}`, 400, "invalid_limit", "limit is 9223372036854775808" + write},
		{"PUT", "acme", `{"limit": 1` + strings.Repeat("0", 1000) + `}`, 400, "invalid_limit", "limit is 1" + strings.Repeat("0", 39) + write},
		{"PUT", "acme", `{"limit": 64.0}`, 400, "invalid_limit", "limit is 64.0" + write},
		{"PUT", "acme", `{"limit": 1e3}`, 400, "invalid_limit", "limit is 1e3" + write},
		{"PUT", "acme", `{"limit": "64"}`, 400, "invalid_limit", `limit is "64"` + write},
		{"PUT", "acme", `{"limit": "many"}`, 400, "invalid_limit", `limit is "many"` + write},
		{"PUT", "acme", `{"limit": null}`, 400, "invalid_limit", "limit is null" + write},
		{"PUT", "acme", `{"limit": true}`, 400, "invalid_limit", "limit is true" + write},
		{"PUT", "acme", `{"limit": [64]}`, 400, "invalid_limit", "limit is [64]" + write},
		{"PUT", "acme", `{"limit": {}}`, 400, "invalid_limit", "limit is {}" + write},
		{"PUT", "acme", `{"limit": NaN}`, 400, "invalid_limit", "the body is not JSON, invalid character 'N' looking for beginning of value" + write},
		{"PUT", "acme", `{"limit": 08}`, 400, "invalid_limit", "the body is not JSON, invalid character '8' after object key:value pair" + write},
		{"PUT", "acme", ``, 400, "invalid_limit", "the body is not JSON, unexpected end of JSON input" + write},
		{"PUT", "acme", `{"limit": 64} 65`, 400, "invalid_limit", "the body is not JSON, invalid character '6' after top-level value" + write},
		{"PUT", "acme", `{}`, 400, "invalid_limit", "limit is missing" + write},
		{"PUT", "acme", `64`, 400, "invalid_limit", "the body is not an object" + write},
		{"PUT", "acme", `[{"limit": 64}]`, 400, "invalid_limit", "the body is not an object" + write},
		{"PUT", "acme", `{"limit": 64, "limit": 65}`, 400, "invalid_limit", "limit is given twice" + write},
		{"PUT", "acme", `{"Limit": 64}`, 400, "invalid_limit", `unknown field "Limit"` + write},
		{"PUT", "acme", `{"limit": 64, "model": "glm"}`, 400, "invalid_limit", `unknown field "model"` + write},
		{"PUT", "acme", `{"limit": 64` + strings.Repeat(" ", 4096) + `}`, 413, "invalid_limit", "http: request body too large"},
		{"PUT", "big%20corp", `{"limit": 64}`, 400, "invalid_name", "an organization's name is 1 to 64 letters, digits, _ and -"},
		{"PUT", "a%2Fb", `{"limit": 64}`, 400, "invalid_name", "an organization's name is 1 to 64 letters, digits, _ and -"},
		{"GET", strings.Repeat("a", 65), ``, 400, "invalid_name", "an organization's name is 1 to 64 letters, digits, _ and -"},
		{"PUT", "acme/models/" + strings.Repeat("a", 257), `{"limit": 64}`, 400, "invalid_name", "a model's name has at most 256 bytes of UTF-8 and no control characters"},
		{"PUT", "acme/models/a%00b", `{"limit": 64}`, 400, "invalid_name", "a model's name has at most 256 bytes of UTF-8 and no control characters"},
		{"DELETE", "acme/models/%ff", ``, 400, "invalid_name", "a model's name has at most 256 bytes of UTF-8 and no control characters"},
		{"GET", "acme/models/meta-llama/Llama-3", ``, 404, "unknown_url", "There is nothing at this URL. A slash in the name of a model is written as %2F, as in meta-llama%2FLlama-3."},
		{"POST", "acme", `{"limit": 64}`, 405, "method_not_allowed", "Only GET, PUT and DELETE are allowed here."},
		{"PATCH", glm, `{"limit": 64}`, 405, "method_not_allowed", "Only GET, PUT and DELETE are allowed here."},
	} {
		resp := s.admin(t, c.method, c.whose, c.body)
		body := text(t, resp)
		require.Equal(t, c.status, resp.StatusCode, "%s %s %s: %s", c.method, c.whose, c.body, body)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		require.Equal(t, c.status == http.StatusMethodNotAllowed, resp.Header.Get("Allow") == "DELETE, GET, HEAD, PUT")
		require.Equal(t, map[string]any{"error": map[string]any{
			"message": c.says, "type": "invalid_request_error", "param": nil, "code": c.code,
		}}, decode(t, body))
	}
	for _, kind := range []string{"", "application/x-www-form-urlencoded", "text/plain", "application/json, text/plain"} {
		resp := s.admin(t, http.MethodPut, "acme", `{"limit": 64}`, "Content-Type", kind)
		require.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode, kind)
		require.Contains(t, text(t, resp), "Content-Type must be application/json")
	}
	require.Equal(t, inflight.Limits{Org: 7}, s.db.Limits(acme))
	require.Equal(t, http.StatusOK, s.admin(t, http.MethodPut, "acme", `{"limit": 8}`,
		"Content-Type", "Application/JSON; charset=utf-8").StatusCode)
}

func TestAdminToken(t *testing.T) {
	on := openDB(t, config{}, inflight.NewLimitTable(inflight.Limits{}), newModelServer(1))
	for _, header := range []string{
		"", "Bearer", "Bearer ", "Bearer " + token + "x", "Bearer " + token[1:], "Bearer  " + token, token, "Basic " + token, "Bearer sk-acme-123",
	} {
		for _, path := range []string{"organizations/acme/concurrent-limit", "organizations/acme/models/glm/concurrent-limit", "", "x"} {
			resp := on.do(t, http.MethodPut, adminPath+path, `{"limit": 1}`, "Authorization", header, "Content-Type", "application/json")
			require.Equal(t, http.StatusUnauthorized, resp.StatusCode, header)
			require.Equal(t, `Bearer realm="admin"`, resp.Header.Get("WWW-Authenticate"))
			require.Contains(t, text(t, resp), `"code":"invalid_admin_token"`)
		}
	}
	require.Zero(t, on.db.Limits(acme))
	require.Equal(t, http.StatusOK, on.admin(t, http.MethodGet, "acme", "", "Authorization", "bearer "+token).StatusCode)

	for args, says := range map[string]string{
		"":                                  "",
		"-admin-token x":                    "",
		"-db " + t.TempDir() + "/limits.db": "the admin API is off, it needs -admin-token",
	} {
		p := start(t, strings.Fields(args)...)
		require.Contains(t, p.out, says)
		for _, header := range []string{"Bearer x", "Bearer ", ""} { // no token is not an empty token
			resp := p.do(t, http.MethodGet, adminPath+"organizations/acme/concurrent-limit", "", "Authorization", header)
			require.Equal(t, http.StatusForbidden, resp.StatusCode)
			require.Contains(t, text(t, resp), "The admin API is off.")
		}
		p.stop()
		require.Equal(t, 0, <-p.exit)
	}
}

func TestRaisedLimitAdmitsAtOnce(t *testing.T) {
	for whose, more := range map[string]string{"acme": "llama", "acme/models/glm": "glm", "table": "llama"} {
		table := inflight.NewLimitTable(inflight.Limits{})
		s := openDB(t, config{wait: soon}, table, newModelServer(1))
		set := func(limit int) {
			if whose == "table" {
				require.NoError(t, table.Set(inflight.Key{Org: "acme"}, inflight.Limits{Org: limit}))
				return
			}
			s.setLimit(t, whose, strconv.Itoa(limit))
		}
		set(1)
		s.stream(t, chatPath, "1000")
		answered := make(chan string)
		go func() {
			req, _ := http.NewRequest(http.MethodPost, s.url+chatPath, strings.NewReader(strings.Replace(ask(`"stream":true`), "glm", more, 1)))
			req.Header.Set("X-Api-Key", "sk-acme-123")
			resp, err := s.client.Do(req)
			if err != nil {
				answered <- err.Error()
				return
			}
			_ = resp.Body.Close()
			answered <- resp.Status
		}()
		require.Eventually(t, func() bool { return s.registry.Stats().Waiters == 1 }, soon, tick)
		set(2)
		require.Equal(t, "200 OK", <-answered)
		require.Eventually(t, func() bool { return s.registry.Stats().Holders == 1 }, soon, tick)

		// And it is in force for those who come later, with nothing to wait for.
		s.stream(t, chatPath, "1000")
		require.Equal(t, 2, s.registry.Stats().Holders)
	}
}

func TestLoweredLimitEvictsNobody(t *testing.T) {
	c := &census{rows: make(map[inflight.Key]*row)}
	s := openDB(t, config{}, inflight.NewLimitTable(inflight.Limits{}), c.counted(newModelServer(20)))
	var streams []*http.Response
	for range 64 {
		streams = append(streams, s.stream(t, chatPath, "100000"))
	}
	s.refuses(t, ask(`"stream":true`))
	s.setLimit(t, "acme/models/glm", "60")
	for _, stream := range streams { // each goes on
		_, err := io.CopyN(io.Discard, stream.Body, 2000)
		require.NoError(t, err)
	}
	for left := 64; left >= 60; left-- {
		require.Equal(t, left, c.row(acme).now)
		s.refuses(t, ask(`"stream":true`))
		require.NoError(t, streams[left-1].Body.Close())
		s.use(t, left-1)
	}
	s.stream(t, chatPath, "100000")
	s.refuses(t, ask(`"stream":true`))
	require.Equal(t, 64, c.row(acme).peak)
	require.Equal(t, 60, c.row(acme).now)
}

// While 500 streams run the database is locked, and then deleted. The limits stay those last known: nothing is admitted
// above them, and what is given back is admitted again to the last slot.
func TestDatabaseGoneWhileStreamsRun(t *testing.T) {
	const stream = `"stream":true,"max_tokens":100000`
	askLlama := strings.Replace(ask(stream), "glm", "llama", 1)
	llama := inflight.Key{Org: "acme", Model: "llama"}
	c := &census{rows: make(map[inflight.Key]*row)}
	path := filepath.Join(t.TempDir(), "limits.db")
	s := openDB(t, config{db: path, dbTTL: 1}, inflight.NewLimitTable(inflight.Limits{}), c.counted(newModelServer(0.1)))
	s.setLimit(t, "acme", "500")
	s.setLimit(t, "acme/models/glm", "200")
	s.setLimit(t, "acme/models/llama", "400")

	var streams []*http.Response
	for range 200 {
		streams = append(streams, s.stream(t, chatPath, "100000"))
	}
	for range 300 {
		resp := s.do(t, http.MethodPost, chatPath, askLlama)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		streams = append(streams, resp)
	}
	full := func() {
		t.Helper()
		s.refuses(t, ask(stream))
		s.refuses(t, askLlama)
		require.Equal(t, 200, c.row(acme).now)
		require.Equal(t, 300, c.row(llama).now)
	}
	unavailable := func(method, body string) {
		t.Helper()
		resp := s.admin(t, method, "acme/models/glm", body)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "1", resp.Header.Get("Retry-After"))
		require.Contains(t, text(t, resp), `"code":"limits_database_unavailable"`)
	}
	full()

	unlock := lock(t, path)
	unavailable(http.MethodPut, `{"limit": 500}`)
	unavailable(http.MethodDelete, "")
	require.Equal(t, http.StatusOK, s.admin(t, http.MethodGet, "acme/models/glm", "").StatusCode)
	full()
	unlock()

	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		require.NoError(t, os.Remove(file))
	}
	for _, model := range []string{"glm", "llama"} {
		require.Eventually(t, func() bool {
			full() // each look-up finds the limits too old and asks again
			return strings.Contains(s.log.String(), "fetch failed, limits stay as they were\" key=acme/"+model)
		}, soon, tick)
	}
	unavailable(http.MethodGet, "")
	unavailable(http.MethodPut, `{"limit": 500}`)
	unavailable(http.MethodDelete, "")
	full()

	for _, ended := range streams[:100] {
		require.NoError(t, ended.Body.Close())
	}
	s.use(t, 100)
	for range 100 {
		streams = append(streams, s.stream(t, chatPath, "100000"))
	}
	full()
	require.Equal(t, 500, c.row(inflight.Key{}).peak)
	require.Equal(t, 500, s.registry.Stats().Holders)
	for _, ended := range streams {
		require.NoError(t, ended.Body.Close())
	}
	require.Eventually(t, func() bool { return s.registry.Stats().Holders == 0 }, soon, tick)
	require.Zero(t, c.row(inflight.Key{}).now)
}

func TestLimitsSurviveRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	p := start(t, "-db", path, "-admin-token", token)
	require.Contains(t, p.out, "before that from "+path+", set at "+p.url+adminPath)
	p.setLimit(t, "acme", "2")
	p.setLimit(t, "acme/models/glm", "1")
	p.setLimit(t, "acme/models/gone", "1")
	require.Equal(t, http.StatusOK, p.admin(t, http.MethodDelete, "acme/models/gone", "").StatusCode)
	p.stop()
	require.Equal(t, 0, <-p.exit)

	t.Setenv(adminTokenVar, token)
	p = start(t, "-db", path, "-tokens-per-second", "1", "-drain", "0s")
	for whose, limit := range map[string]string{"acme": `"limit":2,`, "acme/models/glm": `"limit":1,`, "acme/models/gone": `"limit":64,`} {
		require.Contains(t, text(t, p.admin(t, http.MethodGet, whose, "")), limit)
	}
	p.stream(t, chatPath, "1000")
	p.refuses(t, ask(`"stream":true`))
	p.stop()
	<-p.exit
}
