#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for other shells; a test is a subshell; bats sets status and stderr
#
# The whole of it, for real: an ordinary user of a Slurm of four hosts, jobs in the real image, one report of everything.
# Run by `make test`; by hand: bats tests/cluster (bin/cluster-up and bin/image come first, and are quick when done).
# Bats, since every test is a command that a user types and the files that it leaves.

bats_require_minimum_version 1.5.0

ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd -P)

teardown_file() {
  "$ROOT/bin/cluster-down" || true
  ECG_CLUSTER_NAME=second "$ROOT/bin/cluster-down" || true
}

setup_file() {
  export ECG_CLUSTER_DIR=${ECG_CLUSTER_DIR:-/var/lib/ecg-cluster}
  HOME_DIR=$ECG_CLUSTER_DIR/ecg/home
  PROJECT="$HOME_DIR/my project"
  export HOME_DIR PROJECT
  "$ROOT/bin/cluster-up"
  ECG_DEVICE=cpu "$ROOT/bin/image" DEVICE=cpu
  rm -rf "$PROJECT" "$HOME_DIR"/*.sbatch
  mkdir -p "$PROJECT/images"
  (cd "$ROOT" && tar -cf - --exclude=__pycache__ env.sh Makefile Apptainer.def LICENSE bin jobs sites requirements python data_prep analysis) |
    tar -xf - -C "$PROJECT"
  ln "$ROOT/images/ecg-train-cpu.sif" "$PROJECT/images/" 2>/dev/null || cp "$ROOT/images/ecg-train-cpu.sif" "$PROJECT/images/"
  cp "$ROOT/images/ecg-train-cpu.sif.sha256" "$PROJECT/images/"
  if [[ -d "${ECG_RAW:-}/mitdb" ]]; then
    ECG_DATA="$PROJECT/data" "$ROOT/bin/data" DATASET=mitdb SRC="$ECG_RAW/mitdb"
  else
    ECG_DATA="$PROJECT/data" "$ROOT/bin/data" DATASET=synthetic HOURS=0.5
    mv "$PROJECT/data/synthetic" "$PROJECT/data/mitdb"
  fi
  cp -r "$PROJECT/data/mitdb" "$PROJECT/data/other"
  cat >"$PROJECT/env.local.sh" <<'SITE'
: "${ECG_GPU_REQUEST:=--gres=gpu:%g}" "${ECG_CPUS_PER_TASK:=2}" "${ECG_EXCLUSIVE:=0}" "${ECG_TIME:=00:10:00}"
: "${MODEL=tiny}" "${STEPS=4}" "${ECG_EVAL_BATCHES:=1}" "${ECG_CALIBRATION_STEPS:=1}"
export MODEL STEPS ECG_EVAL_BATCHES ECG_CALIBRATION_STEPS
SITE
  chown -R ecguser: "$HOME_DIR"
}

# typed COMMAND...: as the user, in the project.
typed() { ECG_CLUSTER_PWD=$PROJECT "$ROOT/bin/on-cluster" "$@"; }

# ended ID SECONDS: wait until the job is over; prints its state.
ended() {
  local state tries=$(($2 * 2))
  while ((tries-- > 0)); do
    state=$(typed squeue --noheader --states=all --jobs="$1" -o %T 2>/dev/null || true)
    case "$state" in PENDING | RUNNING | COMPLETING | CONFIGURING) sleep 0.5 ;; *) break ;; esac
  done
  printf '%s\n' "$state"
}

# submitted ARGUMENT...: make submit; sets id, file and log of the first job.
submitted() {
  run --separate-stderr typed make -s submit "$@"
  echo "$status: $output $stderr"
  [[ "$status" == 0 ]]
  IFS=$'\t' read -r id file log <<<"${lines[0]}"
}

show_log() { tail -n 30 "$log" || true; }

@test "four hosts: own names, own networks, own /tmp, GPUs that Slurm hands out" {
  run typed srun --nodes=4 --gres=gpu:2 bash -c 'touch "/tmp/$(hostname)"; echo "$(hostname) $CUDA_VISIBLE_DEVICES" $(cd /tmp && ls -d n?)'
  echo "$output"
  [[ "$status" == 0 && "$(sort <<<"$output" | sed -n 3p)" == "n3 0,1 n3" ]]
}

@test "make submit GPUS=4 FW=horovod, typed just so" {
  submitted GPUS=4 FW=horovod
  run ended "$id" 300
  show_log
  [[ "$output" == COMPLETED ]]
  run typed make -s status
  [[ "$output" == *"$id"*"done"*"1/1"* ]]
}

@test "a sweep over two nodes: every framework at 2 and 4 workers, the baseline first and last" {
  run --separate-stderr typed make -s sweep FW="ddp fsdp horovod deepspeed mpi" GPUS="2 4" NODES=2
  echo "$output $stderr"
  [[ "$status" == 0 ]]
  IFS=$'\t' read -r id file log <<<"$output"
  run ended "$id" 600
  show_log
  [[ "$output" == COMPLETED ]]
  [[ "$(grep -vc '^#' "${file%/*}/plan")" == 11 && "$(wc -l <"${file%/*}/finished")" == 11 ]]
  [[ "$(grep -v '^#' "${file%/*}/plan" | sed -n '1p;11p' | cut -d' ' -f1-3 | sort -u)" == "ddp 2 2" ]]
  # The same again has nothing to do.
  run --separate-stderr typed make -s sweep FW="ddp fsdp horovod deepspeed mpi" GPUS="2 4" NODES=2
  [[ "$status" == 0 && "$stderr" == *"going on in"* ]]
  run ended "${output%%$'\t'*}" 120
  [[ "$output" == COMPLETED && "$(wc -l <"${file%/*}/finished")" == 11 ]]
}

@test "two nodes used independently, each with its own data set" {
  submitted LAYOUT=independent NODES=2 GPUS=2 FW=ddp DATASET="mitdb other"
  run ended "$id" 300
  show_log
  [[ "$output" == COMPLETED && "$(wc -l <"${file%/*}/finished")" == 5 ]]
}

@test "a training that fails is a failed job, with the reason" {
  mkdir -p "$PROJECT/empty run"
  chown ecguser: "$PROJECT/empty run"
  submitted GPUS=2 FW=ddp INIT="$PROJECT/empty run"
  run ended "$id" 200
  show_log
  [[ "$output" == FAILED ]]
  run typed make -s status
  [[ "$output" == *"$id"*"failed"* ]]
}

@test "a rank that dies ends the job within a minute" {
  submitted GPUS=2 NODES=2 FW=ddp STEPS=1000000
  local tries=240 victim="" started
  until grep -qs '"step":3,' "$PROJECT"/results/runs/*_ddp_n2_g2_*/rank1.jsonl 2>/dev/null && victim=$(pgrep -n -u ecguser -f 'train_ddp .*--steps 1000000') || ((tries-- == 0)); do sleep 0.5; done
  [[ -n "$victim" ]]
  started=$SECONDS
  kill -KILL "$victim"
  run ended "$id" 90
  show_log
  [[ "$output" == FAILED ]]
  ((SECONDS - started < 75))
}

@test "make cancel ends a running job, whose log says so" {
  submitted GPUS=2 FW=horovod STEPS=1000000
  local tries=200
  until grep -qs tracked_stats "$log" || ((tries-- == 0)); do sleep 0.5; done
  run --separate-stderr typed make -s cancel ID="$id"
  [[ "$status" == 0 && "$output" == *"job $id cancelled"* ]]
  run ended "$id" 60
  show_log
  [[ "$output" == CANCELLED || "$output" == FAILED ]]
  run typed make -s status
  [[ "$output" == *"$id"*"cancelled"* ]]
}

@test "what cannot be is refused before it is in the queue" {
  local before after
  before=$(typed squeue --noheader --states=all -o %i | wc -l)
  run --separate-stderr typed make -s submit GPUS=64 NODES=8 FW=ddp BATCH=64
  [[ "$status" != 0 && "$stderr" == *"Slurm refuses this job"* ]]
  run --separate-stderr typed make -s submit GPUS=2 FW=ddp PARTITION=nowhere
  [[ "$status" != 0 && "$stderr" == *"partition nowhere does not exist here; choose from: gpu short"* ]]
  run --separate-stderr typed make -s submit GPUS=2 FW=ddp TIME=05:00:00
  [[ "$status" != 0 && "$stderr" == *"Slurm refuses this job"* ]]
  run --separate-stderr typed make -s submit GPUS=2 FW=ddp ECG_RESULTS=/proc/results
  [[ "$status" != 0 && "$stderr" == *"cannot write to /proc/results"* ]]
  run --separate-stderr typed make -s submit GPUS=2 FW=ddp ECG_IMAGE=/nowhere.sif
  [[ "$status" != 0 && "$stderr" == *"there is no image at /nowhere.sif"*"make image"* ]]
  echo '# newer than the image' >>"$PROJECT/python/ecg_train/errors.py"
  run --separate-stderr typed make -s submit GPUS=2 FW=ddp
  sed -i '$d' "$PROJECT/python/ecg_train/errors.py"
  [[ "$status" != 0 && "$stderr" == *"is older than this checkout"* ]]
  after=$(typed squeue --noheader --states=all -o %i | wc -l)
  ((before == after))
}

@test "a job file copied to another cluster runs there after its top block was edited" {
  local there=$ECG_CLUSTER_DIR/second/home
  ECG_CLUSTER_NAME=second "$ROOT/bin/cluster-up"
  mkdir -p "$there/store/sets" "$there/out put"
  ln -f "$PROJECT/images/ecg-train-cpu.sif" "$there/store/ecg.sif"
  cp -r "$PROJECT/data/mitdb" "$there/store/sets/synthetic"
  sed -e "s|^##SBATCH --partition= |#SBATCH --partition=accel |" -e "s|^#SBATCH --gpus-per-node=.*|#SBATCH --gres=gpu:1|" \
    -e "s|^#SBATCH --exclusive.*||" -e "s|^#SBATCH --cpus-per-task=.*|#SBATCH --cpus-per-task=2|" \
    -e "s|ECG_IMAGE:=[^}]*}[^}]*}|ECG_IMAGE:=$there/store/ecg.sif}|" -e "s|ECG_DATA:=[^}]*}[^}]*}|ECG_DATA:=$there/store/sets}|" \
    -e "s|ECG_RESULTS:=[^}]*}[^}]*}|ECG_RESULTS:=$there/out put}|" -e 's|STEPS:=20|STEPS:=4|' \
    "$ROOT/jobs/pretrain_synthetic_tiny_horovod_n2_g2_strong.sbatch" >"$there/mine.sbatch"
  # Nothing below the line was touched.
  diff <(sed -n '/^# ---- do not edit below/,$p' "$there/mine.sbatch") <(sed -n '/^# ---- do not edit below/,$p' "$ROOT/jobs/pretrain_synthetic_tiny_horovod_n2_g2_strong.sbatch")
  chown -R ecgother: "$there"
  ECG_CLUSTER_NAME=second run "$ROOT/bin/on-cluster" sbatch --wait mine.sbatch
  tail -n 30 "$there"/*.log
  ECG_CLUSTER_NAME=second "$ROOT/bin/cluster-down"
  [[ "$status" == 0 ]]
  grep -q '"key":"ecg_exit","value":{"rc":0' "$there/out put"/runs/*/log
  # Its results join the others.
  cp -r "$there/out put/runs/." "$PROJECT/results/runs/"
  chown -R ecguser: "$PROJECT/results"
}

@test "one report of all of it, made in the image" {
  run --separate-stderr typed apptainer exec --cleanenv --no-home --bind "$PROJECT" --env "ECG_RESULTS=$PROJECT/results" \
    images/ecg-train-cpu.sif /opt/ecg-train/bin/report
  echo "$output $stderr"
  [[ "$status" == 0 || "$status" == 3 ]]
  local framework
  for framework in ddp fsdp horovod "deepspeed z0" mpi; do [[ "$output" == *"$framework "* ]]; done
  [[ "$output" == *failed* ]]
  [[ -s "$PROJECT/results/report/runs.csv" ]]
}
