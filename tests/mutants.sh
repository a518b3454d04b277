#!/bin/sh
# Whether the power-cut tester bites. Each patch in tests/mutants is a mistake in the product: its first line says which
# promise it breaks and how, each "Run:" a workload and mode (tests/test_powercut.c) in which a state must show that. The
# sources that it changes are copied, changed and compiled, and linked with all the others as a worker, and as the tester,
# whose recovery is the product's. A first test changes nothing: nothing may be noticed.
#
# By `make mutants`, in the build directory: srcdir, CC, HEADER_FLAGS, WORKER_OBJECTS, WORKER_LIBS, TESTER_OBJECTS and
# TESTER_LIBS come from the makefile. Ends with a line like Check's own, so that its sums include this.
#
#   make mutants [MUTANTS='NN-name ...']     some of them
set -u
srcdir=${srcdir:-.}
LC_ALL=C
export LC_ALL

runs() {
	sed -n '1,/^--- /s/^Run: //p' "$1"
}

changed() {
	sed -n 's|^+++ b/||p' "$1"
}

# ---- building ----

# compile DIRECTORY FILE: of what was changed.
compile() {
	# Unquoted on purpose: may be several words.
	${CC:-cc} -std=c11 -D_GNU_SOURCE -pthread -O1 -w -I"$1/src" -I"$srcdir" ${HEADER_FLAGS:-} \
	    -c "$1/src/$2" -o "$1/$(basename "$2" .c).o"
}

# link DIRECTORY PROGRAM OBJECTS LIBRARIES: what was changed stands ahead of the libraries that hold it as it was.
link() {
	objects=
	for object in $3; do
		short=${object##*-}
		[ "$object" != "${object#worker/}" ] && [ -e "$1/$short" ] || objects="$objects $object"
	done
	for object in "$1"/*.o; do
		[ -e "$object" ] || continue
		# What is the worker's alone the tester does not have.
		[ "$2" != logworker ] && [ -e "worker/logworker-${object##*/}" ] || objects="$objects $object"
	done
	${CC:-cc} -pthread -Wl,--export-dynamic-symbol=syscalls -o "$1/$2" $objects $4
}

# build DIRECTORY PATCH
build() {
	# Two of one number would be built into one.
	mkdir "$1" "$1/src" "$1/tests" "$1/tmp" || return
	for file in $(changed "$2"); do
		mkdir -p "$1/src/${file%/*}"
		cp "$srcdir/$file" "$1/src/$file" && chmod u+w "$1/src/$file" || return
	done
	[ ! -s "$2" ] || patch -s -d "$1/src" -p 1 --no-backup-if-mismatch <"$2" || {
		echo "the patch does not apply"
		return 1
	}
	for file in $(changed "$2"); do
		compile "$1" "$file" || return
	done
	link "$1" logworker "$WORKER_OBJECTS" "$WORKER_LIBS" || return
	link "$1" test_powercut "$TESTER_OBJECTS" "$TESTER_LIBS" || return
	cp logsupervisor "$1" && cp tests/powercut.so "$1/tests"
}

# ---- running ----

# The number of a mode in tests/test_powercut.c.
mode() {
	number=0
	case $1 in *', mapped,'*) number=$((number + 1)) ;; esac
	case $1 in *', plain,'*) number=$((number + 2)) ;; esac
	case $1 in *', ordered') number=$((number + 4)) ;; esac
	echo $number
}

# run DIRECTORY RUN SCALE: 0, nothing was noticed.
run() {
	env LOGBROKER_BUILD="$1" TMPDIR="$1/tmp" LOGBROKER_TEST_SCALE="$3" LOGBROKER_TEST_SAMPLE=1 \
	    LOGBROKER_POWERCUT_MODE="$(mode "$2")" CK_RUN_CASE="${2%%,*}" \
	    timeout 120 "$1/test_powercut" >"$1/said" 2>&1 </dev/null
}

# is_noticed DIRECTORY RUN: in as few states as will do. What a broker does is never the same twice, and of some mistakes every
# other recording shows nothing, so there are many. What is skipped here is nothing to notice.
is_noticed() {
	for scale in 1 2 4 8 8 8 8 8 8 8 8 8; do
		if run "$1" "$2" $scale; then
			! grep -a ': skipped: ' "$1/said" || return 0
			continue
		fi
		why=$(grep -aoE '(power is cut behind|: event [0-9]+: ).*' "$1/said" | head -n 1)
		rm -rf "$1"/tmp/*
		[ -z "$why" ] || {
			echo "$2, $((scale * 250)) states: ${why%%. Promised*}"
			return 0
		}
		echo "$2: something else was noticed:"
		tail -n 20 "$1/said"
	done
	echo "$2: no state shows it"
	return 1
}

# one TREE PATCH: what it says, and its status into TREE/NAME.status.
one() {
	name=$(basename "$2" .patch)
	directory=$1/${name%%-*}
	status=0
	{
		runs "$2" >"$1/$name.runs" || status=1
		if [ -s "$2" ] && [ ! -s "$1/$name.runs" ]; then
			echo "no run is named"
			status=1
		elif build "$directory" "$2"; then
			while read -r line; do
				is_noticed "$directory" "$line" || status=1
			done <"$1/$name.runs"
			[ -s "$1/$name.runs" ] || run "$directory" 'first start, file, crc32c, strict' 1 || status=1
		else
			status=1
		fi
	} >"$1/$name.said" 2>&1
	rm -rf "$directory"
	echo $status >"$1/$name.status"
}

if [ "${1:-}" = --one ]; then
	one "$2" "$3"
	exit
fi

[ -w /dev/shm ] && tree=$(mktemp -d /dev/shm/mutants-XXXXXX) || tree=$(mktemp -d /tmp/mutants-XXXXXX) || exit 1
trap 'rm -rf "$tree"' EXIT
trap 'exit 1' HUP INT TERM
: >"$tree/00-nothing.patch"
if [ $# -gt 0 ]; then
	patches=$(printf "$srcdir/tests/mutants/%s.patch\n" "$@")
else
	patches=$(printf '%s\n' "$tree/00-nothing.patch" "$srcdir"/tests/mutants/*.patch)
fi
echo "Running suite(s): mutants"
printf '%s\n' "$patches" | xargs -P "$(nproc)" -n 1 sh "$0" --one "$tree"
checks=0
failures=0
for patch in $patches; do
	name=$(basename "$patch" .patch)
	checks=$((checks + 1))
	if [ "$(cat "$tree/$name.status")" = 0 ]; then
		echo "$name: $(paste -sd ';' "$tree/$name.said")"
		continue
	fi
	sed 's/^/	/' "$tree/$name.said"
	echo "tests/mutants.sh:1:F:mutants:$name:0: $(head -n 1 "$patch")"
	failures=$((failures + 1))
done
echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
