#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  dataset mitdb
}

@test "a dollar sign in a value stops make before anything runs" {
  local value
  for value in '$(shell touch y)' '$(touch y)' '$HOME' '${GPUS}'; do
    run --separate-stderr make run "MODEL=$value"
    echo "$stderr"
    [[ "$status" == 2 && -z "$output" && "$stderr" == *"MODEL holds a dollar sign"* && ! -e y && ! -e "$ECG_RESULTS" ]]
  done
}

@test "bad values reach the command and are refused there" {
  run --separate-stderr make run MODEL='x; touch y'
  [[ "$status" == 2 && -z "$output" && "$stderr" == *"error: MODEL="* && ! -e y && ! -e "$ECG_RESULTS" ]]
  run --separate-stderr make run GPUS=0
  [[ "$status" == 2 && "$stderr" == *"error: GPUS=0"* ]]
  run --separate-stderr make data SRC=
  [[ "$status" == 2 && "$stderr" == *"SRC is empty"* ]]
  run --separate-stderr make run DATASET=../../etc
  [[ "$status" == 2 && "$stderr" == *"DATASET=../../etc"* ]]
}

@test "a misspelt name is refused, not ignored" {
  run --separate-stderr make run NGPUS=4
  [[ "$status" == 2 && -z "$output" && "$stderr" == *"NGPUS is not a name that make knows here; known: FW GPUS "* ]]
  run --separate-stderr make -s run GPUS=1 ECG_RESULTS="$BATS_TEST_TMPDIR/else where" FW='ddp mpi' DRY_RUN=1
  [[ "$status" == 0 && "$output" == *"else\\ where"* ]]
}

@test "make alone prints help that names every target" {
  run --separate-stderr make
  [[ "$status" == 0 && -z "$stderr" ]]
  local target count=0
  while read -r target; do
    [[ "$output" == *"make $target "* ]]
    count=$((count + 1))
  done < <(sed -n 's/^\.PHONY: //p' Makefile)
  ((count >= 12))
}

@test "every target calls a command that exists" {
  local command count=0
  while read -r command; do
    [[ -x "$command" ]]
    count=$((count + 1))
  done < <(sed -n 's/^\t@\(bin\/[a-z-]*\).*/\1/p' Makefile)
  ((count >= 11))
}

@test "values reach the command" {
  run --separate-stderr make run FW=fsdp BATCH=8 DRY_RUN=1
  [[ "$status" == 0 && "$output" == *"-m ecg_train.train_fsdp "*"--batch 8 "* ]]
}
