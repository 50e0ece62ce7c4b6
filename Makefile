# The three things a newcomer does. Everything else is `cargo xtask --help`.

# rustup's own place, for a shell that has not read its profile.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help test demo install-deps install-test-deps

help:
	@echo 'make demo          replay a real attack through the shipped policy'
	@echo 'make test          everything that CI checks'
	@echo 'make install-deps  what Debian must provide (run by the two above, needs root; the tests add DPDK)'

install-deps:
	@scripts/install-deps.sh

install-test-deps:
	@scripts/install-deps.sh --tests

test: install-test-deps
	@cargo xtask ci

demo: install-deps
	@cargo build --release --quiet
	@scripts/demo.sh
