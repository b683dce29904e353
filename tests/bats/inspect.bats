#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() { checkout; }

@test "a set that is not there, or no name at all, is refused" {
  run --separate-stderr bin/inspect DATASET=nothing
  refused "make data DATASET=nothing"
  run --separate-stderr bin/inspect DATASET=../the
  refused DATASET
  run --separate-stderr bin/inspect MAX_SKIPPED=x
  refused MAX_SKIPPED=x
}

@test "the status of damage is ours" {
  dataset mitdb
  STUB_STATUS=3 run --separate-stderr bin/inspect
  [[ "$status" == 3 && "$output" == *"-m data_prep inspect --dataset mitdb --data $ECG_DATA --verify --max-skipped 10" ]]
}
