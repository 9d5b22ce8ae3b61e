#!/bin/sh
# synth and inspect as a user meets them: bytes, exit codes, and what goes to which stream.
#   synth_inspect_test.sh SLUICE FIXTURES
set -u
sluice=$(realpath "$1")
fixtures=$(cd "$2" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
n_failed=0

fail() {
  echo "FAILED: $*"
  n_failed=$((n_failed + 1))
}

# expect CODE command...   with stdout in `out` and stderr in `err`
expect() {
  want=$1
  shift
  "$@" >out 2>err
  got=$?
  [ "$got" -eq "$want" ] || fail "exit code $got, want $want: $* ($(cat err))"
}

# The independent writer of the reference gives the same bytes.
expect 0 "$sluice" synth deep25 --geometry deep25
[ -s out ] && fail "synth wrote to stdout"
(cd deep25 && sha256sum --check --quiet "$fixtures/deep25.sha256") || fail "deep25 differs"

expect 0 "$sluice" inspect deep25
grep -q 'expert blocks  *384$' out || fail "the census lacks the experts"
[ -s err ] && fail "inspect wrote to stderr: $(cat err)"
expect 0 "$sluice" inspect deep25 --json -
head -c 1 out | grep -q '{' || fail "--json - is not JSON alone"
expect 0 "$sluice" inspect deep25 --json report.json
[ -s report.json ] || fail "no report.json"

expect 1 "$sluice" synth deep25
grep -q 'exists already' err || fail "an existing folder is not named"
expect 2 "$sluice" synth other --geometry huge
expect 2 "$sluice" synth other --layers 0
expect 2 "$sluice" synth other --jobs 2
expect 2 "$sluice" synth other --alias 0
expect 1 "$sluice" synth other --latent 33
[ -e other ] && fail "a refused synth left something"
expect 0 "$sluice" synth other --geometry tiny --layers 3 --experts 40 --hidden 64 --seed 7
expect 0 "$sluice" inspect other

rm deep25/model-00003-of-000026.safetensors
expect 1 "$sluice" inspect deep25
grep -q 'model-00003-of-000026.safetensors' err || fail "the missing shard is not named"
[ -s out ] && fail "a refusal wrote to stdout"

[ "$n_failed" -eq 0 ]
