# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # names in capitals are the user's; those in small letters are set for other files
# What a job file does: sourced out of the bundle that it unpacked from the image, or out of a checkout.

ECG_BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
for ecg_name in common check frameworks request ranks forward launch mpi legs leg; do
  # shellcheck source=/dev/null
  source "$ECG_BUNDLE/bin/lib/$ecg_name.sh"
done

# job_header: what this job is, printed first, and everything that legs need to know about it.
job_header() {
  export ECG_IMAGE ECG_DATA ECG_RESULTS ECG_BINDS ECG_CONTAINER ECG_MPI ECG_DEVICE ECG_CONTAINER_FLAGS ECG_HOST_SUFFIX
  export ECG_JOB_DIR ECG_JOB_STEM ECG_BUNDLE LAYOUT ECG_HOSTS ECG_IMAGE_DIGEST SRUN_CPUS_PER_TASK ECG_CORES ECG_PIPE_DIR
  export SLURM_EXPORT_ENV=ALL # under `sbatch --export=NONE` the steps would start empty
  # srun would read them beside the flags that we give it, and some pairs contradict each other.
  unset SLURM_TRES_PER_TASK SLURM_GPU_BIND SLURM_GPUS_PER_TASK SLURM_CPU_BIND SLURM_DISTRIBUTION
  if [[ "$ECG_CONTAINER" == none ]]; then
    # shellcheck source=bin/lib/environment.sh
    source "$ECG_BUNDLE/bin/lib/environment.sh"
    require_environment ''
  fi
  forget_empty
  set_request_defaults
  if [[ "${INIT:-}" != '' && "$INIT" != /* ]]; then INIT=$PWD/$INIT; fi
  mkdir -p "$ECG_JOB_DIR" "$ECG_RESULTS/runs" || die "cannot write to ECG_RESULTS=$(shown "$ECG_RESULTS"); mend the path in the job file"
  ECG_PIPE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/ecg-pipes.XXXXXX") # not every shared file system has pipes
  trap 'job_ended $?' EXIT
  job_hosts=("$(uname -n)") job_nodes=1 job_tasks=0 job_started=0 job_cpus=${CORES:-0}
  if [[ -n "${SLURM_JOB_ID:-}" ]]; then
    command -v scontrol >/dev/null || die "no scontrol on $(uname -n), which tells the names of the nodes; put Slurm's programs on PATH" 1
    mapfile -t job_hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    job_nodes=${#job_hosts[@]}
    [[ "${SLURM_NTASKS_PER_NODE:-}" =~ ^[0-9]+$ ]] && job_tasks=$SLURM_NTASKS_PER_NODE
    job_cpus=${SLURM_CPUS_PER_TASK:-1}
  fi
  # srun binds to these; without it each worker takes an equal share unless told otherwise.
  SRUN_CPUS_PER_TASK=$job_cpus ECG_CORES=$job_cpus
  ECG_HOSTS=$(IFS=, && printf '%s' "${job_hosts[*]}")
  ECG_IMAGE_DIGEST=$(image_digest)
  log "job $ECG_JOB_STEM${SLURM_JOB_ID:+, number $SLURM_JOB_ID}${SLURM_RESTART_COUNT:+, restart $SLURM_RESTART_COUNT}, on $ECG_HOSTS"
  log "  image ${ECG_IMAGE_DIGEST:-none}, $ECG_CONTAINER $ECG_IMAGE"
  log "  data $ECG_DATA, results $ECG_RESULTS, job folder $ECG_JOB_DIR"
}

image_digest() {
  if [[ "$ECG_CONTAINER" == none ]]; then return; fi
  if [[ -r "$ECG_IMAGE.sha256" && ! "$ECG_IMAGE" -nt "$ECG_IMAGE.sha256" ]]; then
    read -r digest _ <"$ECG_IMAGE.sha256" && printf '%s' "$digest"
  else
    sha256sum <"$ECG_IMAGE" | cut -d' ' -f1
  fi
}

# The caches of this job go, on the other nodes too if there is time.
job_ended() {
  trap '' USR2 TERM INT HUP
  if ((job_started && job_nodes > 1 && $1 < 128)); then
    timeout 60 srun "--nodes=$job_nodes" "--ntasks=$job_nodes" --ntasks-per-node=1 --mpi=none --input=none \
      "$ECG_BUNDLE/bin/in-image" --forget >/dev/null 2>&1 || true
  else
    "$ECG_BUNDLE/bin/in-image" --forget || true
  fi
  rm -rf "$ECG_PIPE_DIR"
  log "job $ECG_JOB_STEM ended with status $1"
  exit "$1"
}

# set_leg LINE: the variables of a leg of the plan.
set_leg() {
  read -r FW NODES GPUS repeat DATASET first together <<<"$1"
  group=null members=null
}

# run_job: all legs of the plan; the status of the only one, or 1 if any of several failed.
run_job() {
  local lines leg_count index failed=0 stopped=0 repeat first together group members
  if [[ "$LAYOUT" == check ]]; then
    run_checks
    return
  elif [[ "$LAYOUT" == report ]]; then
    "$ECG_BUNDLE/bin/in-image" bin/report
    return
  fi
  make_plan "$ECG_JOB_DIR/plan"
  mapfile -t lines < <(grep -v '^#' "$ECG_JOB_DIR/plan")
  leg_count=${#lines[@]}
  for index in "${!lines[@]}"; do # all of them before the first one starts
    set_leg "${lines[index]}"
    check_leg "$first"
  done
  for ((index = 0; index < leg_count; index++)); do
    if ((stopped > 0)); then exit "$stopped"; fi
    if ((ECG_ASKED_TO_STOP)); then
      warn "no time for the legs from $((index + 1)) on; sbatch the same job again to run them"
      exit 1
    fi
    set_leg "${lines[index]}"
    if [[ "$together" != - ]]; then
      run_group "$index" || failed=$?
      index=$((index + members_here - 1))
    elif leg_finished; then
      log "leg $((index + 1)) of $leg_count ended well before: $FW on $NODES node(s), $GPUS worker(s), repeat $repeat"
    else
      run_leg "$((index + 1))" || failed=$?
    fi
  done
  if ((stopped > 0)); then exit "$stopped"; fi
  if ((failed > 0 && leg_count > 1)); then failed=1; fi
  return "$failed"
}

# run_group INDEX: the legs from INDEX on that run at the same time, each on its own node. Sets members_here.
run_group() {
  local name=$together index status=0 pids=() pid done=1 label
  members_here=0
  for ((index = $1; index < leg_count; index++)); do
    set_leg "${lines[index]}"
    if [[ "$together" != "$name" ]]; then break; fi
    members_here=$((members_here + 1))
    leg_finished || done=0
  done
  if ((done)); then
    log "the group of legs from $(($1 + 1)) on ended well before"
    return
  fi
  echo "$name" >>"$ECG_JOB_DIR/groups"
  label="\"${SLURM_JOB_ID:-$ECG_JOB_STEM}-$(wc -l <"$ECG_JOB_DIR/groups")\""
  job_started=1
  for ((index = $1; index < $1 + members_here; index++)); do
    (
      trap 'ECG_ASKED_TO_STOP=1' USR2
      set_leg "${lines[index]}"
      group=$label members=$members_here
      run_leg "$((index + 1))"
    ) &
    pids+=("$!")
  done
  trap 'stopped=143 && kill -TERM "${pids[@]}" 2>/dev/null' TERM
  trap 'stopped=130 && kill -TERM "${pids[@]}" 2>/dev/null' INT HUP
  trap 'ECG_ASKED_TO_STOP=1 && kill -USR2 "${pids[@]}" 2>/dev/null' USR2
  for pid in "${pids[@]}"; do
    while kill -0 "$pid" 2>/dev/null; do wait "$pid" || true; done # a trap ends `wait` early
    wait "$pid" || status=1
  done
  trap - TERM INT HUP
  trap 'ECG_ASKED_TO_STOP=1' USR2
  return "$status"
}

# run_checks: the preflight, once for each way in which the frameworks of FW start.
run_checks() {
  local framework kind seen=" " status=0 starter=() started_by="" stopped=0
  for framework in $FW; do
    read -r _ kind _ < <(framework_row "$framework")
    if [[ "$seen" == *" $kind "* ]]; then continue; fi
    seen+="$kind "
    FW=$framework
    check_request
    MASTER_ADDR=$(master_address "${job_hosts[0]}") || exit
    MASTER_PORT=$(meeting_port "${job_hosts[0]}" "${#seen}") || exit
    export MASTER_ADDR MASTER_PORT
    export_request check "$ECG_JOB_DIR" 1
    set_start "$kind" 0
    log "preflight of $FW, started by $started_by"
    run_logged "$ECG_JOB_DIR/check-$framework.log" "${starter[@]}" bin/train || status=$?
    if ((stopped > 0)); then exit "$stopped"; fi
  done
  return "$status"
}
