# The targets for newcomers. `cargo xtask --help` lists all other tasks.

# The default folder of rustup, for shells that have not read its profile.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help test demo picture deb image install-deps install-test-deps

help:
	@echo 'make demo          replay a real attack through the shipped policy, and stop one in network namespaces'
	@echo 'make test          all checks of CI'
	@echo 'make picture       record the live part of the demonstration, and draw docs/weir-top.svg'
	@echo 'make deb           build the Debian packages into target/debian'
	@echo 'make image         build a container image of the package into target/image/oci (docs/guide/container.md)'
	@echo 'make install-deps  install Debian packages (all targets above run it; needs root; demo and tests need more)'

install-deps:
	@scripts/install-deps.sh

install-test-deps:
	@scripts/install-deps.sh --tests

test: install-test-deps
	@cargo xtask ci

demo:
	@scripts/build-demo.sh
	@scripts/demo.sh

picture:
	@scripts/build-demo.sh
	@scripts/picture.sh "$$(pwd)/$${CARGO_TARGET_DIR:-target}/demo/weir"

deb: install-deps
	@cargo xtask deb

image: deb
	@cargo xtask container
