#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  mkdir bench
  touch bench/bench_loader.py bench/bench_report.py
}

@test "an unknown measurement is refused with the list of known ones" {
  run --separate-stderr bin/bench BENCH=warp
  refused "choose from: loader report"
  run --separate-stderr bin/bench BENCH=
  refused "known: loader report"
}

@test "a measurement that fails does not stop the next, but shows in the status" {
  STUB_STATUS=1 run --separate-stderr bin/bench
  [[ "$status" == 1 ]]
  [[ "$(grep -c 'bench_' "$CALLS")" == 2 ]]
}

@test "BENCH chooses; results go to the results folder" {
  run --separate-stderr bin/bench BENCH=report
  [[ "$status" == 0 && "$output" == *"/bench/bench_report.py --out $ECG_RESULTS/bench/report.csv" ]]
}
