package inflight_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/iotest"

	"github.com/inflight-go/inflight"
	"github.com/stretchr/testify/require"
)

// FuzzJSONField compares with encoding/json, and asks that the body is whole afterwards.
func FuzzJSONField(f *testing.F) {
	for _, seed := range []string{
		`{"model":"m"}`, `{"model":"a","model":"b"}`, `{"a":{"model":"no"},"mod\u0065l":"m\ud83d\ude00"}`, `{"model":null}`,
		` { "a" : [ 1 , -0.5e+3 , true , false , null , "\"]" , {} ] , "model" : "m" } `, `[]`, ``, `{}`, `{"a":1,}`,
		`{"a":01,"model":"m"}`, `{"a":"\ud800","model":"\udc00` + "\xff" + `"}`, `{"model":"m"!`, "{\"\x00\":1}", `{"":"","model":"x"}`,
	} {
		f.Add([]byte(seed), "model", int64(0), false)
		f.Add([]byte(seed), "a", int64(12), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, name string, limit int64, slow bool) {
		var src io.Reader = bytes.NewReader(body)
		if slow {
			src = iotest.OneByteReader(src)
		}
		r := httptest.NewRequest(http.MethodPost, "/", src)
		value, err := inflight.JSONField(r, name, limit)

		again, readErr := io.ReadAll(r.Body)
		require.NoError(t, readErr)
		require.True(t, bytes.Equal(body, again), "body changed")
		if limit < 0 {
			require.Error(t, err)
			return
		}
		if limit > 0 && limit < int64(len(body)) {
			body = body[:limit]
		}
		want, found := firstField(body, name)
		require.Equal(t, found, err == nil, "%v", err)
		require.Equal(t, want, value)
	})
}

// firstField finds the first member called name in the object that body starts with, with encoding/json.
func firstField(body []byte, name string) (value string, found bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return "", false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return "", false
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return "", false
		}
		if key == name {
			err := json.Unmarshal(raw, &value)
			return value, err == nil && raw[0] == '"'
		}
	}
	return "", false
}
