#!/usr/bin/env bats
# shellcheck disable=SC2016,SC2030,SC2031,SC2154 # code for stand-ins to expand; a test is a subshell; bats sets stderr

load helper

setup() {
  checkout
  dataset mitdb
  mkdir -p "$ECG_RESULTS"
  export ECG_CONTAINER=apptainer ECG_IMAGE="$BATS_TEST_TMPDIR/the image.sif" TMPDIR="$BATS_TEST_TMPDIR/node tmp" ECG_JOB_DIR=/j/my-job
  mkdir "$TMPDIR"
  stub apptainer 'printf "%s\n" "$@" >"$CALLS.words"'
}

# has WORD...: the words stand in the command line of apptainer, in this order and next to each other.
has() {
  local IFS=$'\n'
  [[ $'\n'"$(<"$CALLS.words")"$'\n' == *$'\n'"$*"$'\n'* ]]
}

@test "folders that are not there, or whose names the container would split, are refused" {
  ECG_DATA=/nowhere run --separate-stderr bin/in-image bin/train
  [[ "$status" == 2 && "$stderr" == "error: in-image: '/nowhere' is not there on"* && ! -e "$CALLS" ]]
  ECG_BINDS="/a:b" run --separate-stderr bin/in-image bin/train
  [[ "$status" == 2 && "$stderr" == *"'/a:b' holds ':' or ','"* && ! -e "$CALLS" ]]
  run --separate-stderr bin/in-image
  [[ "$status" == 2 && "$stderr" == *"no command given"* ]]
}

@test "ECG_DEVICE=cuda on a node without a driver is refused" {
  [[ ! -e /proc/driver/nvidia/version ]] || skip "this machine has a driver"
  ECG_DEVICE=cuda run --separate-stderr bin/in-image bin/train
  [[ "$status" == 2 && "$stderr" == *"has no NVIDIA driver"* ]]
}

@test "the environment is clean but for what a worker may see, per task; words with spaces stay whole" {
  export SLURM_PROCID=3 PMIX_RANK=3 NCCL_DEBUG=INFO FW=ddp LR=1e-3 MASTER_ADDR=10.0.0.1 ECG_RUN_ID=x OMPI_MCA_btl='self,tcp' ECG_BUCKET_MB=4
  export MY_TOKEN=hidden LD_LIBRARY_PATH=/host PYTHONPATH=/host ECG_GIT_REVISION=host ECG_PYTHON=/host/python
  bin/in-image bin/train 'a b'
  has exec --cleanenv --no-home
  has "$ECG_IMAGE" env
  has SLURM_PROCID=3
  has PMIX_RANK=3
  has NCCL_DEBUG=INFO
  has LR=1e-3
  has MASTER_ADDR=10.0.0.1
  has OMPI_MCA_btl=self,tcp
  has ECG_BUCKET_MB=4
  has "ECG_DATA=$ECG_DATA"
  has /opt/ecg-train/bin/train 'a b'
  run ! grep -E '^(MY_TOKEN|LD_LIBRARY_PATH|PYTHONPATH|ECG_GIT_REVISION|ECG_PYTHON|ECG_ROOT|ECG_CACHE|PATH)=' "$CALLS.words"
  run ! has --nv
}

@test "data, results and the folders of the PMIx server are seen inside" {
  mkdir "$BATS_TEST_TMPDIR/pmix dir" "$BATS_TEST_TMPDIR/more"
  PMIX_SERVER_TMPDIR="$BATS_TEST_TMPDIR/pmix dir" ECG_BINDS="$BATS_TEST_TMPDIR/more" ECG_CONTAINER_FLAGS="--writable-tmpfs --x" bin/in-image bin/train
  has --bind "$ECG_DATA"
  has --bind "$ECG_RESULTS"
  has --bind "$BATS_TEST_TMPDIR/pmix dir"
  has --bind "$BATS_TEST_TMPDIR/more"
  has --writable-tmpfs --x "$ECG_IMAGE"
}

@test "caches and home lie on the node, per job, closed to others, and can be forgotten" {
  bin/in-image bin/train
  local folder="$TMPDIR/ecg-$EUID-my-job"
  has "HOME=$folder/home"
  has "TRITON_CACHE_DIR=$folder/triton"
  has --bind "$folder"
  [[ "$(stat -c %a "$folder")" == 700 ]]
  bin/in-image --forget
  [[ ! -e "$folder" ]]
}

@test "without a container the command runs from the checkout" {
  stub python 'echo "python: $*"'
  ECG_CONTAINER=none run bin/in-image bin/with-ranks env
  [[ "$status" == 0 && "$output" == *"TRITON_CACHE_DIR="*"/triton"* && ! -e "$CALLS.words" ]]
}
