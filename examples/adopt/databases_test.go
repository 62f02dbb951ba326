package adopt

import (
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// servePostgres lets everybody in, tells of each query, and answers it when it is cancelled.
func servePostgres(t *testing.T, queried, cancelled chan struct{}) func(*server, net.Conn) {
	return func(s *server, conn net.Conn) {
		c, isTLS := peek(conn)
		if s.Addr().Network() == "tcp" {
			s.sawSocket(t, conn)
		}
		if isTLS { // sslnegotiation=direct
			c = tls.Server(c, s.tls)
		}
		backend := pgproto3.NewBackend(c, c)
		for {
			message, err := backend.ReceiveStartupMessage()
			if err != nil {
				return
			}
			switch m := message.(type) {
			case *pgproto3.SSLRequest:
				io.WriteString(c, "S")
				c = tls.Server(c, s.tls)
				backend, isTLS = pgproto3.NewBackend(c, c), true
				continue
			case *pgproto3.CancelRequest:
				s.saw("TLS %v: cancel", isTLS)
				cancelled <- struct{}{}
				return
			case *pgproto3.StartupMessage:
				s.saw("TLS %v: %s of %s", isTLS, m.Parameters["user"], m.Parameters["database"])
			}
			break
		}
		backend.Send(&pgproto3.AuthenticationOk{})
		backend.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{1, 2, 3, 4}})
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		for backend.Flush() == nil {
			message, err := backend.Receive()
			if err != nil {
				return
			}
			if q, ok := message.(*pgproto3.Query); ok {
				s.saw("TLS %v: %q", isTLS, q.String)
				queried <- struct{}{}
				<-cancelled
				backend.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014", Message: "cancelled"})
				backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			}
		}
	}
}

func TestPostgres(t *testing.T) {
	dir := t.TempDir()
	put := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return file
	}
	_, client := identities()
	authority := put("root.pem", "CERTIFICATE", client.Authority)
	certificate := put("client.pem", "CERTIFICATE", client.Certificate)
	key := put("client.key", "PRIVATE KEY", client.Key)

	script(func(t *testing.T, recipe bool) (saw []string) {
		ctx := watched(t)
		connect := func(url string, use func(*pgx.Conn) error) string {
			config, err := pgx.ParseConfig(url)
			require.NoError(t, err)
			if recipe {
				Postgres(config)
			}
			conn, err := pgx.ConnectConfig(ctx, config)
			if err == nil {
				err = use(conn)
				conn.Close(ctx)
			}
			return outcome(err)
		}
		nothing := func(*pgx.Conn) error { return nil }
		queried, cancelled := make(chan struct{}), make(chan struct{})
		s := serve(t, "tcp", "127.0.0.1:0", servePostgres(t, queried, cancelled))
		address := s.Addr().String()
		_, port, err := net.SplitHostPort(address)
		require.NoError(t, err)
		verified := "/shop?sslmode=verify-full&sslrootcert=" + authority + "&sslcert=" + certificate + "&sslkey=" + key
		saw = append(saw,
			connect("postgres://user@"+address+"/shop?sslmode=disable", nothing),
			connect("postgres://user@"+address+verified, nothing),
			connect("postgres://user@"+address+verified+"&sslnegotiation=direct", nothing),
			connect("postgres://user@"+refused(t)+","+address+"/shop?sslmode=disable", nothing),
			connect("postgres://user@"+refused(t)+"/shop?sslmode=disable", nothing),
			connect("postgres://user@"+stalled(t)+"/shop?sslmode=disable&connect_timeout=1", nothing),
			connect("postgres://user@"+address+"/shop?sslmode=disable", func(conn *pgx.Conn) error {
				done := make(chan error, 1)
				go func() {
					_, err := conn.PgConn().Exec(ctx, "select 1").ReadAll()
					done <- err
				}()
				<-queried
				require.NoError(t, conn.PgConn().CancelRequest(ctx))
				return <-done
			}),
		)
		busy, stall := stallable(t)
		go func() {
			if conn, err := busy.Accept(); err == nil {
				defer conn.Close()
				servePostgres(t, nil, nil)(&server{Listener: busy}, conn)
			}
		}()
		saw = append(saw, connect("postgres://user@"+busy.Addr().String()+"/shop?sslmode=disable&connect_timeout=1", func(conn *pgx.Conn) error {
			stall()
			return conn.PgConn().CancelRequest(ctx)
		}))
		if runtime.GOOS != "windows" {
			u := serve(t, "unix", filepath.Join(t.TempDir(), ".s.PGSQL."+port), servePostgres(t, nil, nil))
			saw = append(saw, connect("user=user database=shop sslmode=disable port="+port+" host="+filepath.Dir(u.Addr().String()), nothing))
			saw = append(saw, u.all()...)
		}
		return append(saw, s.all()...)
	}).same(t)
}

// serveMySQL lets everybody in, and answers pings.
func serveMySQL(t *testing.T) func(*server, net.Conn) {
	const (
		protocol41   = 1 << 9
		secure       = 1 << 15
		pluginAuth   = 1 << 19
		withDatabase = 1 << 3
		overTLS      = 1 << 11
	)
	return func(s *server, conn net.Conn) {
		c, isTLS := net.Conn(conn), false
		write := func(sequence byte, payload []byte) {
			c.Write(append([]byte{byte(len(payload)), 0, 0, sequence}, payload...))
		}
		read := func() (sequence byte, payload []byte) {
			header := make([]byte, 4)
			if _, err := io.ReadFull(c, header); err != nil {
				return 0, nil
			}
			payload = make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)
			io.ReadFull(c, payload)
			return header[3], payload
		}
		can := uint32(protocol41 | secure | pluginAuth | withDatabase | overTLS)
		greeting := append([]byte{10}, "8.4.0\x00\x01\x00\x00\x0012345678\x00"...)
		greeting = binary.LittleEndian.AppendUint16(greeting, uint16(can))
		greeting = append(greeting, 45, 2, 0)
		greeting = binary.LittleEndian.AppendUint16(greeting, uint16(can>>16))
		greeting = append(greeting, 21)
		greeting = append(greeting, make([]byte, 10)...)
		greeting = append(greeting, "123456789012\x00mysql_native_password\x00"...)
		write(0, greeting)
		sequence, response := read()
		if response == nil {
			return
		}
		if s.Addr().Network() == "tcp" {
			s.sawSocket(t, conn)
		}
		if len(response) == 32 { // the beginning of a response, before TLS
			c, isTLS = tls.Server(conn, s.tls), true
			if sequence, response = read(); response == nil {
				return
			}
		}
		s.saw("TLS %v: %q", isTLS, response[32:40])
		write(sequence+1, []byte{0, 0, 0, 2, 0, 0, 0})
		for {
			sequence, command := read()
			if len(command) == 0 || command[0] == 1 { // quit
				return
			}
			s.saw("TLS %v: command %d", isTLS, command[0])
			write(sequence+1, []byte{0, 0, 0, 2, 0, 0, 0})
		}
	}
}

func TestMySQL(t *testing.T) {
	require.NoError(t, mysql.RegisterTLSConfig("ours", clientTLS(t)))
	script(func(t *testing.T, recipe bool) (saw []string) {
		ctx := watched(t)
		ping := func(dsn string) string {
			config, err := mysql.ParseDSN(dsn)
			require.NoError(t, err)
			config.Logger = &mysql.NopLogger{}
			if recipe {
				MySQL(config)
			}
			connector, err := mysql.NewConnector(config)
			require.NoError(t, err)
			db := sql.OpenDB(connector)
			defer db.Close()
			for range 3 { // checks that the pool's connection is alive
				if err = db.PingContext(ctx); err != nil {
					break
				}
			}
			return fmt.Sprint(db.Stats().OpenConnections, " ", outcome(err))
		}
		s := serve(t, "tcp", "127.0.0.1:0", serveMySQL(t))
		_, port, err := net.SplitHostPort(s.Addr().String())
		require.NoError(t, err)
		u := serve(t, "unix", filepath.Join(t.TempDir(), "mysql"), serveMySQL(t))
		saw = append(saw,
			ping("somebody@tcp("+s.Addr().String()+")/shop"),
			ping("somebody@tcp("+s.Addr().String()+")/shop?tls=ours"),
			ping("somebody@tcp(localhost:"+port+")/shop?tls=ours"),
			ping("somebody@tcp("+s.Addr().String()+")/shop?tls=true"), // an authority that it does not know
			ping("somebody@unix("+u.Addr().String()+")/shop"),
			ping("somebody@tcp("+refused(t)+")/shop"),
			ping("somebody@tcp("+stalled(t)+")/shop?timeout=100ms"),
		)
		return append(append(saw, s.all()...), u.all()...)
	}).same(t)
}

func Example_pgxPool() {
	config, err := pgxpool.ParseConfig("postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	Postgres(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
}

func Example_databaseSQL() {
	config, err := pgx.ParseConfig("postgres://localhost/shop")
	if err != nil {
		log.Fatal(err)
	}
	Postgres(config)
	db := sql.OpenDB(stdlib.GetConnector(*config)) // was sql.Open
	defer db.Close()
}

func Example_mysql() {
	config, err := mysql.ParseDSN("user@tcp(localhost:3306)/shop")
	if err != nil {
		log.Fatal(err)
	}
	MySQL(config)
	connector, err := mysql.NewConnector(config)
	if err != nil {
		log.Fatal(err)
	}
	db := sql.OpenDB(connector) // was sql.Open
	defer db.Close()
}
