#!/bin/sh
# Maps the card to an FPGA with yosys: synth.sh xilinx|ecp5 [NAME=VALUE...]. The settings are parameters of
# hw/rtl/card.sv. Prints the cells, and the longest path in levels of logic.
set -eu
family=${1:?usage: synth.sh xilinx|ecp5 [NAME=VALUE...]}
shift
cd "$(dirname "$0")/rtl"
case $family in
xilinx) synth="synth_xilinx -family xc7 -noiopad -flatten -top card" ;;
ecp5) synth="synth_ecp5 -top card" ;;
*) echo "synth.sh: xilinx or ecp5" >&2; exit 2 ;;
esac
parameters=
for setting in "$@"; do
	parameters="$parameters -set ${setting%%=*} ${setting#*=}"
done
sources=$(ls ./*.sv | grep -v /layout.sv | tr '\n' ' ')
exec yosys -q -p "read_verilog -sv layout.sv $sources; chparam$parameters card; $synth;
	tee -o /dev/stdout stat; tee -o /dev/stdout ltp -noff"
