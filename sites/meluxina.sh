# shellcheck shell=bash
# MeluXina (LuxProvide), accelerator module: two 32-core EPYC and 4 A100 a node, InfiniBand.
# Source: https://docs.lxp.lu/first-steps/handling_jobs/ and https://docs.lxp.lu/system/overview/
# The name of the module that brings Apptainer changes with the software release: see `module spider Apptainer`.

: "${ECG_PARTITION:=gpu}"
: "${ECG_QOS:=default}"
: "${ECG_CPUS_PER_TASK:=16}" # 64 cores for 4 GPUs
