# Every target is one command of bin/; `make` alone prints this help. Values such as GPUS=2 reach the command through the
# environment and are checked there.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VALUES := FW GPUS NODES MODE MODEL DATASET SCALING BATCH ACCUM SEQ STEPS PRECISION SEED REPEAT ZERO COMPILE \
  ACTIVATION_CHECKPOINTING LR CLIP CORES OVERSUBSCRIBE SRC HOURS JOBS FETCH LIMIT ACCEPT_LICENSE CONNECTIONS MIX WEIGHTS TASK \
  MIN_RECORDS DEVICE TENSORFLOW BASE MIRROR LAYOUT SWEEP TIME PARTITION ACCOUNT QOS ID ALL WHERE INIT HEAD_ONLY \
  CLASS_WEIGHTS CHECKPOINT CHECKPOINT_EVERY RESUME MAX_SKIPPED BENCH FORMAT DRY_RUN PYTEST_ARGS

# make expands what it hands on, so that MODEL='$(shell ...)' would run; nothing here needs a dollar sign.
$(foreach name,$(VALUES),\
  $(if $(findstring $$,$(value $(name))),$(error $(name) holds a dollar sign, which no value here needs)))

# A misspelt name must not pass for the default of the right one.
GIVEN := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
$(foreach name,$(filter-out $(VALUES) ECG_%,$(GIVEN)),$(error $(name) is not a name that make knows here; known: $(VALUES)))

##@ Start here
.PHONY: help
help: ## print this help
	@awk 'BEGIN { FS = ":.*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: ## system packages, Python environment and Horovod, each only once
	@bin/setup

.PHONY: demo
demo: ## everything: setup, data, every framework at 1 and 2 workers, report
	@bin/demo

##@ Cluster
.PHONY: image
image: ## build the Apptainer image, if what goes into it changed: [DEVICE=cpu|cuda TENSORFLOW=1 BASE= MIRROR=]
	@bin/image

.PHONY: image-info
image-info: ## what the image is: digest, size, versions, whether it is that of this checkout
	@bin/image-info

.PHONY: check
check: ## preflight at the asked size, in a minute: GPUS=4 NODES=2 FW="ddp horovod" [WHERE=here]
	@bin/check

.PHONY: submit
submit: ## check a request and hand it to Slurm: GPUS=4 FW=horovod [NODES=2 MODEL= DATASET= TIME= PARTITION= DRY_RUN=1 ...]
	@bin/submit

.PHONY: sweep
sweep: ## all sizes in one allocation: FW="serial ddp" GPUS="1 2 4" [SWEEP=jobs REPEAT=3 ...]
	@bin/sweep

.PHONY: status
status: ## what became of the jobs: [FORMAT=table|csv]
	@bin/status

.PHONY: cancel
cancel: ## cancel jobs: ID="12 13" or ALL=1
	@bin/cancel

##@ Work
.PHONY: datasets
datasets: ## list the public data sets, their terms, and what is here: [FORMAT=table|csv|json]
	@bin/datasets

.PHONY: data
data: ## fetch recordings and convert them to token shards: DATASET=mitdb [LIMIT=n FETCH=only], SRC=folder, or synthetic HOURS=2
	@bin/data

.PHONY: examples
examples: ## labelled examples for MODE=finetune: DATASET=mitdb TASK=beats|superclasses|snomed [SRC= SEQ= MIN_RECORDS=]
	@bin/examples

.PHONY: inspect
inspect: ## what is in a shard set, and whether its digests hold: DATASET=mitdb MAX_SKIPPED=10
	@bin/inspect

.PHONY: run
run: ## train on this machine: FW=ddp GPUS=2 [MODEL=small DATASET= SCALING= BATCH= STEPS= PRECISION= REPEAT= DRY_RUN=1 ...]
	@bin/run

.PHONY: report
report: ## tables and CSV of all runs in results/: [FORMAT=table|csv|json|markdown]
	@bin/report

##@ Cluster
.PHONY: jobs
jobs: ## write the job files of jobs/matrix.tsv
	@bin/jobs

.PHONY: check-jobs
check-jobs: ## whether the files in jobs/ are what the matrix and the template say
	@bin/jobs --check

##@ Develop
.PHONY: test
test: ## linters, bats and pytest, setting up what they need: [PYTEST_ARGS="-k order"]
	@bin/test

.PHONY: lint
lint: ## ruff, ShellCheck and shfmt, without changing anything
	@bin/lint

.PHONY: format
format: ## let ruff and shfmt rewrite the sources
	@bin/lint --fix

.PHONY: bench
bench: ## measure speed against its limits: [BENCH="loader report"]
	@bin/bench

.PHONY: clean
clean: ## remove caches of Python and linters; data, results and environments stay
	@bin/clean
