package main

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
)

// The shapes of Anthropic's messages: https://docs.anthropic.com/en/api/messages
type (
	message struct {
		ID           string         `json:"id"`
		Type         string         `json:"type"`
		Role         string         `json:"role"`
		Model        string         `json:"model"`
		Content      []contentBlock `json:"content"`
		StopReason   *string        `json:"stop_reason"`
		StopSequence *string        `json:"stop_sequence"`
		Usage        messageUsage   `json:"usage"`
	}
	contentBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	messageUsage struct {
		InputTokens  int `json:"input_tokens"`
		OutputTokens int `json:"output_tokens"`
	}
	object map[string]any // events have many shapes, each used once
)

// messages answers POST /v1/messages. The model talks until max_tokens, which this API requires, is reached.
func (m *modelServer) messages(w http.ResponseWriter, r *http.Request) {
	q, ok := readRequest(w, r)
	if !ok {
		return
	}
	if q.MaxTokens == 0 {
		fail(w, r, http.StatusBadRequest, "", "max_tokens: must be at least 1.")
		return
	}
	msg := message{
		ID: "msg_" + rand.Text(), Type: "message", Role: "assistant", Model: q.Model,
		Content: []contentBlock{}, Usage: messageUsage{InputTokens: q.promptTokens()},
	}
	if q.Stream {
		m.streamMessage(w, r, msg, q.MaxTokens)
		return
	}
	text, reason := strings.Join(slices.Collect(m.tokens(r.Context(), q.MaxTokens)), ""), "max_tokens"
	msg.Content, msg.StopReason = []contentBlock{{Type: "text", Text: text}}, &reason
	msg.Usage.OutputTokens = q.MaxTokens
	reply(w, http.StatusOK, msg)
}

func (m *modelServer) streamMessage(w http.ResponseWriter, r *http.Request, msg message, n int) {
	events := newEventStream(w)
	send := func(name string, event object) bool {
		event["type"] = name
		return events.send(name, event)
	}
	begun := send("message_start", object{"message": msg}) &&
		send("content_block_start", object{"index": 0, "content_block": contentBlock{Type: "text"}}) &&
		send("ping", object{})
	if !begun {
		return
	}
	for token := range m.tokens(r.Context(), n) {
		if !send("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": token}}) {
			return
		}
	}
	send("content_block_stop", object{"index": 0})
	send("message_delta", object{
		"delta": object{"stop_reason": "max_tokens", "stop_sequence": nil},
		"usage": object{"output_tokens": n},
	})
	send("message_stop", object{})
}
