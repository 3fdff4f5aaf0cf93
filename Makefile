# The only commands a newcomer needs. Each one sets up what it needs by itself, in .venv, from Python 3.11+ alone.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Many tests start the program: with its bytecode kept, it is compiled once.
export PYTHONDONTWRITEBYTECODE :=

# Where `make demo KEEP=1` keeps the demo, and finds it again.
DEMO ?= $(HOME)/runwarden-demo

.DEFAULT_GOAL := help
.PHONY: help demo test again check lint campaign wheel-check release container-check page-check bench bench-peers install lock reference recording transcripts snapshots clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/.demo ## Show everything working on this machine, with scripted agents (KEEP=1 keeps it; AGENT=claude adds yours)
	@$(BIN)/runwarden demo $(if $(KEEP),--keep --folder "$(DEMO)") $(if $(AGENT),--agent "$(AGENT)")

test: .venv/.dev ## Run all tests (about five minutes on two cores)
	@echo "All tests take about five minutes on two quiet cores; CONTRIBUTING.md says how to run a part of them."
	@$(BIN)/python -m pytest $(TESTS)

again: .venv/.dev ## Run the tests that failed last, one at a time
	@$(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none

check: lint test ## What CI runs: lint, types, contracts, tests

lint: .venv/.dev ## Style, types, import contracts, and whether what documents and messages name exists
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m pytest -n0 -q tests/distribution/test_facts.py tests/distribution/test_documents.py

campaign: .venv/.dev ## Kill workers under 200 runs, 100,000 faulty writes, a day of the console and more (hours)
	@$(BIN)/python -m pytest -n0 -s -m campaign tests/service/execution/test_campaign.py tests/service/execution/test_outages.py tests/service/agents tests/conformance tests/sync/test_model.py tests/sync/test_outsider.py tests/actions tests/automations tests/storage/test_ledger_model.py

# Those of pyenv and uv, which are not on PATH.
wheel-check: export RUNWARDEN_PYTHONS ?= $(shell ls -d $(HOME)/.pyenv/versions/*/bin/python3.1[1-9] \
	$(HOME)/.local/share/uv/python/*/bin/python3.1[1-9] 2>/dev/null | paste -sd: -)
wheel-check: .venv/.dev ## Install the wheel on each Python that PATH or RUNWARDEN_PYTHONS names, and run its demo (minutes)
	@$(BIN)/python -m pytest -n0 -s -m campaign --timeout 3600 tests/distribution/test_wheel.py

release: .venv/.dev ## Build, hash, list the parts of, check and tag the version in app/version.py (minutes; publishes nothing)
	@.ci/release

container-check: .venv/.dev .venv/.containers ## Build the image, and start it and the systemd units, with podman (minutes, as root)
	@$(BIN)/python -m pytest -n0 tests/distribution/test_container_files.py
	@$(BIN)/python -m pytest -n0 -s -m campaign tests/distribution/test_containers.py

page-check: .venv/.dev .venv/.browser .venv/.npm ## Use the page in Chromium by keyboard, and let axe-core judge it (needs chromium-driver and npm; a minute)
	@$(BIN)/python -m pytest -n0 -s -m campaign tests/service/page/test_page_in_browser.py

bench: .venv/.dev ## Measure, as ratios within one run
	@$(BIN)/python -m bench

bench-peers: .venv/.peers ## Measure next to other programs, each installed on its own in .venv/peers (minutes)
	@$(BIN)/python -m bench peers

install: .venv/.dev ## Set up .venv for development
	@echo "Ready: $(BIN)/runwarden"

reference: .venv/.dev ## Write the command reference from the commands
	@PYTHONPATH=. $(BIN)/python docs/reference.py

recording: .venv/.dev .venv/.browser ## Record the README's film and pictures on the demo (needs rsvg-convert, img2webp and chromium-driver)
	@PYTHONPATH=. TERM=xterm-256color COLORTERM=truecolor $(BIN)/python docs/recording.py

transcripts: .venv/.dev ## Record the sessions that the demo's fixer replays (needs Claude Code from npm, and root for /workspace)
	@PYTHONPATH=. $(BIN)/python docs/transcripts.py

snapshots: .venv/.dev ## Accept what the screens look like now, after looking at them
	@$(BIN)/python -m pytest tests/console --snapshot-update

lock: .venv/.dev ## Update the pinned dependencies, with hashes and without addresses (needs uv)
	@set -e; for set in "console --group build" "service --extra service --group build" "dev --extra service --extra postgres --extra traces --extra oidc --extra notify --extra metrics --extra mcp --group dev"; do \
		set -- $$set; name=$$1; shift; \
		uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
			pyproject.toml "$$@" -o requirements/$$name.txt; done
	@set -e; for group in containers browser; do \
		uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
			--constraint requirements/dev.txt --group $$group -o requirements/$$group.txt; done

clean: ## Remove what the other targets made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis snapshot_report.html

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Runwarden needs Python 3.11 or newer; install it, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Setting up .venv with $$($(PYTHON) --version) (once, about a minute)"
	@$(PYTHON) -m venv .venv || { echo "Python could not make a virtual environment; on Debian: apt install python3-venv" >&2; rm -rf .venv; exit 1; }

.venv/.demo: requirements/service.txt pyproject.toml | .venv/bin/python
	@$(PIP) install --require-hashes -r requirements/service.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.dev: requirements/dev.txt pyproject.toml | .venv/bin/python
	@$(PIP) install --require-hashes -r requirements/dev.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

.venv/.peers: bench/peers.txt | .venv/.dev
	@while read -r peer; do \
		folder=.venv/peers/$${peer%%==*}; $(BIN)/python -m venv --clear $$folder && \
		$$folder/bin/pip --disable-pip-version-check --quiet install $$peer </dev/null || exit 1; done < $<
	@touch $@

.venv/.npm:
	@npm install --silent --no-save --prefix $@ axe-core@4.14.1 || echo "Without npm's axe-core the tests that need it will skip." >&2

.venv/.containers .venv/.browser: .venv/.%: requirements/%.txt | .venv/.dev
	@$(PIP) install --require-hashes -r $<
	@touch $@
