package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// errNoRedis is why what needs a Redis is left out.
var errNoRedis = errors.New("redis-server is not installed, so nothing about fleets was measured")

// startRedis starts a redis-server on loopback that keeps nothing. stop ends it.
func startRedis() (client *redis.Client, stop func(), err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, nil, errNoRedis
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once: only its port is of interest
	if err != nil {
		return nil, nil, err
	}
	addr := l.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "inflight-bench")
	if err != nil {
		return nil, nil, err
	}
	server := exec.CommandContext(context.Background(), path,
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--maxmemory-policy", "noeviction")
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	client = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	stop = func() {
		_ = client.Close()
		_ = server.Process.Kill()
		_ = server.Wait()
		_ = os.RemoveAll(dir)
	}
	for range 500 {
		if err = client.Ping(context.Background()).Err(); err == nil {
			return client, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return nil, nil, fmt.Errorf("redis-server does not answer: %w", err)
}

// redisVersion returns the name and version of the server.
func redisVersion(client *redis.Client) string {
	info, _ := client.InfoMap(context.Background(), "server").Result()
	return "redis-server " + info["Server"]["redis_version"]
}

// A sortedSet is how requests are often limited over many processes: each one is a member of a set, whose score is when it
// counts no longer, and each takes a round trip to enter and another to leave.
type sortedSet struct {
	client *redis.Client
	enter  *redis.Script
	limit  int
	last   int
}

func newSortedSet(client *redis.Client, limit int) *sortedSet {
	return &sortedSet{client: client, limit: limit, enter: redis.NewScript(`
		local now = redis.call("TIME")[1]
		redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", now)
		if redis.call("ZCARD", KEYS[1]) >= tonumber(ARGV[1]) then
			return 0
		end
		redis.call("ZADD", KEYS[1], now + 900, ARGV[2])
		return 1
	`)}
}

func (s *sortedSet) cycle(n int) {
	ctx := context.Background()
	for range n {
		s.last++
		id := strconv.Itoa(s.last)
		admitted(must(s.enter.Run(ctx, s.client, []string{"sorted"}, s.limit, id).Int()) == 1)
		must(s.client.ZRem(ctx, "sorted", id).Result())
	}
}
