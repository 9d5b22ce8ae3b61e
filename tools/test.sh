#!/usr/bin/env bash
# Installs what is missing, builds in release, runs every test; then the same tests under
# AddressSanitizer with UndefinedBehaviorSanitizer, and the threaded ones under ThreadSanitizer.
# The last line reads "N passed, N failed".
#
#   tools/test.sh                       all of it
#   tools/test.sh release|asan|tsan     one of the three
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/setup.sh

passed=0
failed=0

# Usage: run_tests FOLDER [MESON-TEST-ARGUMENT...]   adds to the counts; a test that cannot run
# here exits with 77 and says why.
run_tests() {
  local folder=$1 log status
  shift
  log=$folder/meson-logs/testlog.txt
  meson test -C "$folder" --no-rebuild --print-errorlogs "$@"
  status=$?
  local ok bad
  ok=$(sed -n 's/^Ok: *//p' "$log" | tail -1)
  bad=$(sed -n -e 's/^Fail: *//p' -e 's/^Timeout: *//p' -e 's/^Unexpected Pass: *//p' "$log" |
        awk '{n += $1} END {print n + 0}')
  passed=$((passed + ${ok:-0}))
  failed=$((failed + bad))
  [ $status -eq 0 ] || [ "$bad" -gt 0 ] || failed=$((failed + 1))
}

# Usage: build_and_test FOLDER "MESON OPTIONS" [MESON-TEST-ARGUMENT...]
build_and_test() {
  local folder=$1 options=$2
  shift 2
  # shellcheck disable=SC2086  # options are words
  if build "$folder" $options; then
    run_tests "$folder" "$@"
  else
    echo "test: $folder does not build" >&2
    failed=$((failed + 1))
  fi
}

install_missing "${build_packages[@]}" "${test_packages[@]}"
which=${1:-all}
case $which in all | release) build_and_test build "" ;; esac
# Sanitizers see the engine's code; optimisation keeps the suite short.
case $which in all | asan)
  build_and_test build-asan "-Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Ddebug=true" \
    --no-suite long ;;
esac
case $which in all | tsan)
  TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1" \
    build_and_test build-tsan "-Db_sanitize=thread -Db_lundef=false -Doptimization=1 -Ddebug=true" \
    --suite threads ;;
esac
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
