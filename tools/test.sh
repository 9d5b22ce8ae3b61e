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

# Usage: build_and_test FOLDER "MESON OPTIONS" "TARGETS" [MESON-TEST-ARGUMENT...]
build_and_test() {
  local folder=$1 options=$2 targets=$3
  shift 3
  # shellcheck disable=SC2086  # targets are words
  if build "$folder" "$options" $targets; then
    run_tests "$folder" "$@"
  else
    echo "test: $folder does not build" >&2
    failed=$((failed + 1))
  fi
}

install_missing "${build_packages[@]}" "${test_packages[@]}"
which=${1:-all}
sanitized="-Db_lundef=false -Doptimization=1 -Ddebug=false"
case $which in all | release) build_and_test build "" "" ;; esac
case $which in all | asan)
  build_and_test build-asan "-Db_sanitize=address,undefined $sanitized" "" ;;
esac
case $which in all | tsan)
  TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp halt_on_error=1" \
    build_and_test build-tsan "-Db_sanitize=thread $sanitized" \
      "tests/io/io_test tests/engine/model/model_test tests/engine/pack/pack_test
       tests/engine/stream/stream_test tests/engine/verify/verify_test" --suite threads ;;
esac
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
