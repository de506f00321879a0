package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"
)

// models are those that the embedded model server has.
var models = []string{"glm", "llama"}

// story is what its models say, over and over, a word being a token.
var story = strings.Fields("Each request holds its slot until the very last byte of its answer is sent, and not one " +
	"moment longer: a stream that runs for an hour counts for an hour.")

// A modelServer stands in for a real one. It knows nothing of inflight, keys or limits, and could as well run elsewhere.
type modelServer struct {
	interval time.Duration // from token to token
}

func newModelServer(tokensPerSecond float64) http.Handler {
	m := &modelServer{interval: max(1, time.Duration(float64(time.Second)/tokensPerSecond))}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+chatPath, m.chatCompletions)
	mux.HandleFunc("POST "+messagesPath, m.messages)
	mux.HandleFunc("GET /v1/models", m.list)
	return mux
}

// tokens yields n words, each after its time. When ctx ends, because the client went away or the slot was cancelled, it
// aborts the whole request, so that nobody takes a piece of an answer for all of it.
func (m *modelServer) tokens(ctx context.Context, n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		tick := time.NewTicker(m.interval)
		defer tick.Stop()
		for i := range n {
			select {
			case <-ctx.Done():
				panic(http.ErrAbortHandler)
			case <-tick.C:
			}
			word := story[i%len(story)]
			if i > 0 {
				word = " " + word
			}
			if !yield(word) {
				return
			}
		}
	}
}

// A modelRequest holds the fields that both APIs have, and OpenAI's own two.
type modelRequest struct {
	Model     string            `json:"model"`
	Messages  []json.RawMessage `json:"messages"`
	MaxTokens int               `json:"max_tokens"`
	Stream    bool              `json:"stream"`

	MaxCompletionTokens int `json:"max_completion_tokens"` // OpenAI's newer name for max_tokens
	StreamOptions       struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

// readRequest answers the request itself and returns false if there is something wrong with it.
func readRequest(w http.ResponseWriter, r *http.Request) (modelRequest, bool) {
	var q modelRequest
	err := json.NewDecoder(r.Body).Decode(&q)
	switch {
	case err != nil:
		fail(w, r, http.StatusBadRequest, "", "The request's body is not what this API expects: "+err.Error())
	case !slices.Contains(models, q.Model):
		fail(w, r, http.StatusNotFound, "model_not_found", fmt.Sprintf("The model %q does not exist.", q.Model))
	case len(q.Messages) == 0:
		fail(w, r, http.StatusBadRequest, "", "messages: there must be at least one.")
	case q.MaxTokens < 0 || q.MaxCompletionTokens < 0:
		fail(w, r, http.StatusBadRequest, "", "max_tokens: must be at least 1.")
	default:
		return q, true
	}
	return q, false
}

// promptTokens is a guess: four bytes to a token.
func (q *modelRequest) promptTokens() int {
	bytes := 0
	for _, m := range q.Messages {
		bytes += len(m)
	}
	return (bytes + 3) / 4
}

// list answers GET /v1/models.
func (m *modelServer) list(w http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}
	data := make([]model, 0, len(models))
	for _, id := range models {
		data = append(data, model{ID: id, Object: "model", Created: 1735689600, OwnedBy: "inflight"})
	}
	reply(w, http.StatusOK, map[string]any{"object": "list", "data": data})
}

// An eventStream sends server-sent events, each at once.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newEventStream(w http.ResponseWriter) eventStream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	return eventStream{w, http.NewResponseController(w)}
}

// send sends an event; name may be empty. False means that the client is gone.
func (s eventStream) send(name string, data any) bool {
	text, ok := data.(string)
	if !ok {
		encoded, _ := json.Marshal(data)
		text = string(encoded)
	}
	event := "data: " + text + "\n\n"
	if name != "" {
		event = "event: " + name + "\n" + event
	}
	_, err := io.WriteString(s.w, event)
	return err == nil && s.control.Flush() == nil
}
