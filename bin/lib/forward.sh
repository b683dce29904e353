# shellcheck shell=bash
# Which variables reach a worker. A container starts with a clean environment, so that nothing of the user's shell
# changes a run unseen; what the launch, the fabric and the request have to say goes through here. Needs request.sh.

# forwarded NAME: whether this variable is for the worker.
forwarded() {
  case "$1" in
    # Where things are on this side of the container, and facts that the image states itself.
    ECG_PYTHON | ECG_ROOT | ECG_CACHE | ECG_BUNDLE | ECG_GIT_REVISION | ECG_SITE | ECG_ASKED_TO_STOP | ECG_CONTAINER_FLAGS) return 1 ;;
    ECG_* | MASTER_ADDR | MASTER_PORT | RANK | WORLD_SIZE | LOCAL_RANK | LOCAL_WORLD_SIZE | LAYOUT | TZ) ;;
    CUDA_* | NVIDIA_* | GPU_DEVICE_ORDINAL | OMP_* | MKL_* | TORCH_* | PYTORCH_* | TRITON_* | DS_*) ;;
    NCCL_* | GLOO_* | HOROVOD_* | UCX_* | FI_* | RDMAV_*) ;;
    *) launcher_variable "$1" || [[ " $(request_names) " == *" $1 "* ]] ;;
  esac
}

# What srun or mpirun tells each task of its own: it must not come from elsewhere.
launcher_variable() {
  case "$1" in
    SLURM_* | PMI_* | PMI2_* | PMIX_* | OMPI_* | OPAL_* | ORTE_* | PRTE_*) ;;
    *) return 1 ;;
  esac
}

# forwarded_names all|common: those that are set, one a line; with `common` only those that are equal for all tasks.
forwarded_names() {
  local name
  while IFS= read -r name; do
    if [[ "$1" == common ]]; then
      if launcher_variable "$name"; then continue; fi
      case "$name" in RANK | WORLD_SIZE | LOCAL_RANK | LOCAL_WORLD_SIZE | ECG_LAUNCHER) continue ;; esac
    fi
    if forwarded "$name"; then printf '%s\n' "$name"; fi
  done < <(compgen -e)
}
