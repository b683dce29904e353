# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # names in capitals are the user's; those in small letters are of job.sh
# How the workers of one leg are started over the nodes of a job, and where they meet. Needs common.sh, forward.sh.

# set_mpi: how programs of MPI start in this job: ECG_MPI, or what Slurm offers and the image's Open MPI can use.
set_mpi() {
  local offered able=""
  if [[ -n "${mpi_kind:-}" ]]; then return; fi
  mpi_kind=${ECG_MPI:-auto}
  if [[ "$mpi_kind" == auto ]]; then
    offered=$(srun --mpi=list 2>&1 || true) # Slurm up to 21.08 says it on stderr
    able=$("$ECG_BUNDLE/bin/in-image" ompi_info --parsable 2>/dev/null | grep '^mca:pmix:' || true)
    mpi_kind=$(choose_mpi "$offered" "$able")
  fi
  if [[ "$mpi_kind" != mpirun ]]; then return; fi
  command -v mpirun >/dev/null ||
    die "MPI cannot start here: srun offers no PMIx or PMI-2 that the image's Open MPI can use (srun --mpi=list), and $(uname -n) has no mpirun; load an Open MPI 4.1 with ECG_MODULES, or choose FW=ddp"
  mpirun --version 2>/dev/null | grep -q 'Open MPI' ||
    die "MPI cannot start here: mpirun of $(uname -n) is not that of Open MPI, which the image is made with; load one with ECG_MODULES"
}

# choose_mpi OFFERED ABLE: pmix, pmi2 or mpirun. An image that cannot say what it can do is taken to speak PMIx.
choose_mpi() {
  if grep -qw 'pmix' <<<"$1" && { [[ -z "$2" ]] || grep -qE ':(pmix[0-9x]*|ext[0-9x]+):' <<<"$2"; }; then
    echo pmix
  elif grep -qw 'pmi2' <<<"$1" && { [[ -z "$2" ]] || grep -q ':s2:' <<<"$2"; }; then
    echo pmi2
  else
    echo mpirun
  fi
}

# slurm_release: major.minor of srun as one number: 22.05 is 2205.
slurm_release() {
  [[ "$(srun --version 2>/dev/null)" =~ ([0-9]{2})\.([0-9]{2}) ]] || { echo 0 && return; }
  printf '%s\n' "$((10#${BASH_REMATCH[1]} * 100 + 10#${BASH_REMATCH[2]}))"
}

# set_start KIND FIRST: fill `starter`, what starts GPUS workers on NODES nodes of this job from its FIRST one on, and
# `started_by`, its name. KIND is the launcher column of frameworks.tsv.
set_start() {
  local mpi=none per_node=$((GPUS / NODES))
  job_started=1
  if [[ -z "${SLURM_JOB_ID:-}" ]]; then
    set_local_start "$1"
    return
  fi
  if [[ "$1" == mpirun ]]; then
    set_mpi
    mpi=$mpi_kind
  fi
  if [[ "$mpi" == mpirun ]]; then
    set_mpirun_start "$2"
    return
  fi
  started_by="srun --mpi=$mpi"
  starter=(srun --nodes="$NODES" --ntasks="$GPUS" --ntasks-per-node="$per_node" --cpus-per-task="$job_cpus" "--mpi=$mpi"
    --distribution=block --kill-on-bad-exit=1 --wait=60 --unbuffered --input=none --export=ALL "--job-name=$ECG_JOB_STEM")
  if ((NODES < job_nodes)); then starter+=(--relative="$2"); fi
  # Since 22.05 a step binds by itself in some cases; each worker must see its neighbours' GPUs. Older ones never do.
  if [[ -n "${SLURM_JOB_GPUS:-}${SLURM_GPUS_ON_NODE:-}${SLURM_STEP_GPUS:-}" ]] && (($(slurm_release) >= 2205)); then starter+=(--gpu-bind=none); fi
  # shellcheck disable=SC2206 # a list of flags
  starter+=(${ECG_SRUN_FLAGS:-} "$ECG_BUNDLE/bin/in-image")
}

set_mpirun_start() {
  local name host hosts=() per_node=$((GPUS / NODES))
  for host in "${job_hosts[@]:$1:NODES}"; do hosts+=("$host:$per_node"); done
  local IFS=,
  started_by=mpirun
  starter=(mpirun -np "$GPUS" --host "${hosts[*]}" --map-by "ppr:$per_node:node" --bind-to none)
  while IFS= read -r name; do starter+=(-x "$name"); done < <(forwarded_names common)
  starter+=("$ECG_BUNDLE/bin/in-image")
}

# Without Slurm all workers share one container, so that the launcher and its children are on one side of it.
set_local_start() {
  ((NODES == 1)) || die "NODES=$NODES needs Slurm: give this file to sbatch, or set NODES=1"
  started_by=local
  starter=("$ECG_BUNDLE/bin/in-image")
  case "$1" in
    local) starter+=(bin/launch-local "$GPUS") ;;
    mpirun)
      starter+=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -np "$GPUS" --bind-to none --oversubscribe)
      ;;
  esac
}

# addresses NAME: what it stands for, without those that mean something else on every node.
addresses() {
  { getent ahosts "$1" || true; } | awk '{ print $1 }' | grep -vE '^(127\.|::1$|fe80:|169\.254\.)' || true
}

# master_address NODE: where the workers of a leg meet. Asked here, on the host: a container cannot ask Slurm, and does
# not always know the names of the nodes.
master_address() {
  local name=$1${ECG_HOST_SUFFIX:-} found stated
  found=$(addresses "$name" | head -n 1)
  if [[ -z "$found" && -n "${SLURM_JOB_ID:-}" ]]; then # its own name is loopback, as Debian has it
    stated=$(scontrol --oneliner show node "$1" 2>/dev/null | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
    found=$(addresses "${stated:-$1}" | head -n 1)
  fi
  if [[ -z "$found" ]] && ((NODES == 1)); then found=127.0.0.1; fi
  [[ -n "$found" ]] || die "no address of the first node '$name' that the other nodes could reach; set ECG_HOST_SUFFIX to the ending of its network's names" 1
  printf '%s\n' "$found"
}

# meeting_port NODE STEP: below the ephemeral range, this job's and step's own, and silent now if the node is this one.
# Of another node nobody can tell from here; a leg whose port is taken there is run again with the next one.
meeting_port() {
  local port try
  for try in {0..9}; do
    port=$((10000 + (${SLURM_JOB_ID:-$RANDOM} * 16 + $2 + try * 1009) % 20000))
    if [[ "${1%%.*}" != "$(uname -n | cut -d. -f1)" ]] || ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
  die "all ports tried on $1 are taken" 1
}
