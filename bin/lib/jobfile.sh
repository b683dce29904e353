# shellcheck shell=bash disable=SC2153 # the names in capitals are the user's variables
# Writes job files from the one template. Needs common.sh, check.sh, request.sh and a checked request.

# job_stem: the one name of job, log and runs, from the request.
job_stem() {
  local stem suffix=""
  case "${LAYOUT:-distributed}" in
    independent | check | report) suffix=_$LAYOUT ;;
  esac
  if [[ -n "${LEGS:-}" ]]; then suffix+=_sweep; fi
  stem=${MODE}_${DATASET}_${MODEL}_${FW}_n${NODES}_g${GPUS}_${SCALING}$suffix
  printf '%s\n' "${stem// /+}" # lists
}

# double_quoted TEXT: as it stands between the braces of "${X:=...}".
double_quoted() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//\$/\\\$}
  text=${text//\`/\\\`}
  printf '%s' "${text//\}/\\\}}"
}

# check_line NAME VALUE: what goes into an #SBATCH line must not end it or begin a remark.
check_line() {
  local allowed='^[]A-Za-z0-9@%+=:,._/[&|!*()-]*$'
  [[ "$2" =~ $allowed ]] ||
    die "$1=$(shown "$2") cannot stand in an #SBATCH line: letters, digits and punctuation without spaces and quotes only"
}

check_job_values() {
  check_choice LAYOUT "${LAYOUT:-distributed}" distributed independent check report
  check_choice ECG_CONTAINER "${ECG_CONTAINER:-apptainer}" apptainer singularity none
  check_choice ECG_MPI "${ECG_MPI:-auto}" auto pmix pmi2 mpirun
  check_choice ECG_DEVICE "${ECG_DEVICE:-auto}" auto cpu cuda
  check_choice ECG_EXCLUSIVE "${ECG_EXCLUSIVE-1}" 0 1
  ((GPUS % NODES == 0)) || die "GPUS=$GPUS workers do not divide over NODES=$NODES; use a multiple, such as GPUS=$(((GPUS / NODES + 1) * NODES))"
  check_integer ECG_CPUS_PER_TASK "${ECG_CPUS_PER_TASK:-4}" 1 4096
  [[ "${TIME:-${ECG_TIME:-00:30:00}}" =~ ^([0-9]+-)?[0-9]+(:[0-9]{2}){0,2}$ ]] ||
    die "TIME=$(shown "${TIME:-$ECG_TIME}") is not a time limit; wanted minutes, hours:minutes:seconds or days-hours"
  local name
  for name in ECG_PARTITION ECG_ACCOUNT ECG_QOS ECG_CONSTRAINT ECG_GPU_REQUEST; do check_line "$name" "${!name:-}"; done
  for name in ECG_DATA ECG_RESULTS ECG_IMAGE ECG_JOB_DIR ECG_BUNDLE; do
    [[ "${!name:-}" != *[:,$'\n']* ]] || die "$name=$(shown "${!name}") holds ':' or ',', which a folder seen in the image cannot; use another path"
  done
}

# portable PATH: for a file that is committed, a path below the folder from which the job is submitted.
portable() {
  if [[ "${ECG_JOB_PORTABLE:-0}" == 1 && "$1" == "$ECG_ROOT"/* ]]; then
    # shellcheck disable=SC2016 # the job expands it
    printf '%s%s' '${SLURM_SUBMIT_DIR:-$PWD}' "$(double_quoted "${1#"$ECG_ROOT"}")"
  else
    double_quoted "$1"
  fi
}

# The request as a block of defaults, one line each. REPEAT counts how often the leg runs.
request_block() {
  local name
  for name in $(request_names); do
    # shellcheck disable=SC2016 # the job expands it
    printf ': "${%s:=%s}"\n' "$name" "$(double_quoted "${!name:-}")"
  done
}

# sbatch_path TEXT: quoted if need be.
sbatch_path() {
  if [[ "$1" == *[[:space:]\#]* ]]; then printf '"%s"' "$1"; else printf '%s' "$1"; fi
}

# placeholder NAME: its value.
placeholder() {
  local per_node=$((GPUS / NODES)) request=${ECG_GPU_REQUEST---gpus-per-node=%g}
  case "$1" in
    STEM) job_stem ;;
    GENERATOR) printf '%s' "${ECG_JOB_GENERATOR:-bin/submit}" ;;
    NODES) printf '%s' "$NODES" ;;
    TASKS_PER_NODE) printf '%s' "$per_node" ;;
    CPUS_PER_TASK) printf '%s' "${CORES:-${ECG_CPUS_PER_TASK:-4}}" ;;
    GPU_REQUEST) printf '%s' "${request//%g/$per_node}" ;;
    TIME) printf '%s' "${TIME:-${ECG_TIME:-00:30:00}}" ;;
    PARTITION | ACCOUNT | QOS | CONSTRAINT) local name=ECG_$1 && printf '%s' "${!name:-}" ;;
    EXCLUSIVE) if [[ "${ECG_EXCLUSIVE-1}" == 1 ]]; then printf '%s' --exclusive; fi ;;
    OUTPUT) sbatch_path "${ECG_JOB_OUTPUT:-%x-%j.log}" ;;
    ECG_IMAGE) portable "${ECG_IMAGE:-$ECG_ROOT/images/ecg-train-$(default_device).sif}" ;;
    ECG_DATA | ECG_RESULTS) portable "${!1}" ;;
    ECG_CONTAINER) printf '%s' "${ECG_CONTAINER:-apptainer}" ;;
    ECG_MPI | ECG_DEVICE) printf '%s' "${!1:-auto}" ;;
    LAYOUT) printf '%s' "${LAYOUT:-distributed}" ;;
    REQUEST) request_block ;;
    ECG_* | LEGS) double_quoted "${!1:-}" ;;
    *) die "jobs/template.sbatch: nobody knows what @$1@ is" 1 ;;
  esac
}

default_device() {
  if [[ "${ECG_DEVICE:-auto}" != auto ]]; then
    printf '%s' "$ECG_DEVICE"
  elif [[ "${ECG_JOB_PORTABLE:-0}" == 1 ]] || command -v nvidia-smi >/dev/null; then
    printf cuda
  else
    printf cpu
  fi
}

# An #SBATCH line whose value is empty stays as a remark, so that a site finds it and fills it in.
fill_line() {
  local line=$1 name value
  while [[ "$line" =~ @([A-Z_]+)@ ]]; do
    name=${BASH_REMATCH[1]}
    value=$(placeholder "$name") || exit
    if [[ -z "$value" && "$line" == '#SBATCH '* ]]; then line="#$line"; fi
    line=${line/"@$name@"/"${value//@/$'\001'}"} # a value must not be read as a placeholder
  done
  if [[ "$line" =~ ^(#+SBATCH\ [^#]*[^ #])\ +(#\ .*)$ ]]; then printf -v line '%-48s %s' "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"; fi
  printf '%s\n' "${line//$'\001'/@}"
}

# write_jobfile FILE: the job file of the variables as they are.
write_jobfile() {
  local line part=$1.part.$$
  check_job_values
  while IFS= read -r line || [[ -n "$line" ]]; do
    fill_line "$line" || return
  done <"$ECG_ROOT/jobs/template.sbatch" >"$part"
  mv -- "$part" "$1"
}
