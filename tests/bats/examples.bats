#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  mkdir -p "$BATS_TEST_TMPDIR/raw data/mitdb"
  export ECG_RAW="$BATS_TEST_TMPDIR/raw data"
}

@test "bad values are refused before anything is made" {
  dataset mitdb
  run --separate-stderr bin/examples TASK=cats
  refused "TASK=cats is not known; choose from: beats superclasses snomed"
  run --separate-stderr bin/examples SEQ=4
  refused SEQ=4
  run --separate-stderr bin/examples DATASET=../etc
  refused DATASET
  run --separate-stderr bin/examples MIN_RECORDS=none
  refused MIN_RECORDS=none
  run --separate-stderr bin/examples SRC=/nowhere
  refused SRC=/nowhere
}

@test "the shard set comes first" {
  run --separate-stderr bin/examples
  refused "make data DATASET=mitdb"
}

@test "recordings that are nowhere are asked for" {
  unset ECG_RAW
  dataset mitdb
  run --separate-stderr bin/examples
  refused "Give SRC=/path/to/folder"
}

@test "the request reaches data_prep, spaces and all, and its status is ours" {
  dataset mitdb
  STUB_STATUS=2 run --separate-stderr bin/examples TASK=beats SEQ=128
  [[ "$status" == 2 && "$output" == *"-m data_prep examples --dataset mitdb --task beats --src $ECG_RAW/mitdb --out $ECG_DATA --seq-len 128 --min-records 10" ]]
}
