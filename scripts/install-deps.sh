#!/bin/sh
# Installs the Debian packages that Weir needs to be built and to run. With --demo, also installs those of the live
# demonstration; with --tests, the packages and rustup components for its tests and for its feature dpdk. If nothing is
# missing, it prints nothing and needs no privileges.
set -eu

# clang-19         compiles policies, for this machine and for BPF
# libelf, zlib     libbpf
# pkg-config       finds the libraries
PACKAGES="clang-19 libelf-dev zlib1g-dev pkg-config"
# ip, ethtool      network namespaces
# busybox          a web server that installs no service
# wrk              clients
# tcpreplay        the attacker
DEMO_PACKAGES="iproute2 ethtool busybox wrk tcpreplay"
# libclang-rt-19   libFuzzer and the sanitizers
# clang-format-19  the C style check
# nftables, ip     (with iptables, ipset) comparison in tests, and their network namespaces
# ethtool          completes checksums on the hosts of tests, like network cards
# libdpdk-dev      headers, libraries and drivers of DPDK
# python3          runs the example of a detector
# systemd          judges how the service is hardened
# verilator, g++, make   simulate the card
# prometheus       scrapes Weir and evaluates alerts; promtool
TEST_PACKAGES="libclang-rt-19-dev clang-format-19 nftables iptables ipset iproute2 ethtool libdpdk-dev python3 systemd"
TEST_PACKAGES="$TEST_PACKAGES verilator g++ make prometheus"
TEST_COMPONENTS="rustfmt clippy"
# Packages of programs that tests start themselves. Their services are neither started nor enabled.
SERVICES="prometheus"
COMPONENTS=
LOCK_WAIT_SECONDS=600

fail() {
	echo "install-deps: $*" >&2
	exit 1
}

installed() {
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

missing_packages() {
	for package in $PACKAGES; do
		installed "$package" || echo "$package"
	done
}

# apt-get can wait for dpkg's lock, but `update` fails immediately if the package lists are locked.
update_lists() {
	waited=0
	until said=$(LC_ALL=C apt-get -qq update 2>&1); do
		case $said in
		*"Could not get lock"*) ;;
		*) fail "apt-get update failed: $said" ;;
		esac
		[ "$waited" -lt "$LOCK_WAIT_SECONDS" ] || fail "another apt-get holds its lock for $LOCK_WAIT_SECONDS s"
		waited=$((waited + 5))
		sleep 5
	done
}

# Runs a command that installs packages. Their services are not started meanwhile (invoke-rc.d(8)).
without_starting_services() {
	if [ -e /usr/sbin/policy-rc.d ]; then
		"$@"
		return
	fi
	trap 'rm -f /usr/sbin/policy-rc.d' EXIT
	printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
	chmod 755 /usr/sbin/policy-rc.d
	"$@"
}

# Services that are new with their packages do not start with the machine either.
disable_services() {
	command -v systemctl >/dev/null 2>&1 || return 0
	for service in $SERVICES; do
		case " $missing " in
		*" $service "*) systemctl disable --quiet "$service" >&2 || fail "systemctl could not disable $service" ;;
		esac
	done
}

install_packages() {
	command -v apt-get >/dev/null 2>&1 && command -v dpkg-query >/dev/null 2>&1 ||
		fail "no apt-get here. Weir is tested on Debian 12; install the equivalents of: $PACKAGES"
	missing=$(missing_packages | tr '\n' ' ')
	missing=${missing% }
	[ -n "$missing" ] || return 0
	[ "$(id -u)" -eq 0 ] || fail "needs root to install (sudo apt-get install $missing)"
	echo "install-deps: installing $missing" >&2
	export DEBIAN_FRONTEND=noninteractive
	update_lists
	# shellcheck disable=SC2086 # a list of words
	without_starting_services \
		apt-get -o DPkg::Lock::Timeout=$LOCK_WAIT_SECONDS -qq install --no-install-recommends $missing >&2 ||
		fail "apt-get could not install: $missing"
	disable_services
}

install_components() {
	command -v cargo >/dev/null 2>&1 || fail "no cargo in PATH. Install Rust from https://rustup.rs"
	for component in $COMPONENTS; do
		case $component in
		rustfmt) cargo fmt --version >/dev/null 2>&1 && continue ;;
		clippy) cargo clippy --version >/dev/null 2>&1 && continue ;;
		esac
		command -v rustup >/dev/null 2>&1 || fail "$component is missing and there is no rustup to add it"
		rustup component add "$component" >&2 || fail "rustup could not add $component"
	done
}

case ${1:-} in
--demo)
	# Without root there is no live part, which is all that needs them.
	[ "$(id -u)" -ne 0 ] || PACKAGES="$PACKAGES $DEMO_PACKAGES"
	;;
--tests)
	PACKAGES="$PACKAGES $TEST_PACKAGES"
	COMPONENTS=$TEST_COMPONENTS
	;;
"") ;;
*) fail "usage: install-deps.sh [--demo | --tests]" ;;
esac
install_packages
install_components
