# confine: `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

# One static binary that depends on nothing of the machine that built it: no C
# library, no paths, no timestamps. The same commit gives the same bytes.
BUILD := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'

.PHONY: help build demo test bench lint clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build bin/confine
	@mkdir -p bin
	$(BUILD) -o bin/confine ./cmd/confine

demo: ## Show the main job: an issue becomes a merged change, hostile attempts refused
	@scripts/setup demo
	@$(MAKE) --no-print-directory build
	@scripts/demo

test: ## Set up what the tests need and run every test; a skipped test fails
	@scripts/setup test
	@scripts/test

bench: ## Compare start and throughput with plain exec, bubblewrap and runc
	@scripts/setup bench
	@$(MAKE) --no-print-directory build
	@$(GO) run ./bench -confine bin/confine

lint: ## Check format, vet, imports, house rules and scripts
	@scripts/lint

clean: ## Remove what was built here (not the download cache)
	rm -rf bin .cache bench/results
