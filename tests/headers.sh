#!/bin/sh
# Each header compiles alone, and twice. As a test of make check: CC, HEADER_FLAGS and srcdir come from the makefile.
# Ends with a line like Check's own, so that its sums include the headers.
set -u
srcdir=${srcdir:-.}
checks=0
failures=0

echo "Running suite(s): headers"
for header in "$srcdir"/common/*.h "$srcdir"/worker/*.h "$srcdir"/supervisor/*.h "$srcdir"/client/*.h "$srcdir"/client/lib/*.h; do
	[ -e "$header" ] || continue
	name=${header#"$srcdir"/}
	checks=$((checks + 1))
	# Unquoted on purpose: both may be several words.
	if ! printf '#include "%s"\n#include "%s"\n' "$name" "$name" |
	    ${CC:-cc} -std=c11 -D_GNU_SOURCE -I"$srcdir" -I"$srcdir/client/lib" ${HEADER_FLAGS:-} -Wall -Wextra -Wshadow -Wstrict-prototypes \
		-Wmissing-prototypes -Werror -fsyntax-only -x c -; then
		echo "$name:1:F:headers:$name:0: does not compile alone"
		failures=$((failures + 1))
	fi
done
if [ $checks -eq 0 ]; then
	echo "no headers below $srcdir"
	checks=1
	failures=1
fi
echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
