# shellcheck shell=bash
# JUWELS Booster (JSC): two 24-core EPYC and 4 A100 a node, InfiniBand; psslurm in place of slurmd.
# Source: https://apps.fz-juelich.de/jsc/hps/juwels/batchsystem.html (partitions booster and develbooster, --gres=gpu:4)

: "${ECG_PARTITION:=booster}"
: "${ECG_GPU_REQUEST=--gres=gpu:%g}"
: "${ECG_CPUS_PER_TASK:=12}" # 48 cores for 4 GPUs
: "${ECG_HOST_SUFFIX:=i}"    # the InfiniBand address of node jwb0001 is that of jwb0001i
