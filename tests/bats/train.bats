#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  dataset mitdb
  export ECG_RUN_ID=a-run ECG_RUN_DIR="$BATS_TEST_TMPDIR/run dir"
  mkdir "$ECG_RUN_DIR"
}

@test "a request that cannot be is refused by the worker too" {
  FW=foo run --separate-stderr bin/train
  refused "FW=foo"
  GPUS='1; touch y' run --separate-stderr bin/train
  refused "GPUS="
  run --separate-stderr bin/train FW=ddp
  refused "unexpected argument 'FW=ddp'"
}

@test "a run folder that this node does not see is named" {
  ECG_RUN_DIR="$BATS_TEST_TMPDIR/not here" run --separate-stderr bin/train
  refused "not\\ here is not there on $(uname -n)"
}

@test "the request becomes flags; empty variables are those not given" {
  FW=fsdp GPUS=2 BATCH=8 ZERO='' LR='' CLIP=0.5 ECG_REPEAT=3 NODES=1 run --separate-stderr bin/train
  [[ "$status" == 0 && -z "$stderr" ]]
  [[ "$output" == *"-m ecg_train.train_fsdp "*"--batch 8 "*"--repeat 3 "*"--expected-world 2 --run-id a-run --run-dir $ECG_RUN_DIR "*"--clip 0.5"* ]]
  [[ "$output" != *--zero* && "$output" != *--learning* ]]
}

@test "the status is that of the program" {
  STUB_STATUS=7 run bin/train
  [[ "$status" == 7 ]]
}

@test "LAYOUT=check runs the preflight" {
  LAYOUT=check run --separate-stderr bin/train
  [[ "$status" == 0 && "$output" == *"-m ecg_train.preflight"* ]]
}
