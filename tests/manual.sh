#!/bin/sh
# Every page of man/: clean, and with references that exist. As a test of make check: srcdir comes from the makefile.
# Ends with a line like Check's own, so that its sums include this.
set -u
srcdir=${srcdir:-.}
checks=0
failures=0
LC_ALL=C
export LC_ALL

# expect NAME COMMAND...: one check; what the command says is shown when it fails.
expect() {
	name=$1
	shift
	checks=$((checks + 1))
	if ! said=$("$@" 2>&1); then
		printf '%s\n' "$said"
		echo "tests/manual.sh:1:F:manual:$name:0: failed"
		failures=$((failures + 1))
	fi
}

# References are looked at below, by the pages of this tree: those that are installed here say nothing.
is_clean() {
	{
		mandoc -Tlint -W style "$1" 2>&1 | grep -v -e 'referenced manual not found' -e 'outdated mandoc.db'
		man --warnings -E UTF-8 -l -Tutf8 -Z "$1" 2>&1 >/dev/null
	} | awk '{ print } END { exit NR > 0 }'
}

# Pages of the system may be named, too.
references_exist() {
	sed -n 's/^\.Xr \([^ ]*\) \([0-9]\).*/\1.\2/p' "$1" | sort -u | while read -r page; do
		[ -e "$srcdir/man/$page" ] || case $page in
		fork.2 | poll.2 | getaddrinfo.3 | systemd.1 | systemctl.1 | journalctl.1 | systemd.exec.5 | systemd.socket.5 | sysusers.d.5 | sd_notify.3) ;;
		*) echo "$1 refers to $page, which is not there" ;;
		esac
	done | awk '{ print } END { exit NR > 0 }'
}

# A person who begins with the tool's page or the daemon's gets to each of them.
is_named_by_others() {
	base=${1##*/}
	grep -q "^\.Xr ${base%.*} ${base##*.}" "$srcdir/man/logbroker.1" "$srcdir/man/logsupervisor.8"
}

is_distributed() {
	grep -q "^dist_man_MANS.*man/${1##*/}" "$srcdir/Makefile.am"
}

echo "Running suite(s): manual"
command -v mandoc >/dev/null && command -v man >/dev/null && have=yes || have=no
for page in "$srcdir"/man/*.[1-9]; do
	file=${page##*/}
	[ $have = no ] || expect "$file is_clean" is_clean "$page"
	expect "$file references_exist" references_exist "$page"
	expect "$file is_named_by_others" is_named_by_others "$page"
	expect "$file is_distributed" is_distributed "$page"
done
[ $have = yes ] || echo "no mandoc or no man: the pages were not looked at"
echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
