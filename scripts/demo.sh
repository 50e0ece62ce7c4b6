#!/bin/sh
# Shows Weir on a recorded attack and, where namespaces and interfaces may be made, on a live one.
set -eu
cd "$(dirname "$0")/.."

weir=$(pwd)/${CARGO_TARGET_DIR:-target}/demo/weir
case ${CARGO_TARGET_DIR:-} in
/*) weir=$CARGO_TARGET_DIR/demo/weir ;;
esac

run() {
	printf '\n$ weir %s\n' "$*"
	"$weir" "$@"
}

# Whether this machine lets us make namespaces, virtual wires and XDP programs.
may_be_live() {
	[ "$(id -u)" -eq 0 ] || return 1
	probe=weir-demo-probe-$$
	ip netns add $probe 2>/dev/null || return 1
	made=0
	ip -n $probe link add a0 type veth peer name a1 2>/dev/null || made=1
	ip netns delete $probe
	return $made
}

(
	cd examples/edge
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
)

echo
if may_be_live; then
	echo "And live:"
	scripts/demo-live.sh "$weir"
else
	echo "There is no live part: it needs root, and the right to make network namespaces."
fi
