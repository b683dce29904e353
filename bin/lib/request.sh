# shellcheck shell=bash disable=SC2153 # the names in capitals are the user's variables
# The request for a run: its variables, their defaults and their checks. Needs common.sh, check.sh, frameworks.sh.

request_names() {
  printf '%s' "FW GPUS NODES MODE MODEL DATASET SCALING BATCH ACCUM SEQ STEPS PRECISION SEED REPEAT ZERO COMPILE" \
    " ACTIVATION_CHECKPOINTING LR CLIP INIT HEAD_ONLY CLASS_WEIGHTS CHECKPOINT CHECKPOINT_EVERY CORES OVERSUBSCRIBE"
}

# An empty value is not a missing one: `GPUS=` is a mistake that the checks name.
set_request_defaults() {
  : "${FW=ddp}" "${GPUS=1}" "${NODES=1}" "${MODE=pretrain}" "${MODEL=small}" "${SCALING=strong}" "${BATCH=16}"
  : "${ACCUM=1}" "${SEQ=256}" "${STEPS=50}" "${PRECISION=fp32}" "${SEED=1}" "${REPEAT=1}" "${COMPILE=0}"
  : "${ACTIVATION_CHECKPOINTING=0}" "${OVERSUBSCRIBE=0}" "${HEAD_ONLY=0}" "${CLASS_WEIGHTS=balanced}" "${CHECKPOINT=0}"
  : "${CHECKPOINT_EVERY=0}"
  if [[ -z "${DATASET+given}" ]]; then
    DATASET=mitdb
    if [[ "$MODE" == finetune ]]; then
      DATASET=mitdb-beats
      return
    fi
    if [[ ! -e "$ECG_DATA/mitdb/manifest.json" && -e "$ECG_DATA/synthetic/manifest.json" ]]; then DATASET=synthetic; fi
  fi
}

# A job file names every variable, and leaves empty what was not given.
forget_empty() {
  local name
  for name in $(request_names); do
    if [[ -z "${!name:-}" ]]; then unset "$name"; fi
  done
}

check_request() {
  local frameworks
  mapfile -t frameworks < <(framework_names)
  check_choice FW "$FW" "${frameworks[@]}"
  check_integer GPUS "$GPUS" 1 65536
  check_integer NODES "$NODES" 1 65536
  check_choice MODE "$MODE" pretrain finetune
  check_choice MODEL "$MODEL" tiny small base medium large xl
  check_dataset DATASET "$DATASET"
  check_choice SCALING "$SCALING" strong weak
  check_integer BATCH "$BATCH" 1 16777216
  check_integer ACCUM "$ACCUM" 1 65536
  check_integer SEQ "$SEQ" 8 65536
  check_integer STEPS "$STEPS" 1 1000000000
  check_choice PRECISION "$PRECISION" fp32 bf16
  check_integer SEED "$SEED" 0 2147483647
  check_integer REPEAT "$REPEAT" 1 1000
  if [[ -n "${ZERO+given}" ]]; then check_integer ZERO "$ZERO" 0 3; fi
  check_choice COMPILE "$COMPILE" 0 1
  check_choice ACTIVATION_CHECKPOINTING "$ACTIVATION_CHECKPOINTING" 0 1
  if [[ -n "${LR+given}" ]]; then check_positive LR "$LR"; fi
  if [[ -n "${CLIP+given}" ]]; then check_amount CLIP "$CLIP"; fi
  if [[ -n "${CORES+given}" ]]; then check_integer CORES "$CORES" 1 4096; fi
  if [[ -n "${INIT+given}" ]]; then
    [[ -e "$INIT" ]] || die "INIT=$(shown "$INIT") does not exist; give a run's folder or its weights.safetensors (CHECKPOINT=1 writes them)"
  fi
  check_choice HEAD_ONLY "$HEAD_ONLY" 0 1
  [[ "$HEAD_ONLY" == 0 || "$MODE" == finetune ]] || die "HEAD_ONLY=1 needs MODE=finetune: only there is a head of its own"
  check_choice CLASS_WEIGHTS "$CLASS_WEIGHTS" none balanced
  check_choice CHECKPOINT "$CHECKPOINT" 0 1
  check_integer CHECKPOINT_EVERY "$CHECKPOINT_EVERY" 0 1000000000
  check_choice OVERSUBSCRIBE "$OVERSUBSCRIBE" 0 1
  check_division
}

# Strong scaling shares one batch among all; weak scaling gives each worker BATCH of its own.
check_division() {
  local workers=$GPUS
  if [[ "$SCALING" == weak ]]; then workers=1; fi
  ((BATCH % (workers * ACCUM) == 0)) || die "BATCH=$BATCH does not divide by $((workers * ACCUM))\
 ($([[ "$SCALING" == weak ]] || echo "GPUS=$GPUS times ")ACCUM=$ACCUM); choose a multiple, such as BATCH=$(((BATCH / (workers * ACCUM) + 1) * workers * ACCUM))"
}

# What this one machine can do. Sets worker_cores_wanted: cores per worker, 0 for an equal share.
check_local() {
  ((NODES == 1)) || die "NODES=$NODES: runs over several nodes are jobs of a scheduler, and this starts workers on one machine; use NODES=1"
  [[ "$FW" != serial || "$GPUS" == 1 ]] || die "FW=serial is one worker by definition, but GPUS=$GPUS; use GPUS=1 or another FW"
  local gpus cores
  gpus=$(gpu_count)
  cores=$(allowed_count)
  unset ECG_OVERSUBSCRIBED # with-ranks sets it for cores
  if ((gpus > 0)); then
    if ((GPUS > gpus)); then export ECG_OVERSUBSCRIBED=1; fi
    worker_cores_wanted=${CORES:-0}
    ((GPUS <= gpus)) || [[ "$OVERSUBSCRIBE" == 1 ]] ||
      die "GPUS=$GPUS, but this machine shows $gpus GPU(s); use GPUS=$gpus, or OVERSUBSCRIBE=1 to share them (not a measurement)"
  else
    worker_cores_wanted=${CORES:-1}
    ((GPUS * worker_cores_wanted <= cores)) || [[ "$OVERSUBSCRIBE" == 1 ]] ||
      die "GPUS=$GPUS workers of $worker_cores_wanted core(s), but only $cores core(s) may be used; use fewer, or OVERSUBSCRIBE=1 to share them"
  fi
  [[ -e "$ECG_DATA/$DATASET/manifest.json" ]] ||
    die "there is no data set '$DATASET' in $ECG_DATA; make it first: make data DATASET=$DATASET"
}

# GPUs that a run may use; none with ECG_DEVICE=cpu. CUDA_VISIBLE_DEVICES counts by its entries, which may be numbers or UUIDs.
gpu_count() {
  local present=0 visible
  if [[ "${ECG_DEVICE:-auto}" == cpu ]]; then
    echo 0
    return
  fi
  if command -v nvidia-smi >/dev/null; then present=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true); fi
  if [[ -n "${CUDA_VISIBLE_DEVICES+given}" ]]; then
    visible=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c '[^ ]' || true)
    if ((visible < present)); then present=$visible; fi
  fi
  printf '%s\n' "$present"
}
