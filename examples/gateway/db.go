package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // the driver, in Go alone

	"github.com/inflight-go/inflight"
	"github.com/inflight-go/inflight/limitcache"
)

// dbLimits are limits that a database sets, for an organisation over all its models and for each of its models. What it
// does not set, others do. A request pays for no query: the limits come from a cache, which serves what it knows while it
// asks again in the background, and goes on serving it when the database is gone.
type dbLimits struct {
	store  *limitStore
	cache  *limitcache.Cache
	others inflight.LimitFunc
}

// openDBLimits opens the database. Limits that somebody else changes there are seen after ttl. It calls changed when
// limits may have changed.
func openDBLimits(
	ctx context.Context, path string, ttl time.Duration, others inflight.LimitFunc, changed func(), log *slog.Logger,
) (*dbLimits, error) {
	store, err := openLimitStore(ctx, path)
	if err != nil {
		return nil, err
	}
	cache, err := limitcache.New(limitcache.Config{
		Fetch:    store.limits,
		TTL:      ttl,
		OnChange: changed,
		Logger:   log,
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &dbLimits{store: store, cache: cache, others: others}, nil
}

// Limits is an inflight.LimitFunc.
func (d *dbLimits) Limits(k inflight.Key) inflight.Limits {
	set, l := d.cache.Limits(k), d.others(k)
	l.Key, l.Org = cmp.Or(set.Key, l.Key), cmp.Or(set.Org, l.Org)
	return l
}

// set puts a limit in force, or what others say with a limit of 0. The limit is that of a model, or, with Key{Org: org},
// of the organisation. When it returns, requests are held to it, now and after a restart; with an error nothing changed.
func (d *dbLimits) set(ctx context.Context, k inflight.Key, limit int) error {
	if err := d.store.set(ctx, k, limit); err != nil {
		return err
	}
	if k.Model != "" {
		d.cache.Invalidate(k)
	} else {
		d.cache.InvalidateOrg(k.Org)
	}
	return nil
}

// Close does nothing to nil.
func (d *dbLimits) Close() error {
	if d == nil {
		return nil
	}
	return errors.Join(d.cache.Close(), d.store.Close())
}

// A limitStore is the database.
type limitStore struct {
	path   string
	file   os.FileInfo // what was at path when it was opened
	reads  *sql.DB
	writes *sql.DB // one connection: SQLite writes one at a time, and whom it lets wait it lets wait in no order
}

// applicationID marks a database as one of the gateway's.
const applicationID = 0x696e666c

// migrations make each version of the schema from the one before. To change the schema, append.
//
// People may edit the table by hand, so it checks by itself, and says "unlimited" and "blocked" as the API does. An empty
// model stands for the organisation, over all its models.
var migrations = []string{
	`CREATE TABLE concurrent_limits (
		organization TEXT NOT NULL CHECK (length(organization) BETWEEN 1 AND 64),
		model        TEXT NOT NULL CHECK (length(CAST(model AS BLOB)) <= 256),
		slots        ANY  NOT NULL CHECK (typeof(slots) = 'integer' AND slots BETWEEN 1 AND ` + strconv.Itoa(maxLimit) + `
		                                  OR slots IN ('unlimited', 'blocked')),
		PRIMARY KEY (organization, model)
	) STRICT, WITHOUT ROWID`,
}

// openLimitStore opens the database in a file. A missing file is made, a schema of an older gateway brought up to date.
func openLimitStore(ctx context.Context, path string) (_ *limitStore, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("limits database %s: %w", path, err)
		}
	}()
	if path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	// The operating system says better than SQLite why it cannot be. SQLite then makes no files: a database that is deleted
	// while the gateway runs shall not come back empty.
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	s := &limitStore{path: path, file: info}
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_txlock=immediate&_pragma=busy_timeout(1000)"}
	if s.writes, err = sql.Open("sqlite", dsn.String()); err != nil {
		return nil, err
	}
	s.writes.SetMaxOpenConns(1)
	dsn.RawQuery += "&_pragma=query_only(true)"
	if s.reads, err = sql.Open("sqlite", dsn.String()); err != nil {
		return nil, errors.Join(err, s.writes.Close())
	}
	s.reads.SetMaxOpenConns(4)
	if err = s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare makes sure of the database before it changes anything in it.
func (s *limitStore) prepare(ctx context.Context) error {
	var verdict string
	if err := s.writes.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("it is damaged: %q", verdict)
	}
	if err := s.migrate(ctx); err != nil {
		return err
	}
	var mode string
	err := s.writes.QueryRowContext(ctx, "PRAGMA journal_mode = wal").Scan(&mode) // readers and the writer do not wait for each other
	if err == nil && mode != "wal" {
		err = fmt.Errorf("it cannot have a write-ahead log, journal_mode stays %q: is it on a network drive?", mode)
	}
	return err
}

func (s *limitStore) migrate(ctx context.Context) error {
	tx, err := s.writes.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var id, version, tables int
	err = tx.QueryRowContext(ctx, `SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id, pragma_user_version`).Scan(&id, &version, &tables)
	switch {
	case err != nil:
		return err
	case id != applicationID && (id != 0 || tables > 0):
		return errors.New("it belongs to another application")
	case version > len(migrations):
		return fmt.Errorf("a newer gateway made it: its schema has version %d, this gateway knows %d", version, len(migrations))
	}
	for _, statement := range migrations[version:] {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	mark := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, len(migrations))
	if _, err := tx.ExecContext(ctx, mark); err != nil {
		return err
	}
	return tx.Commit()
}

// limits is the Fetch of a limitcache. What is not set is 0.
func (s *limitStore) limits(ctx context.Context, k inflight.Key) (l inflight.Limits, err error) {
	err = s.use(func() error {
		rows, err := s.reads.QueryContext(ctx,
			"SELECT model, json_quote(slots) FROM concurrent_limits WHERE organization = ? AND model IN ('', ?)", k.Org, k.Model)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var model, slots string
			if err := rows.Scan(&model, &slots); err != nil {
				return err
			}
			of := &l.Key
			if model == "" {
				of = &l.Org
			}
			if *of, err = limitOf([]byte(slots)); err != nil {
				return fmt.Errorf("limit of %v: %w", inflight.Key{Org: k.Org, Model: model}, err)
			}
		}
		return rows.Err()
	})
	return l, err
}

// set writes a limit, or removes it if it is 0.
func (s *limitStore) set(ctx context.Context, k inflight.Key, limit int) error {
	return s.use(func() error {
		if limit == 0 {
			_, err := s.writes.ExecContext(ctx,
				"DELETE FROM concurrent_limits WHERE organization = ? AND model = ?", k.Org, k.Model)
			return err
		}
		_, err := s.writes.ExecContext(ctx, `INSERT INTO concurrent_limits (organization, model, slots) VALUES (?, ?, ?)
			ON CONFLICT DO UPDATE SET slots = excluded.slots`, k.Org, k.Model, slotsOf(limit))
		return err
	})
}

func (s *limitStore) Close() error { return errors.Join(s.reads.Close(), s.writes.Close()) }

// use runs a query. It fails if the file is no longer where it was: what is read from a deleted file is old, and what is
// written to it lost.
func (s *limitStore) use(query func() error) error {
	err := s.inPlace()
	if err == nil {
		err = query()
	}
	if err == nil {
		err = s.inPlace()
	}
	if err != nil {
		return fmt.Errorf("limits database %s: %w", s.path, err)
	}
	return nil
}

func (s *limitStore) inPlace() error {
	now, err := os.Stat(s.path)
	if err == nil && !os.SameFile(s.file, now) {
		err = errors.New("another file is in its place, restart to use that")
	}
	return err
}
