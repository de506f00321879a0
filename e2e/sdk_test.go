package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicopt "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaiopt "github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
)

// A question is put to the gateway by an official SDK.
type question struct {
	url, org string
	tokens   int64
	retries  int
}

// An sdk is the part of an official SDK that both have, each in its own words.
type sdk struct {
	ask    func(ctx context.Context, c *http.Client, q question) (string, error)
	stream func(ctx context.Context, c *http.Client, q question) stream
	reason func(err error) (reason, bool) // of the SDK's own typed error

	full, overloaded, denied reason // how the limit of a key, the total, and a bad API key arrive
}

// A stream gives the pieces of an answer.
type stream struct {
	next  func() (piece string, ok bool)
	err   func() error
	close func() error
}

// A reason is what a typed error says.
type reason struct {
	status     int
	kind, code string
	retryAfter string
}

var sdks = map[string]sdk{
	"openai": {
		ask: func(ctx context.Context, c *http.Client, q question) (string, error) {
			client := openaiFor(c, q)
			answer, err := client.Chat.Completions.New(ctx, openaiParams(q))
			if err != nil {
				return "", err
			}
			return answer.Choices[0].Message.Content, nil
		},
		stream: func(ctx context.Context, c *http.Client, q question) stream {
			client := openaiFor(c, q)
			s := client.Chat.Completions.NewStreaming(ctx, openaiParams(q))
			return stream{func() (string, bool) {
				for s.Next() {
					if choices := s.Current().Choices; len(choices) > 0 && choices[0].Delta.Content != "" {
						return choices[0].Delta.Content, true
					}
				}
				return "", false
			}, s.Err, s.Close}
		},
		reason: func(err error) (reason, bool) {
			var e *openai.Error
			if !errors.As(err, &e) {
				return reason{}, false
			}
			return reason{e.StatusCode, e.Type, e.Code, e.Response.Header.Get("Retry-After")}, true
		},
		full:       reason{429, "rate_limit_error", "rate_limit_exceeded", "1"},
		overloaded: reason{503, "service_unavailable_error", "server_is_overloaded", "1"},
		denied:     reason{401, "invalid_request_error", "invalid_api_key", ""},
	},
	"anthropic": {
		ask: func(ctx context.Context, c *http.Client, q question) (string, error) {
			client := anthropicFor(c, q)
			answer, err := client.Messages.New(ctx, anthropicParams(q))
			if err != nil {
				return "", err
			}
			return answer.Content[0].Text, nil
		},
		stream: func(ctx context.Context, c *http.Client, q question) stream {
			client := anthropicFor(c, q)
			s := client.Messages.NewStreaming(ctx, anthropicParams(q))
			return stream{func() (string, bool) {
				for s.Next() {
					if event, ok := s.Current().AsAny().(anthropic.ContentBlockDeltaEvent); ok {
						return event.Delta.Text, true
					}
				}
				return "", false
			}, s.Err, s.Close}
		},
		reason: func(err error) (reason, bool) {
			var e *anthropic.Error
			if !errors.As(err, &e) {
				return reason{}, false
			}
			return reason{e.StatusCode, string(e.Type()), "", e.Response.Header.Get("Retry-After")}, true
		},
		full:       reason{429, string(anthropic.ErrorTypeRateLimitError), "", "1"},
		overloaded: reason{503, string(anthropic.ErrorTypeOverloadedError), "", "1"},
		denied:     reason{401, string(anthropic.ErrorTypeAuthenticationError), "", ""},
	},
}

func openaiFor(c *http.Client, q question) openai.Client {
	return openai.NewClient(openaiopt.WithBaseURL(q.url+"/v1"), openaiopt.WithAPIKey("sk-"+q.org+"-123"),
		openaiopt.WithMaxRetries(q.retries), openaiopt.WithHTTPClient(c))
}

func openaiParams(q question) openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: "glm", MaxCompletionTokens: openai.Int(q.tokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	}
}

func anthropicFor(c *http.Client, q question) anthropic.Client {
	return anthropic.NewClient(anthropicopt.WithBaseURL(q.url), anthropicopt.WithAPIKey("sk-"+q.org+"-123"),
		anthropicopt.WithMaxRetries(q.retries), anthropicopt.WithHTTPClient(c))
}

func anthropicParams(q question) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "glm", MaxTokens: q.tokens,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello"))},
	}
}

// open starts a gateway with these limits, and makes a client for it.
func open(t *testing.T, limits string) (*gateway, *http.Client) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return startGateway(t, limits), c
}

// hold begins a stream that goes on for as long as the test, and reads its first piece.
func (s sdk) hold(ctx context.Context, t *testing.T, c *http.Client, q question) stream {
	t.Helper()
	q.tokens = 1_000_000
	stream := s.stream(ctx, c, q)
	_, ok := stream.next()
	require.True(t, ok, "%v", stream.err())
	t.Cleanup(func() { _ = stream.close() })
	return stream
}

// free waits until a single attempt succeeds.
func (s sdk) free(t *testing.T, c *http.Client, q question) {
	t.Helper()
	q.tokens, q.retries = 1, 0
	require.Eventually(t, func() bool {
		_, err := s.ask(context.Background(), c, q)
		return err == nil
	}, soon, 20*time.Millisecond)
}

func TestSDKAnswers(t *testing.T) {
	for name, s := range sdks {
		t.Run(name, func(t *testing.T) {
			g, c := open(t, `{"defaults": {"key": 1}}`)
			q := question{url: g.url, org: "acme", tokens: 5}
			answer, err := s.ask(bounded(t), c, q)
			require.NoError(t, err)
			require.Equal(t, "Each request holds its slot", answer)

			s.free(t, c, q) // the handler may return a moment after its client has all
			stream := s.stream(bounded(t), c, q)
			var pieces []string
			for piece, ok := stream.next(); ok; piece, ok = stream.next() {
				pieces = append(pieces, piece)
			}
			require.NoError(t, stream.err())
			require.Equal(t, []string{"Each", " request", " holds", " its", " slot"}, pieces)
			require.NoError(t, stream.close())
			s.free(t, c, q)
		})
	}
}

// A refusal is the SDK's own typed error, for a call and for a stream.
func TestSDKRefusal(t *testing.T) {
	for name, s := range sdks {
		t.Run(name, func(t *testing.T) {
			g, c := open(t, `{"defaults": {"key": 1, "total": 2}}`)
			refused := func(org string, want reason) {
				t.Helper()
				q := question{url: g.url, org: org, tokens: 1}
				_, err := s.ask(bounded(t), c, q)
				got, ok := s.reason(err)
				require.True(t, ok, "%v", err)
				require.Equal(t, want, got)

				stream := s.stream(bounded(t), c, q)
				_, ok = stream.next()
				require.False(t, ok)
				got, ok = s.reason(stream.err())
				require.True(t, ok, "%v", stream.err())
				require.Equal(t, want, got)
				_ = stream.close()
			}
			s.hold(bounded(t), t, c, question{url: g.url, org: "acme"})
			refused("acme", s.full)
			s.hold(bounded(t), t, c, question{url: g.url, org: "globex"})
			refused("initech", s.overloaded)
			refused("acme/", s.denied)
		})
	}
}

// What is refused is tried again by the SDK itself, not before Retry-After has passed, and then succeeds. Left to
// themselves the SDKs would try again within half a second.
func TestSDKRetriesWhenTold(t *testing.T) {
	for name, s := range sdks {
		t.Run(name, func(t *testing.T) {
			g, c := open(t, `{"defaults": {"key": 1}}`)
			w := startWitness(t, g)
			holder := s.hold(bounded(t), t, c, question{url: g.url, org: "acme"})
			released := make(chan error, 1)
			go func() {
				for len(w.attempts()) == 0 {
					time.Sleep(tick)
				}
				released <- holder.close()
			}()
			answer, err := s.ask(bounded(t), c, question{url: w.url, org: "acme", tokens: 2, retries: 5})
			require.NoError(t, err)
			require.Equal(t, "Each request", answer)
			require.NoError(t, <-released)

			attempts := w.attempts()
			require.GreaterOrEqual(t, len(attempts), 2)
			require.Equal(t, http.StatusOK, attempts[len(attempts)-1].status)
			for i, refused := range attempts[:len(attempts)-1] {
				require.Equal(t, http.StatusTooManyRequests, refused.status)
				seconds, err := strconv.Atoi(refused.retryAfter)
				require.NoError(t, err)
				require.GreaterOrEqual(t, seconds, 1)
				wait := attempts[i+1].began.Sub(refused.answered)
				require.GreaterOrEqual(t, wait, time.Duration(seconds)*time.Second)
			}
		})
	}
}

// A stream that its client gives up, in either way, frees its slot.
func TestSDKCancelMidStream(t *testing.T) {
	for name, s := range sdks {
		t.Run(name, func(t *testing.T) {
			g, c := open(t, `{"defaults": {"key": 1}}`)
			q := question{url: g.url, org: "acme", tokens: 1}
			ctx, cancel := context.WithCancel(bounded(t))
			cancelled := s.hold(ctx, t, c, q)
			_, err := s.ask(bounded(t), c, q)
			got, _ := s.reason(err)
			require.Equal(t, s.full, got, "it is held until then")
			cancel()
			for ok := true; ok; {
				_, ok = cancelled.next()
			}
			require.ErrorIs(t, cancelled.err(), context.Canceled)
			s.free(t, c, q)

			closed := s.hold(bounded(t), t, c, q)
			require.NoError(t, closed.close())
			s.free(t, c, q)
		})
	}
}

// A gateway that is told to stop lets a stream finish, and tells those who come meanwhile to come back.
func TestSDKWhileGatewayDrains(t *testing.T) {
	for name, s := range sdks {
		t.Run(name, func(t *testing.T) {
			g, c := open(t, `{}`)
			q := question{url: g.url, org: "acme", tokens: 150} // one and a half seconds
			stream := s.stream(bounded(t), c, q)
			_, ok := stream.next()
			require.True(t, ok, "%v", stream.err())
			g.signal()
			require.Eventually(t, func() bool {
				_, err := s.ask(t.Context(), c, question{url: g.url, org: "acme", tokens: 1})
				got, _ := s.reason(err)
				return got == s.overloaded
			}, soon, 20*time.Millisecond)
			pieces := 1
			for _, ok = stream.next(); ok; _, ok = stream.next() {
				pieces++
			}
			require.NoError(t, stream.err())
			require.Equal(t, 150, pieces)
			_ = stream.close()
			g.stop(t)
		})
	}
}
