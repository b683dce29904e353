# shellcheck shell=bash
# Loaded by every test file: a checkout in a folder whose name holds a space, and stand-ins for slow programs.

bats_require_minimum_version 1.5.0

# checkout: copy what the commands need, so that no test can write into the real tree.
checkout() {
  ROOT="$BATS_TEST_TMPDIR/check out"
  mkdir -p "$ROOT"
  cp -R "$BATS_TEST_DIRNAME"/../../{bin,requirements,jobs,sites,Makefile,env.sh} "$ROOT/"
  STUBS="$BATS_TEST_TMPDIR/stubs"
  CALLS="$BATS_TEST_TMPDIR/calls"
  mkdir -p "$STUBS"
  # What the developer's own shell holds must not decide a test.
  unset FW GPUS NODES MODE MODEL DATASET SCALING BATCH ACCUM SEQ STEPS PRECISION SEED REPEAT ZERO COMPILE LR CLIP CORES \
    ACTIVATION_CHECKPOINTING OVERSUBSCRIBE SRC HOURS JOBS FETCH LIMIT ACCEPT_LICENSE CONNECTIONS MIX WEIGHTS \
    TASK MIN_RECORDS INIT HEAD_ONLY CLASS_WEIGHTS CHECKPOINT CHECKPOINT_EVERY RESUME MAX_SKIPPED BENCH FORMAT DRY_RUN PYTEST_ARGS ECG_RAW ECG_CORES ECG_BIND \
    ECG_LAUNCHER RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS CI ECG_TRACE ECG_OVERSUBSCRIBED
  unset LAYOUT LEGS TIME "${!ECG_@}" "${!OMPI_@}" "${!SLURM_@}" "${!PMIX_@}"
  export ECG_DATA="$BATS_TEST_TMPDIR/the data" ECG_RESULTS="$BATS_TEST_TMPDIR/the results" CALLS STUBS
  export ECG_CACHE="$BATS_TEST_TMPDIR/the cache" ECG_PYTHON="$STUBS/python" ECG_DEVICE=cpu
  export PATH="$STUBS:$PATH"
  # shellcheck disable=SC2016 # the stub expands it
  stub python 'if [[ "$1" == -c ]]; then [[ " ${STUB_MISSING:-} " != *" ${*: -1} "* ]]; exit; fi
    echo "python said: $*"; exit "${STUB_STATUS:-0}"'
  cd "$ROOT" || return
}

# stub NAME BODY: a program first on PATH that notes its arguments in $CALLS, one call a line, then runs BODY.
stub() {
  {
    # shellcheck disable=SC2016 # the stub expands it, not we
    printf '#!/usr/bin/env bash\n{ printf %%s %q; printf " %%q" "$@"; echo; } >>%q\n' "$1" "$CALLS"
    printf '%s\n' "$2"
  } >"$STUBS/$1"
  chmod +x "$STUBS/$1"
}

# dataset NAME: as much of a shard set as the commands look at.
dataset() {
  mkdir -p "$ECG_DATA/$1"
  echo '{}' >"$ECG_DATA/$1/manifest.json"
}

# refused TEXT...: the last command was refused with one line that holds each TEXT, said nothing else and wrote nothing.
refused() {
  local text
  # shellcheck disable=SC2154 # set by bats
  echo "status $status, stdout '$output', stderr '$stderr'"
  [[ "$status" == 2 && -z "$output" && "$stderr" == error:* ]]
  for text in "$@"; do
    [[ "$stderr" == *"$text"* ]] || return
  done
  # shellcheck disable=SC2154 # set by bats
  ((${#stderr_lines[@]} == 1))
  [[ ! -e "$ECG_RESULTS" && ! -e y && ! -e "$ROOT/y" ]]
}

# eventually SECONDS COMMAND...: succeed as soon as it does.
eventually() {
  local tries=$(($1 * 10))
  shift
  while ((tries-- > 0)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}

# gone PID: no longer running; at most waiting to be reaped.
gone() { [[ ! -e "/proc/$1" || "$(awk '{ print $3 }' "/proc/$1/stat" 2>/dev/null)" == Z ]]; }
