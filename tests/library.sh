#!/bin/sh
# The client library as others get it: its symbols, what it needs, its manual, and programs built by pkg-config against an
# installed tree, the examples among them. As a test of make check, in the build directory: srcdir, CC, CFLAGS, HEADER_FLAGS,
# MAKE, NM, READELF, PKG_CONFIG, LIBDIR, EXAMPLESDIR, MANDIR and VERSION come from the makefile. Ends with a line like Check's own, so that its sums include this.
set -u
srcdir=${srcdir:-.}
checks=0
failures=0
tree=$(mktemp -d "$PWD/library.XXXXXX") || exit 1
trap 'rm -rf "$tree"' EXIT
LC_ALL=C
export LC_ALL
unset LD_LIBRARY_PATH

# expect NAME COMMAND...: one check; what the command says is shown when it fails.
expect() {
	name=$1
	shift
	checks=$((checks + 1))
	if ! "$@" >"$tree/said" 2>&1; then
		sed 's/^/	/' "$tree/said"
		echo "tests/library.sh:1:F:library:$name:0: failed"
		failures=$((failures + 1))
	fi
}

# A header without comments, and without what it includes.
bare() {
	# Unquoted on purpose: both may be several words.
	${CC:-cc} -E -D_GNU_SOURCE -I"$srcdir/client/lib" ${HEADER_FLAGS:-} -x c "$srcdir/client/lib/$1.h" |
	    awk -v header="/$1.h\"" '/^#/ { mine = index($0, header) > 0; next } mine'
}

# Functions that a header declares: statements outside of braces, without typedefs.
declared() {
	bare "$1" | tr '\n;' ' \n' |
	    awk '{ before = depth; depth += gsub(/{/, "{") - gsub(/}/, "}") }
		before == 0 && depth == 0 && !/typedef/ && match($0, /lb_[a-z0-9_]+ *\(/) {
			name = substr($0, RSTART, RLENGTH - 1); sub(/ *$/, "", name); print name }' | sort
}

mapped() {
	sed -n '/^global:/,/^local:/s/^	\(.*\);$/\1/p' "$srcdir/client/lib/lib$1.map" | sort
}

# With their version; the versions themselves are symbols of type A.
exported() {
	$NM -D --defined-only ".libs/lib$1.so" | awk '$2 != "A" { print $2, $3 }' | sort -k 2
}

same_symbols() {
	declared "$1" >"$tree/declared"
	mapped "$1" >"$tree/mapped"
	exported "$1" | sed 's/^T \(.*\)@@LOGBROKER.*_[0-9.]*$/\1/' >"$tree/exported"
	[ -s "$tree/declared" ] && diff "$tree/declared" "$tree/mapped" && diff "$tree/mapped" "$tree/exported"
}

# Names with two underscores are the compiler's own (of its sanitizers).
own_prefix() {
	$NM -g --defined-only ".libs/lib$1.a" | awk 'NF == 3 { print $3 }' >"$tree/globals"
	[ -s "$tree/globals" ] && ! grep -v -e '^lb_' -e '^__' "$tree/globals"
}

# The loader, which sanitizers ask for, is libc's.
needs_only() {
	library=$1
	shift
	$READELF -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -v '^ld-linux' >"$tree/needed"
	for needed; do
		printf '%s\n' "$needed"
	done | diff - "$tree/needed"
}

named() {
	$READELF -d "$1" | grep -F "soname: [$2]"
}

# ---- the manual: what is in the headers is in it, and the other way round ----

manual=$srcdir/man/liblogbroker.3

manual_has_the_functions() {
	{ declared logbroker; declared logbroker-event; } | sort >"$tree/declared"
	sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/s/^\.F[no] \(lb_[a-z0-9_]*\).*/\1/p' "$manual" | sort >"$tree/told"
	[ -s "$tree/declared" ] && diff "$tree/declared" "$tree/told"
}

manual_has_the_codes() {
	bare logbroker | sed -n '/^enum lb_code {/,/^};/s/^[[:space:]]*\(LB_[A-Z_]*\) = .*/\1/p' | sort >"$tree/codes"
	sed -n '/^\.Sh ERRORS/,/^\.Sh SEE ALSO/s/^\.It Dv \(LB_[A-Z_]*\)$/\1/p' "$manual" | sort >"$tree/told"
	[ -s "$tree/codes" ] && diff "$tree/codes" "$tree/told"
}

# Fields of every struct lb_..._options.
manual_has_the_options() {
	bare logbroker | sed -n '/^struct lb_[a-z]*_options {/,/^};/s/^[[:space:]].*[ *]\([a-z_]*\);.*/\1/p' | sort >"$tree/options"
	sed -n 's/^\.It Va \([a-z_]*\)$/\1/p' "$manual" | sort >"$tree/told"
	[ -s "$tree/options" ] && diff "$tree/options" "$tree/told"
}

# Its own references and those to manuals that are not installed here apart.
manual_is_clean() {
	mandoc -Tlint -W style "$manual" 2>&1 | grep -v -e 'referenced manual not found' -e 'outdated mandoc.db' >"$tree/lint"
	man --warnings -E UTF-8 -l -Tutf8 -Z "$manual" 2>>"$tree/lint" >/dev/null
	cat "$tree/lint"
	[ ! -s "$tree/lint" ]
}

# ---- the installed tree ----

from_tree() {
	PKG_CONFIG_PATH=$tree$LIBDIR/pkgconfig PKG_CONFIG_SYSROOT_DIR=$tree $PKG_CONFIG "$@"
}

# program NAME PACKAGE LINKING COMPILER...: builds tree/NAME.c in one of two ways, runs it and looks at what it prints and needs.
program() {
	source=$1 package=$2 linking=$3
	shift 3
	libs=$(from_tree --libs "$package") || return
	[ "$linking" = shared ] || libs=$(printf '%s\n' "$libs" | sed 's/-l\(logbroker[a-z-]*\)/-l:lib\1.a/g')
	# Unquoted on purpose.
	"$@" ${CFLAGS:-} -Wall -Wextra -Werror $(from_tree --cflags "$package") "$tree/$source.c" -o "$tree/program" $libs || return
	said=$(LD_LIBRARY_PATH=$tree$LIBDIR "$tree/program") || return
	[ "$said" = "$VERSION" ] || { echo "it said: $said"; return 1; }
	uses=$($READELF -d "$tree/program" | grep -c 'NEEDED.*\[liblogbroker')
	if [ "$linking" = shared ]; then [ "$uses" -gt 0 ]; else [ "$uses" -eq 0 ]; fi
}

# As its first lines say.
example() {
	# Unquoted on purpose.
	${CC:-cc} ${CFLAGS:-} -Wall -Wextra -Werror "$tree$EXAMPLESDIR/$1.c" $(from_tree --cflags --libs "$2") -o "$tree/program" || return
	grep -q "^ \*   cc $1.c \$(pkg-config --cflags --libs $2) -o $1\$" "$tree$EXAMPLESDIR/$1.c" || return
	LD_LIBRARY_PATH=$tree$LIBDIR "$tree/program" 2>&1 | grep "^usage: $1 "
}

installed_version() {
	[ "$(from_tree --modversion "$1")" = "$VERSION" ]
}

install_library() {
	# The options of the make that runs this are for its own targets.
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "$MAKE" install DESTDIR="$tree"
}

echo "Running suite(s): library"
for library in logbroker logbroker-event; do
	expect "symbols_of_$library" same_symbols $library
	expect "prefix_in_$library" own_prefix $library
	expect "name_of_$library" named .libs/lib$library.so lib$library.so.0
done
expect liblogbroker_needs_libc_alone needs_only .libs/liblogbroker.so libc.so.6
expect manual_has_the_functions manual_has_the_functions
expect manual_has_the_codes manual_has_the_codes
expect manual_has_the_options manual_has_the_options
if command -v mandoc >/dev/null && command -v man >/dev/null; then
	expect manual_is_clean manual_is_clean
else
	echo "no mandoc or no man: the manual was not looked at"
fi

cat >"$tree/plain.c" <<'C'
#include <logbroker.h>
#include <stdio.h>

int
main(void)
{
	return puts(lb_version()) < 0 || lb_partition_of_key("", 0, 64) != 5;
}
C
# Everything of libevent is reached through the header: the base is never made.
cat >"$tree/event.c" <<'C'
#include <logbroker-event.h>
#include <stdio.h>

int
main(int argc, char *argv[])
{
	if (argc > 1)
		return lb_event_attach((struct lb_source *)argv[1], (struct event_base *)argv[1]);
	return puts(lb_version()) < 0;
}
C
expect install install_library
for package in liblogbroker liblogbroker-event; do
	expect "version_of_$package" installed_version $package
done
# Unquoted on purpose: a compiler may be several words.
for linking in shared static; do
	expect "c_$linking" program plain liblogbroker $linking ${CC:-cc} -std=c11
	expect "c_event_$linking" program event liblogbroker-event $linking ${CC:-cc} -std=c11
done
expect manual_is_installed [ -s "$tree$MANDIR/man3/liblogbroker.3" ]
expect example_produce example produce liblogbroker
expect example_follow example follow liblogbroker
expect example_relay example relay liblogbroker-event
case ${CC:-cc} in
*clang*) cxx=clang++ ;;
*) cxx=g++ ;;
esac
if printf 'int main() { return 0; }\n' | $cxx ${CFLAGS:-} -x c++ - -o "$tree/program" 2>/dev/null; then
	for linking in shared static; do
		expect "cxx_$linking" program plain liblogbroker $linking $cxx -x c++ -std=c++11
		expect "cxx_event_$linking" program event liblogbroker-event $linking $cxx -x c++ -std=c++11
	done
else
	echo "no C++ compiler: the headers were not tried with one"
fi
echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
