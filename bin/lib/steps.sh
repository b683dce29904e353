# shellcheck shell=bash
# Long work in named steps, so that nobody stares at a silent terminal. Needs common.sh.

# start_steps LOG: where the output of the steps goes.
start_steps() {
  STEP_LOG=$1
  mkdir -p "$(dirname "$STEP_LOG")"
  : >"$STEP_LOG"
}

# A sign of life every 15 seconds. It ends by itself when the command it belongs to is gone, however that went.
heartbeat() {
  local started=$1 tick=0
  while sleep 1 && kill -0 "$$" 2>/dev/null; do
    if ((++tick % 15 == 0)); then log "      still at it, $(elapsed "$started") s"; fi
  done
}

# step LABEL COMMAND...: run it with its output in the log; on failure show the end of the log and exit 1.
step() {
  local label=$1 started=$EPOCHREALTIME beat status=0
  shift
  log "  $label ..."
  printf '== %s: %s\n' "$label" "$*" >>"$STEP_LOG"
  heartbeat "$started" &
  beat=$!
  "$@" >>"$STEP_LOG" 2>&1 </dev/null || status=$?
  kill "$beat" 2>/dev/null || true
  wait "$beat" 2>/dev/null || true
  if ((status == 0)); then
    log "  $label: done in $(elapsed "$started") s"
    return
  fi
  log "  $label: failed after $(elapsed "$started") s; the end of $STEP_LOG:"
  tail -n 20 "$STEP_LOG" | sed 's/^/    /' >&2
  die "$label failed (status $status)" 1
}
