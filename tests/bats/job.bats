#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2034,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr
# The job file as Slurm runs it, with stand-ins for srun, scontrol and apptainer; the real ones are in tests/cluster.

load helper

setup() {
  checkout
  dataset mitdb
  dataset ptbxl
  export ROOT TMPDIR="$BATS_TEST_TMPDIR/node tmp" ECG_IMAGE="$BATS_TEST_TMPDIR/the image.sif" FAKE="$BATS_TEST_TMPDIR/fake"
  mkdir -p "$TMPDIR" "$FAKE"
  echo image >"$ECG_IMAGE"
  # A container: a clean environment, and the bundle under its own path.
  stub apptainer 'shift
    while [[ "$1" == --* ]]; do if [[ "$1" == --bind ]]; then shift; fi; shift; done
    shift
    words=()
    for word in "$@"; do words+=("${word//\/opt\/ecg-train/$ROOT}"); done
    exec env -i PATH="$PATH" ROOT="$ROOT" FAKE="$FAKE" CALLS="$CALLS" ECG_PYTHON="$ECG_PYTHON" "${words[@]}"'
  stub srun 'if [[ "$1" == --mpi=list ]]; then cat "$FAKE/mpi" 2>/dev/null || printf "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"; exit; fi
    if [[ "$1" == --version ]]; then echo "slurm 22.05.8"; exit; fi
    while [[ "$1" == --* ]]; do
      case "$1" in --ntasks=*) tasks=${1#*=} ;; --nodes=*) nodes=${1#*=} ;; esac
      shift
    done
    export SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$tasks SLURM_STEP_TASKS_PER_NODE="$((tasks / nodes))(x$nodes)"
    trap "kill -TERM \$(jobs -p) 2>/dev/null" TERM
    for ((rank = 0; rank < tasks; rank++)); do
      SLURM_PROCID=$rank SLURM_LOCALID=$((rank % (tasks / nodes))) SLURM_NODEID=$((rank / (tasks / nodes))) "$@" &
    done
    status=0
    for pid in $(jobs -p); do wait "$pid" || status=$?; done
    exit "$status"'
  stub scontrol 'case "$*" in
      "show hostnames "*) printf "%s\n" n1 n2 ;;
      *" show node "*) echo "NodeName=n1 NodeAddr=10.9.8.7 NodeHostName=n1" ;;
    esac'
  stub getent 'case "$2" in n1) echo "127.0.1.1 STREAM n1" ;; n1-ib) echo "10.1.1.1 STREAM n1-ib" ;; n2) echo "10.9.8.8 STREAM n2" ;; [0-9]*) echo "$2 STREAM" ;; *) exit 2 ;; esac'
  stub ompi_info 'echo "mca:pmix:ext3x:version:mca:2.1.0"'
  stub python 'echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR: $*"; eval "${STUB_DO:-}"; if [[ -e "$FAKE/do" ]]; then source "$FAKE/do"; fi'
  JOB="$BATS_TEST_TMPDIR/a job.sbatch"
}

# in_slurm: what sbatch sets in a job of two nodes with two tasks each.
in_slurm() {
  export SLURM_JOB_ID=4711 SLURM_JOB_NODELIST='n[1-2]' SLURM_JOB_NUM_NODES=2 SLURM_NTASKS_PER_NODE=2 SLURM_CPUS_PER_TASK=1
}

# job NAME=value...: run a job file of this request.
job() {
  local script='source bin/lib/common.sh; for l in check frameworks request jobfile; do source "$ECG_ROOT/bin/lib/$l.sh"; done
    set_request_defaults; write_jobfile "$JOB"'
  env "$@" JOB="$JOB" bash -euo pipefail -c "$script"
  run --separate-stderr bash "$JOB"
  echo "status $status, stderr: $stderr, stdout: $output"
}

# launches KEY: of each leg in the order in which it began, this part of its launch line.
launches() { grep -h '"key":"ecg_launch"' <<<"$output" | sed "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/" | tr '\n' ' '; }

@test "no image, no container program, a results folder that cannot be written: one line, status 2" {
  ECG_IMAGE=/nowhere.sif job FW=ddp
  [[ "$status" == 2 && "$stderr" == "error: no image at ECG_IMAGE='/nowhere.sif'"* && ! -e "$ECG_RESULTS" ]]
  ECG_CONTAINER=singularity job FW=ddp
  [[ "$status" == 2 && "$stderr" == "error: no 'singularity' on "* ]]
  touch "$ECG_RESULTS"
  job FW=ddp
  [[ "$status" == 2 && "$stderr" == *"cannot write to ECG_RESULTS="* ]]
}

@test "a data set that is not there, a size the job has no room for: refused before anything starts" {
  in_slurm
  job FW=ddp GPUS=4 NODES=2 DATASET=nowhere
  [[ "$status" == 2 && "$stderr" == *"there is no data set 'nowhere'"* ]]
  job FW=ddp GPUS=8 NODES=2
  [[ "$status" == 2 && "$stderr" == *"this job has room for 2"* ]]
  job FW=ddp GPUS=4 NODES=4
  [[ "$status" == 2 && "$stderr" == *"a leg wants 4 node(s), but this job has 2"* ]]
  job 'LEGS=ddp 1 1 1
foo 1 1 1'
  [[ "$status" == 2 && "$stderr" == *"FW=foo"* ]]
  run ! grep -q 'bin/train' "$CALLS"
  run ! grep -q -- '--forget' "$CALLS"
}

@test "without scontrol nothing is guessed" {
  in_slurm
  rm "$STUBS/scontrol"
  PATH="$STUBS:/bin" job FW=ddp GPUS=2 NODES=2
  [[ "$status" != 0 ]]
  command -v scontrol >/dev/null && skip "this machine has Slurm"
  [[ "$stderr" == *"no scontrol on"* ]]
}

@test "a first node whose address others cannot reach is refused; the fast network's name, or Slurm's own, is used" {
  in_slurm
  job FW=ddp GPUS=2 NODES=2
  [[ "$status" == 0 && "$output" == *"rank 1 of 2 at 10.9.8.7: "* ]]
  SLURM_JOB_ID=4712 ECG_HOST_SUFFIX=-ib job FW=ddp GPUS=2 NODES=2
  [[ "$status" == 0 && "$output" == *"rank 1 of 2 at 10.1.1.1: "* ]]
  stub scontrol 'case "$*" in "show hostnames "*) printf "%s\n" n1 n2 ;; *) echo "NodeName=n1 NodeAddr=n1 X=1" ;; esac'
  SLURM_JOB_ID=4713 job FW=ddp GPUS=2 NODES=2
  [[ "$status" == 1 && "$stderr" == *"no address of the first node 'n1'"* ]]
}

@test "a worker that fails: its status is the job's, the log ends with it" {
  in_slurm
  echo 'exit 3' >"$FAKE/do"
  job FW=ddp GPUS=4 NODES=2
  [[ "$status" == 3 && "$stderr" == *"ended with status 3"* ]]
  tail -n 1 "$ECG_RESULTS"/runs/*/log | grep -q '"key":"ecg_exit","value":{"rc":3,'
}

@test "a rank that dies, and memory that runs out, are told apart" {
  in_slurm
  echo 'if [[ "$RANK" == 1 ]]; then kill -KILL $$; fi' >"$FAKE/do"
  job FW=ddp GPUS=2 NODES=2
  [[ "$status" == 137 ]]
  tail -n 1 "$ECG_RESULTS"/runs/*/log | grep -q '"reason":"a rank died"'
  rm -r "$ECG_RESULTS"
  echo 'echo "slurmstepd: error: Detected 1 oom-kill event(s)"; exit 1' >"$FAKE/do"
  job FW=ddp GPUS=2 NODES=2
  tail -n 1 "$ECG_RESULTS"/runs/*/log | grep -q '"reason":"out of memory"'
}

@test "MPI that cannot start is refused with a reason" {
  in_slurm
  printf 'srun: MPI types are...\nsrun: none\n' >"$FAKE/mpi"
  stub mpirun 'echo "mpirun (Other) 1.0"'
  job FW=mpi GPUS=2 NODES=2
  [[ "$status" == 2 && "$stderr" == *"is not that of Open MPI"* ]]
}

@test "each framework starts as it must: srun without MPI, with PMIx, with PMI-2, or mpirun" {
  in_slurm
  job FW='ddp horovod' GPUS=4 NODES=2
  [[ "$status" == 0 && "$(launches mpi)" == "srun --mpi=none srun --mpi=pmix " ]]
  grep -q '^srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --cpus-per-task=1 --mpi=pmix --distribution=block --kill-on-bad-exit=1 --wait=60 --unbuffered ' "$CALLS"
  [[ "$output" == *"rank 3 of 4 at "*"train_horovod"* ]]
  run ! grep -q gpu-bind "$CALLS"
  SLURM_JOB_ID=4712 SLURM_JOB_GPUS=0,1 job FW=ddp GPUS=4 NODES=2
  grep -q ' --gpu-bind=none ' "$CALLS"
  printf 'srun: MPI types are...\nsrun: pmi2\n' >"$FAKE/mpi"
  stub ompi_info 'echo "mca:pmix:s2:version:mca:2.1.0"'
  SLURM_JOB_ID=4714 job FW=mpi GPUS=2 NODES=2
  [[ "$(launches mpi)" == "srun --mpi=pmi2 " ]]
  stub mpirun 'if [[ "$1" == --version ]]; then echo "mpirun (Open MPI) 4.1.4"; fi'
  SLURM_JOB_ID=4715 ECG_MPI=mpirun job FW=mpi GPUS=4 NODES=2
  [[ "$status" == 0 ]]
  grep -q '^mpirun -np 4 --host n1:2.,n2:2 --map-by ppr:2:node --bind-to none .*-x FW ' "$CALLS"
}

@test "the launch line says what the job knows, the header names the image by its digest" {
  in_slurm
  job FW=ddp GPUS=2 NODES=2
  local line
  line=$(grep '"ecg_launch"' <<<"$output")
  [[ "$line" == *'"layout":"distributed","group":null,"members":null,"job_id":"4711","job_name":"pretrain_mitdb_small_ddp_n2_g2_strong","leg":1,"legs":1,"mpi":"srun --mpi=none"}'* ]]
  [[ "$stderr" == *"$(sha256sum <"$ECG_IMAGE" | cut -d' ' -f1)"* ]]
  [[ -d "$ECG_RESULTS/jobs/pretrain_mitdb_small_ddp_n2_g2_strong_slurm-4711/bundle" ]]
}

@test "a sweep: baseline first and last, the rest shuffled by a recorded seed, on the first nodes" {
  in_slurm
  local legs=$'ddp 1 1 2\nddp 1 2 2\nddp 2 4 2' first
  ECG_ORDER_SEED=7 job "LEGS=$legs" NODES=2 GPUS=4
  [[ "$status" == 0 && "$(launches world)" =~ ^1\ .*\ 1\ $ && "$(launches repeat)" =~ ^1\ .*\ 3\ $ && "$(launches leg)" == "1 2 3 4 5 6 7 " ]]
  first=$(launches world)$(launches repeat)
  grep -q '^srun --nodes=1 --ntasks=2 .* --relative=0 ' "$CALLS"
  grep -q 'seed 7$' "$ECG_RESULTS"/jobs/*/plan
  rm -r "$ECG_RESULTS"
  ECG_ORDER_SEED=7 job "LEGS=$legs" NODES=2 GPUS=4
  [[ "$(launches world)$(launches repeat)" == "$first" ]]
}

@test "a job that is started again runs only the legs that did not end well" {
  in_slurm
  echo 'if [[ "$*" == *train_fsdp* ]]; then exit 1; fi' >"$FAKE/do"
  job FW='ddp fsdp' GPUS=2 NODES=2 REPEAT=2
  [[ "$status" == 1 && "$(launches framework)" == "ddp ddp fsdp fsdp " ]]
  rm "$FAKE/do"
  export SLURM_RESTART_COUNT=1
  job FW='ddp fsdp' GPUS=2 NODES=2 REPEAT=2
  [[ "$status" == 0 && "$(launches framework)" == "fsdp fsdp " && "$stderr" == *"leg 1 of 4 ended well before"* ]]
  STEPS=60 job FW='ddp fsdp' GPUS=2 NODES=2 REPEAT=2 # another request is another leg
  [[ "$(launches framework)" == "ddp ddp fsdp fsdp " ]]
}

@test "independent: each alone, all at once on nodes of their own, the first alone again" {
  in_slurm
  job LAYOUT=independent FW=ddp GPUS=4 NODES=2 'DATASET=mitdb ptbxl'
  [[ "$status" == 0 && "$(launches dataset)" =~ ^mitdb\ ptbxl\ (mitdb\ ptbxl|ptbxl\ mitdb)\ mitdb\ $ ]]
  [[ "$(launches group)" == "null null 4711-1 4711-1 null " && "$(launches members)" == "null null 2 2 null " ]]
  [[ "$(launches nodes)$(launches world)" == "1 1 1 1 1 2 2 2 2 2 " ]]
  [[ "$(grep -c ' --relative=1 ' "$CALLS")" == 2 ]]
}

@test "independent: one that fails does not stop its neighbour, and the job fails" {
  in_slurm
  echo 'if [[ "$*" == *ptbxl* ]]; then exit 1; fi' >"$FAKE/do"
  job LAYOUT=independent FW=ddp GPUS=4 NODES=2 'DATASET=mitdb ptbxl'
  [[ "$status" == 1 && "$(grep -c '"rc":0,' <<<"$output")" == 3 && "$(grep -c '"rc":1,' <<<"$output")" == 2 ]]
}

# started: run the job in the background and wait until its workers are there.
started() {
  cp "$JOB" "$JOB.later"
  bash "$JOB.later" >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  launcher=$!
  eventually 15 test -s "$FAKE/pid"
}

@test "USR2 before the limit: the run is asked to stop, the reason is in the log, no further leg starts" {
  in_slurm
  job FW=ddp GPUS=1 REPEAT=2
  rm -r "$ECG_RESULTS"
  echo 'while [[ "$*" =~ --run-dir\ (.*)\ --data-dir ]] && [[ ! -e "${BASH_REMATCH[1]}/stop" ]]; do echo $$ >"$FAKE/pid"; sleep 0.1; done; exit 1' >"$FAKE/do"
  local launcher result=0
  started
  kill -USR2 "$launcher"
  wait "$launcher" || result=$?
  [[ "$result" == 1 ]]
  grep -q '"ecg_exit","value":{"rc":1,.*"reason":"time limit"' "$ECG_RESULTS"/runs/*/log
  grep -q 'no time for the legs from 2 on' "$BATS_TEST_TMPDIR/out"
}

@test "TERM, as scancel sends it: the workers end, the reason is in the log" {
  in_slurm
  job FW=ddp GPUS=1 REPEAT=2
  rm -r "$ECG_RESULTS"
  echo 'echo $$ >"$FAKE/pid"; exec sleep 60' >"$FAKE/do"
  local launcher result=0
  started
  kill -TERM "$launcher"
  wait "$launcher" || result=$?
  [[ "$result" == 143 ]]
  grep -q '"ecg_exit","value":{"rc":143,.*"reason":"cancelled"' "$ECG_RESULTS"/runs/*/log
  eventually 5 gone "$(<"$FAKE/pid")"
}

@test "TERM reaches all members of a group" {
  in_slurm
  job LAYOUT=independent FW=ddp GPUS=2 NODES=2 DATASET=mitdb
  rm -r "$ECG_RESULTS"
  echo 'if [[ -e "$FAKE/both" ]]; then echo $$ >>"$FAKE/pid"; exec sleep 60; elif ls "$FAKE"/seen >/dev/null 2>&1; then touch "$FAKE/both"; else touch "$FAKE/seen"; fi' >"$FAKE/do"
  local launcher result=0
  started
  eventually 10 eval '(($(wc -l <"$FAKE/pid") == 2))'
  kill -TERM "$launcher"
  wait "$launcher" || result=$?
  [[ "$result" == 143 && "$(grep -l '"reason":"cancelled"' "$ECG_RESULTS"/runs/*/log | wc -l)" == 2 ]]
}

@test "a port that was taken in between is tried again elsewhere" {
  in_slurm
  echo 'if mkdir "$FAKE/once" 2>/dev/null; then echo "RuntimeError: EADDRINUSE"; exit 1; fi' >"$FAKE/do"
  job FW=ddp GPUS=1
  [[ "$status" == 0 && "$(grep -c '"ecg_exit"' <<<"$output")" == 2 ]]
}

@test "without Slurm the same file runs here; several nodes are refused; two at once get folders of their own" {
  stub mpirun 'shift 5; export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1; exec "$@"'
  job FW='serial ddp mpi' GPUS=1
  [[ "$status" == 0 && "$(launches mpi)" == "local local local " && "$output" == *"rank 0 of 1 at 127.0.0.1: "* ]]
  job FW=ddp GPUS=2 NODES=2
  [[ "$status" == 2 && "$stderr" == *"NODES=2"* || "$stderr" == *"a leg wants 2 node(s)"* ]]
  job FW=serial
  bash "$JOB" >/dev/null 2>&1 3>&- &
  bash "$JOB" >/dev/null 2>&1
  wait
  local folders=("$ECG_RESULTS"/jobs/*serial*)
  ((${#folders[@]} == 4))
}

@test "the preflight runs once for each way to start, and its status is the job's" {
  in_slurm
  job LAYOUT=check FW='ddp fsdp horovod' GPUS=4 NODES=2
  [[ "$status" == 0 && "$(grep -c 'rank 0 of 4 .* -m ecg_train.preflight' <<<"$output")" == 2 ]]
  echo 'exit 4' >"$FAKE/do"
  job LAYOUT=check FW=ddp GPUS=4 NODES=2
  [[ "$status" == 4 && ! -e "$ECG_RESULTS/runs/check" ]]
}
