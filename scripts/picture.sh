#!/bin/sh
# Draws docs/weir-top.svg, the picture of README.md: `weir top` records the live demonstration, and draws what it recorded.
# Usage: picture.sh PATH-OF-WEIR. Needs root and the packages of `install-deps.sh --demo`.
set -eu
cd "$(dirname "$0")/.."

weir=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
scripts/demo-live.sh "$weir" "$folder"
"$weir" top --from "$folder/top.jsonl" --captions "$folder/captions" --size 100x26 --picture docs/weir-top.svg
echo "picture: docs/weir-top.svg has $(wc -c <docs/weir-top.svg) bytes"
