package adopt

import (
	"net"

	"github.com/go-sql-driver/mysql"
	"github.com/gosdp/gosdp/sdp"
	"github.com/jackc/pgx/v5"
)

// Postgres sets the dialler of pgx. config is one of [pgx.ParseConfig] or a pool's ConnConfig. For
// database/sql, pass it to stdlib.GetConnector.
func Postgres(config *pgx.ConnConfig) {
	dialer := &sdp.Dialer{NetDialer: &net.Dialer{Timeout: config.ConnectTimeout}}
	config.DialFunc = dialer.DialContext
}

// MySQL sets the dialler of the MySQL driver. config is one of [mysql.ParseDSN]; pass it to
// [mysql.NewConnector].
func MySQL(config *mysql.Config) {
	config.DialFunc = new(sdp.Dialer).DialContext
}
