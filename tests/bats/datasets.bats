#!/usr/bin/env bats
# shellcheck disable=SC2154 # bats sets stderr and output

load helper

setup() { checkout; }

@test "the list is asked for with where recordings and shards are" {
  run --separate-stderr bin/datasets
  [[ "$status" == 0 ]]
  [[ "$output" == "python said: -m data_prep datasets --raw $ECG_DATA/raw --data $ECG_DATA --format table" ]]
  ECG_RAW=/some/where run --separate-stderr bin/datasets FORMAT=json
  [[ "$output" == *"--raw /some/where --data $ECG_DATA --format json" ]]
}

@test "other formats and other names are refused" {
  run --separate-stderr bin/datasets FORMAT=xml
  refused "FORMAT=xml"
  run --separate-stderr bin/datasets DATASET=mitdb
  refused DATASET
  [[ ! -e "$CALLS" ]]
}

@test "make hands the format on" {
  run make -s datasets FORMAT=csv
  [[ "$status" == 0 && "$output" == *"--format csv" ]]
}
