#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  unset ECG_PYTHON
}

@test "workers must be a number, and there must be a command" {
  run --separate-stderr bin/launch-local 0 true
  refused "'0' is not a number of workers"
  run --separate-stderr bin/launch-local '2;touch y' true
  refused "not a number"
  run --separate-stderr bin/launch-local 2
  refused "no command"
}

@test "when one worker fails, the others are ended at once and its status is ours" {
  SECONDS=0
  run --separate-stderr bin/launch-local 3 bash -c 'echo $$ >"$CALLS.$RANK"; if ((RANK == 1)); then sleep 0.3; exit 7; fi; exec sleep 60'
  [[ "$status" == 7 ]]
  ((SECONDS < 10))
  gone "$(<"$CALLS.0")"
  gone "$(<"$CALLS.2")"
}

@test "a worker that fails before the others have even started ends them too" {
  SECONDS=0
  run --separate-stderr bin/launch-local 8 bash -c '((RANK > 0)) || exit 3; exec sleep 60'
  [[ "$status" == 3 ]]
  ((SECONDS < 10))
}

@test "a worker killed by a signal counts as 128 + signal" {
  run --separate-stderr bin/launch-local 2 bash -c 'if ((RANK == 1)); then kill -9 $$; fi; exec sleep 60'
  [[ "$status" == 137 ]]
}

@test "a worker that does not listen to TERM is killed" {
  SECONDS=0
  ECG_KILL_WAIT=1 run --separate-stderr bin/launch-local 2 bash -c 'if ((RANK == 1)); then sleep 0.5; exit 4; fi; trap "" TERM; while true; do sleep 1; done'
  [[ "$status" == 4 ]]
  ((SECONDS < 10))
}

@test "children of a worker go with it" {
  run --separate-stderr bin/launch-local 2 bash -c 'if ((RANK == 0)); then sleep 60 & echo $! >"$CALLS"; sleep 0.3; exit 5; fi; exec sleep 60'
  [[ "$status" == 5 ]]
  eventually 5 gone "$(<"$CALLS")"
}

@test "TERM, INT and HUP end all workers" {
  local signal expected launcher
  for signal in TERM:143 INT:130 HUP:129; do
    rm -f "$CALLS".[01]
    # A launcher in the background of a script would be deaf to INT, and below nohup to HUP; env gives it back its ears.
    env --default-signal=INT,HUP bin/launch-local 2 bash -c 'echo $$ >"$CALLS.$RANK"; exec sleep 60' 3>&- &
    launcher=$!
    eventually 10 test -s "$CALLS.0"
    eventually 10 test -s "$CALLS.1"
    kill "-${signal%:*}" "$launcher"
    expected=0
    wait "$launcher" || expected=$?
    echo "$signal: $expected"
    [[ "$expected" == "${signal#*:}" ]]
    gone "$(<"$CALLS.0")"
    gone "$(<"$CALLS.1")"
  done
}

@test "a launcher that is killed outright leaves no orphans" {
  bin/launch-local 2 bash -c 'echo $$ >"$CALLS.$RANK"; exec sleep 60' 3>&- &
  local launcher=$!
  eventually 10 test -s "$CALLS.0"
  eventually 10 test -s "$CALLS.1"
  kill -KILL "$launcher"
  wait "$launcher" || true
  eventually 5 gone "$(<"$CALLS.0")"
  eventually 5 gone "$(<"$CALLS.1")"
}

@test "all well: status 0, every worker has its rank, arguments stay whole" {
  run --separate-stderr bin/launch-local 3 bash -c 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $1"' name 'a  b;touch y'
  [[ "$status" == 0 && -z "$stderr" && ! -e y ]]
  [[ "$(sort <<<"$output")" == $'0 0 3 3 a  b;touch y\n1 1 3 3 a  b;touch y\n2 2 3 3 a  b;touch y' ]]
}
