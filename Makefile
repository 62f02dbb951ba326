# make test runs everything that a change must pass; each stage can also be run
# by its own name.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
MODULES     := . examples bench metrics
PLATFORMS   := linux/arm64 darwin/arm64 windows/amd64
STAGES      := format tidy vet staticcheck tests tests-plain tests-ways tests-alone adoption fuzz platforms

# Where git does not trust the checkout, stamping its version fails the build.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# ./... stops at a module's border, so every stage goes from module to module.
each = set -e; for module in $(MODULES); do (cd $$module && $(1)); done

WAYS        := way-iwarp way-iwarp-zcopy way-zcopy way-bcopy

.PHONY: help test test-adoption suites test-arm64 test-lab test-verbs mutants soak scale repeat repeat-lab nightly $(STAGES) $(WAYS)

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\): ## /  \1\t/p' Makefile | expand -t 16

test: ## everything that a change must pass
	@set -e; for stage in $(STAGES); do \
		echo "== $$stage"; start=$$(date +%s); \
		$(MAKE) --no-print-directory $$stage; \
		echo "== $$stage: $$(($$(date +%s) - start)) s"; \
	done

format: ## gofmt
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w $$unformatted"; exit 1; }

tidy: ## go.mod and go.sum
	@$(call each,go mod tidy -diff)

vet: ## go vet
	@$(call each,go vet ./...)

staticcheck: ## staticcheck
	@$(call each,go run $(STATICCHECK) ./...)

# One package after the other where they measure what happens in time, and of the
# others two beside each other.
TIMED := sdp listener rdma/iwarp rdma/shm rdma/verbs internal/spin internal/status/collect test/faults test/scale test/parity test/containers
tests: ## all tests, with the race detector
	@go test -race -p 1 -timeout 10m $(TIMED:%=./%)
	@go test -race -p 2 -timeout 10m $$(go list ./... | grep -vxF $(TIMED:%=-e github.com/gosdp/gosdp/%))
	@cd examples && go test -race -p 2 -timeout 10m ./...
	@cd bench && go test -race -p 1 -timeout 10m ./...
	@cd metrics && go test -race -timeout 10m ./...

# Tests of allocations and times, which the race detector distorts. What
# compares processor times has the machine to itself.
tests-plain: ## all tests without it: allocations, times
	@go test -timeout 10m $$(go list ./... | grep -vxF github.com/gosdp/gosdp/test/cost)
	@go test -timeout 10m ./test/cost

# Everything that a connection promises, on the device that is not the best one
# here, with nearly every Write advertised, and with none. These mostly wait, and so
# two run beside each other; what one prints is not mixed with what the other does.
way-iwarp:       way := SDP_DEVICES=iwarp
way-iwarp:       race := -race
way-iwarp-zcopy: way := SDP_DEVICES=iwarp SDP_ZCOPY_THRESHOLD=1
way-zcopy:       way := SDP_ZCOPY_THRESHOLD=1
way-bcopy:       way := SDP_ZCOPY_THRESHOLD=-1

tests-ways: ## the tests of sdp, each device and way of moving bytes
	@$(MAKE) --no-print-directory --output-sync=target -j 2 $(WAYS)

$(WAYS):
	@echo "$(way) go test $(race)"; $(way) go test $(race) -short -timeout 10m ./sdp

# Alone, a module sees only its own requirements. Where those build the same
# program, go test knows its result from the stage before.
tests-alone: ## each module without the workspace
	@export GOWORK=off; $(call each,go test -race -timeout 10m ./...)

# Every fuzzer, each for FUZZTIME on one processor, two beside each other. An input that
# fails one is left in testdata/fuzz beside it, where the test of that name tries it from
# then on.
FUZZTIME ?= 10s
fuzz: ## every fuzzer for FUZZTIME (10s)
	@go test -list '^Fuzz' ./... | \
	awk '/^Fuzz/ {names[n++] = $$1} /^ok/ {for (i = 0; i < n; i++) print $$2, names[i]; n = 0}' | \
	xargs -L 1 -P 2 test/fuzz.sh $(FUZZTIME)

# go vet type-checks the tests too, which go build leaves out. Programs outside the core
# are not linked: those of the core show that linking works. What is built is thrown away.
platforms: ## builds and vets for other systems
	@set -e; for platform in $(PLATFORMS); do \
		echo $$platform; export GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0; \
		go build -o /dev/null ./...; $(call each,go vet ./...); \
	done

# The tests of other projects with SDP underneath, beside the same over TCP; see
# test/swap. SUITES chooses among them: xnet, grpc.
SUITES ?= 1
suites: ## tests of other projects over SDP; SUITES chooses
	@GOSDP_SUITES=$(SUITES) go test -count=1 -v -timeout 30m ./test/swap/suites

# Programs that know nothing of SDP, built with it by "sdp go", and the tests of the
# standard library: see docs/adoption.md. A change must pass the short part.
adoption: ## sdp go, and tests of the standard library over SDP
	@GOSDP_ADOPTION=short go test -count=1 -timeout 15m ./test/adoption

test-adoption: ## all of them, for each version of Go; and other programs
	@GOSDP_ADOPTION=all go test -count=1 -v -timeout 120m ./test/adoption

# Two processes and everything that connections do, for as long as it is told; see
# test/soak.
SOAKTIME ?= 2m
soak: ## everything at once for SOAKTIME (2m)
	@go run ./test/soak -duration $(SOAKTIME)

# Connections opened and closed, RATE each second, for SCALETIME on each device; see
# test/scale.
SCALETIME ?= 1m
RATE      ?= 1000
scale: ## connections opened and closed for SCALETIME (1m)
	@go run ./test/scale -duration $(SCALETIME) -rate $(RATE)

# The tests of the library TIMES times on each of DEVICES, RACE=1 with the race
# detector, SHORT=1 without what takes long; and FEW times what kills, what is about
# scale, and the soak. It takes hours, may be interrupted, and goes on where it was if
# it is called again; REPEATDIR keeps what fails. See test/repeat.
TIMES     ?= 100
FEW       ?= 5
DEVICES   ?= iwarp shm
RACE      ?=
SHORT     ?=
REPEATDIR ?= /tmp/gosdp-repeat
repeat: ## the tests TIMES (100) times on DEVICES
	@go run ./test/repeat -times $(TIMES) -few $(FEW) -devices '$(DEVICES)' -dir $(REPEATDIR) $(if $(RACE),-race) $(if $(SHORT),-short)

# What takes too long for every change. CI runs a part of each.
nightly: ## what takes hours: repetitions, long fuzzing, all of the lab
	@$(MAKE) --no-print-directory test-arm64
	@$(MAKE) --no-print-directory test-adoption
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory fuzz FUZZTIME=10m
	@$(MAKE) --no-print-directory soak SOAKTIME=30m
	@$(MAKE) --no-print-directory scale
	@$(MAKE) --no-print-directory test-verbs
	@$(MAKE) --no-print-directory repeat repeat-lab

# Not part of make test: it changes only when the library or a patch does, and
# takes some seconds a patch. MUTANTS chooses among them by a regular expression, and
# PART=1/2 is half of these.
PART ?= 1/1
mutants: ## faults that tests must notice; MUTANTS and PART choose
	@go run ./test/mutants -run '$(MUTANTS)' -part '$(PART)'

# qemu-user emulates an arm64 processor for one program. It may let a load overtake an
# earlier atomic store, which arm64 does not, unless the program has one processor only. It
# has no process_vm_readv, which RDMA over shm needs, ignores madvise, and does not start
# further programs. ARM64_SKIP leaves out the tests that need these, and those that flood.
ARM64_EXEC := taskset -c 0 qemu-aarch64
ARM64_SKIP := Apart|Flood|Impostor|^TestAreaCosts|^TestIdleGivesBack|^TestNothingOfTheOldConnection|^TestMeet$$|^TestReach|^TestMemoryOutOfReach|^TestReadsOfASlowPeer|^TestRogueWritesAhead|^TestRogueAddress|^TestPeerIsEnding|^FuzzArea
ARM64_RDMA := ^TestConformance(InOneProcess)?$$/^(Write|Read|Invalidate|Flood)$$|/^Register$$/^Concurrent|/^Wait$$/^OnlyForReason|/^Prompt$$/^(NeverBlocks|Invalidate)|/^Drain$$/^Write|/^Teardown$$/^(Regions|Reads|Reading|Writing)|/^Optional$$/^FinishBacklog
test-arm64: ## some packages as arm64, under qemu-user
	@command -v qemu-aarch64 >/dev/null || { echo 'make test-arm64 needs qemu-aarch64 (Debian: qemu-user)'; exit 1; }
	@export CGO_ENABLED=0 GOARCH=arm64; \
	go test -short -timeout 10m -exec '$(ARM64_EXEC)' -skip 'Apart' ./wire ./credits ./bcopy ./zcopy ./internal/session ./rdma/iwarp && \
	go test -short -timeout 10m -exec '$(ARM64_EXEC)' -skip '$(ARM64_SKIP)|$(ARM64_RDMA)' ./rdma/shm

# Against Linux's software RDMA devices, in a virtual machine. Elsewhere these
# tests are skipped; here the machine is set up first, and nothing is. Of the
# conformance suite on the verbs device it is a part.
test-lab: ## software RDMA devices, in a virtual machine
	@lab=$$(test/lab/setup.sh) && GOSDP_LAB=$$lab go test -race -short -count=1 -timeout 15m ./test/lab/...

# What of that runs on rxe and siw: SDP and the shorter half of the suite twenty times,
# in five machines one after the other, and HTTP, the short faults and devices that go
# once in each; and then all of the suite twenty times. MACHINES has fewer at a time.
MACHINES ?= 5
repeat-lab: ## the same twenty times
	@lab=$$(test/lab/setup.sh) && export GOSDP_LAB=$$lab GOSDP_LAB_TIMES=4 && \
	again='go test -count=$(MACHINES) -timeout 4h -v ./test/lab' && \
	$$again -short -run '^TestVerbs$$' && $$again -run '^TestVerbs$$/./^device$$'

# All that there is for the verbs device on rxe and siw in that machine, which takes
# some minutes more and is at the mercy of an emulated processor's clock.
test-verbs: ## all that there is for verbs, in that machine
	@lab=$$(test/lab/setup.sh) && GOSDP_LAB=$$lab go test -count=1 -timeout 25m -v -run '^(TestVerbs|TestByReference|TestHosts|TestSystemCalls)$$' ./test/lab/...
