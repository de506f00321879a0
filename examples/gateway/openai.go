package main

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"time"
)

// defaultTokens is the length of an answer when OpenAI's max_tokens is left out.
const defaultTokens = 64

// The shapes of OpenAI's chat completions: https://platform.openai.com/docs/api-reference/chat
type (
	completion struct {
		ID      string   `json:"id"`
		Object  string   `json:"object"`
		Created int64    `json:"created"`
		Model   string   `json:"model"`
		Choices []choice `json:"choices"`
		Usage   any      `json:"usage,omitempty"` // *usage; a nil one is sent as null
	}
	choice struct {
		Index        int       `json:"index"`
		Message      *answer   `json:"message,omitempty"` // all of it, or
		Delta        *delta    `json:"delta,omitempty"`   // a piece
		Logprobs     *struct{} `json:"logprobs"`
		FinishReason *string   `json:"finish_reason"`
	}
	answer struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"`
	}
	delta struct {
		Role    string  `json:"role,omitempty"`
		Content *string `json:"content,omitempty"`
	}
	usage struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		TotalTokens      int `json:"total_tokens"`
	}
)

// chatCompletions answers POST /v1/chat/completions. With a maximum the model talks until it is reached.
func (m *modelServer) chatCompletions(w http.ResponseWriter, r *http.Request) {
	q, ok := readRequest(w, r)
	if !ok {
		return
	}
	n, reason := max(q.MaxTokens, q.MaxCompletionTokens), "length"
	if n == 0 {
		n, reason = defaultTokens, "stop"
	}
	c := completion{ID: "chatcmpl-" + rand.Text(), Object: "chat.completion", Created: time.Now().Unix(), Model: q.Model}
	if q.Stream {
		m.streamCompletion(w, r, q, c, n, reason)
		return
	}
	text := strings.Join(slices.Collect(m.tokens(r.Context(), n)), "")
	c.Choices = []choice{{Message: &answer{Role: "assistant", Content: text}, FinishReason: &reason}}
	c.Usage = q.usage(n)
	reply(w, http.StatusOK, c)
}

func (m *modelServer) streamCompletion(
	w http.ResponseWriter, r *http.Request, q modelRequest, c completion, n int, reason string,
) {
	events := newEventStream(w)
	c.Object = "chat.completion.chunk"
	if q.StreamOptions.IncludeUsage {
		c.Usage = (*usage)(nil) // until the last
	}
	chunk := func(d delta, reason *string) bool {
		c.Choices = []choice{{Delta: &d, FinishReason: reason}}
		return events.send("", c)
	}
	if !chunk(delta{Role: "assistant", Content: new(string)}, nil) {
		return
	}
	for token := range m.tokens(r.Context(), n) {
		if !chunk(delta{Content: &token}, nil) {
			return
		}
	}
	if !chunk(delta{}, &reason) {
		return
	}
	if q.StreamOptions.IncludeUsage {
		c.Choices, c.Usage = []choice{}, q.usage(n)
		events.send("", c)
	}
	events.send("", "[DONE]")
}

func (q *modelRequest) usage(n int) *usage {
	prompt := q.promptTokens()
	return &usage{PromptTokens: prompt, CompletionTokens: n, TotalTokens: prompt + n}
}
