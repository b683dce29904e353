#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() { checkout; }

# nothing_made: no data folder appeared and Python was not called.
nothing_made() { [[ ! -e "$ECG_DATA" && ! -e "$CALLS" ]]; }

@test "names that are no data sets are refused" {
  local name
  for name in '' ../../etc 'x; touch y' '$(touch y)' MITDB -x a/b; do
    run --separate-stderr bin/data "DATASET=$name" SRC=/tmp
    refused DATASET
    nothing_made
  done
}

@test "an empty SRC, and one that is no folder, are refused" {
  run --separate-stderr bin/data DATASET=mitdb SRC=
  refused "SRC is empty"
  run --separate-stderr bin/data DATASET=mitdb SRC=/nowhere/at/all
  refused "is not a folder"
  SRC='' run --separate-stderr bin/data
  refused "SRC is empty"
  nothing_made
}

@test "without SRC and ECG_RAW the user is asked for SRC" {
  run --separate-stderr bin/data DATASET=mitdb
  refused "SRC="
  mkdir -p "$BATS_TEST_TMPDIR/raw"
  ECG_RAW="$BATS_TEST_TMPDIR/raw" run --separate-stderr bin/data DATASET=mitdb
  refused "SRC="
  nothing_made
}

@test "HOURS, SEED and JOBS must be numbers; synthetic data have no SRC" {
  run --separate-stderr bin/data DATASET=synthetic HOURS=0
  refused "HOURS=0"
  run --separate-stderr bin/data DATASET=synthetic 'HOURS=2;touch y'
  refused HOURS
  run --separate-stderr bin/data DATASET=synthetic SEED=x
  refused SEED
  run --separate-stderr bin/data DATASET=synthetic SRC=/tmp
  refused "is made, not read"
  run --separate-stderr bin/data DATASET=mitdb SRC=/tmp JOBS=0
  refused JOBS
  nothing_made
}

@test "the status of the conversion is ours" {
  STUB_STATUS=2 run --separate-stderr bin/data DATASET=mitdb SRC=/tmp
  [[ "$status" == 2 ]]
}

@test "SRC is handed on whole, spaces and all" {
  mkdir -p "$BATS_TEST_TMPDIR/my records"
  run --separate-stderr bin/data DATASET=own_set "SRC=$BATS_TEST_TMPDIR/my records" JOBS=3
  [[ "$status" == 0 ]]
  [[ "$output" == "python said: -m data_prep convert --src $BATS_TEST_TMPDIR/my records --jobs 3 --dataset own_set --out $ECG_DATA" ]]
}

@test "ECG_RAW serves when SRC is not given" {
  mkdir -p "$BATS_TEST_TMPDIR/raw/mitdb"
  ECG_RAW="$BATS_TEST_TMPDIR/raw" run --separate-stderr bin/data
  [[ "$status" == 0 && "$output" == *"convert --src $BATS_TEST_TMPDIR/raw/mitdb --dataset mitdb "* ]]
}

@test "synthetic data are made by the hour" {
  run --separate-stderr bin/data DATASET=synthetic HOURS=0.5 SEED=3
  [[ "$status" == 0 && "$output" == *"-m data_prep synthetic --hours 0.5 --seed 3 --dataset synthetic --out $ECG_DATA" ]]
}
