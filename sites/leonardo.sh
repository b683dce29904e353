# shellcheck shell=bash
# Leonardo Booster (CINECA): one 32-core Ice Lake and 4 A100-64 a node, InfiniBand.
# Source: https://docs.hpc.cineca.it/hpc/leonardo.html

: "${ECG_PARTITION:=boost_usr_prod}"
: "${ECG_GPU_REQUEST=--gres=gpu:%g}"
: "${ECG_CPUS_PER_TASK:=8}" # 32 cores for 4 GPUs
: "${ECG_CONTAINER:=singularity}"
