package e2e_test

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	gorilla "github.com/gorilla/websocket"
)

// Servers. Each echoes messages, and closes the connection when it is told "bye". Those that stay end with the slot's
// context; those that return leave the connection to a goroutine, as the example chat of gorilla does, and only the
// connection's own end can end them.
var wsServers = map[string]http.HandlerFunc{
	"gorilla stays": func(w http.ResponseWriter, r *http.Request) {
		if conn, err := new(gorilla.Upgrader).Upgrade(w, r, nil); err == nil {
			defer context.AfterFunc(r.Context(), func() { _ = conn.Close() })()
			echoGorilla(conn)
		}
	},
	"gorilla returns": func(w http.ResponseWriter, r *http.Request) {
		if conn, err := new(gorilla.Upgrader).Upgrade(w, r, nil); err == nil {
			go echoGorilla(conn)
		}
	},
	"coder stays": func(w http.ResponseWriter, r *http.Request) {
		if conn, err := coder.Accept(w, r, nil); err == nil {
			echoCoder(r.Context(), conn)
		}
	},
	"coder returns": func(w http.ResponseWriter, r *http.Request) {
		if conn, err := coder.Accept(w, r, nil); err == nil {
			go echoCoder(context.WithoutCancel(r.Context()), conn)
		}
	},
}

func echoGorilla(conn *gorilla.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		kind, message, err := conn.ReadMessage()
		if err != nil {
			return
		}
		if string(message) == "bye" {
			text := gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, "")
			_ = conn.WriteControl(gorilla.CloseMessage, text, time.Now().Add(soon))
			return
		}
		if conn.WriteMessage(kind, message) != nil {
			return
		}
	}
}

func echoCoder(ctx context.Context, conn *coder.Conn) {
	defer func() { _ = conn.CloseNow() }()
	for {
		kind, message, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if string(message) == "bye" {
			_ = conn.Close(coder.StatusNormalClosure, "")
			return
		}
		if conn.Write(ctx, kind, message) != nil {
			return
		}
	}
}

// A wsClient is the client's end of a connection.
type wsClient interface {
	Send(text string) error
	Receive() (string, error)
	Close() error // with the handshake
	Drop() error  // without
}

var wsClients = map[string]func(t *testing.T, url string, roots *tls.Config) (wsClient, *http.Response, error){
	"gorilla": func(t *testing.T, url string, roots *tls.Config) (wsClient, *http.Response, error) {
		t.Helper()
		conn, resp, err := (&gorilla.Dialer{TLSClientConfig: roots}).DialContext(bounded(t), url, nil)
		if err != nil {
			return nil, resp, err
		}
		return gorillaClient{conn}, resp, nil
	},
	"coder": func(t *testing.T, url string, roots *tls.Config) (wsClient, *http.Response, error) {
		t.Helper()
		tr := &http.Transport{TLSClientConfig: roots}
		t.Cleanup(tr.CloseIdleConnections)
		conn, resp, err := coder.Dial(bounded(t), url, &coder.DialOptions{HTTPClient: &http.Client{Transport: tr}})
		if err != nil {
			return nil, resp, err
		}
		return coderClient{conn}, resp, nil
	},
}

type gorillaClient struct{ conn *gorilla.Conn }

func (c gorillaClient) Send(text string) error {
	return c.conn.WriteMessage(gorilla.TextMessage, []byte(text))
}

func (c gorillaClient) Receive() (string, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(soon))
	_, message, err := c.conn.ReadMessage()
	return string(message), err
}

func (c gorillaClient) Close() error {
	text := gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, "")
	err := c.conn.WriteControl(gorilla.CloseMessage, text, time.Now().Add(soon))
	for err == nil {
		_, err = c.Receive()
	}
	_ = c.conn.Close()
	if gorilla.IsCloseError(err, gorilla.CloseNormalClosure) {
		return nil
	}
	return err
}

func (c gorillaClient) Drop() error { return c.conn.Close() }

type coderClient struct{ conn *coder.Conn }

func (c coderClient) Send(text string) error {
	return c.conn.Write(context.Background(), coder.MessageText, []byte(text))
}

func (c coderClient) Receive() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	_, message, err := c.conn.Read(ctx)
	return string(message), err
}

func (c coderClient) Close() error { return c.conn.Close(coder.StatusNormalClosure, "") }
func (c coderClient) Drop() error  { return c.conn.CloseNow() }
