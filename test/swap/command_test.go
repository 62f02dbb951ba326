package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseCommand(t *testing.T) {
	for _, tt := range []struct {
		args     string
		packages string
		tags     string
		err      string
	}{
		{args: "go test", packages: "."},
		{args: "go test ./a ./b", packages: "./a ./b"},
		{args: "go test -race -run X -count=1 ./... -v -short", packages: "./..."},
		{args: "go test -tags a,b ./a -args ./b -tags c", packages: "./a", tags: "-tags=a,b"},
		{args: "go test -args ./b", packages: "."},
		{args: "go1.26.8 build --tags=a -o prog ./cmd", packages: "./cmd", tags: "-tags=a"},
		{args: "go run -race ./cmd main.go ./b", packages: "./cmd"},
		{args: "go vet -v ./...", packages: "./..."},
		{args: "go", err: "must be a go command"},
		{args: "test ./...", err: "must be a go command"},
		{args: "go install ./...", err: "go install is not supported"},
		{args: "go run -race main.go", err: "go run main.go: name the package"},
		{args: "go test -C dir ./...", err: "use swap's own -C"},
		{args: "go test -overlay=x ./...", err: "swap sets it"},
		{args: "go test -modfile x ./...", err: "swap sets it"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			c, err := parseCommand(strings.Fields(tt.args))
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.packages, strings.Join(c.packages, " "))
			assert.Equal(t, tt.tags, strings.Join(c.tags(), " "))
			assert.Equal(t, strings.Fields(tt.args)[2:], c.args)
		})
	}
}

func TestOutputOfCopyIsKept(t *testing.T) {
	program := []pkg{{Name: "main"}}
	there, err := filepath.Abs("prog")
	require.NoError(t, err)
	for _, tt := range []struct{ args, want, err string }{
		{"go build -o prog ./cmd", "-o " + there + " ./cmd", ""},
		{"go build -o=prog ./cmd", "-o=" + there + " ./cmd", ""},
		{"go test -c -o prog ./cmd", "-c -o " + there + " ./cmd", ""},
		{"go test ./cmd", "./cmd", ""},
		{"go build ./cmd", "", "go build needs -o"},
		{"go test -c ./cmd", "", "go test needs -o"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			c, err := parseCommand(strings.Fields(tt.args))
			require.NoError(t, err)
			err = c.keepOutput(program)
			if tt.err != "" {
				assert.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, strings.Join(c.args, " "))
		})
	}
}
