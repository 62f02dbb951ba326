# Three tiers, each of which includes the one before: make test is what a contributor runs,
# make check what a change must pass, make nightly everything. Each stage has a target of
# its own.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
MODULES     := . examples bench metrics
PLATFORMS   := linux/arm64 darwin/arm64 windows/amd64
TEST        := format tidy vet staticcheck unit
CHECK       := root allocs ways alone adoption arm64 lab platforms
NIGHTLY     := long adoption-all mutants mutation fuzz soak bench-check verbs repeat-lab

# Where git does not trust the checkout, stamping its version fails the build.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

WAYS        := way-at-once way-at-random way-zcopy way-bcopy

.PHONY: help test check nightly $(TEST) $(CHECK) $(NIGHTLY) $(WAYS)

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  \1\t/p' Makefile | expand -t 16

# run makes one target after the other, and prints the time of each.
run = @set -e; for stage in $(1); do \
		echo "== $$stage"; start=$$(date +%s); \
		$(MAKE) --no-print-directory $$stage; \
		echo "== $$stage: $$(($$(date +%s) - start)) s"; \
	done

test: ## what a contributor runs: no root, five minutes
	$(call run,$(TEST))

check: ## what a change must pass: test, and what needs root or other programs
	$(call run,test $(CHECK))

nightly: ## what takes hours
	$(call run,check $(NIGHTLY))

# --- test

# ./... does not cross module boundaries.
each := set -e; for module in $(MODULES); do (cd $$module && $$command); done
ALL  := ./... $(patsubst %,./%/...,$(filter-out .,$(MODULES)))

format: ## gofmt
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }

tidy: ## go.mod and go.sum
	@command='go mod tidy -diff'; $(each)

vet: ## go vet
	@go vet $(ALL)

staticcheck: ## staticcheck
	@go run $(STATICCHECK) $(ALL)

# These packages start other programs, need root, or take minutes; check has them.
SEPARATE := $(addprefix github.com/gosdp/gosdp/,examples/proxy $(addprefix test/,adoption containers faults lab lab/inside strangers))
unit: ## all unit tests once, with the race detector and the seeds of every fuzzer
	@GORACE=atexit_sleep_ms=0 go test -race -short -timeout 10m $$(go list $(ALL) | grep -vxF $(SEPARATE:%=-e %))

# --- check

root: ## containers, faults, servers without SDP, redirected programs: as root
	@go test -short -p 1 -count=1 -timeout 10m ./test/containers ./test/faults ./test/strangers ./examples/proxy

# The race detector allocates.
allocs: ## tests of allocations, without the race detector
	@go test -short -run '^TestAllocs' ./...

# Everything that a connection promises: with moves to shared memory at the first exchange, with moves all the time,
# and over RDMA with nearly every Write advertised, and with none.
# One way checks the order of locks, too.
way-at-once: way := SDP_MOVE=at-once
way-at-once: tested := -tags lockorder ./internal/lockorder ./internal/stream ./internal/engine
way-at-random: way := SDP_MOVE=at-random
way-zcopy: way := SDP_ZCOPY_THRESHOLD=1
way-bcopy: way := SDP_ZCOPY_THRESHOLD=-1
way-zcopy way-bcopy: engine := ./internal/engine

ways: ## the tests of sdp and the engine, each way of moving bytes
	@$(MAKE) --no-print-directory --output-sync=target -j 2 $(WAYS)

$(WAYS):
	@echo "$(way) go test $(tested)"; $(way) go test -short -timeout 10m $(tested) ./sdp $(engine)

alone: ## each module with its own requirements only
	@export GOWORK=off; command='go vet ./...'; $(each)

# Programs that know nothing of SDP, built with it by "sdp go", and the tests of the
# standard library: see docs/adoption.md.
adoption: ## the short part of adoption-all
	@GOSDP_ADOPTION=short go test -count=1 -timeout 10m ./test/adoption

# go vet type-checks the tests too, which go build leaves out. Programs outside the core
# are not linked: those of the core show that linking works.
platforms: ## builds and vets for other systems
	@set -e; for platform in $(PLATFORMS); do \
		echo $$platform; export GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0; \
		go build -o /dev/null ./...; go vet $(ALL); \
	done

# qemu-user emulates an arm64 processor for one program. It may let a load overtake an
# earlier atomic store, which arm64 does not, unless the program has one processor only. It
# does not start further programs.
ARM64_EXEC := taskset -c 0 qemu-aarch64
arm64: ## some packages as arm64, under qemu-user
	@command -v qemu-aarch64 >/dev/null || { echo 'make arm64 needs qemu-aarch64 (Debian: qemu-user)'; exit 1; }
	@export CGO_ENABLED=0 GOARCH=arm64; \
	go test -short -timeout 10m -exec '$(ARM64_EXEC)' -skip 'Apart' ./wire ./credits ./bcopy ./zcopy ./internal/session ./rdma/iwarp

# Linux's software RDMA devices, in a virtual machine that needs no KVM.
lab: ## software RDMA devices, in a virtual machine: the short part
	@lab=$$(test/lab/setup.sh) && GOSDP_LAB=$$lab go test -race -short -count=1 -timeout 15m ./test/lab/...

# --- nightly

long: ## all tests in full, with the race detector and without
	@go test -race -p 1 -timeout 30m $(ALL)
	@go test -p 1 -timeout 30m $(ALL)

adoption-all: ## adoption in full, for each version of Go
	@GOSDP_ADOPTION=all go test -count=1 -v -timeout 120m ./test/adoption

mutants: ## faults that a test must notice; MUTANTS chooses by a regular expression
	@go run ./test/mutants -run '$(MUTANTS)'

# Mutants that a tool makes: an operator or a constant changed. Some that live are equivalent.
mutation: ## mutation tests of the packages without I/O
	@set -e; for package in credits bcopy zcopy wire internal/session internal/gate internal/trigger rdma/iwarp/mpa; do \
		GOWORK=off GOFLAGS='$(GOFLAGS) -short' go run github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0 \
			unleash --workers 1 --timeout-coefficient 10 -S lt ./$$package; \
	done

# Every fuzzer, each for FUZZTIME on one processor, two beside each other. An input that
# fails one is left in testdata/fuzz beside it, where the test of that name tries it from
# then on.
FUZZTIME ?= 10m
fuzz: ## every fuzzer for FUZZTIME (10m)
	@go test -list '^Fuzz' ./... | \
	awk '/^Fuzz/ {names[n++] = $$1} /^ok/ {for (i = 0; i < n; i++) print $$2, names[i]; n = 0}' | \
	xargs -L 1 -P 2 test/fuzz.sh $(FUZZTIME)

# Two processes and everything that connections do; see test/soak.
SOAKTIME ?= 30m
soak: ## everything at once for SOAKTIME (30m)
	@go run ./test/soak -duration $(SOAKTIME)

bench-check: ## the targets of bench/targets.txt
	@cd bench && go run . -check

verbs: ## all that there is for verbs, in the lab
	@lab=$$(test/lab/setup.sh) && GOSDP_LAB=$$lab go test -count=1 -timeout 25m -v -run '^(TestVerbs|TestByReference|TestHosts|TestNothingIsSent|TestSystemCalls)$$' ./test/lab/...

# SDP and the shorter half of the suite in five machines one after the other, and then all
# of the suite.
MACHINES ?= 5
repeat-lab: ## verbs twenty times
	@lab=$$(test/lab/setup.sh) && export GOSDP_LAB=$$lab GOSDP_LAB_TIMES=4 && \
	again='go test -count=$(MACHINES) -timeout 4h -v ./test/lab' && \
	$$again -short -run '^TestVerbs$$' && $$again -run '^TestVerbs$$/./^device$$'
