package adopt_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/gosdp/gosdp/sdp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
)

func Example_pgx() {
	database := newStub()
	defer database.Close()

	config, err := pgx.ParseConfig("postgres://user@" + database.Addr().String() + "/shop?sslmode=disable")
	check(err)
	config.DialFunc = new(sdp.Dialer).DialContext // adopts SDP
	_, err = pgx.ConnectConfig(context.Background(), config)

	fmt.Println("connected over", <-database.device, "to one that does not answer:", err != nil)
	// Output: connected over iwarp to one that does not answer: true
}

func Example_databaseSQL() {
	database := newStub()
	defer database.Close()

	config, err := pgx.ParseConfig("postgres://user@" + database.Addr().String() + "/shop?sslmode=disable")
	check(err)
	config.DialFunc = new(sdp.Dialer).DialContext  // adopts SDP
	db := sql.OpenDB(stdlib.GetConnector(*config)) // was sql.Open
	defer db.Close()
	err = db.Ping()

	fmt.Println("connected over", <-database.device, "to one that does not answer:", err != nil)
	// Output: connected over iwarp to one that does not answer: true
}

func Example_mysql() {
	database := newStub()
	defer database.Close()

	config, err := mysql.ParseDSN("user@tcp(" + database.Addr().String() + ")/shop")
	check(err)
	config.DialFunc = new(sdp.Dialer).DialContext // adopts SDP
	config.Logger = &mysql.NopLogger{}            // the stub does not answer
	connector, err := mysql.NewConnector(config)
	check(err)
	db := sql.OpenDB(connector) // was sql.Open
	defer db.Close()
	err = db.Ping()

	fmt.Println("connected over", <-database.device, "to one that does not answer:", err != nil)
	// Output: connected over iwarp to one that does not answer: true
}

func Example_redis() {
	database := newStub()
	defer database.Close()

	client := redis.NewClient(&redis.Options{
		Addr:   database.Addr().String(),
		Dialer: new(sdp.Dialer).DialContext, // adopts SDP
	})
	defer client.Close()
	err := client.Ping(context.Background()).Err()

	fmt.Println("connected over", <-database.device, "to one that does not answer:", err != nil)
	// Output: connected over iwarp to one that does not answer: true
}
