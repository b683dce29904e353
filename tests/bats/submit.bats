#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  dataset mitdb
  stub sinfo 'case "$*" in *%P\|%G*) printf "gpu*|gpu:4\nsmall|gpu:a100:1(S:0)\ncpu|(null)\n" ;; *) printf "gpu*\nsmall\ncpu\n" ;; esac'
  stub sbatch 'if [[ " $* " == *" --test-only "* ]]; then
      if [[ -n "${STUB_REFUSES:-}" || -e "$HOME/refuses" ]]; then echo "sbatch: error: allocation failure: Requested node configuration is not available" >&2; exit 1; fi
      exit 0
    fi
    if [[ -e "$HOME/fails" ]]; then echo "sbatch: error: controller is away" >&2; exit 1; fi
    echo 4711'
  stub squeue 'cat "$HOME/squeue" 2>/dev/null || true'
  stub sacct 'exit 1'
  stub scancel 'exit 0'
  export ECG_CONTAINER=none HOME="$BATS_TEST_TMPDIR/ho me"
  mkdir -p "$HOME"
}

@test "without Slurm the way to run here is named" {
  # A PATH with what the command needs and nothing else, since the machine may have a real Slurm.
  local name
  rm "$STUBS/sbatch"
  mkdir "$BATS_TEST_TMPDIR/few"
  for name in bash env cat sed awk grep sort uname dirname basename date tr mkdir mktemp rm; do
    ln -s "$(command -v "$name")" "$BATS_TEST_TMPDIR/few/$name"
  done
  PATH="$STUBS:$BATS_TEST_TMPDIR/few" run --separate-stderr bin/submit GPUS=2 FW=ddp
  refused "make run GPUS=2 FW=ddp"
}

@test "a bad request is refused before anything is written or asked" {
  local request
  for request in GPUS=0 FW=foo NODES=0 LAYOUT=round TIME=soon DRY_RUN=2 BATCH=7 MODEL=huge ACCOUNT='a b' PARTITION=fast DATASET=none QOS='x"y'; do
    run --separate-stderr bin/submit GPUS=4 "$request"
    [[ "$status" == 2 && -z "$output" && "$stderr" == error:* ]] || { echo "$request: $status $stderr" && false; }
    [[ ! -e "$ECG_RESULTS" ]]
  done
}

@test "workers that do not divide over the nodes are refused with the numbers" {
  run --separate-stderr bin/submit GPUS=4 NODES=3
  refused "GPUS=4 workers do not divide over NODES=3"
}

@test "what Slurm itself says is passed on, and nothing stays" {
  touch "$HOME/refuses"
  run --separate-stderr bin/submit GPUS=4
  [[ "$status" == 2 && -z "$output" && "$stderr" == *"Slurm refuses this job: allocation failure: Requested node configuration is not available"* ]]
  [[ -z "$(ls "$ECG_RESULTS/jobs")" ]]
}

@test "an image that is missing points to make image" {
  ECG_CONTAINER=apptainer run --separate-stderr bin/submit GPUS=4
  [[ "$status" == 2 && "$stderr" == *"there is no image at "*"make image"* ]]
}

@test "a failing sbatch leaves nothing behind and says so" {
  touch "$HOME/fails"
  run --separate-stderr bin/submit GPUS=4
  [[ "$status" == 1 && "$stderr" == *"controller is away"*"nothing was submitted"* && -z "$(ls "$ECG_RESULTS/jobs")" ]]
}

@test "the job's number, file and log are printed, and lie in a folder of their own" {
  run --separate-stderr bin/submit GPUS=8 FW=horovod
  echo "$output $stderr"
  [[ "$status" == 0 ]]
  IFS=$'\t' read -r id file log <<<"$output"
  [[ "$id" == 4711 && -r "$file" && "$log" == "${file%/*}/slurm-4711.log" && "$(cat "${file%/*}/id")" == 4711 ]]
  [[ "$file" == "$ECG_RESULTS/jobs/pretrain_mitdb_small_horovod_n2_g8_strong_"*"/job.sbatch" ]] # 2 nodes: the partition has 4 GPUs each
  bash -n "$file"
  grep -q '^#SBATCH --nodes=2 ' "$file"
  grep -q '^GPUS=8$' "${file%/*}/request"
}

@test "a partition's own GPUs decide the nodes; an account and a time reach the file" {
  run --separate-stderr bin/submit GPUS=2 PARTITION=small ACCOUNT=p200 TIME=01:00:00 DRY_RUN=1
  [[ "$status" == 0 && "$output" == *"--nodes=2 "*"--time=01:00:00 "*"--partition=small "*"--account=p200 "*"# command: sbatch --parsable "* ]]
  [[ ! -e "$ECG_RESULTS" ]]
}

@test "lists are all pairs, and one bad pair stops all of them" {
  run --separate-stderr bin/submit FW="ddp horovod" GPUS="1 2"
  [[ "$status" == 0 && "${#lines[@]}" == 4 ]]
  rm -rf "$ECG_RESULTS"
  run --separate-stderr bin/submit FW="ddp horovod" GPUS="1 3"
  refused "BATCH=16 does not divide"
}

@test "two submits of one second do not meet" {
  stub date 'echo 20200101T000000'
  bin/submit GPUS=1 >"$BATS_TEST_TMPDIR/a" &
  bin/submit GPUS=1 >"$BATS_TEST_TMPDIR/b"
  wait
  [[ "$(cut -f2 "$BATS_TEST_TMPDIR/a")" != "$(cut -f2 "$BATS_TEST_TMPDIR/b")" ]]
  [[ "$(find "$ECG_RESULTS/jobs" -name job.sbatch | wc -l)" == 2 ]]
}

@test "the job sees nothing of this shell but what the file says" {
  stub sbatch 'if [[ " $* " != *" --test-only "* ]]; then env >"$HOME/seen"; fi; echo 1'
  MODEL=tiny ECG_EVAL_EVERY=7 run --separate-stderr bin/submit GPUS=1
  [[ "$status" == 0 ]]
  run grep -E '^(MODEL|ECG_)' "$HOME/seen"
  [[ "$output" == ECG_EVAL_EVERY=7 ]] # a setting of the worker that the file does not name
}

@test "status tells queued, running, done, failed, cancelled and lost apart" {
  local n
  for n in 1 2 3 4 5 6; do
    mkdir -p "$ECG_RESULTS/jobs/job${n}_x"
    echo "$n" >"$ECG_RESULTS/jobs/job${n}_x/id"
    printf '# plan\nleg\n' >"$ECG_RESULTS/jobs/job${n}_x/plan"
  done
  stub squeue 'case "$*" in *--jobs=1\ *) echo "PENDING|Resources" ;; *--jobs=2\ *) echo "RUNNING|None" ;; *--jobs=4\ *) echo "FAILED|NonZeroExitCode" ;; esac'
  echo "job x ended with status 0" >"$ECG_RESULTS/jobs/job3_x/slurm-3.log"
  printf 'error: no image\njob x ended with status 2\n' >"$ECG_RESULTS/jobs/job4_x/slurm-4.log"
  echo "job x ended with status 143" >"$ECG_RESULTS/jobs/job5_x/slurm-5.log"
  run --separate-stderr bin/status FORMAT=csv
  echo "$output"
  [[ "$status" == 0 && "${lines[1]}" == '"1","job1","queued","Resources","0/1",'* && "${lines[2]}" == '"2","job2","running",'* ]]
  [[ "${lines[3]}" == '"3","job3","done",'* && "${lines[4]}" == '"4","job4","failed","error: no image",'* ]]
  [[ "${lines[5]}" == '"5","job5","cancelled",'* && "${lines[6]}" == '"6","job6","lost","Slurm does not know job 6'* ]]
}

@test "cancel touches our jobs only" {
  mkdir -p "$ECG_RESULTS/jobs/a_x"
  echo 12 >"$ECG_RESULTS/jobs/a_x/id"
  echo 'RUNNING|None' >"$HOME/squeue"
  run --separate-stderr bin/cancel
  [[ "$status" == 2 && "$stderr" == *'Give ID="12 13"'* ]]
  run --separate-stderr bin/cancel ID=13
  [[ "$status" == 2 && "$stderr" == *"job 13 was not submitted into"* ]]
  run --separate-stderr bin/cancel ID='12; rm -rf /'
  [[ "$status" == 2 ]]
  run --separate-stderr bin/cancel ALL=1 DRY_RUN=1
  [[ "$status" == 0 && "$output" == "scancel 12" ]]
  run grep -c scancel "$CALLS"
  [[ "$output" == 0 ]]
  run --separate-stderr bin/cancel ID=12
  [[ "$status" == 0 && "$output" == "job 12 cancelled" ]]
  grep -q 'scancel.* 12$' "$CALLS"
}

@test "a sweep is one job of the largest size, and the same again goes on in its folder" {
  run --separate-stderr bin/sweep FW="serial ddp" GPUS="1 4 8" REPEAT=2
  echo "$output $stderr"
  [[ "$status" == 0 && "${#lines[@]}" == 1 ]]
  IFS=$'\t' read -r _ file _ <<<"$output"
  grep -q '^#SBATCH --nodes=2 ' "$file"
  grep -q 'LEGS:=serial 1 1 2$' "$file"
  grep -q '^ddp 2 8 2}' "$file"
  bash -n "$file"
  run --separate-stderr bin/sweep FW="serial ddp" GPUS="1 4 8" REPEAT=2
  [[ "$status" == 0 && "$stderr" == *"going on in "* && "$(find "$ECG_RESULTS/jobs" -mindepth 1 -maxdepth 1 | wc -l)" == 1 ]]
  echo 'RUNNING|None' >"$HOME/squeue"
  run --separate-stderr bin/sweep FW="serial ddp" GPUS="1 4 8" REPEAT=2
  [[ "$status" == 2 && "$stderr" == *"in the queue already as job 4711"* ]]
}

@test "SWEEP=jobs: a job per pair, and the report after all of them" {
  run --separate-stderr bin/sweep FW=ddp GPUS="1 2" SWEEP=jobs
  echo "$output $stderr"
  [[ "$status" == 0 && "${#lines[@]}" == 3 ]]
  grep -q -- '--dependency=afterany:4711:4711' "$CALLS"
  grep -q 'LAYOUT:=report' "$(cut -f2 <<<"${lines[2]}")"
}
