# make demo   builds nopal, records a real program, and prints its report
# make test   builds and passes every test
# make        builds nopal for installation, or names missing packages; make deps installs them
# make kernel-demo   boots a stock kernel, records its functions, and prints their report
# make quick  builds nopal in a third of the time, for a first look and for development
# make dist   builds archives and packages; make dist-check installs each in a bare Debian
# make explore   explores the protocols in larger models than make test, for half an hour
PREFIX ?= /usr/local
CARGO ?= cargo
NOPAL := target/release/nopal

.PHONY: all quick deps demo test check explore bench bench-peers bench-papers bench-kernel kernel kernel-demo kernel-newest fuzz \
	hard torture soak pages fleet install dist dist-check clean

# Packed relocations make the file smaller by a thirtieth. They are used if libc says that it can apply them.
PACKED := $(shell grep -qs GLIBC_ABI_DT_RELR "$$($(CC) -print-file-name=libc.so.6 2>/dev/null)" && echo -C link-arg=-Wl,-z,pack-relative-relocs)

# If the system has libc as an archive, as Debian's libc6-dev does, nopal is linked statically: it starts a millisecond
# sooner, and runs in containers without libraries.
STATIC := $(if $(filter /%,$(shell $(CC) -print-file-name=libc.a 2>/dev/null)),-C target-feature=+crt-static $(PACKED))

# rustc links with LLD, which merges functions with the same code. That makes the file smaller by a seventieth.
FOLDED := -C link-arg=-Wl,--icf=all

all:
	@.ci/packages --names build
	$(CARGO) rustc --release --package nopal --bin nopal -- $(FOLDED) $(STATIC)

quick:
	@.ci/packages --names build
	$(CARGO) rustc --profile quick --package nopal --bin nopal -- $(STATIC)

# Installs the packages that the demo and the tests need; as root, on Debian and Ubuntu.
deps:
	@.ci/packages test

# libnopal: connects a program's own functions to its markers (include/nopal_probe.h).
LIBRARY := target/library
LIBRARY_SOURCES := $(wildcard runtime/library/*.c runtime/library/*.S) runtime/core/poke_protocol.c
LIBRARY_OBJECTS := $(patsubst %,$(LIBRARY)/%.o,$(notdir $(LIBRARY_SOURCES)))
# Markers and hooks call libnopal while vector registers hold the program's values.
LIBRARY_FLAGS := -std=gnu17 -O2 -mgeneral-regs-only -g -fPIC -fvisibility=hidden -pthread -Wall -Wextra -Werror -Iinclude -Iruntime/core \
	-Iruntime/port -Iruntime/arch/x86_64
vpath %.c runtime/library runtime/core
vpath %.S runtime/library

library: $(LIBRARY)/libnopal.a $(LIBRARY)/libnopal.so

$(LIBRARY)/%.o: % $(wildcard include/*.h runtime/library/*.h runtime/core/*.h runtime/port/*.h runtime/arch/x86_64/*.h)
	@mkdir -p $(LIBRARY)
	$(CC) $(LIBRARY_FLAGS) -c $< -o $@

$(LIBRARY)/libnopal.a: $(LIBRARY_OBJECTS)
	$(AR) rcs $@ $^

$(LIBRARY)/libnopal.so: $(LIBRARY_OBJECTS)
	$(CC) -shared -pthread -Wl,-soname,libnopal.so -Wl,-z,defs $^ -o $@

# The demo records the first of these that the machine has. They are paths, since a name in PATH may be a wrapper script.
PYTHON := $(firstword $(wildcard /usr/bin/python3))
GIT := $(firstword $(wildcard /usr/bin/git))
ifneq ($(PYTHON),)
DEMO := $(PYTHON) -c 'import json; print(len(json.dumps([{"n": n} for n in range(1000)])))'
else ifneq ($(GIT),)
DEMO := $(GIT) log --oneline -n 5
else
DEMO := /bin/sh -c 'for n in 1 2 3; do ls -l /; done'
endif

demo:
	@.ci/packages build
	@$(MAKE) quick
	@set -e; trap 'rm -rf target/demo target/demo.old' EXIT; set -x; \
	target/quick/nopal record -o target/demo -- $(DEMO); \
	target/quick/nopal report -n 20 target/demo

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target --quiet -- -D warnings

# A test file that hangs is killed, and the others still run.
test: deps
	$(MAKE) check
	$(CARGO) test --workspace --no-fail-fast --config 'target."cfg(all())".runner = ["timeout", "--foreground", "1500"]'

explore:
	NOPAL_EXPLORE=far $(CARGO) test --package nopal-agent --test core protocols

bench: all
	-@.ci/packages bench
	$(CARGO) run --release --package nopal-bench

# Builds the module for this kernel, or the one that KERNEL names: target/kernel/$(KERNEL)/nopal.ko. Needs its headers.
KERNEL ?= $(shell uname -r)
HEADERS := $(firstword $(wildcard target/kernel/$(KERNEL) /lib/modules/$(KERNEL)/build /usr/src/linux-headers-$(KERNEL)))
kernel:
	@test -n "$(HEADERS)" || { echo "the headers of $(KERNEL) are missing: apt-get install linux-headers-$(KERNEL)" >&2; exit 1; }
	runtime/port/linux_kernel/build "$(HEADERS)" "target/kernel/$(KERNEL)"

# Boots a stock kernel in QEMU, and shows its functions with durations, and its longest section with interrupts off.
kernel-demo:
	@.ci/packages test
	@$(MAKE) quick
	@NOPAL="$(CURDIR)/target/quick/nopal" $(CARGO) run --profile quick --quiet --package nopal-tests --bin kernel-demo

# Runs the module's tests in the newest kernel of Debian's backports, which needs the compiler of its own release. As root.
kernel-newest:
	@.ci/packages test
	@.ci/packages newest
	NOPAL_KERNELS="$(CURDIR)/target/newest" $(CARGO) test --package nopal-tests --test kernel

# Seconds for each target; two targets run at a time.
FUZZ_SECONDS ?= 120
fuzz:
	@.ci/packages --names build
	fuzz/run $(FUZZ_SECONDS)

# Runs programs that break tracers. Other tracers and the programs' packages are installed if possible.
hard: all
	@.ci/packages test
	-@.ci/packages hard
	NOPAL="$(CURDIR)/$(NOPAL)" $(CARGO) run --release --quiet --package nopal-tests --bin hard

# Switches ten thousand sites a hundred million times under load, and kills nopal at each of its steps.
# TORTURE='seed=N seconds=N toggles=N' changes that.
TORTURE ?= toggles=100_000_000
torture: all
	@.ci/packages test
	NOPAL="$(CURDIR)/$(NOPAL)" $(CARGO) run --release --quiet --package nopal-tests --bin torture -- $(TORTURE)
	NOPAL_KILLS=all $(CARGO) test --package nopal-tests --test killed
	NOPAL_KILLS=all $(CARGO) test --package nopal-tests --test kernel nothing_is_left

# Traces every function of whole programs in hundreds of their own tests, for an hour. SOAK='WORD...' selects some by name.
soak: all
	@.ci/packages soak
	NOPAL="$(CURDIR)/$(NOPAL)" $(CARGO) run --release --quiet --package nopal-tests --bin soak -- $(SOAK)

# Runs the queries of examples/fleet in Spark, on a cluster of two workers on this machine. pip fetches Spark, 400 MB.
fleet:
	@.ci/packages fleet
	NOPAL_SPARK="$(CURDIR)/target/fleet/bin/python3" $(CARGO) test --package nopal-tests --test fleet

# Measures nopal beside the tracers that can be installed here.
bench-peers: all library
	@.ci/packages test
	-@.ci/packages peers
	$(CARGO) run --release --package nopal-bench -- peers

# Reproduces the tables of the papers and patch series that nopal follows (docs/speed.md) on this machine.
bench-papers: all library
	$(CARGO) run --release --package nopal-bench -- markers probes papers uniform hackbench

# Measures nopal's kernel module beside the kernel's own tracers and BPF, in guests whose instructions are counted
# (docs/speed.md).
bench-kernel:
	@.ci/packages test
	@$(MAKE) quick
	NOPAL="$(CURDIR)/target/quick/nopal" $(CARGO) run --profile quick --quiet --package nopal-bench -- kernel

# The target to build before installing: none if NOPAL is another binary.
BUILT := all
MANUAL := target/man
COMPLETIONS := target/completions
LIBDIR = $(PREFIX)/lib
ZSH_FUNCTIONS = $(PREFIX)/share/zsh/site-functions

pages: $(BUILT)
	rm -rf $(MANUAL) $(COMPLETIONS)
	$(NOPAL) man $(MANUAL)
	$(NOPAL) completions $(COMPLETIONS)

install: pages library
	install -D -m 755 $(NOPAL) $(DESTDIR)$(PREFIX)/bin/nopal
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5
	install -m 644 $(MANUAL)/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(MANUAL)/*.5 $(DESTDIR)$(PREFIX)/share/man/man5
	install -D -m 644 $(COMPLETIONS)/nopal.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/nopal
	install -D -m 644 $(COMPLETIONS)/_nopal $(DESTDIR)$(ZSH_FUNCTIONS)/_nopal
	install -D -m 644 $(COMPLETIONS)/nopal.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/nopal.fish
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(LIBDIR)
	install -m 644 include/nopal.h include/nopal_probe.h $(DESTDIR)$(PREFIX)/include
	install -m 644 $(LIBRARY)/libnopal.a $(LIBRARY)/libnopal.so $(DESTDIR)$(LIBDIR)

# Builds a release in target/dist.
dist: all
	@.ci/packages --names dist
	packaging/build

# Installs and tests each part of the release in a bare Debian. As root.
dist-check:
	@.ci/packages dist-check
	packaging/check

clean:
	$(CARGO) clean
