# shellcheck shell=bash disable=SC2030,SC2031,SC2153 # the names in capitals are the user's variables; a subshell checks one member
# From a request to a job in the queue. Needs common.sh, check.sh, frameworks.sh, request.sh, jobfile.sh, image.sh, slurm.sh.

# Names that only jobs have, beside those of the request.
submit_names() { printf '%s' "$(request_names) LAYOUT TIME PARTITION ACCOUNT QOS SWEEP DRY_RUN"; }

# set_submit_defaults: the site's facts, and what the command line says instead of them.
set_submit_defaults() {
  local name
  set_request_defaults
  : "${LAYOUT=distributed}"
  check_choice DRY_RUN "${DRY_RUN-0}" 0 1
  for name in PARTITION ACCOUNT QOS; do
    if [[ -n "${!name+given}" ]]; then printf -v "ECG_$name" '%s' "${!name}"; fi
  done
  # An image for jobs, unless the site says that there is none.
  if [[ "${ECG_CONTAINER:-apptainer}" == none ]]; then
    ECG_BUNDLE=${ECG_BUNDLE:-$ECG_ROOT}
  else
    ECG_IMAGE=$(image_path) || exit
    export ECG_IMAGE
  fi
}

# fewest_nodes: NODES for GPUS workers, from what the partition has.
fewest_nodes() {
  local each
  check_integer GPUS "$GPUS" 1 65536
  each=${ECG_GPUS_PER_NODE:-$(partition_gpus "${ECG_PARTITION:-}")}
  if ((each == 0)); then each=$GPUS; fi
  local nodes=$(((GPUS + each - 1) / each))
  while ((GPUS % nodes)); do nodes=$((nodes + 1)); done
  printf '%s\n' "$nodes"
}

# check_member SET: the request of one training: of the whole job, or of one of its independent nodes.
check_member() {
  DATASET=$1
  if [[ "$LAYOUT" == independent ]]; then GPUS=$((GPUS / NODES)); fi
  check_request
}

# check_submission: all that can be wrong with the job that the variables describe, before anything is written.
check_submission() {
  local set datasets
  check_integer GPUS "$GPUS" 1 65536
  check_integer NODES "$NODES" 1 65536
  check_job_values
  if [[ "$LAYOUT" == independent ]]; then
    ((NODES > 1)) || die "LAYOUT=independent is for several nodes, each with a data set of its own; give NODES=2 DATASET=\"a b\""
  fi
  read -ra datasets <<<"$DATASET"
  ((${#datasets[@]} > 0)) || die "DATASET is empty; give the name of a data set: make inspect"
  for set in "${datasets[@]}"; do
    (check_member "$set") || exit
    [[ -e "$ECG_DATA/$set/manifest.json" ]] ||
      die "there is no data set '$set' in $ECG_DATA; make it first: make data DATASET=$set"
  done
  ((${#datasets[@]} == 1)) || [[ "$LAYOUT" == independent ]] || die "DATASET=$(shown "$DATASET") are several; only LAYOUT=independent takes one per node"
  [[ "$FW" != serial || "$GPUS" == 1 ]] || die "FW=serial is one worker by definition, but GPUS=$GPUS; use GPUS=1 or another FW"
}

# require_place: the results folder can be written.
require_place() {
  if ! mkdir -p "$ECG_RESULTS/jobs" 2>/dev/null || [[ ! -w "$ECG_RESULTS/jobs" ]]; then
    die "cannot write to $(shown "$ECG_RESULTS"); set ECG_RESULTS to a folder of your own"
  fi
}

# test_only FILE: Slurm's own opinion, without a job.
test_only() {
  local said
  said=$(sbatch --test-only "$1" 2>&1) ||
    die "Slurm refuses this job: $(tail -n 1 <<<"$said" | sed 's/^sbatch: error: //'); ask for what 'sinfo' shows, or mend PARTITION, ACCOUNT, GPUS, NODES, TIME"
}

# new_folder: of this submission, nobody else's, whatever the second.
new_folder() {
  local folder
  for _ in {1..20}; do
    folder=$ECG_RESULTS/jobs/$(job_stem)_$(date -u +%Y%m%dT%H%M%S)-$(od -An -N3 -tx1 /dev/urandom | tr -d ' \n')
    if mkdir "$folder" 2>/dev/null; then
      printf '%s\n' "$folder"
      return
    fi
  done
  die "cannot make a folder in $(shown "$ECG_RESULTS/jobs")" 1
}

# submit FOLDER [SBATCH-ARGUMENT...]: write the job file there and hand it to Slurm; prints id, file and log. With
# FOLDER=- it only shows what it would do.
submit() {
  local folder=$1 file id name
  shift
  if [[ "$folder" == - ]]; then
    folder=$ECG_RESULTS/jobs/$(job_stem)_UTC-RANDOM
    file=$(mktemp "${TMPDIR:-/tmp}/ecg-job.XXXXXX")
    ECG_JOB_DIR=$folder ECG_JOB_OUTPUT=$folder/slurm-%j.log write_jobfile "$file"
    cat "$file"
    rm -f "$file"
    printf '# command:'
    printf ' %q' sbatch --parsable "$@" "$folder/job.sbatch"
    printf '\n'
    return
  fi
  file=$folder/job.sbatch
  ECG_JOB_DIR=$folder ECG_JOB_OUTPUT=$folder/slurm-%j.log write_jobfile "$file"
  for name in $(request_names) LAYOUT LEGS; do printf '%s=%q\n' "$name" "${!name:-}"; done >"$folder/request"
  if ! id=$(clean_sbatch --parsable "$@" "$file"); then
    if [[ ! -e "$folder/plan" ]]; then rm -rf "$folder"; fi
    die "sbatch failed; nothing was submitted" 1
  fi
  id=${id%%;*}
  printf '%s\n' "$id" >"$folder/id"
  printf '%s\t%s\t%s\n' "$id" "$file" "$folder/slurm-$id.log"
}

# clean_sbatch ... FILE: the job file says all that it names; a variable of this shell would win over it. Settings of a
# worker that it does not name, such as ECG_EVAL_EVERY, go along.
clean_sbatch() {
  local name keep=()
  while IFS= read -r name; do
    case "$name" in ECG_ROOT | ECG_CACHE | ECG_PYTHON | ECG_RAW | ECG_TRACE | ECG_SITE | ECG_JOB_* | ECG_GPU* | ECG_EXCLUSIVE) continue ;; esac
    if ! grep -q "{$name:=" "${!#}"; then keep+=("$name=${!name}"); fi
  done < <(compgen -e ECG_ || true)
  for name in HOME USER LOGNAME PATH LC_ALL SLURM_CONF TMPDIR LD_LIBRARY_PATH MODULEPATH MODULESHOME LMOD_CMD LMOD_DIR BASH_ENV; do
    if [[ -n "${!name:-}" ]]; then keep+=("$name=${!name}"); fi
  done
  env -i "${keep[@]}" sbatch "$@"
}
