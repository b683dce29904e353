#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  unset ECG_PYTHON
}

show='echo "$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR:$MASTER_PORT"'

cores='echo "$(taskset -cp $$ | sed "s/.*: //") $OMP_NUM_THREADS $ECG_CORES_PER_WORKER"'

@test "no command is refused" {
  run --separate-stderr bin/with-ranks
  refused "no command given"
}

@test "several nodes without MASTER_ADDR are refused" {
  SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE='2(x2)' \
    run --separate-stderr bin/with-ranks true
  refused "MASTER_ADDR is not set"
}

@test "half of Slurm's variables are refused" {
  SLURM_PROCID=0 SLURM_STEP_ID=0 run --separate-stderr bin/with-ranks true
  refused "SLURM_NTASKS"
  SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 run --separate-stderr bin/with-ranks true
  refused "SLURM_STEP_TASKS_PER_NODE"
}

@test "ECG_CORES that is no number is refused" {
  ECG_CORES='1;touch y' run --separate-stderr bin/with-ranks true
  refused "ECG_CORES"
}

@test "without a launcher it is rank 0 of 1, whatever the shell still holds" {
  RANK=3 WORLD_SIZE=8 LOCAL_RANK=3 run --separate-stderr bin/with-ranks bash -c "$show"
  [[ "$status" == 0 && "$output" == "0/1 0/1 127.0.0.1:29500" && -z "$stderr" ]]
}

@test "mpirun's variables are used, also inside a Slurm job" {
  export OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4
  export SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_LOCALID=0 SLURM_JOB_ID=20007
  MASTER_ADDR=n1 run --separate-stderr bin/with-ranks bash -c "$show"
  [[ "$status" == 0 && "$output" == "5/8 1/4 n1:10007" ]]
}

@test "srun's variables are used, nodes of unequal size too" {
  export SLURM_PROCID=6 SLURM_STEP_ID=0 SLURM_NTASKS=7 SLURM_LOCALID=0 SLURM_NODEID=3 SLURM_JOB_ID=12345
  export SLURM_STEP_TASKS_PER_NODE='2(x3),1' MASTER_ADDR=n1
  run --separate-stderr bin/with-ranks bash -c "$show"
  [[ "$status" == 0 && "$output" == "6/7 0/1 n1:22345" ]]
  SLURM_PROCID=5 SLURM_LOCALID=1 SLURM_NODEID=2 run --separate-stderr bin/with-ranks bash -c "$show"
  [[ "$output" == "5/7 1/2 n1:22345" ]]
}

@test "the local launcher's ranks win over those of the Slurm job around it" {
  export ECG_LAUNCHER=local RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_PORT=23456
  SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 run --separate-stderr bin/with-ranks bash -c "$show"
  [[ "$output" == "1/2 1/2 127.0.0.1:23456" ]]
}

@test "each worker gets cores of its own" {
  (($(nproc) >= 2)) || skip "needs 2 cores"
  export ECG_LAUNCHER=local WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 ECG_CORES=1
  RANK=0 LOCAL_RANK=0 run --separate-stderr bin/with-ranks bash -c "$cores"
  local first=$output
  RANK=1 LOCAL_RANK=1 run --separate-stderr bin/with-ranks bash -c "$cores"
  [[ "$first" == *" 1 1" && "$output" == *" 1 1" && "$first" != "$output" ]]
}

@test "hardware threads of one core are not given to two workers while cores are free" {
  stub lscpu 'printf "%s\n" "# CPU,Core" 0,0 1,0 2,1 3,1'
  stub taskset 'if [[ "$1" == -cp ]]; then echo "list: 0-3"; else echo "bound to $2"; fi'
  export ECG_LAUNCHER=local WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 ECG_CORES=1
  RANK=1 LOCAL_RANK=1 run --separate-stderr bin/with-ranks true
  [[ "$output" == "bound to 2" ]]
  ECG_CORES=2 RANK=1 LOCAL_RANK=1 run --separate-stderr bin/with-ranks true
  [[ "$output" == "bound to 2,3" ]]
  unset ECG_CORES
  RANK=0 LOCAL_RANK=0 run --separate-stderr bin/with-ranks true
  [[ "$output" == "bound to 0,1" ]]
}

@test "more workers than cores share them, and say so and what share is theirs" {
  stub nproc 'echo 2'
  export ECG_LAUNCHER=local WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 ECG_CORES=1 RANK=3 LOCAL_RANK=3
  run --separate-stderr bin/with-ranks bash -c "$cores"
  [[ "$status" == 0 && "$output" == *" 1 0.5" ]]
  run --separate-stderr bin/with-ranks bash -c 'echo "$ECG_OVERSUBSCRIBED"'
  [[ "$output" == 1 ]]
  WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 RANK=1 LOCAL_RANK=1 run --separate-stderr bin/with-ranks bash -c 'echo "${ECG_OVERSUBSCRIBED-no}"'
  [[ "$output" == no ]]
}

@test "a task that srun bound keeps its cores; ECG_BIND=none too" {
  stub taskset 'if [[ "$1" == -cp ]]; then exec /usr/bin/taskset "$@"; else echo "bound to $2"; fi'
  export SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1
  SLURM_CPUS_PER_TASK=$(nproc) OMP_NUM_THREADS=77 run --separate-stderr bin/with-ranks bash -c 'echo "$OMP_NUM_THREADS"'
  [[ "$output" == "$(nproc)" ]]
  ECG_BIND=none run --separate-stderr bin/with-ranks echo free
  [[ "$output" == free ]]
}

@test "status and arguments pass through unchanged" {
  run --separate-stderr bin/with-ranks bash -c 'printf "[%s]" "$@"; exit 7' name 'a  b' '$(touch y)' '*'
  [[ "$status" == 7 && "$output" == '[a  b][$(touch y)][*]' && ! -e y ]]
}

@test "the user's Python settings do not reach the worker" {
  PYTHONPATH=/nowhere PYTHONHOME=/nowhere run --separate-stderr bin/with-ranks bash -c 'echo "$PYTHONPATH ${PYTHONHOME-none} $PYTHONNOUSERSITE"'
  [[ "$output" == "$(pwd -P)/python:$(pwd -P) none 1" ]]
}
