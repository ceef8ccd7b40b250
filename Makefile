# `make` lists what there is. Each job does its own set-up; a second one sets nothing up again.
.DEFAULT_GOAL := help
.PHONY: help setup deploy profile package test test-fast check bench claims prove fuzz docs site pins clean

PYTHON ?= python3
TORCH ?=
JOBS ?= 2
SEED ?= $(shell date +%s)
BENCHMARKS := parity coverage noise agent_overhead arena sensitivity sparsity
BIN := .venv/bin
SETUP := $(PYTHON) scripts/setup.py $(if $(TORCH),--torch $(TORCH))
DEV := $(SETUP) --target x86,arm64 --dev
# What a flag is when its variable is set, and nothing when it is not.
flag = $(if $($(2)),$(1) $($(2)))
FLAGS = $(call flag,--data,DATA) $(call flag,--device,DEVICE) $(call flag,--profile,PROFILE) $(call flag,--out,OUT) $(ARGS)
ARTIFACT ?= $(if $(TARGET),$(or $(OUT),dist/$(TARGET)))
need = @test -n "$($(1))" || { echo "make $@ needs $(1)=..., for example: make $@ $(1)=$(2)" >&2; exit 2; }

help: ## List the jobs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install what TARGET needs into .venv (TORCH=gpu: a CUDA build of torch; V=1 prints all of it)
	$(call need,TARGET,x86)
	@$(SETUP) --target $(TARGET)

deploy: ## Take a model to devices: TARGET=x86 or TARGET=arm64,ios [MODEL= DATA= DEVICE= PROFILE= OUT= ARGS=]
	$(call need,TARGET,x86)
	@$(SETUP) --target $(TARGET)
	@$(BIN)/edgecompress deploy $(MODEL) --target $(TARGET) $(FLAGS)

profile: ## Measure what was deployed: TARGET=x86 [ARTIFACT= DEVICE= PROFILE= ARGS=]
	$(call need,ARTIFACT,dist/x86)
	@$(SETUP) $(call flag,--target,TARGET)
	@$(BIN)/edgecompress profile $(ARTIFACT) $(call flag,--device,DEVICE) $(call flag,--profile,PROFILE) $(ARGS)

package: ## Wrap what was deployed for an app: TARGET=android [ARTIFACT= ARGS=]
	$(call need,ARTIFACT,dist/android)
	@$(SETUP) $(call flag,--target,TARGET)
	@$(BIN)/edgecompress package $(ARTIFACT) $(ARGS)

test: ## The tests, long ones in a short form; those without their real data or browser skip
	@$(DEV)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-fast: ## The quick tests alone, after the same set-up
	@$(DEV)
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not slow and not shared and not browser" $(ARGS)

check: ## Lint, format, types, and that the generated docs are fresh
	@$(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy edgecompress scripts fuzz
	@$(BIN)/python scripts/docs.py --check

bench: ## Print the ratios this project promises, from one run on this machine
	@$(DEV)
	@$(BIN)/python benchmarks/bench.py $(ARGS)

claims: ## Run what prints the docs' figures, a sample by SEED in MINUTES=20; exit 1 where one no longer holds [ARGS=]
	@$(DEV)
	@$(BIN)/python benchmarks/claims.py --seed $(SEED) $(call flag,--minutes,MINUTES) $(ARGS)

prove: ## The long form of all tests, then the benchmarks; MINUTES=30: a sample by SEED [JOBS= ARGS=]. A line in benchmarks/prove.log
	@$(DEV)
	@EDGECOMPRESS_PROVE=1 EDGECOMPRESS_KILLS=6 EDGECOMPRESS_FLIPS=200 EDGECOMPRESS_LOG=benchmarks/prove.log EDGECOMPRESS_MINUTES=$(MINUTES) EDGECOMPRESS_SEED=$(SEED) \
	  $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --timeout=0 $(ARGS)
	@$(if $(MINUTES),:,for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit; done)
	@$(if $(MINUTES),:,for name in pruning bench; do $(BIN)/python benchmarks/$$name.py --remeasure || exit; done)

fuzz: ## Fuzz what reads strangers' files, each reader for SECONDS=20 [ONLY=onnx,toml ARGS=]; found inputs are kept
	@$(DEV)
	@$(BIN)/python -m fuzz.run $(call flag,--seconds,SECONDS) $(call flag,--only,ONLY) $(ARGS)

docs: ## Write the generated pages of docs/reference
	@$(DEV)
	@$(BIN)/python scripts/docs.py

site: ## Build the docs as a site: build/site/index.html, which needs no network
	@$(DEV)
	@rm -rf build/site
	@$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --conf-dir docs --doctree-dir build/doctrees . build/site

pins: ## Renew the hashes in constraints.txt, after a version in it changed
	@$(DEV)
	@$(BIN)/python scripts/pins.py

clean: ## Remove results and caches; .venv stays
	rm -rf .edgecompress dist build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
