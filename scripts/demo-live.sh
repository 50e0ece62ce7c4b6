#!/bin/sh
# The live demonstration: clients and an attacker, Weir, a line of 20 Mbit/s, and a web server, each in a network namespace
# of its own. The attack is a recorded one (DNS and SNMP amplification), repeated at 100 Mbit/s. Everything is removed at
# the end. Usage: demo-live.sh PATH-OF-WEIR [FOLDER]. Needs root and the packages of `install-deps.sh --demo`. The folder
# gets what `weir top` shows meanwhile (top.jsonl), and captions for it.
set -eu
cd "$(dirname "$0")/.."

weir=$1
record=${2:-}
policy=examples/mitigate/mitigate.weir
server=192.0.2.10
client=198.51.100.1
seconds=3

scratch=$(mktemp -d)
outside=weir-demo-outside-$$ middle=weir-demo-weir-$$ line=weir-demo-line-$$ inside=weir-demo-inside-$$
jobs=

clean_up() {
	set +e
	# shellcheck disable=SC2086 # a list of numbers
	[ -z "$jobs" ] || kill $jobs 2>/dev/null
	wait
	for host in $outside $middle $line $inside; do
		ip netns delete "$host" 2>/dev/null
	done
	rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

on() {
	host=$1
	shift
	ip netns exec "$host" "$@"
}

# Starts a program on a host, until the end of the demonstration. $1 is its log.
start() {
	log=$scratch/$1 host=$2
	shift 2
	ip netns exec "$host" "$@" >"$log" 2>&1 &
	jobs="$jobs $!"
}

say() { printf '\n%s\n' "$*"; }
ctl() {
	printf '\n$ weir ctl %s\n' "$*"
	"$weir" ctl --control "$scratch/weir.sock" "$@"
}

# Requests a second that the clients get from the server.
requests() {
	on "$outside" wrk -t 1 -c 2 -d "${seconds}s" --timeout 1s "http://$server/" |
		awk '/Requests\/sec/ { printf "%d", $2 }'
}

# What the pictures of the following measurement mean. $1 is when it began.
caption() {
	[ -z "$record" ] || printf '%s %s\n' "$1" "$2" >>"$record/captions"
}

for host in $outside $middle $line $inside; do
	ip netns add "$host"
	ip -n "$host" link set lo up
done
ip link add eth0 netns "$outside" type veth peer name lower netns "$middle"
ip link add upper netns "$middle" type veth peer name left netns "$line"
ip link add eth0 netns "$inside" type veth peer name right netns "$line"
ip -n "$line" link add name bridge0 type bridge
for wire in left right; do
	ip -n "$line" link set dev $wire master bridge0
done
ip -n "$outside" address add $client/24 dev eth0
ip -n "$inside" address add $server/24 dev eth0
while read -r host wire; do
	ip -n "$host" link set dev "$wire" up
	# Programs in the kernel send to virtual wires only with GRO at the other end.
	on "$host" ethtool -K "$wire" gro on tso off tx off >/dev/null 2>&1 || true
done <<END
$outside eth0
$inside eth0
$middle lower
$middle upper
$line left
$line right
$line bridge0
END
# Both networks are on the same wire.
ip -n "$outside" route add 192.0.2.0/24 dev eth0
ip -n "$inside" route add 198.51.100.0/24 dev eth0
tc -n "$line" qdisc add dev right root tbf rate 20mbit burst 16k latency 20ms

mkdir "$scratch/www"
echo 'Hello from behind Weir.' >"$scratch/www/index.html"
start server.log "$inside" busybox httpd -f -p $server:80 -h "$scratch/www"

# The attack: what Weir itself selects of the shipped recording, towards the server.
cat >"$scratch/select.weir" <<END
upstream { ip daddr 10.10.10.10 udp sport { 53, 161 } accept; drop }
downstream { drop }
END
"$weir" replay "$scratch/select.weir" --in examples/edge/attack.pcap --out "$scratch/selected.pcap" >/dev/null
tcprewrite --dstipmap=10.10.10.10/32:$server/32 --fixcsum --infile="$scratch/selected.pcap" --outfile="$scratch/attack.pcap" >/dev/null

start weir.log "$middle" "$weir" run $policy --engine xdp --lower lower --upper upper --control "$scratch/weir.sock" \
	--inside 192.0.2.0/24 --mitigate watch --mitigate-table blocked4,blocked6
# Waits until a command succeeds. $1 says what that means.
wait_until() {
	what=$1 tries=0
	shift
	until "$@" >/dev/null 2>&1; do
		tries=$((tries + 1))
		if [ $tries -gt 300 ]; then
			cat "$scratch/weir.log" "$scratch/server.log" >&2
			echo "demo: $what" >&2
			exit 1
		fi
		sleep 0.2
	done
}
wait_until "Weir does not start" "$weir" ctl --control "$scratch/weir.sock" status
answers() { timeout 3 ip netns exec "$outside" wrk -t 1 -c 1 -d 1s "http://$server/" 2>&1 | grep 'Requests/sec: *[1-9]'; }
wait_until "the web server does not answer" answers

say "Clients -- weir (XDP, $policy) -- a line of 20 Mbit/s -- a web server. Weir only watches at first."
if [ -n "$record" ]; then
	: >"$record/captions"
	"$weir" top --record "$record/top.jsonl" --control "$scratch/weir.sock" >"$scratch/top.log" 2>&1 &
	jobs="$jobs $!"
fi
began=$(date +%s)
peace=$(requests)
caption "$began" "Peace: a web server behind a line of 20 Mbit/s answers $peace requests a second"
printf '  %7s requests/s in peace\n' "$peace"
start attack.log "$outside" tcpreplay --quiet --preload-pcap --intf1=eth0 --mbps=100 --loop=0 \
	--duration=$((3 * seconds + 6)) "$scratch/attack.pcap"
sleep 1
began=$(date +%s)
watched=$(requests)
caption "$began" "100 Mbit/s of amplified DNS and SNMP, Weir only watches: $watched requests a second"
printf '  %7s requests/s under 100 Mbit/s of amplified DNS and SNMP, which fill the line\n' "$watched"
ctl attacks
say "Now Weir may act:"
ctl attacks mode act
sleep 1
began=$(date +%s)
requests >"$scratch/acted" &
load=$!
sleep 2
"$weir" top --once --size 100x24 --control "$scratch/weir.sock" >"$scratch/top"
wait $load
acted=$(cat "$scratch/acted")
caption "$began" "The same attack, Weir drops it: $acted requests a second"
printf '  %7s requests/s under the same attack\n' "$acted"
ctl attacks
printf '\n$ weir top --once\n'
cat "$scratch/top"
if [ "$acted" -le "$watched" ]; then
	echo "demo: the requests did not come back" >&2
	exit 1
fi
