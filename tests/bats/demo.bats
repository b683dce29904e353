#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

# The commands that the demo calls are stand-ins: they note what they were asked for.
setup() {
  checkout
  local command
  for command in setup data run report; do
    printf '#!/usr/bin/env bash\necho "%s $* ${DATASET-} ${MODEL-}" >>"$CALLS"\n[[ " $* " != *" ${FAILING:-none} "* ]] || exit "${FAILING_STATUS:-1}"\n' \
      "$command" >"bin/$command"
  done
  stub nproc 'echo 2'
}

@test "a run that fails does not stop the others, but the demo fails" {
  FAILING=FW=horovod run --separate-stderr bin/demo
  [[ "$status" == 1 && "$stderr" == *"[7/11] horovod, 2 workers ... "*"FAILED with status 1"* ]]
  [[ "$(grep -c '^run' "$CALLS")" == 11 && "$(tail -n 1 "$CALLS")" == report* ]]
}

@test "a run ended by a signal ends the demo" {
  FAILING=FW=ddp FAILING_STATUS=130 run --separate-stderr bin/demo
  [[ "$status" == 130 && "$(grep -c '^run' "$CALLS")" == 2 ]]
}

@test "values that cannot be are refused before anything starts" {
  run --separate-stderr bin/demo STEPS=0
  refused "STEPS=0"
  run --separate-stderr bin/demo BATCH=3
  refused "BATCH=3 does not divide by 2"
  [[ ! -e "$CALLS" ]]
}

@test "a machine that cannot be set up ends the demo before it writes" {
  printf '#!/usr/bin/env bash\nexit 2\n' >bin/setup
  run --separate-stderr bin/demo
  [[ "$status" == 2 && ! -e "$ECG_RESULTS" && ! -e "$CALLS" ]]
}

@test "eleven runs, each framework at 1 and 2, then the report" {
  run --separate-stderr bin/demo
  [[ "$status" == 0 ]]
  [[ "$(sed -n 's/^run FW=\([a-z]*\) GPUS=\(.\).*/\1\2/p' "$CALLS" | tr '\n' ' ')" == "serial1 ddp1 ddp2 fsdp1 fsdp2 horovod1 horovod2 deepspeed1 deepspeed2 mpi1 mpi2 " ]]
  [[ "$(head -n 1 "$CALLS")" == setup* && "$(tail -n 1 "$CALLS")" == report* ]]
}

@test "without recordings it is synthetic data, with them MIT-BIH; what is converted is not converted again" {
  run bin/demo
  grep -q '^data .*synthetic' "$CALLS"
  mkdir -p "$BATS_TEST_TMPDIR/raw/mitdb"
  rm "$CALLS"
  ECG_RAW="$BATS_TEST_TMPDIR/raw" run bin/demo
  grep -q '^data .*mitdb' "$CALLS"
  dataset mitdb
  rm "$CALLS"
  run bin/demo
  run ! grep -q '^data' "$CALLS"
  grep -q '^run .*mitdb tiny' "$CALLS"
}

@test "an earlier demo is moved aside, not mixed in and not lost" {
  mkdir -p "$ECG_RESULTS/demo"
  touch "$ECG_RESULTS/demo/precious"
  run bin/demo
  [[ "$status" == 0 && ! -e "$ECG_RESULTS/demo/precious" ]]
  compgen -G "$ECG_RESULTS/demo.until-*/precious"
}
