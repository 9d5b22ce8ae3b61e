#!/usr/bin/env bash
# Looks for inputs that a fuzz target of tests/fuzz cannot take, with clang's libFuzzer and under
# AddressSanitizer with UndefinedBehaviorSanitizer.  It begins with the kept inputs of
# tests/fuzz/corpus and puts what it finds into build-fuzz/corpus; an input that fails is put into
# build-fuzz/TARGET-*, and the exit code is then not 0.
#
#   tools/fuzz.sh [SECONDS] [TARGET]   60 seconds of container_index
#   tools/fuzz.sh minimise [TARGET]    keeps of all inputs as few as reach every branch that all of
#                                      them reach
#
# An input that failed belongs into the corpus, too, once what it showed is mended.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

what=${1:-60}
target=${2:-container_index}
kept=tests/fuzz/corpus/$target
found=build-fuzz/corpus/$target
fuzzer=build-fuzz/tests/fuzz/${target}_fuzz

install_missing "${build_packages[@]}" "${fuzz_packages[@]}"
export CXX=clang++
export CXXFLAGS="-fsanitize=fuzzer-no-link -fsanitize-coverage-allowlist=$PWD/tests/fuzz/covered.txt"
build build-fuzz "-Dfuzz=true -Dwerror=false -Db_sanitize=address,undefined -Db_lundef=false \
  -Doptimization=1 -Ddebug=true" "tests/fuzz/${target}_fuzz"
mkdir -p "$kept" "$found"
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1

if [ "$what" = minimise ]; then
  least=build-fuzz/least-$target
  rm -rf "$least"
  mkdir "$least"
  "$fuzzer" -merge=1 -use_counters=0 "$least" "$kept" "$found"
  rm -rf "$kept" "$found"
  mv "$least" "$kept"
  echo "fuzz: $(find "$kept" -type f | wc -l) inputs, $(du -sb "$kept" | cut -f1) bytes in $kept"
else
  "$fuzzer" -max_total_time="$what" -max_len=32768 -timeout=5 -rss_limit_mb=1024 \
    -print_final_stats=1 -artifact_prefix="build-fuzz/$target-" "$found" "$kept"
fi
