module github.com/gosdp/gosdp/bench

go 1.25.0

require (
	github.com/gosdp/gosdp v0.0.0-00010101000000-000000000000
	github.com/stretchr/testify v1.12.1
)

require (
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/gosdp/gosdp => ../
