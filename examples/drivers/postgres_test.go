package drivers

import (
	"bytes"
	"context"
	"database/sql"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gosdp/gosdp/examples/internal/programs"
)

func TestPgx(t *testing.T) {
	url := "postgres://postgres@" + overSDP(t, programs.Postgres(t)) + "/postgres?sslmode=disable"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	t.Run("pool", func(t *testing.T) {
		d := newDialer()
		config, err := pgxpool.ParseConfig(url)
		require.NoError(t, err)
		config.ConnConfig.DialFunc = d.DialContext
		config.MaxConns = 4
		pool, err := pgxpool.NewWithConfig(ctx, config)
		require.NoError(t, err)
		defer pool.Close()
		usePool(ctx, t, pool)
		require.GreaterOrEqual(t, len(d.dialled(t)), 2)
		d.requireMoved(t)
	})
	t.Run("database/sql", func(t *testing.T) {
		d := newDialer()
		config, err := pgx.ParseConfig(url)
		require.NoError(t, err)
		config.DialFunc = d.DialContext
		db := stdlib.OpenDB(*config)
		defer db.Close()
		useDB(ctx, t, db)
		d.dialled(t)
	})
}

func usePool(ctx context.Context, t *testing.T, pool *pgxpool.Pool) {
	_, err := pool.Exec(ctx, "create table numbers (n bigint primary key, square bigint)")
	require.NoError(t, err)
	const rows = 50_000
	copied, err := pool.CopyFrom(ctx, pgx.Identifier{"numbers"}, []string{"n", "square"},
		pgx.CopyFromSlice(rows, func(i int) ([]any, error) { return []any{i, i * i}, nil }))
	require.NoError(t, err)
	require.EqualValues(t, rows, copied)

	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 50 {
				n := rand.Int64N(rows)
				var square int64
				err := pool.QueryRow(ctx, "select square from numbers where n = $1", n).Scan(&square)
				assert.NoError(t, err)
				assert.Equal(t, n*n, square)
			}
		})
	}
	workers.Wait()

	large := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{}).Read(large)
	var back []byte
	require.NoError(t, pool.QueryRow(ctx, "select $1::bytea", large).Scan(&back))
	require.True(t, bytes.Equal(large, back))

	batch := &pgx.Batch{}
	for n := range 100 {
		batch.Queue("select $1::int + 1", n)
	}
	results := pool.SendBatch(ctx, batch)
	for n := range 100 {
		var next int
		require.NoError(t, results.QueryRow().Scan(&next))
		require.Equal(t, n+1, next)
	}
	require.NoError(t, results.Close())

	t.Run("notification", func(t *testing.T) {
		listening, err := pool.Acquire(ctx)
		require.NoError(t, err)
		defer listening.Release()
		_, err = listening.Exec(ctx, "listen news")
		require.NoError(t, err)
		heard := make(chan error, 1)
		go func() {
			_, err := listening.Conn().WaitForNotification(ctx)
			heard <- err
		}()
		_, err = pool.Exec(ctx, "notify news")
		require.NoError(t, err)
		require.NoError(t, <-heard)
	})
	t.Run("cancelled query", func(t *testing.T) {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_, err := pool.Exec(short, "select pg_sleep(60)")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, pool.Ping(ctx))
	})
	t.Run("terminated connection", func(t *testing.T) {
		victim, err := pool.Acquire(ctx)
		require.NoError(t, err)
		_, err = pool.Exec(ctx, "select pg_terminate_backend($1, 10000)", victim.Conn().PgConn().PID())
		require.NoError(t, err)
		require.Error(t, victim.Ping(ctx))
		require.True(t, victim.Conn().IsClosed())
		victim.Release()
		require.NoError(t, pool.Ping(ctx))
	})
}

func useDB(ctx context.Context, t *testing.T, db *sql.DB) {
	_, err := db.ExecContext(ctx, "create table words (word text)")
	require.NoError(t, err)

	transaction, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	insert, err := transaction.PrepareContext(ctx, "insert into words values ($1)")
	require.NoError(t, err)
	for _, word := range []string{"credit", "advertisement", "stag"} {
		_, err := insert.ExecContext(ctx, word)
		require.NoError(t, err)
	}
	require.NoError(t, insert.Close())
	require.NoError(t, transaction.Commit())

	rows, err := db.QueryContext(ctx, "select word from words order by word")
	require.NoError(t, err)
	defer rows.Close()
	var words []string
	for rows.Next() {
		var word string
		require.NoError(t, rows.Scan(&word))
		words = append(words, word)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"advertisement", "credit", "stag"}, words)

	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = db.ExecContext(short, "select pg_sleep(60)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, db.PingContext(ctx))
}
