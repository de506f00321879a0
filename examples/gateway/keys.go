package main

import (
	"crypto/rand"
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

// orgName is what the organisation in an API key can be.
var orgName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// maxModel bounds the name of a model in bytes.
const maxModel = 256

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
	if err == nil && (model == "" || len(model) > maxModel) {
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

// requestID is the header with the name of a request, by which its client, the log and the console can speak of it.
const requestID = "X-Request-Id"

// identified names each request, unless it brings a name, and tells its client and the upstream.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(requestID)
		if id == "" || len(id) > 128 {
			id = "req_" + rand.Text()[:12]
		}
		r.Header.Set(requestID, id)
		w.Header().Set(requestID, id)
		next.ServeHTTP(w, r)
	})
}

// labelOf says who holds a slot, to people who look for one request among hundreds.
func labelOf(r *http.Request) string { return r.Header.Get(requestID) + " " + r.URL.Path }
