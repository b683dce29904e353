# shellcheck shell=bash disable=SC2034,SC2153,SC2154 # names in capitals are the user's; those in small letters are of job.sh
# One leg of a job: its folder, its log, why it ended. Needs job.sh.

# describe_leg NUMBER: the parts of a launch line that only a job has.
describe_leg() {
  local job=null
  if [[ -n "${SLURM_JOB_ID:-}" ]]; then job="\"$SLURM_JOB_ID\""; fi
  printf ',"layout":"%s","group":%s,"members":%s,"job_id":%s,"job_name":"%s","leg":%s,"legs":%s,"mpi":"%s"' \
    "$LAYOUT" "$group" "$members" "$job" "$ECG_JOB_STEM" "$1" "$leg_count" "$started_by"
}

# leg_key: what tells whether a leg is the same as one that ended well before.
leg_key() { { launch_value "$repeat" && printf ' %s %s %s' "$LAYOUT" "$first" "$together"; } | sha256sum | cut -c1-16; }

# unfinished_run: the run that an earlier attempt at this job began for this leg and left with a state; may be empty.
unfinished_run() {
  local id
  id=$(sed -n "s/^$(leg_key) //p" "$ECG_JOB_DIR/begun" 2>/dev/null | tail -n 1)
  if [[ -n "$id" && -e "$ECG_RESULTS/runs/$id/state.safetensors" ]]; then printf '%s\n' "$id"; fi
}

leg_finished() {
  local id
  id=$(sed -n "s/^$(leg_key) //p" "$ECG_JOB_DIR/finished" 2>/dev/null | tail -n 1)
  [[ -n "$id" ]] && grep -aq '"key":"ecg_exit","value":{"rc":0,' "$ECG_RESULTS/runs/$id/log"
}

# reason_of STATUS LOG: why a run ended that did not end well, as far as the launch can tell; may be empty.
reason_of() {
  if ((ECG_ASKED_TO_STOP)); then
    echo "time limit"
  elif ((stopped > 0)); then
    echo cancelled
  elif grep -aqiE 'oom[-_ ]kill|out of memory' "$2"; then
    echo "out of memory"
  elif grep -aqiE 'node failure|node_fail|NODE FAIL' "$2"; then
    echo "a node failed"
  elif (($1 > 128)) || grep -aqE '(srun|slurmstepd): error: .*(Killed|Segmentation|Aborted|Bus error|Terminated)|exited on signal' "$2"; then
    echo "a rank died"
  fi
}

# run_leg NUMBER: the leg that the variables describe; its status.
run_leg() {
  local id dir before started status=0 reason kind starter=() started_by="" launch_more="" attempt
  read -r _ kind _ < <(framework_row "$FW")
  for attempt in 0 1 2; do # a port that was free may be taken a moment later
    before=$(unfinished_run) status=0
    id=${before:-$(new_run_id "$repeat")}
    dir=$ECG_RESULTS/runs/$id
    MASTER_ADDR=$(master_address "${job_hosts[first]}") || exit
    MASTER_PORT=$(meeting_port "${job_hosts[first]}" "$(($1 * 3 + attempt))") || exit
    export MASTER_ADDR MASTER_PORT
    unset ECG_RESUME
    if [[ -n "$before" ]]; then
      log "leg $1 of $leg_count goes on with $id"
      export ECG_RESUME=1
      rm -f "$dir/stop"
    else
      { mkdir "$dir" && printf '%s %s\n' "$(leg_key)" "$id" >>"$ECG_JOB_DIR/begun"; } || die "cannot write to ECG_RESULTS=$ECG_RESULTS"
    fi
    export_request "$id" "$dir" "$repeat"
    set_start "$kind" "$first" # after the exports: mpirun has to be told their names
    launch_more=$(describe_leg "$1")
    note ecg_launch "$(launch_value "$repeat")" "$id" "$dir/log"
    started=$EPOCHREALTIME
    run_logged "$dir/log" "${starter[@]}" bin/train || status=$?
    reason=""
    if ((status != 0)); then reason=$(reason_of "$status" "$dir/log"); fi
    note_exit "$status" "$started" "$id" "$dir/log" "$reason"
    if ((status == 0 || stopped > 0)) || ! grep -aqE 'EADDRINUSE|[Aa]ddress already in use' "$dir/log"; then break; fi
  done
  launch_more=""
  if ((status == 0)); then
    printf '%s %s\n' "$(leg_key)" "$id" >>"$ECG_JOB_DIR/finished"
  else
    warn "leg $1 of $leg_count ended with status $status${reason:+ ($reason)}; its log: $dir/log"
  fi
  return "$status"
}
