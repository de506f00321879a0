package console_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

func TestText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := inflight.NewLimitTable(inflight.Limits{Key: inflight.Unlimited})
		reg := newRegistry(t, inflight.Config{Limits: table.Limits, LongHeld: time.Hour})
		h := newConsole(reg)
		require.Equal(t, strings.TrimLeft(`
inflight gateway at 2000-01-01T00:00:00Z
in use    0, recent peak 0; 0 holders of 0 keys, the oldest 0.0s
waiting   0
trouble   0 long-held, 0 lost
so far    0 admitted, 0 refused
swept     never
instance  INSTANCE

KEYS, those nearest to their limit first: 0

WAITERS, in order: 0

HOLDERS, the oldest first: 0
`, "\n"), anonymous(t, h, do(t, h, http.MethodGet, "/", "").Body.String()))

		hold(t, reg, other, inflight.Label("a \x1b[31mred\nlabel\u202e"), inflight.Weight(10), inflight.Also(globex))
		require.NoError(t, table.Set(inflight.Key{Model: "glm"}, inflight.Limits{Key: 3}))
		time.Sleep(time.Hour + time.Second)
		reg.Sweep()
		hold(t, reg, acme, inflight.Label(`<img src=x onerror=alert(1)>`), inflight.Weight(2))
		time.Sleep(75 * time.Second)
		hold(t, reg, acme, inflight.Label("POST /v1/messages"))
		wait(t, reg, acme, inflight.Label("POST /v1/chat/completions"))
		wait(t, reg, acme)
		_, err := reg.TryAcquire(acme)
		require.Error(t, err)
		time.Sleep(1234 * time.Millisecond)
		require.Equal(t, strings.TrimLeft(`
inflight gateway at 2000-01-01T01:01:17Z
in use    13, recent peak 13; 3 holders of 3 keys, the oldest 1h1m17s
waiting   2
trouble   1 long-held, 0 lost
so far    3 admitted, 1 refused (by limit: key 1)
swept     1m16s ago
instance  INSTANCE

KEYS, those nearest to their limit first: 3
   USE  IN USE      LIMIT  HOLDERS  WAITERS  KEY
  333%      10          3        1        0  globex/glm
  100%       3          3        2        2  acme/glm
     -      10  unlimited        1        0  acme/llama

WAITERS, in order: 2
  WAITS  WEIGHT  AT LIMIT OF  KEY                           LABEL
   1.2s       1          key  acme/glm                      POST /v1/chat/completions
   1.2s       1          key  acme/glm

HOLDERS, the oldest first: 3
      AGE  SLOT  WEIGHT      STATE  KEY                           LABEL
  1h1m17s     1      10  long-held  acme/llama +globex/glm        "a \x1b[31mred\nlabel\u202e"
    1m16s     2       2          -  acme/glm                      <img src=x onerror=alert(1)>
     1.2s     3       1          -  acme/glm                      POST /v1/messages
`, "\n"), anonymous(t, h, do(t, h, http.MethodGet, "/", "").Body.String()))

		narrowed := do(t, h, http.MethodGet, "/?q=glm&org=acme&model=glm&limit=1", "").Body.String()
		require.Contains(t, narrowed, "HOLDERS, the oldest first: 2 of 3 match, 1 more are not shown\n")
		require.Contains(t, narrowed, "WAITERS, in order: 2, 1 more are not shown\n")
		require.NotContains(t, narrowed, "v1/messages")
	})
}

// What is not full does not say 100 %.
func TestTextFloorsUtilisation(t *testing.T) {
	for _, c := range []struct {
		inUse, limit int
		want         string
	}{{199, 200, "99%"}, {29, 100, "29%"}, {200, 200, "100%"}} {
		reg := newRegistry(t, inflight.Config{Limits: inflight.Fixed(inflight.Limits{Key: c.limit})})
		hold(t, reg, acme, inflight.Weight(c.inUse))
		require.Regexp(t, "\n +"+c.want+" ", do(t, newConsole(reg), http.MethodGet, "/", "").Body.String())
	}
}

func TestTextOfLeasedKeys(t *testing.T) {
	table := inflight.NewLimitTable(inflight.Limits{})
	require.NoError(t, table.Set(other, inflight.Limits{Key: inflight.Unlimited}))
	reg := newRegistry(t, inflight.Config{Limits: table.Limits})
	hold(t, reg, acme, inflight.Weight(3))
	hold(t, reg, other)
	lease(t, reg, inflight.Grant{Granted: 5, Others: 7, Keep: -1})
	require.Contains(t, do(t, newConsole(reg), http.MethodGet, "/", "").Body.String(), `
  USE  IN USE      LIMIT  GRANTED  ELSEWHERE  HOLDERS  WAITERS  KEY
   4%       3         64        5          7        1        0  acme/glm
    -       1  unlimited        -          -        1        0  acme/llama
`)
}

func TestWhoGetsText(t *testing.T) {
	h := newConsole(newRegistry(t, inflight.Config{}))
	for _, c := range []struct{ target, accept, want string }{
		{"/", "", "text/plain"},
		{"/", "*/*", "text/plain"},
		{"/", "text/html,application/xhtml+xml,*/*;q=0.8", "text/html"},
		{"/?format=text", "text/html", "text/plain"},
		{"/?format=html", "*/*", "text/html"},
	} {
		header := do(t, h, http.MethodGet, c.target, "", "Accept", c.accept).Header()
		require.Equal(t, c.want+"; charset=utf-8", header.Get("Content-Type"), c)
		require.Equal(t, "Accept", header.Get("Vary"))
	}
}
