package main

import (
	"encoding/json"
	"net/http"
)

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client is gone
}

// fail answers with an error in the shape of the API that was called, so that its clients understand it. OpenAI's have
// a code besides, empty for none.
func fail(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	if r.URL.Path == messagesPath {
		kind := map[int]string{
			http.StatusUnauthorized: "authentication_error",
			http.StatusNotFound:     "not_found_error",
			http.StatusBadGateway:   "api_error",
		}[status]
		if kind == "" {
			kind = "invalid_request_error"
		}
		reply(w, status, map[string]any{"type": "error", "error": map[string]any{"type": kind, "message": message}})
		return
	}
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	openAI := map[string]any{"message": message, "type": kind, "param": nil, "code": nil}
	if code != "" {
		openAI["code"] = code
	}
	reply(w, status, map[string]any{"error": openAI})
}
