package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// varying is what differs from answer to answer.
var varying = regexp.MustCompile(`"(chatcmpl-|msg_)[A-Z2-7]{26}"|"created":\d{10}`)

// constant replaces what varies.
func constant(s string) string {
	return varying.ReplaceAllStringFunc(s, func(s string) string {
		if strings.HasPrefix(s, `"created"`) {
			return `"created":0`
		}
		return `"ID"`
	})
}

func TestChatCompletion(t *testing.T) {
	s := open(t, inflight.Limits{}, newModelServer(1000))
	resp := s.do(t, http.MethodPost, chatPath, ask(`"max_tokens":3`))
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.JSONEq(t, `{
		"id": "ID", "object": "chat.completion", "created": 0, "model": "glm",
		"choices": [{
			"index": 0, "logprobs": null, "finish_reason": "length",
			"message": {"role": "assistant", "content": "Each request holds", "refusal": null}
		}],
		"usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
	}`, constant(text(t, resp)))

	whole := text(t, s.do(t, http.MethodPost, chatPath, ask(`"temperature":1`)))
	require.Contains(t, whole, `"finish_reason":"stop"`)
	require.Contains(t, whole, `"completion_tokens":64`)
	require.Contains(t, text(t, s.do(t, http.MethodPost, chatPath, ask(`"max_completion_tokens":2`))), `"completion_tokens":2`)
}

func TestChatCompletionStream(t *testing.T) {
	s := open(t, inflight.Limits{}, newModelServer(1000))
	resp := s.do(t, http.MethodPost, chatPath, ask(`"stream":true,"max_tokens":2,"stream_options":{"include_usage":true}`))
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	chunk := func(rest string) string {
		return `data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"glm","choices":[` + rest + "}\n\n"
	}
	choice := func(delta, reason string) string {
		return chunk(`{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + reason + `}],"usage":null`)
	}
	require.Equal(t, choice(`{"role":"assistant","content":""}`, "null")+
		choice(`{"content":"Each"}`, "null")+
		choice(`{"content":" request"}`, "null")+
		choice(`{}`, `"length"`)+
		chunk(`],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}`)+
		"data: [DONE]\n\n", constant(text(t, resp)))

	plain := text(t, s.do(t, http.MethodPost, chatPath, ask(`"stream":true,"max_tokens":2`)))
	require.NotContains(t, plain, "usage")
}

func TestMessages(t *testing.T) {
	s := open(t, inflight.Limits{}, newModelServer(1000))
	resp := s.do(t, http.MethodPost, messagesPath, ask(`"max_tokens":3`))
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	require.JSONEq(t, `{
		"id": "ID", "type": "message", "role": "assistant", "model": "glm",
		"content": [{"type": "text", "text": "Each request holds"}],
		"stop_reason": "max_tokens", "stop_sequence": null,
		"usage": {"input_tokens": 9, "output_tokens": 3}
	}`, constant(text(t, resp)))
}

func TestMessagesStream(t *testing.T) {
	s := open(t, inflight.Limits{}, newModelServer(1000))
	resp := s.do(t, http.MethodPost, messagesPath, ask(`"stream":true,"max_tokens":2`))
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	want := []string{
		`{"type":"message_start","message":{"id":"ID","type":"message","role":"assistant","model":"glm","content":[],` +
			`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":0}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"ping"}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Each"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" request"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":2}}`,
		`{"type":"message_stop"}`,
	}
	events := strings.Split(strings.TrimSuffix(constant(text(t, resp)), "\n\n"), "\n\n")
	require.Len(t, events, len(want))
	for i, event := range events {
		name, data, _ := strings.Cut(event, "\n")
		data = strings.TrimPrefix(data, "data: ")
		require.JSONEq(t, want[i], data)
		require.Contains(t, data, `"type":"`+strings.TrimPrefix(name, "event: ")+`"`)
	}
}

func TestModels(t *testing.T) {
	s := open(t, inflight.Limits{}, newModelServer(1))
	require.JSONEq(t, `{"object": "list", "data": [
		{"id": "glm", "object": "model", "created": 0, "owned_by": "inflight"},
		{"id": "llama", "object": "model", "created": 0, "owned_by": "inflight"}
	]}`, constant(text(t, s.do(t, http.MethodGet, "/v1/models", "", "Authorization", ""))))
}
