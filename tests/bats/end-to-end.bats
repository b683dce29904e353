#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

# Nothing is a stand-in here but, once, the worker. Takes a minute or two.

load helper

@test "the demo trains with every framework, and all of them did the same work" {
  local raw=${ECG_RAW:-} cache=${ECG_CACHE:-} python=${ECG_PYTHON:-}
  checkout
  export ECG_RAW=$raw
  unset ECG_PYTHON ECG_CACHE ECG_DEVICE
  if [[ -n "$cache" ]]; then export ECG_CACHE=$cache; fi
  if [[ -n "$python" ]]; then export ECG_PYTHON=$python; fi
  rm "$STUBS/python"
  cp -R "$BATS_TEST_DIRNAME"/../../{python,data_prep,analysis} .
  run --separate-stderr bin/demo BATCH=4 SEQ=64
  echo "$stderr"
  [[ "$status" == 0 && "$output" == *"serial"* && "$stderr" == *"[11/11] mpi, 2 workers ... "* ]]
  # shellcheck disable=SC1091 # the copy's
  source bin/lib/common.sh
  # shellcheck disable=SC1091 # the copy's
  source bin/lib/environment.sh
  require_environment ''
  "$ECG_PYTHON" -c '
import csv, os, sys
rows = list(csv.DictReader(open(sys.argv[1])))
worlds = sorted((row["framework"], row["world"]) for row in rows)
names = ["ddp", "deepspeed", "fsdp", "horovod", "mpi"]
assert worlds == sorted([("serial", "1")] + [(name, world) for name in names for world in "12"]), worlds
for row in rows:
    assert row["status"] == "ok" and row["steps_found"] == "20", row
    assert row["equal_work"] in ("yes", "reference"), row
    assert row["synthetic"] == ("false" if os.environ["ECG_RAW"] else "true"), row
    assert float(row["step_time_s"]) > 0 and float(row["cores_per_worker"]) <= 1, row
' "$ECG_RESULTS/demo/report/runs.csv"
  run --separate-stderr bin/inspect "DATASET=$([[ -n "$raw" ]] && echo mitdb || echo synthetic)"
  [[ "$status" == 0 ]]
}

@test "under the real mpirun, a worker that dies ends the others within seconds" {
  command -v mpirun >/dev/null || skip "mpirun is not installed"
  checkout
  dataset mitdb
  stub python 'if [[ "$1" == -c ]]; then exit 0; fi
    echo $$ >"$CALLS.$RANK"; if ((RANK == 1)); then sleep 0.5; exit 5; fi; exec sleep 60'
  SECONDS=0
  run --separate-stderr bin/run FW=mpi GPUS=2 OVERSUBSCRIBE=1 BATCH=4
  [[ "$status" == 1 && "$stderr" == *"ended with status 5"* ]]
  ((SECONDS < 20))
  eventually 5 gone "$(<"$CALLS.0")"
}
