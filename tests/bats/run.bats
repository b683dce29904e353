#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  dataset mitdb
  # As mpirun does for the one variable that with-ranks looks at first.
  stub mpirun 'shift 5; while [[ "$1" == -x ]]; do shift 2; done
    export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1
    exec "$@"'
}

# the_log: path of the only run's log.
the_log() {
  local logs=("$ECG_RESULTS"/runs/*/log)
  ((${#logs[@]} == 1)) && printf '%s\n' "${logs[0]}"
}

@test "values that cannot be are refused in one line, and nothing is written or run" {
  local request
  for request in GPUS=0 GPUS=abc GPUS= GPUS=-1 GPUS=1.5 GPUS=0x2 GPUS=99999999999999999999 FW= FW=Horovod MODE=sleep HEAD_ONLY=2 CLASS_WEIGHTS=some CHECKPOINT=2 CHECKPOINT_EVERY=x CHECKPOINT_EVERY=-1 \
    MODEL= MODEL=huge SCALING=both BATCH=0 ACCUM=0 SEQ=7 STEPS=0 STEPS=1e3 PRECISION=fp16 SEED=-1 REPEAT=0 ZERO=4 \
    ZERO= COMPILE=yes LR=0 LR=-1 LR=abc LR=1e LR= CLIP=x CORES=0 OVERSUBSCRIBE=2 NODES=0 DATASET= DATASET=MITDB DATASET=.; do
    run --separate-stderr bin/run "$request"
    refused "${request%%=*}="
  done
}

@test "an unknown framework is refused with the list of known ones" {
  run --separate-stderr bin/run FW=foo
  refused "choose from: serial ddp fsdp horovod deepspeed mpi"
}

@test "shell metacharacters never run, whichever variable holds them" {
  local name value
  for name in FW GPUS NODES MODE MODEL DATASET SCALING BATCH ACCUM SEQ STEPS PRECISION SEED REPEAT ZERO COMPILE \
    ACTIVATION_CHECKPOINTING LR CLIP CORES OVERSUBSCRIBE; do
    for value in 'x; touch y' '$(touch y)' '`touch y`' 'a[$(touch y)]' $'1\n2' '1  2' '*'; do
      run --separate-stderr bin/run "$name=$value"
      refused "$name="
    done
  done
}

@test "a data set outside the data folder, or not there, is refused" {
  run --separate-stderr bin/run DATASET=../../etc
  refused "DATASET=../../etc"
  run --separate-stderr bin/run DATASET=ptbxl
  refused "make data DATASET=ptbxl"
}

@test "a batch that does not divide is refused and the numbers are named" {
  run --separate-stderr bin/run GPUS=3 BATCH=16 OVERSUBSCRIBE=1
  refused "BATCH=16 does not divide by 3 (GPUS=3 times ACCUM=1); choose a multiple, such as BATCH=18"
  run --separate-stderr bin/run GPUS=2 ACCUM=3 BATCH=16
  refused "BATCH=16 does not divide by 6 (GPUS=2 times ACCUM=3)"
  run --separate-stderr bin/run GPUS=1 ACCUM=3 BATCH=16 SCALING=weak
  refused "BATCH=16 does not divide by 3"
}

@test "more workers than cores are refused unless sharing is asked for" {
  stub nproc 'echo 2'
  run --separate-stderr bin/run GPUS=4
  refused "only 2 core(s)"
  run --separate-stderr bin/run GPUS=2 CORES=2
  refused "GPUS=2 workers of 2 core(s)"
  run --separate-stderr bin/run GPUS=4 OVERSUBSCRIBE=1 DRY_RUN=1
  [[ "$status" == 0 && "$output" == *"--expected-world 4 "* ]]
}

@test "more workers than GPUs are refused; CUDA_VISIBLE_DEVICES may hold UUIDs" {
  unset ECG_DEVICE
  stub nproc 'echo 64'
  stub nvidia-smi 'printf "GPU %s: x\n" 0 1 2 3'
  run --separate-stderr bin/run GPUS=8
  refused "this machine shows 4 GPU(s)"
  CUDA_VISIBLE_DEVICES=GPU-aa,GPU-bb run --separate-stderr bin/run GPUS=4
  refused "this machine shows 2 GPU(s)"
  run --separate-stderr bin/run FW=mpi GPUS=4 DRY_RUN=1
  [[ "$status" == 0 && "$output" != *OVERSUBSCRIBED* ]]
  run --separate-stderr bin/run FW=mpi GPUS=8 OVERSUBSCRIBE=1 DRY_RUN=1
  [[ "$status" == 0 && "$output" == *" -x ECG_OVERSUBSCRIBED "* ]]
}

@test "several nodes, and serial with several workers, are refused" {
  run --separate-stderr bin/run NODES=2
  refused "NODES=2"
  run --separate-stderr bin/run FW=serial GPUS=2
  refused "FW=serial is one worker"
}

@test "a framework that is not installed is refused, and make setup is named" {
  STUB_MISSING=horovod run --separate-stderr bin/run FW=horovod
  refused "make setup"
  unset ECG_PYTHON
  run --separate-stderr bin/run FW=ddp
  refused "make setup"
}

@test "an unknown argument is refused with the list of known ones" {
  run --separate-stderr bin/run NGPUS=2
  refused "unknown argument 'NGPUS=2'; known: FW= GPUS="
}

@test "a worker that fails: status 1, its output and status are in the log" {
  STUB_STATUS=3 run --separate-stderr bin/run FW=ddp GPUS=1
  [[ "$status" == 1 && "$stderr" == *"ended with status 3"* ]]
  grep -q 'python said: -m ecg_train.train_ddp' "$(the_log)"
  tail -n 1 "$(the_log)" | grep -q '"key":"ecg_exit","value":{"rc":3,'
}

@test "a worker killed from outside is a failed run like any other: the next repeat still runs" {
  stub python 'if [[ "$1" == -c ]]; then exit 0; fi; kill -KILL $$'
  run --separate-stderr bin/run FW=ddp REPEAT=2
  [[ "$status" == 1 ]]
  local logs=("$ECG_RESULTS"/runs/*/log)
  ((${#logs[@]} == 2))
  tail -qn 1 "${logs[@]}" | grep -q '"rc":137,'
}

@test "a results folder that cannot be written is refused" {
  touch "$ECG_RESULTS"
  run --separate-stderr bin/run FW=serial
  [[ "$status" == 2 && "$stderr" == *"set ECG_RESULTS"* ]]
}

@test "lists run all pairs, and a wrong pair keeps all of them from starting" {
  run --separate-stderr bin/run FW='ddp serial' GPUS='1 2' OVERSUBSCRIBE=1
  refused "FW=serial is one worker"
  run --separate-stderr bin/run FW='ddp mpi' GPUS='1 2' OVERSUBSCRIBE=1 DRY_RUN=1
  [[ "$status" == 0 && "${#lines[@]}" == 4 && "${lines[3]}" == *train_mpi*"--expected-world 2 "* ]]
  STUB_STATUS=1 run --separate-stderr bin/run FW='ddp fsdp' GPUS='1'
  [[ "$status" == 1 ]]
  local logs=("$ECG_RESULTS"/runs/*/log)
  ((${#logs[@]} == 2))
}

@test "a failing repeat does not keep the others from running" {
  STUB_STATUS=1 run --separate-stderr bin/run FW=serial REPEAT=3
  [[ "$status" == 1 ]]
  local logs=("$ECG_RESULTS"/runs/*_r?_*/log)
  ((${#logs[@]} == 3))
}

@test "a launch line stands first and an exit line last; both are JSON; the terminal shows the log" {
  run --separate-stderr bin/run FW=mpi GPUS=1 MODEL=tiny BATCH=8 STEPS=5 SEED=7
  [[ "$status" == 0 && "$output" == "$(<"$(the_log)")" ]]
  local id
  id=$(basename "$(dirname "$(the_log)")")
  [[ "$id" =~ ^pretrain_mitdb_tiny_mpi_n1_g1_strong_r1_[0-9]{8}T[0-9]{6}-[0-9a-f]{6}$ ]]
  sed -n 's/^:::MLLOG //p' "$(the_log)" | /usr/bin/env python3 -c '
import json, sys
first, last = [json.loads(line) for line in sys.stdin]
assert first["key"] == "ecg_launch" and last["key"] == "ecg_exit", (first, last)
assert first["namespace"] == "ecg-train" and first["event_type"] == "POINT_IN_TIME" and first["time_ms"] > 1.6e12
assert first["metadata"]["run"] == last["metadata"]["run"] == sys.argv[1]
assert first["value"] == {"framework": "mpi", "nodes": 1, "world": 1, "mode": "pretrain", "dataset": "mitdb",
    "model": "tiny", "scaling": "strong", "batch": 8, "accumulation": 1, "seq_len": 256, "steps": 5,
    "precision": "fp32", "seed": 7, "repeat": 1}, first
assert last["value"]["rc"] == 0 and 0 <= last["value"]["wall_time"] < 60
' "$id"
}

@test "a log cut off in the middle of a line still gets its exit line on a line of its own" {
  stub python 'if [[ "$1" == -c ]]; then exit 0; fi; printf ":::MLLOG {\"cut"; exit 1'
  run --separate-stderr bin/run FW=serial
  [[ "$status" == 1 ]]
  tail -n 1 "$(the_log)" | grep -q '^:::MLLOG .*"ecg_exit"'
}

@test "TERM ends the workers, is noted in the log, and no further repeat starts" {
  stub python 'if [[ "$1" == -c ]]; then exit 0; fi; echo $$ >"$CALLS.pid"; echo started; exec sleep 60'
  bin/run FW=ddp GPUS=1 REPEAT=2 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  local launcher=$! result=0 logs
  eventually 10 test -s "$CALLS.pid"
  kill -TERM "$launcher"
  wait "$launcher" || result=$?
  [[ "$result" == 143 ]]
  eventually 5 gone "$(<"$CALLS.pid")"
  logs=("$ECG_RESULTS"/runs/*/log)
  ((${#logs[@]} == 1))
  grep -q '"ecg_exit","value":{"rc":143,' "${logs[0]}"
}

@test "a reader that goes away does not harm the run" {
  stub python 'if [[ "$1" == -c ]]; then exit 0; fi; for i in {1..20000}; do echo "line $i of many"; done'
  bin/run FW=serial 2>/dev/null | head -n 1 >/dev/null || true
  grep -q 'line 20000 of many' "$(the_log)"
  tail -n 1 "$(the_log)" | grep -q '"rc":0,'
}

@test "a dry run prints one shell-safe command line and writes nothing" {
  run --separate-stderr bin/run FW=horovod GPUS=2 BATCH=8 ZERO=2 COMPILE=1 ACTIVATION_CHECKPOINTING=1 LR=3e-4 CLIP=0.5 DRY_RUN=1
  [[ "$status" == 0 && "$stderr" == "warning: ZERO=2 "* && ! -e "$ECG_RESULTS" && "${#lines[@]}" == 1 ]]
  [[ "$output" == "mpirun -np 2 --bind-to none "*"/with-ranks "*" -m ecg_train.train_horovod --dataset mitdb "* ]]
  [[ "$output" == *" --expected-world 2 "*" --zero-stage 2 --compile --activation-checkpointing --learning-rate 3e-4 --clip 0.5 "* ]]
  [[ "$output" == *"the\\ data"* ]]
}

@test "the launcher is what the table of frameworks says" {
  local framework module launcher
  while IFS=$'\t' read -r framework module launcher _; do
    if [[ "$framework" == \#* ]]; then continue; fi
    run --separate-stderr bin/run "FW=$framework" DRY_RUN=1
    [[ "$status" == 0 && "$output" == *" -m $module "* ]]
    case "$launcher" in
      mpirun) [[ "$output" == mpirun* ]] ;;
      local) [[ "$output" == *bin/launch-local\ 1\ * ]] ;;
      direct) [[ "$output" != mpirun* && "$output" != *launch-local* ]] ;;
      *) false ;;
    esac
  done <bin/lib/frameworks.tsv
}

@test "two runs at the same moment get two folders" {
  bin/run FW=serial >/dev/null 2>&1 3>&- &
  bin/run FW=serial >/dev/null 2>&1
  wait
  local logs=("$ECG_RESULTS"/runs/*/log)
  ((${#logs[@]} == 2))
}

@test "a dry run is asked for by 1 and nothing else" {
  run --separate-stderr bin/run DRY_RUN=yes
  refused "DRY_RUN="
}

@test "fine-tuning: its own settings reach the worker, and only there" {
  dataset mitdb-beats
  mkdir -p "$BATS_TEST_TMPDIR/an old run"
  run --separate-stderr bin/run MODE=finetune INIT="$BATS_TEST_TMPDIR/an old run" HEAD_ONLY=1 CHECKPOINT=1 DRY_RUN=1
  [[ "$status" == 0 && "$output" == *"--dataset mitdb-beats "*"--init-from "*"an\\ old\\ run --head-only --class-weights balanced --checkpoint"* ]]
  run --separate-stderr bin/run MODE=finetune INIT=/nowhere
  refused "INIT=/nowhere does not exist"
  dataset mitdb
  run --separate-stderr bin/run HEAD_ONLY=1
  refused "HEAD_ONLY=1 needs MODE=finetune"
}

@test "RESUME goes on in the folder of a run that left a state, and nowhere else" {
  local run="$BATS_TEST_TMPDIR/of old/pretrain_1" # elsewhere, so that a refusal can be seen to have made no results
  run --separate-stderr bin/run RESUME=/nowhere DRY_RUN=1
  refused "RESUME=/nowhere is not a folder"
  mkdir -p "$run"
  run --separate-stderr bin/run "RESUME=$run" DRY_RUN=1
  refused "holds no state; runs keep one with CHECKPOINT_EVERY=n"
  : >"$run/state.safetensors"
  run --separate-stderr bin/run "RESUME=$run" REPEAT=2 DRY_RUN=1
  refused "one run"
  run --separate-stderr bin/run "RESUME=$run" "FW=ddp mpi" DRY_RUN=1
  refused "one run"
  run --separate-stderr bin/run "RESUME=$run" CHECKPOINT_EVERY=5 DRY_RUN=1
  refused "has no log that says which run it is"
  launched() { printf ':::MLLOG {"key":"ecg_launch","value":{"framework":"%s","nodes":1,"world":1,"mode":"pretrain","dataset":"mitdb","model":"small","scaling":"strong","batch":16,"accumulation":1,"seq_len":256,"steps":50,"precision":"fp32","seed":1,"repeat":3},"metadata":{"run":"%s","rank":0}}\n' "$@" >"$run/log"; }
  launched ddp pretrain_2
  run --separate-stderr bin/run "RESUME=$run" DRY_RUN=1
  refused "holds the run pretrain_2; give the folder that name again"
  launched mpi pretrain_1
  run --separate-stderr bin/run "RESUME=$run" DRY_RUN=1
  refused "is another run: its framework is mpi, this one's ddp"
  launched ddp pretrain_1
  run --separate-stderr bin/run "RESUME=$run" SEED=2 DRY_RUN=1
  refused "its seed is 1, this one's 2"
  run --separate-stderr bin/run "RESUME=$run" CHECKPOINT_EVERY=5 DRY_RUN=1
  [[ "$status" == 0 && "$output" == *" --checkpoint-every 5 --resume"* && "$output" == *"--run-id pretrain_1 "* ]]
  exec {busy}>"$run/.lock"
  flock "$busy"
  run --separate-stderr bin/run "RESUME=$run"
  [[ "$status" == 2 && "$stderr" == *"has not ended yet" ]]
  exec {busy}>&-
  printf ':::MLLOG {"key":"ecg_exit","value":{"rc":0,"wall_time":1}}\n' >>"$run/log"
  run --separate-stderr bin/run "RESUME=$run" DRY_RUN=1
  refused "this run has ended well"
}
