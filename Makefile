# One command each; `make help` lists them. A target is rebuilt when a file that it depends on changed,
# so a second run is quick. What is longer than a line is a program under scripts/.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
EYAS := $(VENV)/bin/eyas
LAB := $(VENV)/bin/eyas-lab
# Where `make install` puts a link to the program: PREFIX=/opt/eyas make install
PREFIX ?= $(HOME)/.local
# For `make fuzz` and `make hunt`.
SECONDS ?= 60
SEED ?= 1
WORLDS ?= 2200

# Folders of sources are listed too, because a file that was deleted or renamed changes only its folder. The folder of a crate itself
# is not: tests run there, and what they make for a moment changes it.
RUST_FILES := Cargo.toml Cargo.lock .cargo/config.toml $(shell find crates -name tests -prune -o -name examples -prune -o \( -type f -o -path '*/src*' \) -print)
PYTHON_FILES := pyproject.toml $(shell find python/src -name '__pycache__' -prune -o -print)

.PHONY: help build lab install portal demo test test-long fuzz hunt check fix bench docs site release wheel clean
.DELETE_ON_ERROR:

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1\t\2/p' Makefile | expand -t 18

build: $(EYAS) ## the program, at .venv/bin/eyas

lab: $(LAB) ## what researchers need besides it, at .venv/bin/eyas-lab

install: $(EYAS) ## a link to the program in ~/.local/bin
	@mkdir -p "$(PREFIX)/bin"
	@ln -sfn "$(abspath $(EYAS))" "$(PREFIX)/bin/eyas"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) echo "$(PREFIX)/bin/eyas is there" ;; \
	    *) echo "$(PREFIX)/bin/eyas is there; put $(PREFIX)/bin on your PATH" ;; esac

portal: $(EYAS) $(VENV)/.apps $(VENV)/.portal ## the web portal for astronomers, with a survey and a cluster of this machine; prints its address
	$(PY) apps/portal/serve.py --dir portal-data

demo: $(EYAS) $(VENV)/.apps ## set up, then stack a sky survey through eyas (a few minutes); results in demo/
	$(PY) apps/stacking/demo.py $(EYAS) --dir demo --exposures 80

test: $(EYAS) $(LAB) $(VENV)/.apps $(VENV)/.portal $(VENV)/.test $(VENV)/.site ## set up, then run all tests
	$(PY) scripts/test.py

test-long: $(EYAS) $(LAB) $(VENV)/.apps $(VENV)/.portal $(VENV)/.test $(VENV)/.site $(VENV)/.release ## what takes too long for `test`: hundreds of kills, many thousand worlds (hours)
	$(PY) scripts/test.py --long

fuzz: ## mutated inputs of all that reads files or messages; SECONDS=3600 SEED=2 make fuzz
	@sh scripts/need.sh cargo cc
	cargo run --release --quiet -p eyas-fuzz -- --seconds $(SECONDS) --seed $(SEED) --out target/fuzz

hunt: ## fault worlds of every kind, going on after a finding, and lives of catalogs; WORLDS=50600 SEED=26000000 make hunt
	@sh scripts/need.sh cargo cc
	cargo run --release --quiet -p eyas-testkit --example hunt -- $(SEED) $(WORLDS)
	EYAS_LIVES=$(SEED)..$$(($(SEED) + $(WORLDS))) cargo test --release --quiet -p eyas-catalog --test lives

check: $(VENV)/.apps $(VENV)/.portal $(VENV)/.test $(VENV)/.site ## formatters and linters, changing nothing
	@sh scripts/need.sh cargo cc
	$(PY) scripts/check.py

fix: $(VENV)/.apps $(VENV)/.portal $(VENV)/.test $(VENV)/.site ## the same, changing what they can
	$(PY) scripts/check.py --fix

release: $(PY) $(VENV)/.build $(VENV)/.release ## what is given to others: a wheel for older machines, a static program, the source; in dist/release/
	@PYTHON=$(PY) sh scripts/need.sh cargo cc
	$(PY) scripts/release.py

wheel: $(PY) $(VENV)/.build $(VENV)/.release ## of these only the wheel, also for other machines: ARCH=aarch64 LIBC=musl make wheel
	@PYTHON=$(PY) sh scripts/need.sh cargo cc
	$(PY) scripts/release.py --wheel $(ARCH:%=--arch %) $(LIBC:%=--libc %)

bench: $(EYAS) $(LAB) $(VENV)/.apps ## all benchmarks; results in target/bench/
	$(PY) scripts/bench.py

docs: $(EYAS) $(LAB) ## the generated pages of docs/reference, and the drawing of the crates
	$(PY) scripts/docs.py
	$(PY) scripts/crates.py

site: $(VENV)/.site ## the documents as a site, in target/site
	$(PY) scripts/website.py

clean: ## remove everything that was built or downloaded, and the demo's and the portal's results
	rm -rf $(VENV) target dist demo portal-data .mypy_cache .ruff_cache .pytest_cache

$(EYAS): $(VENV)/.build $(RUST_FILES) $(PYTHON_FILES)
	@PYTHON=$(PY) sh scripts/need.sh cargo cc
	$(PY) scripts/wheel.py

$(LAB): $(EYAS) $(RUST_FILES)
	$(PY) scripts/wheel.py --lab

$(PY):
	@PYTHON=$(PYTHON) sh scripts/need.sh cargo python cc
	$(PYTHON) -m venv $(VENV)

# A stamp for each list of packages; the interpreter must only exist, its age says nothing.
$(VENV)/.%: requirements-%.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@
