package main

import (
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/inflight-go/inflight"
)

// maxBody bounds a request's body in bytes.
const maxBody = 1 << 20

// apiKey is the scheme of this example: sk-acme-123 belongs to the organisation acme. A real gateway looks the key up.
var apiKey = regexp.MustCompile(`^sk-([A-Za-z0-9_-]{1,64})-[A-Za-z0-9]+$`)

var (
	errAPIKey = errors.New("missing or malformed API key")
	errModel  = errors.New("the model's name must have 1 to 256 bytes")
)

// keyOf says what a request counts against: the organisation that its API key belongs to, and the model it asks for.
func keyOf(r *http.Request) (inflight.Key, error) {
	org, err := orgOf(r)
	if err != nil {
		return inflight.Key{}, err
	}
	model, err := inflight.JSONField(r, "model", maxBody)
	if err == nil && (model == "" || len(model) > 256) {
		err = errModel
	}
	return inflight.Key{Org: org, Model: model}, err
}

// orgOf takes the API key from where OpenAI's clients put it, or Anthropic's.
func orgOf(r *http.Request) (string, error) {
	key := r.Header.Get("X-Api-Key")
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		key = token
	}
	parts := apiKey.FindStringSubmatch(key)
	if parts == nil {
		return "", errAPIKey
	}
	return parts[1], nil
}
