# shellcheck shell=bash
# Snellius (SURF), A100 nodes: 72 cores and 4 A100 a node; the smallest share is 18 cores and 1 GPU.
# Source: https://servicedesk.surf.nl/wiki/spaces/WIKI/pages/30660209/Snellius+partitions

: "${ECG_PARTITION:=gpu_a100}"
: "${ECG_CPUS_PER_TASK:=18}"
