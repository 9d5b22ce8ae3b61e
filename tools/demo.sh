#!/usr/bin/env bash
# From a fresh clone to English: installs what is missing, builds, and continues a prompt with the
# model in models/nano, its weights streamed from disk with none of them pinned in memory.
#
#   tools/demo.sh                       the demo
#   tools/demo.sh --prompt TEXT ...     other flags for `sluice run`, see its --help
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

install_missing "${build_packages[@]}"
build build "" tools/sluice/sluice
arguments=("$@")
[ ${#arguments[@]} -gt 0 ] || arguments=(--prompt "$(cat models/nano/prompt.txt)" --gen 100)
echo "demo: sluice run models/nano --ram floor ${arguments[*]}" >&2
exec build/tools/sluice/sluice run models/nano --ram floor "${arguments[@]}"
