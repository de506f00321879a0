package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// noEviction is the policy under which a server that is full refuses writes rather than forget leases.
const noEviction = "noeviction"

// Policy returns the maxmemory-policy of the server. Of several servers, each of which keeps some shards, it returns one
// that is not noeviction if there is such a server. It fails if a server does not tell.
func (s *Store) Policy(ctx context.Context) (string, error) {
	var (
		mu     sync.Mutex
		policy string
	)
	ask := func(ctx context.Context, server redis.Cmdable) error {
		p, err := policyOf(ctx, server)
		mu.Lock()
		defer mu.Unlock()
		if policy == "" || policy == noEviction {
			policy = p
		}
		return err
	}
	askOne := func(ctx context.Context, server *redis.Client) error { return ask(ctx, server) }

	var err error
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, askOne)
	case *redis.Ring:
		err = client.ForEachShard(ctx, askOne)
	default:
		err = ask(ctx, client)
	}
	if err == nil && policy == "" {
		err = errors.New("there is no server")
	}
	if err != nil {
		return "", fmt.Errorf("redisstore: maxmemory-policy: %w", err)
	}
	return policy, nil
}

// policyOf asks in two ways: CONFIG is for administrators, and hosted servers often have none.
func policyOf(ctx context.Context, server redis.Cmdable) (string, error) {
	const asConfig, asInfo = "maxmemory-policy", "maxmemory_policy"
	config, errConfig := server.ConfigGet(ctx, asConfig).Result()
	if policy := config[asConfig]; policy != "" {
		return policy, nil
	}
	info, errInfo := server.Info(ctx, "memory").Result()
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(strings.TrimSpace(line), asInfo+":"); ok {
			return policy, nil
		}
	}
	if err := errors.Join(errConfig, errInfo); err != nil {
		return "", err
	}
	return "", errors.New("the server does not tell")
}
