#!/bin/sh
# A real attack mixed with legitimate traffic, through the shipped policy.
set -eu
cd "$(dirname "$0")/.."

weir=${CARGO_TARGET_DIR:-target}/release/weir
example=examples/edge

if [ ! -f "$example/edge.weir" ]; then
	echo "demo: $example/edge.weir is missing" >&2
	exit 1
fi
exec "$weir" replay "$example/edge.weir" --in "$example/attack.pcap"
