# Everything that people and pipelines do with this repository. `make` alone lists it.
#
# Every target sets up what it needs. Rust (by rustup), Go and a C compiler are expected; the Kubernetes programs are built
# once into a cache of the user's, and Debian packages that a node needs are installed when run as root.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

TARGET := $(or $(CARGO_TARGET_DIR),target)
CHART := charts/renderhub
# One profile for everything but images and the bench, so that each crate is compiled once; PROFILE=dev makes images of that.
# Always with --workspace: cargo compiles a crate again where another choice of packages asks for other features of it.
PROFILE ?= release
PROGRAMS := $(TARGET)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
TOOLS := $(TARGET)/debug/renderhub-tools

say = @printf '\n==> %s\n' "$(1)"

.PHONY: help quickstart test check fmt clippy doc drift lint bench soak crds image chart build tools earlier clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quickstart: build ## Start a cluster from nothing and render two charts on it; KEEP=1 leaves it running, REMOTE=1 adds a cluster that renders, FLUX=1 one that runs what was rendered; OLM=1 shows an operator instead
	@$(TARGET)/debug/examples/quickstart

test: tools earlier ## Run every test, on real control planes and nodes
	$(call say,tests)
	@$(TARGET)/debug/renderhub-tests

check: fmt clippy doc drift lint ## Run every check that needs no cluster: format, lints, docs, generated files, chart

bench: tools ## Measure the hub against a bare writer in the same run; ARGS="--help" lists the options
	$(call say,bench)
	@cargo build --locked --release --workspace --bin renderhub --bin renderhub-bench
	@$(TARGET)/release/renderhub-bench $(ARGS)

soak: tools ## Let hostile clusters and tenants at one hub under its memory limit for half an hour, as root; ARGS="--minutes 3" tries it
	$(call say,soak)
	@cargo build --locked --release --workspace --bin renderhub --bin renderhub-bench
	@$(TARGET)/release/renderhub-bench soak $(ARGS)

crds: build ## Generate CRDs, admission policies, the API reference and the chart's README
	$(call say,generating into $(CHART))
	@$(TARGET)/debug/crdgen --docs docs/api.md --values $(CHART)/values.yaml --readme $(CHART)/README.md $(CHART)/files

image: ## Build both images as OCI archives in target/images; PROFILE=dev is quicker
	$(call say,images ($(PROFILE)))
	@cargo build --locked --profile $(PROFILE) --workspace --bin renderhub --bin renderhub-renderer --bin renderhub-image
	@$(PROGRAMS)/renderhub-image $(PROGRAMS) $(TARGET)/images

chart: lint ## Package the Helm chart into target/charts
	$(call say,chart)
	@"$$($(TOOLS) path helm)" package $(CHART) --destination $(TARGET)/charts

clean: ## Remove what was built here
	@cargo clean
	@echo "The Kubernetes programs stay for the next time; to remove them too: rm -r $${XDG_CACHE_HOME:-$$HOME/.cache}/renderhub"

# The parts of `check`.

fmt:
	$(call say,format)
	@cargo fmt --all --check

clippy:
	$(call say,lints)
	@cargo clippy --locked --workspace --all-targets -- -D warnings

doc:
	$(call say,docs)
	@RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps

drift: build
	$(call say,generated files)
	@out=$$(mktemp -d); trap 'rm -r "$$out"' EXIT; $(TARGET)/debug/crdgen --docs "$$out/api.md" --values $(CHART)/values.yaml --readme "$$out/README.md" "$$out/files"; \
	  diff -r "$$out/files" $(CHART)/files && diff "$$out/api.md" docs/api.md && diff "$$out/README.md" $(CHART)/README.md || { echo "generated files are not what the types say: run make crds"; exit 1; }

lint: build
	$(call say,chart)
	@helm=$$($(TOOLS) path helm); "$$helm" lint --strict $(CHART); "$$helm" template --namespace renderhub-system renderhub $(CHART) > /dev/null

# All programs and the quickstart, with the features the tests need, so that `make test` compiles none of it again.
build:
	$(call say,programs)
	@cargo build --locked --workspace --bins --examples

tools: build
	$(call say,Kubernetes programs)
	@$(TOOLS) ensure

# Without this repository's history only the test that upgrades from there fails, and says what to do.
earlier: build
	$(call say,release before this one)
	-@$(TOOLS) earlier
