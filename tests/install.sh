#!/bin/sh
# What `make install` puts where, and takes away again; the unit as systemd judges it, and whether the broker asks the kernel for
# anything that the unit's filter refuses. As a test of make check, in the build directory: the directories come from the
# makefile. Ends with a line like Check's own, so that its sums include this.
set -u
srcdir=${srcdir:-.}
checks=0
failures=0
tree=$(mktemp -d "$PWD/install.XXXXXX") || exit 1
supervisor=
trap '[ -z "$supervisor" ] || kill "$supervisor"; rm -rf "$tree"' EXIT
LC_ALL=C
export LC_ALL

# expect NAME COMMAND...: one check; what the command says is shown when it fails.
expect() {
	name=$1
	shift
	checks=$((checks + 1))
	if ! "$@" >"$tree/said" 2>&1; then
		sed 's/^/	/' "$tree/said"
		echo "tests/install.sh:1:F:install:$name:0: failed"
		failures=$((failures + 1))
	fi
}

# The options of the make that runs this are for its own targets.
run_make() {
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "$MAKE" "$@"
}

# ---- files ----

# Everything with its mode, libtool's own names of versions apart.
wanted() {
	cat <<LIST
755 $BINDIR/logbroker
755 $SBINDIR/logsupervisor
755 $PKGLIBEXECDIR/logworker
644 $INCLUDEDIR/logbroker.h
644 $INCLUDEDIR/logbroker-event.h
644 $LIBDIR/pkgconfig/liblogbroker.pc
644 $LIBDIR/pkgconfig/liblogbroker-event.pc
644 $LIBDIR/liblogbroker.a
644 $LIBDIR/liblogbroker-event.a
644 $EXAMPLESDIR/produce.c
644 $EXAMPLESDIR/follow.c
644 $EXAMPLESDIR/relay.c
644 $SYSCONFDIR/logbroker/broker.ini
644 $SYSUSERSDIR/logbroker.conf
LIST
	[ "$UNITDIR" = no ] || echo "644 $UNITDIR/logbroker.service"
	for page in "$srcdir"/man/*.[1-8]; do
		echo "644 $MANDIR/man${page##*.}/${page##*/}"
	done
}

there() {
	(cd "$1" && find . -type f -printf '%m /%P\n' | grep -v -e '/liblogbroker[a-z-]*\.la$' -e '/liblogbroker[a-z-]*\.so[.0-9]*$' | sort)
}

as_listed() {
	run_make install DESTDIR="$tree/dest" || return
	wanted | sort >"$tree/wanted"
	there "$tree/dest" | diff "$tree/wanted" -
}

own_configuration_stays() {
	echo '; mine' >"$tree/dest$SYSCONFDIR/logbroker/broker.ini" && run_make install DESTDIR="$tree/dest" &&
	    run_make uninstall DESTDIR="$tree/dest" && grep -x '; mine' "$tree/dest$SYSCONFDIR/logbroker/broker.ini"
}

nothing_else_stays() {
	[ "$(find "$tree/dest" ! -type d)" = "$tree/dest$SYSCONFDIR/logbroker/broker.ini" ] || { find "$tree/dest" ! -type d; return 1; }
}

# ---- manuals ----

# What refers to manuals that are not installed here apart.
manual_is_clean() {
	mandoc -Tlint -W style "$1" 2>&1 | grep -v -e 'referenced manual not found' -e 'outdated mandoc.db' >"$tree/lint"
	man --warnings -E UTF-8 -l -Tutf8 -Z "$1" 2>>"$tree/lint" >/dev/null
	cat "$tree/lint"
	[ ! -s "$tree/lint" ]
}

# ---- the unit, with the programs where they lie in the tree ----

unit=$tree/logbroker.service

unit_names_what_is_installed() {
	sed "s|\([= ]\)/|\1$tree/dest/|g" "$tree/dest$UNITDIR/logbroker.service" | grep -v '^#' >"$unit" || return
	for program in $(sed -n 's/^Exec[A-Za-z]*=\([^ ]*\).*/\1/p' "$unit"); do
		[ -x "$program" ] || { echo "$program"; return 1; }
	done
	[ -f "$(sed -n 's/^ExecStart=.* -f //p' "$unit")" ]
}

unit_is_valid() {
	systemd-analyze verify --man=no "$unit" >"$tree/verified" 2>&1
	status=$?
	cat "$tree/verified"
	[ $status -eq 0 ] && ! grep -q logbroker "$tree/verified"
}

# At most 1.5, as systemd counts.
unit_is_hardened() {
	systemd-analyze security --offline=true --threshold=15 --no-pager "$unit"
}

# expand SET...: the system calls of systemd's sets.
expand() {
	for set; do
		case $set in
		@*) expand $(systemd-analyze syscall-filter "$set" | sed -n 's/^    \([-@a-z0-9_]*\)$/\1/p') ;;
		*) echo "$set" ;;
		esac
	done
}

allowed() {
	expand $(sed -n 's/^SystemCallFilter=\([^~].*\)/\1/p' "$unit") | sort -u >"$tree/taken"
	expand $(sed -n 's/^SystemCallFilter=~\(.*\)/\1/p' "$unit") | sort -u >"$tree/left"
	# What is always allowed cannot be taken away.
	{ comm -23 "$tree/taken" "$tree/left"; expand @default; } | sort -u
}

# A session: a start, records in and out, workers that are replaced, told something else, killed and come back, a stop. By the programs of the build: installed
# ones find one another in their prefix alone.
session() {
	mkdir -p "$tree/run" || return
	cat >"$tree/run/broker.ini" <<INI
[broker]
listen = 127.0.0.1:0, localhost:0, unix:$tree/run/sock
http = 127.0.0.1:0
control = $tree/run/control.sock
data_dir = $tree/run/data
workers = 2
[topics]
a = 2
m = 1
[log]
segment_bytes = 64KiB
retention_bytes = 64KiB
retention_check_interval = 100ms
[topic m]
write_mode = mapped
INI
	strace -f -qq -o "$tree/run/calls" "$PWD/logsupervisor" -f "$tree/run/broker.ini" 2>"$tree/run/log" &
	tracer=$!
	tries=0
	until grep -q '^ready: ' "$tree/run/log"; do
		tries=$((tries + 1))
		kill -0 $tracer && [ $tries -lt 600 ] || { cat "$tree/run/log"; return 1; }
		sleep 0.1
	done
	supervisor=$(sed -n 's/^ready: .* pid=//p' "$tree/run/log")
	LOGBROKER_ADDR=unix:$tree/run/sock LOGBROKER_CONTROL=$tree/run/control.sock
	export LOGBROKER_ADDR LOGBROKER_CONTROL
	for topic in a/0 a/1 m; do
		seq 40000 | "$PWD/logbroker" produce -a forced "${topic%/*}" $(echo "$topic" | sed -n 's/.*\//-p /p') || return
		"$PWD/logbroker" tail -n 10 "$topic" || return
	done
	"$PWD/logbroker" restart-worker --all && "$PWD/logbroker" status || return
	sed -i 's/^workers.*/&\ndrain_timeout = 5s/' "$tree/run/broker.ini" && "$PWD/logbroker" reload || return
	for worker in $(cat "/proc/$supervisor/task/$supervisor/children"); do
		kill -9 "$worker" || :	# one that was replaced may have ended meanwhile
	done
	"$PWD/logbroker" --timeout 30s consume m >"$tree/run/out" || return
	kill "$supervisor"
	supervisor=
	wait $tracer
}

# Its name stands behind the pid.
uses_allowed_calls_only() {
	session || { cat "$tree/run/log"; return 1; }
	sed -n 's/^[0-9]* *\([a-z0-9_]*\)(.*/\1/p' "$tree/run/calls" | sort -u >"$tree/used"
	allowed >"$tree/allowed"
	[ -s "$tree/used" ] && [ -s "$tree/allowed" ] && comm -23 "$tree/used" "$tree/allowed" >"$tree/refused" && cat "$tree/refused" &&
	    [ ! -s "$tree/refused" ]
}

uses_allowed_families_only() {
	sed -n 's/^RestrictAddressFamilies=//p' "$unit" | tr ' ' '\n' | sort >"$tree/families"
	sed -n 's/^[0-9]* *socket\(pair\)\{0,1\}(\(AF_[A-Z0-9]*\),.* = [0-9].*/\2/p' "$tree/run/calls" | sort -u |
	    comm -23 - "$tree/families" | grep -v AF_NETLINK
	[ $? -eq 1 ]
}

echo "Running suite(s): install"
expect as_listed as_listed
if command -v mandoc >/dev/null && command -v man >/dev/null; then
	for page in "$srcdir"/man/*.[1-8]; do
		expect "manual_${page##*/}" manual_is_clean "$page"
	done
else
	echo "no mandoc or no man: the manuals were not looked at"
fi
if [ "$UNITDIR" = no ]; then
	echo "configured without a unit: it was not looked at"
else
	expect unit_names_what_is_installed unit_names_what_is_installed
	if command -v systemd-analyze >/dev/null; then
		expect unit_is_valid unit_is_valid
		expect unit_is_hardened unit_is_hardened
		# A sanitizer has calls of its own, and is no friend of strace.
		if strace -qq -o /dev/null true 2>/dev/null && ! $NM logsupervisor | grep -q __asan_init; then
			expect uses_allowed_calls_only uses_allowed_calls_only
			expect uses_allowed_families_only uses_allowed_families_only
		else
			echo "skipped: uses_allowed_calls_only: no strace here, or a build with a sanitizer"
		fi
	else
		echo "skipped: unit_is_valid, unit_is_hardened, uses_allowed_calls_only: no systemd-analyze here"
	fi
fi
expect own_configuration_stays own_configuration_stays
expect nothing_else_stays nothing_else_stays
echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
