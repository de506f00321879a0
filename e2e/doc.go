// Package e2e holds no code, only tests: inflight between third-party servers and clients, over real sockets on
// loopback. See README.md for what is tested and how to run it.
package e2e
