# shellcheck shell=bash
# One launch: its command line, its folder, its log. Needs common.sh, request.sh and a checked request.

# set_worker RUN_ID RUN_DIR REPEAT MODULE: fill the array `worker`, what one worker becomes.
set_worker() {
  worker=("$ECG_ROOT/bin/with-ranks" "$ECG_PYTHON" -m "$4"
    --dataset "$DATASET" --model "$MODEL" --mode "$MODE" --scaling "$SCALING" --batch "$BATCH" --accumulation "$ACCUM"
    --seq-len "$SEQ" --steps "$STEPS" --precision "$PRECISION" --seed "$SEED" --repeat "$3" --nodes "$NODES"
    --expected-world "$GPUS" --run-id "$1" --run-dir "$2" --data-dir "$ECG_DATA")
  if [[ -n "${ZERO:-}" ]]; then worker+=(--zero-stage "$ZERO"); fi
  if [[ "$COMPILE" == 1 ]]; then worker+=(--compile); fi
  if [[ "$ACTIVATION_CHECKPOINTING" == 1 ]]; then worker+=(--activation-checkpointing); fi
  if [[ -n "${LR:-}" ]]; then worker+=(--learning-rate "$LR"); fi
  if [[ -n "${CLIP:-}" ]]; then worker+=(--clip "$CLIP"); fi
  if [[ -n "${INIT:-}" ]]; then worker+=(--init-from "$(realpath -- "$INIT")"); fi
  if [[ "$HEAD_ONLY" == 1 ]]; then worker+=(--head-only); fi
  if [[ "$MODE" == finetune ]]; then worker+=(--class-weights "$CLASS_WEIGHTS"); fi
  if [[ "$CHECKPOINT" == 1 ]]; then worker+=(--checkpoint); fi
  if ((CHECKPOINT_EVERY > 0)); then worker+=(--checkpoint-every "$CHECKPOINT_EVERY"); fi
  if [[ "${ECG_RESUME:-0}" == 1 ]]; then worker+=(--resume); fi
}

# check_resume: RESUME, if given, is a run's folder with a state in it, and one run is asked for.
check_resume() {
  if [[ -z "${RESUME+given}" ]]; then return; fi
  [[ -d "$RESUME" ]] || die "RESUME=$(shown "$RESUME") is not a folder; give that of a run, \$ECG_RESULTS/runs/<run>"
  RESUME=$(realpath -- "$RESUME")
  if tail -n 1 "$RESUME/log" 2>/dev/null | grep -q '"key":"ecg_exit","value":{"rc":0,'; then
    die "RESUME=$(shown "$RESUME"): this run has ended well, there is nothing to go on with"
  fi
  [[ -f "$RESUME/state.safetensors" ]] ||
    die "RESUME=$(shown "$RESUME") holds no state; runs keep one with CHECKPOINT_EVERY=n, and with CHECKPOINT=1 when they are asked to stop"
  # shellcheck disable=SC2154 # the caller's lists
  [[ "$REPEAT" == 1 && ${#frameworks[@]} == 1 && ${#sizes[@]} == 1 ]] || die "RESUME goes on with one run; give one FW, one GPUS and no REPEAT"
  same_run
  export ECG_RESUME=1
}

# same_run: refuse, before anything is written, a request that is not that of the run in the folder RESUME. The state
# itself is compared by the workers, in all settings.
same_run() {
  local launch name before now
  launch=$(grep -a -m 1 '"key":"ecg_launch"' "$RESUME/log" 2>/dev/null) ||
    die "RESUME=$(shown "$RESUME") has no log that says which run it is"
  before=$(sed -n 's/.*"metadata":{"run":"\([^"]*\)".*/\1/p' <<<"$launch")
  [[ "$before" == "$(basename "$RESUME")" ]] ||
    die "RESUME=$(shown "$RESUME") holds the run $(shown "$before"); give the folder that name again"
  now=$(launch_value 1)
  for name in framework world mode dataset model scaling batch accumulation seq_len steps precision seed; do
    before=$(field "$name" "$launch")
    [[ "$before" == "$(field "$name" "$now")" ]] ||
      die "RESUME=$(shown "$RESUME") is another run: its $name is $before, this one's $(shown "$(field "$name" "$now")"); ask for the same"
  done
}

# field NAME JSON: a text or a number of a launch line.
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" <<<"$2"; }

# take_folder DIR: make or enter a run's folder, alone.
take_folder() {
  local refusal="cannot write to $ECG_RESULTS; set ECG_RESULTS to a folder of your own"
  { mkdir -p "$1" && exec {folder_lock}>"$1/.lock"; } || die "$refusal"
  # Held until the last of the run's processes is gone. Some shared file systems have no locks: their status is not 1.
  flock -n "$folder_lock" || [[ $? != 1 ]] || die "the run in $1 has not ended yet"
  rm -f "$1/stop" "$1"/.pipe.* || die "$refusal" # what an attempt that was killed left
}

# set_launcher LAUNCHER: fill the array `launcher`, what starts GPUS workers on this machine.
set_launcher() {
  case "$1" in
    direct) launcher=() ;;
    local) launcher=("$ECG_ROOT/bin/launch-local" "$GPUS") ;;
    mpirun) set_mpirun ;;
    *) die "frameworks.tsv: unknown launcher '$1'" 1 ;;
  esac
}

# with-ranks binds, so mpirun must not; it counts slots by its own rules, and the request was checked already.
set_mpirun() {
  local name
  launcher=(mpirun -np "$GPUS" --bind-to none --oversubscribe)
  for name in PATH PYTHONPATH PYTHONNOUSERSITE PYTHONUNBUFFERED MASTER_ADDR MASTER_PORT ECG_CORES ECG_OVERSUBSCRIBED; do
    if [[ -n "${!name:-}" ]]; then launcher+=(-x "$name"); fi
  done
  # Open MPI refuses to run as root unless it is told twice.
  if ((EUID == 0)); then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
}

# export_request RUN_ID RUN_DIR REPEAT: for bin/train, which reads the request from its environment.
export_request() {
  local name
  for name in $(request_names); do
    if [[ -n "${!name:-}" ]]; then export "${name?}"; else unset "$name"; fi
  done
  export ECG_RUN_ID=$1 ECG_RUN_DIR=$2 ECG_REPEAT=$3
}

# A port below the ephemeral range that nobody listens on now.
free_port() {
  local port
  for _ in {1..50}; do
    port=$((20000 + RANDOM % 10000))
    if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      printf '%s\n' "$port"
      return
    fi
  done
  die "no free port between 20000 and 29999" 1
}

new_run_id() {
  printf '%s_%s_%s_%s_n%s_g%s_%s_r%s_%s-%s\n' "$MODE" "$DATASET" "$MODEL" "$FW" "$NODES" "$GPUS" "$SCALING" "$1" \
    "$(date -u +%Y%m%dT%H%M%S)" "$(od -An -N3 -tx1 /dev/urandom | tr -d ' \n')"
}

# note KEY VALUE RUN_ID LOG: one line to the terminal, if somebody still reads there, and to the log. The values hold
# nothing that JSON would have to escape.
note() {
  printf ':::MLLOG {"namespace":"ecg-train","time_ms":%s,"event_type":"POINT_IN_TIME","key":"%s","value":%s,"metadata":{"run":"%s","rank":0}}\n' \
    "$(date +%s%3N)" "$1" "$2" "$3" | tee -p -a "$4" || true
}

# note_exit STATUS STARTED RUN_ID LOG [REASON]: how a run ended. One that was cut off may have left half a line.
note_exit() {
  if [[ -n "$(tail -c 1 "$4")" ]]; then echo >>"$4"; fi
  note ecg_exit "{\"rc\":$1,\"wall_time\":$(elapsed "$2")${5:+,\"reason\":\"$5\"}}" "$3" "$4"
}

launch_value() {
  printf '{"framework":"%s","nodes":%s,"world":%s,"mode":"%s","dataset":"%s","model":"%s","scaling":"%s","batch":%s,"accumulation":%s,"seq_len":%s,"steps":%s,"precision":"%s","seed":%s,"repeat":%s%s}' \
    "$FW" "$NODES" "$GPUS" "$MODE" "$DATASET" "$MODEL" "$SCALING" "$BATCH" "$ACCUM" "$SEQ" "$STEPS" "$PRECISION" "$SEED" "$1" "${launch_more:-}"
}

pass_on() {
  if ((signalled == 0)); then kill -TERM "$child" 2>/dev/null || true; fi
  signalled=$1
}

# The workers poll this file at the edges of their steps.
ask_to_stop() {
  # shellcheck disable=SC2034 # the job's
  ECG_ASKED_TO_STOP=1
  : >"$ECG_RUN_DIR/stop" || true
}

# apart COMMAND...: in a session of its own: a Ctrl-C must reach mpirun once, through us; a second one makes it leave its
# workers behind. Nor must it outlive us, where setpriv is new enough to see to that.
apart() {
  if setpriv --pdeathsig TERM true 2>/dev/null; then exec setsid setpriv --pdeathsig TERM "$@"; fi
  exec setsid "$@"
}

# run_logged LOG COMMAND...: run it, all it says to the terminal and to LOG; its status is ours. A signal that reaches
# us goes on to it, and the log is complete when we return.
run_logged() {
  local log=$1 pipe status=0 tee_pid child signalled
  shift
  pipe=$(mktemp -u "${ECG_PIPE_DIR:-${log%/*}}/.pipe.XXXXXX")
  mkfifo "$pipe"
  # tee must outlive a Ctrl-C and a closed terminal, or the workers would die of a broken pipe without a word.
  (trap '' INT TERM HUP USR2 && exec tee -p -a "$log" <"$pipe") &
  tee_pid=$!
  apart "$@" </dev/null >"$pipe" 2>&1 &
  child=$!
  signalled=0
  trap 'pass_on 130' INT
  trap 'pass_on 143' TERM
  trap 'pass_on 129' HUP
  trap ask_to_stop USR2
  # `wait` returns early when a trap runs.
  while true; do
    status=0
    wait "$child" || status=$?
    if ! kill -0 "$child" 2>/dev/null; then break; fi
  done
  wait "$tee_pid" || true
  rm -f "$pipe"
  trap - INT TERM HUP
  trap 'ECG_ASKED_TO_STOP=1' USR2
  # shellcheck disable=SC2034 # `stopped` is the caller's
  if ((signalled > 0)); then status=$signalled stopped=$signalled; fi
  return "$status"
}
