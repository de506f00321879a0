package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inflight-go/inflight"
)

// execute does by hand what statements say, and returns how that went.
func execute(t *testing.T, path string, statements ...string) error {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	db.SetMaxOpenConns(1)
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			return err
		}
	}
	return nil
}

// lock keeps others from writing to a database until unlock is called.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	_, err = conn.ExecContext(t.Context(), "BEGIN EXCLUSIVE")
	require.NoError(t, err)
	return func() {
		_, err := conn.ExecContext(t.Context(), "ROLLBACK")
		require.NoError(t, errors.Join(err, conn.Close(), db.Close()))
	}
}

// openLimits opens the database of limits at path, with the table for the rest.
func openLimits(t *testing.T, path string, ttl time.Duration, table *inflight.LimitTable, log *syncBuffer) *dbLimits {
	t.Helper()
	d, err := openDBLimits(t.Context(), path, ttl, table.Limits, func() {}, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestDatabaseAndTable(t *testing.T) {
	table := inflight.NewLimitTable(inflight.Limits{Key: 1, Org: 2, Model: 3, Total: 4})
	d := openLimits(t, filepath.Join(t.TempDir(), "limits.db"), time.Hour, table, &syncBuffer{})
	llama := inflight.Key{Org: "acme", Model: "llama"}
	for _, step := range []struct {
		set         inflight.Key
		limit       int
		glm, llama  [2]int // Key and Org
		globexLimit int
	}{
		{acme, 10, [2]int{10, 2}, [2]int{1, 2}, 1},
		{inflight.Key{Org: "acme"}, 20, [2]int{10, 20}, [2]int{1, 20}, 1},
		{llama, inflight.Unlimited, [2]int{10, 20}, [2]int{inflight.Unlimited, 20}, 1},
		{acme, inflight.Blocked, [2]int{inflight.Blocked, 20}, [2]int{inflight.Unlimited, 20}, 1},
		{acme, 0, [2]int{1, 20}, [2]int{inflight.Unlimited, 20}, 1},
		{inflight.Key{Org: "acme"}, 0, [2]int{1, 2}, [2]int{inflight.Unlimited, 2}, 1},
	} {
		require.NoError(t, d.set(t.Context(), step.set, step.limit))
		require.Equal(t, inflight.Limits{Key: step.glm[0], Org: step.glm[1], Model: 3, Total: 4}, d.Limits(acme))
		require.Equal(t, inflight.Limits{Key: step.llama[0], Org: step.llama[1], Model: 3, Total: 4}, d.Limits(llama))
		require.Equal(t, inflight.Limits{Key: 1, Org: 2, Model: 3, Total: 4}, d.Limits(inflight.Key{Org: "globex", Model: "glm"}))
	}
	table.Delete(inflight.Key{})
	require.Zero(t, d.Limits(acme), "a change of the table needs no refresh")
}

// What other processes change is seen when it is read again.
func TestDatabaseChangedByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	d := openLimits(t, path, time.Millisecond, new(inflight.LimitTable), &syncBuffer{})
	require.Zero(t, d.Limits(acme))
	for _, step := range []struct {
		statement string
		limits    inflight.Limits
	}{
		{"INSERT INTO concurrent_limits VALUES ('acme', 'glm', 5)", inflight.Limits{Key: 5}},
		{"INSERT INTO concurrent_limits VALUES ('acme', '', 'blocked')", inflight.Limits{Key: 5, Org: inflight.Blocked}},
		{"UPDATE concurrent_limits SET slots = 'unlimited'", inflight.Limits{Key: inflight.Unlimited, Org: inflight.Unlimited}},
		{"DELETE FROM concurrent_limits", inflight.Limits{}},
	} {
		require.NoError(t, execute(t, path, step.statement))
		require.Eventually(t, func() bool { return d.Limits(acme) == step.limits }, soon, tick)
	}
}

func TestDatabaseChecksWhatIsWrittenByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	log := &syncBuffer{}
	d := openLimits(t, path, time.Millisecond, new(inflight.LimitTable), log)
	for _, row := range []string{
		"'acme', 'glm', 0", "'acme', 'glm', -1", "'acme', 'glm', 1000001", "'acme', 'glm', 1.5", "'acme', 'glm', '5'",
		"'acme', 'glm', 'Unlimited'", "'acme', 'glm', NULL", "'acme', 'glm', x'05'", "'acme', NULL, 5", "NULL, 'glm', 5", "'', 'glm', 5",
		"'" + strings.Repeat("a", 65) + "', 'glm', 5", "'acme', '" + strings.Repeat("é", 129) + "', 5",
	} {
		require.ErrorContains(t, execute(t, path, "INSERT INTO concurrent_limits VALUES ("+row+")"), "constraint failed", row)
	}
	for _, row := range []string{"'acme', 'glm', 1", "'acme', '" + strings.Repeat("é", 128) + "', 1000000"} {
		require.NoError(t, execute(t, path, "INSERT INTO concurrent_limits VALUES ("+row+")"), row)
	}
	require.Eventually(t, func() bool { return d.Limits(acme).Key == 1 }, soon, tick)

	// Whoever forces a wrong value into it changes nothing, and hears of it.
	require.NoError(t, execute(t, path, "PRAGMA ignore_check_constraints = true", "UPDATE concurrent_limits SET slots = 0"))
	require.Eventually(t, func() bool {
		require.Equal(t, 1, d.Limits(acme).Key)
		return strings.Contains(log.String(), "limit of acme/glm: limit is 0")
	}, soon, tick)
}

func TestLimitsStayAsLastKnown(t *testing.T) {
	for name, gone := range map[string]func(ctx context.Context, d *dbLimits) error{
		"closed":  func(_ context.Context, d *dbLimits) error { return d.store.Close() },
		"deleted": func(_ context.Context, d *dbLimits) error { return os.Remove(d.store.path) },
		"replaced": func(ctx context.Context, d *dbLimits) error {
			other, err := openLimitStore(ctx, d.store.path+".new")
			return errors.Join(err, other.Close(), os.Rename(other.path, d.store.path))
		},
		"table dropped": func(ctx context.Context, d *dbLimits) error {
			_, err := d.store.writes.ExecContext(ctx, "DROP TABLE concurrent_limits")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.db")
			log := &syncBuffer{}
			d := openLimits(t, path, time.Millisecond, inflight.NewLimitTable(inflight.Limits{Key: 9}), log)
			require.NoError(t, d.set(t.Context(), acme, 1))
			require.Equal(t, 1, d.Limits(acme).Key)
			require.NoError(t, gone(t.Context(), d))
			require.Eventually(t, func() bool {
				require.Equal(t, 1, d.Limits(acme).Key)
				return strings.Contains(log.String(), "limits stay as they were")
			}, soon, tick)
			require.ErrorContains(t, d.set(t.Context(), acme, 2), "limits database "+path+": ")
			require.Equal(t, 1, d.Limits(acme).Key)
			require.Equal(t, 9, d.Limits(inflight.Key{Org: "globex"}).Key, "the limits of others were never known")
			_, err := d.store.limits(t.Context(), acme)
			require.ErrorContains(t, err, "limits database "+path+": ")
		})
	}
}

// A change that failed has not been made behind the back of whoever brings the file back.
func TestDatabaseMovedAwayAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	d := openLimits(t, path, time.Hour, new(inflight.LimitTable), &syncBuffer{})
	require.NoError(t, d.set(t.Context(), acme, 1))
	require.ErrorContains(t, d.store.use(func() error { return os.Rename(path, path+".away") }), "no such file")
	require.Error(t, d.set(t.Context(), acme, 2))
	for range 4 { // more connections than there were
		if conn, err := d.store.reads.Conn(t.Context()); err == nil {
			defer func() { require.NoError(t, conn.Close()) }()
		}
	}
	require.NoFileExists(t, path)
	require.NoError(t, os.Rename(path+".away", path))
	stored, err := d.store.limits(t.Context(), acme)
	require.NoError(t, err)
	require.Equal(t, 1, stored.Key)
	require.Equal(t, 1, d.Limits(acme).Key)
}

// Whoever changes a limit last, what is in force is what is stored.
func TestConcurrentChanges(t *testing.T) {
	d := openLimits(t, filepath.Join(t.TempDir(), "limits.db"), time.Hour, new(inflight.LimitTable), &syncBuffer{})
	var workers sync.WaitGroup
	for w := range 64 { // more than SQLite itself would let in within its time
		workers.Go(func() {
			for i := range 8 {
				k := []inflight.Key{acme, {Org: "acme"}}[w%2]
				if err := d.set(t.Context(), k, (1+w)*(i%4)); err != nil {
					t.Error(err)
				}
				d.Limits(acme)
			}
		})
	}
	workers.Wait()
	stored, err := d.store.limits(t.Context(), acme)
	require.NoError(t, err)
	require.Equal(t, stored, d.Limits(acme))
}

// Two gateways on one database wait for each other.
func TestTwoWritersOfOneDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "limits.db")
	var writers sync.WaitGroup
	for w := range 2 {
		d := openLimits(t, path, time.Hour, new(inflight.LimitTable), &syncBuffer{})
		writers.Go(func() {
			for range 20 {
				if err := d.set(t.Context(), acme, 1+w); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

func TestOpenLimitStoreRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.db")
	for _, c := range []struct {
		name    string
		path    string
		prepare func()
		says    string
	}{
		{"no directory", filepath.Join(dir, "none", "limits.db"), nil, "no such file or directory"},
		{"a directory", dir, nil, "is a directory"},
		{"not a regular file", "/dev/null", nil, "not a regular file"},
		{"not a database", path, func() {
			require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("limits ", 1000)), 0o600))
		}, "file is not a database"},
		{"damaged", path, func() {
			store, err := openLimitStore(t.Context(), path)
			require.NoError(t, errors.Join(err, store.Close()))
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = file.WriteAt([]byte(strings.Repeat("limits ", 500)), 4096) // the second page
			require.NoError(t, errors.Join(err, file.Close()))
		}, "it is damaged: "},
		{"of another application", path, func() {
			require.NoError(t, execute(t, path, "CREATE TABLE songs (name TEXT)"))
		}, "it belongs to another application"},
		{"marked by another application", path, func() {
			require.NoError(t, execute(t, path, "PRAGMA application_id = 5"))
		}, "it belongs to another application"},
		{"of a newer gateway", path, func() {
			store, err := openLimitStore(t.Context(), path)
			require.NoError(t, errors.Join(err, store.Close(), execute(t, path, "PRAGMA user_version = 9")))
		}, "its schema has version 9, this gateway knows 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_ = os.Remove(path)
			var before []byte
			if c.prepare != nil {
				c.prepare()
				before, _ = os.ReadFile(path)
			}
			_, err := openLimitStore(t.Context(), c.path)
			require.ErrorContains(t, err, "limits database "+c.path+": ")
			require.ErrorContains(t, err, c.says)
			if c.prepare != nil {
				after, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, before, after, "it is left as it was")
			}
		})
	}
}
