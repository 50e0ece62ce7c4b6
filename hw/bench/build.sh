#!/bin/sh
# Builds the simulated card: build.sh FOLDER [-GNAME=VALUE...]. The program is FOLDER/Vcard.
set -eu
folder=$1
shift
hw=$(cd "$(dirname "$0")/.." && pwd)
# The package comes first: modules refer to it.
sources=$(ls "$hw"/rtl/*.sv | grep -v /layout.sv)
# shellcheck disable=SC2086 # a list of words
exec verilator --cc --exe --build -j 2 -O3 --x-initial fast -Wall --top-module card --Mdir "$folder" "$@" \
	-CFLAGS "-O1 -std=c++17" "$hw/rtl/layout.sv" $sources "$hw/bench/driver.cpp"
