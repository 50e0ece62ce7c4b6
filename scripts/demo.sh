#!/bin/sh
# Runs real traffic with attacks through the policy of the examples.
set -eu
cd "$(dirname "$0")/.."

weir=$(pwd)/${CARGO_TARGET_DIR:-target}/demo/weir
case ${CARGO_TARGET_DIR:-} in
/*) weir=$CARGO_TARGET_DIR/demo/weir ;;
esac

cd examples/edge
say() { printf '\n$ weir %s\n' "$*"; }
run() { say "$@"; "$weir" "$@"; }

echo "The policy examples/edge/edge.weir protects two networks. First: is it correct, and what does it cost?"
run check edge.weir
echo
echo "Now 20 seconds of real traffic: a few web clients, and four floods on one of the hosts."
run replay edge.weir --in attack.pcap
echo
echo "Why was packet 5000 treated as it was?"
run why edge.weir --in attack.pcap --packet 5000
echo
echo "And what would the stricter policy change?"
run diff edge.weir strict.weir --in attack.pcap
