# shellcheck shell=bash
# From a launcher's variables to ranks, and from a rank to its cores. Needs common.sh.

# tasks_on_node LIST INDEX: how many tasks Slurm put on the INDEX-th node, from a list such as "2(x3),1".
tasks_on_node() {
  local part count repeat seen=0
  for part in ${1//,/ }; do
    count=${part%%(*}
    repeat=1
    if [[ "$part" =~ \(x([0-9]+)\)$ ]]; then repeat=${BASH_REMATCH[1]}; fi
    seen=$((seen + repeat))
    if (($2 < seen)); then
      printf '%s\n' "$count"
      return
    fi
  done
  return 1
}

set_ranks() {
  if [[ -n "${OMPI_COMM_WORLD_RANK:-}" ]]; then # also under mpirun inside a Slurm job
    RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE
    LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE
  elif [[ "${ECG_LAUNCHER:-}" == local ]]; then
    : "${RANK:?}" "${WORLD_SIZE:?}" "${LOCAL_RANK:?}" "${LOCAL_WORLD_SIZE:?}"
  elif [[ -n "${SLURM_PROCID:-}" && -n "${SLURM_STEP_ID:-}" ]]; then
    RANK=$SLURM_PROCID WORLD_SIZE=${SLURM_STEP_NUM_TASKS:-${SLURM_NTASKS:-}} LOCAL_RANK=${SLURM_LOCALID:-}
    [[ -n "$WORLD_SIZE" && -n "$LOCAL_RANK" ]] ||
      die "with-ranks: SLURM_PROCID is set but SLURM_NTASKS or SLURM_LOCALID is not; start the worker with srun"
    LOCAL_WORLD_SIZE=$(tasks_on_node "${SLURM_STEP_TASKS_PER_NODE:-${SLURM_TASKS_PER_NODE:-}}" "${SLURM_NODEID:-0}") ||
      die "with-ranks: cannot tell the workers of this node from SLURM_STEP_TASKS_PER_NODE='${SLURM_STEP_TASKS_PER_NODE:-}'"
  else
    # A RANK left over in the user's shell must not make a lone process wait for peers.
    RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1
  fi
  export RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
}

# The meeting point. Over several nodes it must come from outside: a container cannot ask Slurm, and a guess would let
# every node train alone.
set_master() {
  if [[ -z "${MASTER_ADDR:-}" ]]; then
    ((LOCAL_WORLD_SIZE == WORLD_SIZE)) ||
      die "with-ranks: $WORLD_SIZE workers on several nodes, but MASTER_ADDR is not set; export it before the launch"
    MASTER_ADDR=127.0.0.1
  fi
  if [[ -z "${MASTER_PORT:-}" ]]; then
    if [[ -n "${SLURM_JOB_ID:-}" ]]; then
      MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) # below the ephemeral ports
    else
      MASTER_PORT=29500
    fi
  fi
  export MASTER_ADDR MASTER_PORT
}

# allowed_cores: the CPU numbers this process may use, one a line.
allowed_cores() {
  local part
  for part in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
    seq "${part%-*}" "${part#*-}"
  done
}

# nproc would believe OMP_NUM_THREADS.
allowed_count() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# ordered_cores WANTED: the allowed CPUs, one a line. If there are enough physical cores for WANTED, one hardware
# thread of each (two workers on one core would slow each other); else all threads, those of a core together.
ordered_cores() {
  local allowed
  allowed=$(allowed_cores)
  { lscpu -p=CPU,CORE 2>/dev/null || true; } | awk -F, -v wanted="$1" -v allowed="$allowed" '
    !/^#/ { core[$1] = $2 }
    END {
      n = split(allowed, cpu, "\n")
      for (i = 1; i <= n; i++) {
        c = (cpu[i] in core) ? core[cpu[i]] : "cpu" cpu[i]
        if (!(c in members)) { order[++physical] = c; first[physical] = cpu[i] }
        members[c] = members[c] cpu[i] "\n"
      }
      for (i = 1; i <= physical; i++) printf "%s", (wanted <= physical) ? first[i] "\n" : members[order[i]]
    }'
}

# worker_cores: the comma-separated CPUs of this worker; empty when it should stay where it is.
worker_cores() {
  local each=${ECG_CORES:-0} cores count
  [[ "$each" =~ ^[0-9]{1,4}$ ]] || die "with-ranks: ECG_CORES='$each' is not a number of cores"
  if [[ "${ECG_BIND:-}" == none ]]; then return; fi
  # srun has already bound this task.
  if [[ "${ECG_LAUNCHER:-}" != local && -z "${OMPI_COMM_WORLD_RANK:-}" && -n "${SLURM_CPUS_PER_TASK:-}" ]] &&
    (($(allowed_count) <= SLURM_CPUS_PER_TASK)); then
    return
  fi
  if ((each == 0)); then
    mapfile -t cores < <(ordered_cores 1000000)
    each=$((${#cores[@]} / LOCAL_WORLD_SIZE))
    if ((each == 0)); then each=1; fi
  else
    mapfile -t cores < <(ordered_cores $((each * LOCAL_WORLD_SIZE)))
  fi
  count=${#cores[@]}
  if ((each > count)); then each=$count; fi
  local i chosen=()
  for ((i = 0; i < each; i++)); do chosen+=("${cores[(LOCAL_RANK * each + i) % count]}"); done
  local IFS=,
  printf '%s\n' "${chosen[*]}"
}

# share_of_core CORES: what a worker bound to CORES really has, when workers outnumber the cores: "0.5", else CORES.
share_of_core() {
  awk -v cores="$1" -v workers="$LOCAL_WORLD_SIZE" -v allowed="$(allowed_count)" \
    'BEGIN { share = allowed / workers; printf "%g\n", (share < cores) ? share : cores }'
}
