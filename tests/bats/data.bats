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

@test "recordings that are not here are fetched, below ECG_DATA unless ECG_RAW is set, then converted" {
  run --separate-stderr bin/data DATASET=mitdb
  [[ "$status" == 0 ]]
  [[ "${lines[0]}" == "python said: -m data_prep fetch --dataset mitdb --raw $ECG_DATA/raw --connections 4" ]]
  [[ "${lines[1]}" == "python said: -m data_prep convert --src $ECG_DATA/raw/mitdb --dataset mitdb --out $ECG_DATA" ]]
  mkdir -p "$BATS_TEST_TMPDIR/my raw"
  ECG_RAW="$BATS_TEST_TMPDIR/my raw" run --separate-stderr bin/data LIMIT=5 CONNECTIONS=2 "ACCEPT_LICENSE=icentia11k mitdb"
  [[ "${lines[0]}" == *"fetch --dataset mitdb --raw $BATS_TEST_TMPDIR/my raw --connections 2 --limit 5 --accept icentia11k --accept mitdb" ]]
}

@test "a fetch that fails is not followed by a conversion, and its status is ours" {
  stub python 'echo "$*"; [[ "$3" != fetch ]] || exit 1'
  run --separate-stderr bin/data DATASET=mitdb
  [[ "$status" == 1 && "$output" != *convert* ]]
}

@test "FETCH=only stops after the fetch, FETCH=never does not begin one" {
  run --separate-stderr bin/data DATASET="mitdb ptbxl" FETCH=only
  [[ "$status" == 0 && "${#lines[@]}" == 2 && "$output" != *convert* && "$output" != *" mix "* ]]
  rm -r "$ECG_DATA" "$CALLS"
  run --separate-stderr bin/data DATASET=mitdb FETCH=never
  [[ "$status" == 2 && "$stderr" == *"FETCH=never, and there is no folder"* && ! -e "$CALLS" ]]
  run --separate-stderr bin/data FETCH=maybe
  refused FETCH
}

@test "a folder that a fetch has begun is looked at again, and so is an empty one" {
  local raw="$BATS_TEST_TMPDIR/raw"
  export ECG_RAW=$raw
  mkdir -p "$raw/mitdb"
  run bin/data
  [[ "$output" == *"fetch --dataset mitdb"* ]]
  touch "$raw/mitdb/100.hea"
  run bin/data
  [[ "$output" != *"fetch --dataset mitdb"* ]]
  touch "$raw/mitdb/.fetch.json"
  run bin/data
  [[ "$output" == *"fetch --dataset mitdb"* ]]
}

@test "several data sets are prepared one after the other" {
  run --separate-stderr bin/data DATASET="mitdb  ptbxl synthetic"
  [[ "$status" == 0 && "${#lines[@]}" == 5 ]]
  [[ "${lines[4]}" == *"synthetic --hours 2 --seed 1 --dataset synthetic"* ]]
}

@test "several data sets that make no sense are refused" {
  run --separate-stderr bin/data DATASET="mitdb ptbxl" SRC=/tmp
  refused "SRC is one folder"
  run --separate-stderr bin/data DATASET="mitdb ../ptbxl"
  refused DATASET
  nothing_made
}

@test "LIMIT, CONNECTIONS and ACCEPT_LICENSE are checked" {
  local value
  for value in LIMIT=0 LIMIT=x CONNECTIONS=0 CONNECTIONS=99 'ACCEPT_LICENSE=$(touch y)' 'ACCEPT_LICENSE=mitdb; touch y'; do
    run --separate-stderr bin/data "$value"
    refused "${value%%=*}"
  done
  run --separate-stderr bin/data DATASET=raw
  refused "DATASET=raw"
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

@test "a mixture is made of the sets of DATASET, after them, with their weights" {
  run --separate-stderr bin/data "DATASET=one two" FETCH=auto MIX=both "WEIGHTS=3 1"
  [[ "$status" == 0 ]]
  [[ "${lines[-1]}" == "python said: -m data_prep mix --name both --member=one --member=two --weight=3 --weight=1 --out $ECG_DATA" ]]
}

@test "mixtures that make no sense are refused before anything is fetched" {
  run --separate-stderr bin/data DATASET=one MIX=both
  refused "name two or more"
  run --separate-stderr bin/data "DATASET=one two" MIX=one
  refused "MIX=one is taken"
  run --separate-stderr bin/data "DATASET=one two" MIX=both WEIGHTS=3
  refused "1 numbers" "2 data sets"
  run --separate-stderr bin/data "DATASET=one two" MIX=both "WEIGHTS=3 x"
  refused WEIGHTS
  run --separate-stderr bin/data "DATASET=one two" "WEIGHTS=3 1"
  refused "MIX=name"
  run --separate-stderr bin/data "DATASET=one two" 'MIX=$(touch y)'
  refused MIX
  nothing_made
}
