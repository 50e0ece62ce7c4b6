#!/bin/sh
# Builds what `make demo` runs. While packages are installed, it builds what needs none.
set -eu
cd "$(dirname "$0")/.."

build() { cargo build --profile demo --package weir "$@"; }

echo "demo: building Weir; the first time takes one to two minutes"
# Cargo fails at the crates that need the packages, and goes on with the others. The build below shows what is wrong.
{ build --keep-going 2>&1 || true; } | grep -E '^ +(Compiling|Downloaded) ' &
early=$!
installed=0
scripts/install-deps.sh --demo || installed=$?
wait $early || true
[ $installed -eq 0 ] || exit $installed
build
