# Everything runs in .venv; a fresh clone on a fresh machine needs Python >= 3.11 with pip, and make.
# No target needs a package of the system.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The formats' own software lives apart: its pins are not ours.
CVENV := .venv-conformance
CSTAMP := $(CVENV)/.installed
# The newest rosbags, beside which ouster-sdk does not install.
RVENV := .venv-rosbags
RSTAMP := $(RVENV)/.installed
# What a user has who installs the wheel.
WVENV := .venv-wheel
# Other software that the benchmarks compare with.
PVENV := .venv-bench
PSTAMP := $(PVENV)/.installed
# What the site needs comes into .venv when the site is built for the first time.
DSTAMP := $(VENV)/.installed-docs
# What the tests in a browser need.
BSTAMP := $(VENV)/.installed-browser
# What plants defects, to see whether the tests notice.
MVENV := .venv-mutants
MSTAMP := $(MVENV)/.installed
# What makes the locks, the SBOM and a release, and resolves for other machines.
SVENV := .venv-supply
SSTAMP := $(SVENV)/.installed
# roverd is in no registry.  ROVERD=/path/to/red-rover/format/src holds the recorder against it too.
ROVERD ?=
DEMO_S ?= 5
# Else every process that a test starts compiles every module that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Tests that run at a time: two more than there are cores, for half of the time a test waits.
JOBS ?= 4
conformance mutants: JOBS = 2
test-campaign: JOBS = 3
# The tests of a file share what they only read.
SPREAD = -n $(JOBS) --dist loadfile --no-loadscope-reorder
# What makes and checks the product, not the product.
TOOLS := tests/benchmarks tests/mutants tests/supply

.PHONY: demo installed wheel wheel-demo resolve sizes live test test-tools test-browser test-campaign test-long test-topics browser lint \
    conformance bench bench-all soak fuzz lock licences sbom release \
    mutants notebook site pictures clean install service-python environment uninstall

# Debian's Python comes without ensurepip; there the pip that is installed fills the environment.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or later is needed, this is " + sys.version.split()[0] + "; set PYTHON=...")'
	@$(PYTHON) -m venv $(1) 2>/dev/null || { rm -rf $(1) && $(PYTHON) -m venv --without-pip $(1) \
	    && $(PYTHON) -m pip -qq --python $(1)/bin/python install pip; }
endef

# The packages of these locks, and no file that has another digest.  -qq: of pip errors alone are shown,
# not its warnings about places of packages that this machine does not have.
define install_locked
	$(1)/bin/python -m pip install -qq --no-deps --require-hashes --only-binary :all: --no-binary empy \
	    $(foreach group,$(2),--requirement requirements/$(group).lock)
endef

$(STAMP): pyproject.toml requirements/develop.lock
	$(call make_venv,$(VENV))
	$(call install_locked,$(VENV),develop)
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(DSTAMP): $(STAMP) requirements/docs.lock
	$(call install_locked,$(VENV),docs)
	@touch $@

$(BSTAMP): $(STAMP) requirements/browser.lock
	$(call install_locked,$(VENV),browser)
	@touch $@

# All that .venv may hold.
installed: $(STAMP) $(DSTAMP) $(BSTAMP)

$(SSTAMP): requirements/constraints-supply.txt
	$(call make_venv,$(SVENV))
	$(SVENV)/bin/python -m pip install -qq --constraint requirements/constraints-supply.txt \
	    build cyclonedx-bom packaging pip-licenses setuptools twine uv
	@touch $@

$(MSTAMP): requirements/constraints-mutants.txt
	$(call make_venv,$(MVENV))
	$(MVENV)/bin/python -m pip install -qq --constraint requirements/constraints-mutants.txt cosmic-ray
	@touch $@

$(CSTAMP): pyproject.toml requirements/constraints.txt requirements/constraints-conformance.txt
	$(call make_venv,$(CVENV))
	@# Where both have a pin, their own is meant, and pip takes one of each only.
	awk -F '==' 'NR == FNR {own[$$1]; next} !($$1 in own)' requirements/constraints-conformance.txt \
	    requirements/constraints.txt > $(CVENV)/constraints.txt
	$(CVENV)/bin/python -m pip install -qq --constraint $(CVENV)/constraints.txt \
	    --constraint requirements/constraints-conformance.txt --editable '.[dev,archives,gnss,radar,live,ros2,zenoh,conformance]'
	@# Their own requirements ask for torch, which reading does not need.
	$(CVENV)/bin/python -m pip install -qq --no-deps \
	    --constraint requirements/constraints-conformance.txt nvidia-ncore l5kit
	@touch $@

$(RSTAMP): requirements/constraints-rosbags.txt
	$(call make_venv,$(RVENV))
	$(RVENV)/bin/python -m pip install -qq --constraint requirements/constraints-rosbags.txt rosbags
	@touch $@

$(PSTAMP): requirements/constraints-bench.txt
	$(call make_venv,$(PVENV))
	$(PVENV)/bin/python -m pip install -qq --constraint requirements/constraints-bench.txt \
	    edgefirst eclipse-zenoh mcap lz4 zstandard
	@touch $@

# Records the simulated sensors, checks the session, packs it, and reports it.
demo: $(STAMP)
	$(BIN)/recorder demo --duration $(DEMO_S) --no-browser

# dist/vehicle_recorder-VERSION-py3-none-any.whl, which works without this folder.
wheel: $(STAMP)
	rm -rf build dist  # or modules of an earlier version would be packed again
	$(BIN)/python -m pip wheel -qq --no-deps --wheel-dir dist .
	rm -rf build

# The wheel in an environment of its own, and the demo in an empty folder: with the core alone, and
# with what packing needs.
wheel-demo: wheel
	rm -rf $(WVENV)
	$(call make_venv,$(WVENV))
	folder=$$(mktemp -d) && bin=$(CURDIR)/$(WVENV)/bin && wheel=$$(ls $(CURDIR)/dist/*.whl) \
	    && for extra in '' '[archives]'; do \
	        $$bin/python -m pip install -qq --constraint requirements/constraints.txt "$$wheel$$extra" \
	        && (cd $$folder && $$bin/recorder demo "with$$extra" --duration 1 --no-browser) || exit 1; \
	    done; rm -rf $$folder

# dist/: the wheel and the source distribution of a release, checked.
release: $(SSTAMP)
	rm -rf build dist
	$(SVENV)/bin/python -m build --no-isolation --outdir dist .
	rm -rf build
	$(SVENV)/bin/twine check --strict dist/*

# Every pin of what users install has a wheel, for every machine and every Python that the documents name.
resolve: $(SSTAMP)
	$(SVENV)/bin/python -m tests.resolve

# What the wheel and each extra take on disk, as docs/getting-started.md lists them.
sizes: wheel
	rm -rf $(WVENV)
	$(call make_venv,$(WVENV))
	$(call install_locked,$(WVENV),user)
	$(WVENV)/bin/python -m pip install -qq --no-deps dist/*.whl
	$(WVENV)/bin/python docs/list_sizes.py

# Records the simulated sensors until Ctrl-C, and shows them at the address that it prints.
live: $(STAMP)
	$(BIN)/recorder serve configs/live.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -q $(SPREAD) $(addprefix --ignore ,$(TOOLS))

# Tests of the benchmarks, of the mutation tester, and of what installs and pins packages.
test-tools: $(STAMP)
	$(BIN)/python -m pytest -q $(SPREAD) $(TOOLS)

# Finds Chromium, or installs the system's where this is root and apt is there.
browser: $(BSTAMP)
	@$(BIN)/python -m tests.browser.chromium

test-browser: browser
	$(BIN)/python -m pytest -q -m browser tests/browser

# What all campaigns may take together, the part of its least that each does, and the base of their
# seeds: another one for every commit.
CAMPAIGN_MINUTES ?= 13
CAMPAIGN_PART ?= 1
CAMPAIGN_SEED ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)
test-campaign: $(STAMP)
	@# Ten thousand crash states take a busy machine longer than a test may take.
	$(BIN)/python -m pytest -q $(SPREAD) -m campaign tests -o faulthandler_timeout=1500 \
	    --campaign-minutes $(CAMPAIGN_MINUTES) --campaign-part $(CAMPAIGN_PART) \
	    --campaign-seed $(CAMPAIGN_SEED) \
	    --hypothesis-seed $(CAMPAIGN_SEED)

test-long: $(STAMP)
	$(BIN)/python -m pytest -q -m long

# All of them, so that one run tells everything.
lint: $(STAMP)
	@status=0; for tool in 'ruff check .' 'ruff format --check .' mypy lint-imports 'python -m tests.wording'; do \
	    echo "$$tool"; $(BIN)/$$tool || status=1; done; exit $$status

conformance: $(CSTAMP) $(RSTAMP) $(SSTAMP)
	PYTHONPATH=$(ROVERD) $(CVENV)/bin/python -m pytest -q $(SPREAD) -m conformance tests/conformance \
	    tests/fleet

# 500 seeded runs of live topics with dropped packets, and as many over Zenoh; as root, with nftables.
test-topics: $(CSTAMP)
	$(CVENV)/bin/python -m pytest -q -m conformance tests/conformance/test_ros2_topics.py \
	    tests/conformance/test_zenoh_topics.py -k 'dropped or seeded' --campaign-part 8.34 \
	    -o faulthandler_timeout=1800

bench: $(STAMP)
	$(BIN)/python -m benchmarks rig

# All benchmarks, with JSON and plots in BENCH_OUT.  What has no environment is listed as not run.
BENCH_MINUTES ?= 30
BENCH_OUT ?= bench-results
BENCH ?= all
bench-all: $(STAMP)
	-@for stamp in $(PSTAMP) $(CSTAMP) $(BSTAMP); do $(MAKE) --no-print-directory $$stamp; done
	$(BIN)/python -m benchmarks $(BENCH) --minutes $(BENCH_MINUTES) --out $(BENCH_OUT)

# requirements/*.lock, after requirements/constraints.txt or an extra has changed; asks the package
# registry.  The extras of each; setuptools builds the recorder.  Python: an older 3.11 does not have
# what the site needs.
VEHICLE := archives can custody encryption gnss radar rtsp s3 zenoh
vehicle.lock := $(VEHICLE)
vehicle.override := --override requirements/overrides-vehicle.txt
live.lock := live
ros2.lock := ros2
user.lock := $(VEHICLE) cluster live odometry
develop.lock := dev archives can gnss radar live
docs.lock := docs
browser.lock := browser
LOCKS := vehicle live ros2 user develop docs browser
define compile_lock
	echo setuptools | $(SVENV)/bin/uv pip compile --quiet --universal --generate-hashes --no-header \
	    --no-annotate --python-version 3.11.5 --constraint requirements/constraints.txt \
	    --override requirements/overrides.txt $($(1).override) $(addprefix --extra ,$($(1).lock)) pyproject.toml - \
	    --output-file requirements/$(1).lock

endef
lock: $(SSTAMP)
	rm -f requirements/*.lock
	$(foreach group,$(LOCKS),$(call compile_lock,$(group)))

# The tables of docs/licences.md, after a lock has changed.
define list_licences
	{ printf '\n## $(2)\n\n'; $(SVENV)/bin/pip-licenses --python $(BIN)/python --format markdown \
	    --with-system --packages $$(grep -o '^[a-z0-9.-]*==' $(1) | tr -d = | sort -u); } \
	    >> docs/licences.md

endef
licences: $(DSTAMP) $(BSTAMP) $(SSTAMP)
	$(call install_locked,$(VENV),user)
	sed -i '/^## On vehicles/,$$d' docs/licences.md
	sed -i '$${/^$$/d}' docs/licences.md
	$(call list_licences,requirements/vehicle.lock requirements/live.lock -h,On vehicles)
	$(call list_licences,requirements/*.lock -h,All packages)

# What an environment contains, as CycloneDX: make sbom SBOM_OF=/opt/recorder SBOM=sbom.json
SBOM_OF ?= $(VENV)
SBOM ?= dist/sbom.json
sbom: $(SSTAMP)
	@mkdir -p $(dir $(SBOM))
	$(SVENV)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	    --output-file $(SBOM) $(SBOM_OF)

# Every listening socket and every parser, with mutated bytes: make fuzz FUZZ_S=3600 ONLY=rtsp SEED=7
# What fails is saved in .fuzz, to be played again by: make fuzz REPLAY=.fuzz/...
FUZZ_S ?= 3600
REPLAY ?=
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_S) $(addprefix --only ,$(ONLY)) \
	    $(addprefix --seed ,$(SEED)) $(addprefix --replay ,$(REPLAY))

# The documents as a site, in site/index.html; fails at a link that leads nowhere.
site: $(DSTAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# docs/pictures/, from a recording of simulated sensors, and of the dashboard while they are recorded.
pictures: browser
	$(BIN)/python -m docs.make_pictures
	$(BIN)/python -m pytest -q -m browser tests/browser/test_pictures.py --pictures docs/pictures
	$(BIN)/python -m pytest -q tests/session/test_session_docs.py --pictures docs/pictures

# docs/reading.ipynb, from docs/reading.md.
notebook: $(STAMP)
	$(BIN)/python -m docs.make_notebook

clean:
	rm -rf $(VENV) $(CVENV) $(RVENV) $(PVENV) $(WVENV) $(SVENV) $(MVENV) .mutants build dist site *.egg-info
	find recorder drivers tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# On a vehicle (docs/vehicle.md), as root.  DESTDIR: only copy, into an image.  LIVE=1: with the
# dashboard.  ROS2=1: with rclpy.
PREFIX ?= /opt/recorder
DESTDIR ?=
LIVE ?=
ROS2 ?=
# The unit hides homes (ProtectHome=), where pyenv and conda keep their Pythons.
READABLE := import sys; sys.exit(sys.version_info < (3, 11) or \
    sys.base_prefix.startswith(("/home/", "/root/", "/run/user/")))
UNITS := recorder.service recorder-finalize.service recorder-upload.service recorder-upload.timer \
    run-recorder_ring.mount
ENABLED := recorder.service recorder-upload.timer run-recorder_ring.mount

install:
	@# An environment of ours, or nothing: what else is there is not ours to replace.
	@[ -e $(DESTDIR)$(PREFIX)/pyvenv.cfg ] || [ -z "$$(ls -A $(DESTDIR)$(PREFIX) 2>/dev/null)" ] \
	    || { echo '$(DESTDIR)$(PREFIX) is not empty and no environment of the recorder'; exit 1; }
	umask 022; [ -x $(DESTDIR)$(PREFIX)/bin/pip ] || { python=$$($(MAKE) -s service-python) \
	    && $(MAKE) --no-print-directory environment PYTHON=$$python; }
	rm -rf build  # or modules of an earlier version would be installed again
	umask 022; $(call install_locked,$(DESTDIR)$(PREFIX),vehicle $(if $(LIVE),live) $(if $(ROS2),ros2))
	umask 022; $(DESTDIR)$(PREFIX)/bin/python -m pip install -qq --no-deps --no-build-isolation .
	rm -rf build
	@# Nothing may write bytecode there later: each process of a recording would compile its modules.
	umask 022; $(DESTDIR)$(PREFIX)/bin/python -m compileall -q $(addprefix -s ,$(DESTDIR)) \
	    $(DESTDIR)$(PREFIX)/lib
	@# Scripts name their interpreter: as it is called where the image runs.
	[ -z "$(DESTDIR)" ] || { grep -rlIF '$(DESTDIR)$(PREFIX)' $(DESTDIR)$(PREFIX)/bin \
	    $(DESTDIR)$(PREFIX)/pyvenv.cfg | xargs sed -i 's#$(DESTDIR)$(PREFIX)#$(PREFIX)#g'; }
	for unit in $(UNITS); do \
	    sed 's#/opt/recorder#$(PREFIX)#g' systemd/$$unit > systemd/$$unit.tmp \
	    && install -D -m 644 systemd/$$unit.tmp $(DESTDIR)/etc/systemd/system/$$unit; \
	    status=$$?; rm -f systemd/$$unit.tmp; [ $$status = 0 ] || exit 1; done
	install -D -m 644 systemd/recorder.sysusers $(DESTDIR)/etc/sysusers.d/recorder.conf
	install -D -m 644 systemd/recorder.tmpfiles $(DESTDIR)/etc/tmpfiles.d/recorder.conf
	install -D -m 644 systemd/60-recorder.conf $(DESTDIR)/etc/sysctl.d/60-recorder.conf
	install -D -m 644 systemd/60-recorder.rules $(DESTDIR)/etc/udev/rules.d/60-recorder.rules
	install -d $(DESTDIR)$(PREFIX)/share/doc/pictures
	install -m 644 docs/*.md $(DESTDIR)$(PREFIX)/share/doc
	install -m 644 docs/pictures/* $(DESTDIR)$(PREFIX)/share/doc/pictures
	[ -e $(DESTDIR)/etc/recorder/recorder.yaml ] \
	    || install -D -m 640 configs/vehicle.yaml $(DESTDIR)/etc/recorder/recorder.yaml
	install -d $(DESTDIR)/usr/local/bin && ln -sf $(PREFIX)/bin/recorder $(DESTDIR)/usr/local/bin/
	[ -n "$(DESTDIR)" ] || { systemd-sysusers recorder.conf && systemd-tmpfiles --create recorder.conf \
	    && sysctl --quiet --system && { [ ! -S /run/udev/control ] || { udevadm control --reload \
	    && udevadm trigger --subsystem-match=tty --subsystem-match=video4linux; }; } \
	    && { [ ! -d /run/systemd/system ] || systemctl daemon-reload; } && echo 'installed; next: docs/vehicle.md, "The first session"'; }

# The first Python that the service can read.
service-python:
	@for python in $(PYTHON) /usr/bin/python3 /usr/local/bin/python3; do \
	    ! $$python -c '$(READABLE)' 2> /dev/null || { echo $$python; exit; }; done; \
	echo '$(PYTHON) lies in a home, which the service cannot read, or is older than 3.11: install one' \
	    'for all users, or name one with PYTHON=' >&2; exit 1

environment:
	$(call make_venv,$(DESTDIR)$(PREFIX))

uninstall:
	@[ ! -e $(DESTDIR)$(PREFIX) ] \
	    || [ -e $(DESTDIR)$(PREFIX)/pyvenv.cfg -a -e $(DESTDIR)$(PREFIX)/bin/recorder ] \
	    || { echo 'there is no recorder in $(DESTDIR)$(PREFIX)'; exit 1; }
	-[ -n "$(DESTDIR)" ] || systemctl disable --now $(ENABLED)
	rm -f $(addprefix $(DESTDIR)/etc/systemd/system/,$(UNITS)) $(DESTDIR)/etc/sysusers.d/recorder.conf \
	    $(DESTDIR)/etc/tmpfiles.d/recorder.conf $(DESTDIR)/etc/sysctl.d/60-recorder.conf \
	    $(DESTDIR)/etc/udev/rules.d/60-recorder.rules
	rm -f $(DESTDIR)/usr/local/bin/recorder
	rm -rf $(DESTDIR)$(PREFIX)
	[ -n "$(DESTDIR)" ] || [ ! -d /run/systemd/system ] || systemctl daemon-reload

# Hours of kills, splits, a full disk and clock steps: make soak SOAK_S=28800
SOAK_S ?= 3600
soak: $(STAMP)
	$(BIN)/python -m tests.soak --seconds $(SOAK_S)

# Single-line defects that the tests must notice, planted in a clone of the last commit; what survived is
# listed: make mutants COUNT=40 ONLY=drivers SEED=7.  An hour or two.  Not in CI.
COUNT ?= 200
ONLY ?=
SEED ?=
PLANTED := cosmic-ray.toml session.sqlite
mutants: $(MSTAMP)
	rm -rf .mutants && git clone --quiet . .mutants/tree
	[ ! -d ../shared ] || ln -s $(abspath ../shared) .mutants/shared
	$(MAKE) --no-print-directory -C .mutants/tree $(STAMP)
	cd .mutants/tree && sed '$(if $(ONLY),s#^module-path.*#module-path = "$(ONLY)"#)' tests/mutants/cosmic-ray.toml \
	    > cosmic-ray.toml && export PATH=$(CURDIR)/$(MVENV)/bin:$$PATH JOBS=$(JOBS) && cosmic-ray init $(PLANTED) \
	    && python -m tests.mutants.sample session.sqlite --count $(COUNT) $(addprefix --seed ,$(SEED)) \
	    && cosmic-ray exec $(PLANTED) && cr-report --surviving-only --show-diff session.sqlite \
	    && cr-rate --fail-over 15 session.sqlite
