package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A soakClient does one thing after another, each at random.
type soakClient struct {
	*soak

	rng *rand.Rand
}

var soakManners = []struct {
	name string
	do   func(*soakClient, soakPlan)
}{
	{"stays", func(c *soakClient, p soakPlan) { c.ask(p, -1) }},
	{"leaves before the head", func(c *soakClient, p soakPlan) {
		p.Late = time.Duration(c.rng.IntN(500)) * time.Millisecond
		c.askFor(p, time.Duration(c.rng.IntN(60))*time.Millisecond)
	}},
	{"leaves in the stream", func(c *soakClient, p soakPlan) { c.ask(p, c.rng.IntN(p.Events*p.Size)) }},
	{"never reads", func(c *soakClient, p soakPlan) {
		p.Events, p.Size, p.Pause = 1000, 64<<10, 0
		c.write(p, 1)
	}},
	{"sends a half", func(c *soakClient, p soakPlan) { c.write(p, c.rng.Float64()) }},
	{"is cut off", func(c *soakClient, p soakPlan) { p.Cut = true; c.ask(p, -1) }},
	{"asks in vain", (*soakClient).askInVain},
}

// act does one thing. Most clients stay.
func (c *soakClient) act() {
	manner := soakManners[max(0, c.rng.IntN(len(soakManners)+4)-4)]
	c.note(manner.name)
	p := soakPlan{
		ID: c.rng.Uint64(), Org: []string{"acme", "umbra", "zebra"}[c.rng.IntN(3)],
		Late: time.Duration(c.rng.IntN(20)) * time.Millisecond, Events: 1 + c.rng.IntN(60),
		Pause: time.Duration(c.rng.IntN(10)) * time.Millisecond, Size: 1 + c.rng.IntN(2000),
	}
	if c.rng.IntN(50) == 0 {
		p.Events *= 10
	}
	manner.do(c, p)
}

// ask makes a request and reads n bytes of the answer, all if n is negative.
func (c *soakClient) ask(p soakPlan, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*soon)
	defer cancel()
	c.send(ctx, p, n)
}

// askFor makes a request and leaves after a while.
func (c *soakClient) askFor(p soakPlan, d time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(d, func() {
		c.model.leaves(p.ID)
		cancel()
	})
	defer timer.Stop()
	defer cancel()
	c.send(ctx, p, -1)
}

func (c *soakClient) send(ctx context.Context, p soakPlan, n int) {
	c.model.expect(p.ID)
	defer c.model.ended(p.ID)
	resp, err := c.client.Do(c.request(ctx, p))
	if err != nil {
		c.broken(ctx, p, err)
		return
	}
	defer func() {
		c.model.leaves(p.ID)
		_ = resp.Body.Close()
	}()
	if resp.StatusCode != http.StatusOK {
		c.refused(p, resp)
		return
	}
	if n >= 0 {
		_, _ = io.CopyN(io.Discard, resp.Body, int64(n))
		return
	}
	body, err := io.ReadAll(resp.Body)
	switch whole := len(body) == p.Events*(p.Size+len("data: \n\n"))+len(soakDone); {
	case err != nil:
		c.broken(ctx, p, err)
	case !whole || p.Cut:
		c.model.fault(fmt.Sprintf("%d bytes look complete to %+v", len(body), p))
	default:
		c.note("whole")
	}
}

// broken judges an error. There is none without a reason.
func (c *soakClient) broken(ctx context.Context, p soakPlan, err error) {
	switch {
	case p.Cut:
		c.note("cut")
	case c.model.struck(p.ID):
		c.note("ended by the operator")
	case errors.Is(ctx.Err(), context.Canceled):
		c.note("left")
	default:
		c.model.fault(fmt.Sprintf("%v: %+v", err, p))
	}
}

// refused judges an answer that is none. Whoever is refused waits a little: who would come again at once would be most of
// the load.
func (c *soakClient) refused(p soakPlan, resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	c.note(resp.Status[:3])
	switch {
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		time.Sleep(time.Duration(10+c.rng.IntN(40)) * time.Millisecond)
	case resp.StatusCode == http.StatusBadGateway && c.model.struck(p.ID):
	default:
		c.model.fault("unexpected: " + resp.Status)
	}
}

func (c *soakClient) request(ctx context.Context, p soakPlan) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.gateway.url+"/v1/chat/completions", bytes.NewReader(c.body(p)))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Authorization", "Bearer sk-"+p.Org+"-123")
	req.Header.Set("X-Request-Id", strconv.FormatUint(p.ID, 10))
	return req
}

func (c *soakClient) body(p soakPlan) []byte {
	body, err := json.Marshal(map[string]any{
		"model": []string{"glm", "llama"}[c.rng.IntN(2)], "stream": true, "messages": []string{strings.Repeat("m", c.rng.IntN(5000))},
		"soak": p,
	})
	if err != nil {
		panic(err)
	}
	return body
}

// write sends a part of a request by hand, all of it if part is 1, waits a little without reading, and leaves.
func (c *soakClient) write(p soakPlan, part float64) {
	conn, err := new(net.Dialer).Dial("tcp", strings.TrimPrefix(c.gateway.url, "http://"))
	if err != nil {
		c.model.fault(err.Error())
		return
	}
	c.model.expect(p.ID)
	body := c.body(p)
	text := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: e2e\r\nAuthorization: Bearer sk-%s-123\r\n"+
		"X-Request-Id: %d\r\nContent-Length: %d\r\n\r\n%s", p.Org, p.ID, len(body), body)
	_, _ = io.WriteString(conn, text[:int(part*float64(len(text)))]) // a refusal may have closed it
	time.Sleep(time.Duration(c.rng.IntN(300)) * time.Millisecond)
	c.model.leaves(p.ID)
	leave(conn, c.rng.IntN(2) == 0)
	c.model.ended(p.ID)
}

// askInVain makes a request that never gets as far as a slot, and one that must be answered however full it is.
func (c *soakClient) askInVain(p soakPlan) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*soon)
	defer cancel()
	for _, v := range []struct {
		status int
		spoil  func(*http.Request)
	}{
		{http.StatusOK, func(r *http.Request) { r.Method, r.URL.Path = http.MethodGet, "/healthz" }},
		{http.StatusUnauthorized, func(r *http.Request) { r.Header.Set("Authorization", "Bearer nobody") }},
		{http.StatusNotFound, func(r *http.Request) { r.URL.Path = "/v2" }},
		{http.StatusMethodNotAllowed, func(r *http.Request) { r.Method = http.MethodPut }},
		{http.StatusBadRequest, func(r *http.Request) { r.Body, r.ContentLength, r.GetBody = http.NoBody, 0, nil }},
	} {
		req := c.request(ctx, p)
		v.spoil(req)
		resp, err := c.client.Do(req)
		if err != nil {
			c.model.fault(err.Error())
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != v.status {
			c.model.fault(fmt.Sprintf("%s %s: %s, not %d", req.Method, req.URL.Path, resp.Status, v.status))
		}
	}
}

// operate ends a request by way of the console.
func (s *soak) operate(t *testing.T, rng *rand.Rand) {
	t.Helper()
	const console = "/debug/inflight/api/slots"
	var slots struct{ Items []struct{ ID, Label string } }
	require.NoError(t, json.Unmarshal([]byte(s.look(t, console)), &slots))
	if len(slots.Items) == 0 {
		return
	}
	slot := slots.Items[rng.IntN(len(slots.Items))]
	request, _, _ := strings.Cut(slot.Label, " ")
	id, err := strconv.ParseUint(request, 10, 64)
	require.NoError(t, err, slot.Label)
	s.model.strike(id)
	action := "/cancel"
	if rng.IntN(4) == 0 {
		action = "/evict?confirm=" + slot.ID
	}
	resp, err := s.client.Post(s.gateway.url+console+"/"+slot.ID+action, "", http.NoBody)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	require.Contains(t, []int{http.StatusNoContent, http.StatusNotFound}, resp.StatusCode) // it may be gone
	s.note("operator " + resp.Status[:3])
}
