#!/bin/sh
# coverage.sh BUILD FILE...: what programs built with gcc --coverage below BUILD have gone through of these source files, lines
# and branches, all objects of a file together: a table, and every branch that was never taken. Needs gcov alone. A file is named
# with the last folder of its path (worker/roll.c).
set -u
build=$1
shift
for file in "$@"; do
	name=$(basename "$file" .c)
	find "$build" \( -name "$name.gcno" -o -name "*-$name.gcno" \) -exec sh -c '
		for notes in "$@"; do gcov -b -c -t -o "$(dirname "$notes")" "$notes" 2>/dev/null; done' sh {} +
done | awk -v files="$*" '
function add(sum, n) {
	shown = n ? sprintf("%6d of %6d %6.1f %%", sum, n, 100 * sum / n) : "     -"
	return shown
}
BEGIN {
	file_count = split(files, names, " ")
	for (i = 1; i <= file_count; i++)
		wanted[names[i]] = 1
}
/^ +-: +0:Source:/ {
	n = split($0, path, "/")
	file = path[n - 1] "/" path[n]
	sub(/.*Source:/, "", file)
	next
}
!(file in wanted) { next }
/^branch / {
	key = file SUBSEP line SUBSEP branches_here++
	if (!(key in branch))
		branch_count[file, line]++
	branch[key] += $3 == "taken" ? $4 : 0
	next
}
/^ *[-#=0-9*]+: *[0-9]+:/ {
	split($0, part, ":")
	line = part[2] + 0
	branches_here = 0
	count = part[1]
	gsub(/[ *]/, "", count)
	if (line > last[file])
		last[file] = line
	if (count == "-")
		next
	executed[file, line] += count ~ /^[0-9]/ ? count : 0
	text = $0
	sub(/^[^:]*:[^:]*:[ \t]*/, "", text)
	source[file, line] = text
}
END {
	printf "%-24s %-26s %s\n", "", "  lines executed", "  branches taken"
	for (i = 1; i <= file_count; i++) {
		f = names[i]
		lines = done = all = taken = 0
		for (l = 1; l <= last[f]; l++) {
			if (!((f, l) in executed))
				continue
			lines++
			done += executed[f, l] > 0
			for (b = 0; b < branch_count[f, l]; b++) {
				all++
				taken += branch[f, l, b] > 0
				if (branch[f, l, b] == 0)
					list = list sprintf("%s:%d: branch %d of %d%s: %s\n", f, l, b + 1, branch_count[f, l],
					    executed[f, l] > 0 ? "" : ", never reached", source[f, l])
			}
		}
		printf "%-24s %s %s\n", f, add(done, lines), add(taken, all)
		sums[1] += done; sums[2] += lines; sums[3] += taken; sums[4] += all
	}
	printf "%-24s %s %s\n\nbranches not taken:\n%s", "all", add(sums[1], sums[2]), add(sums[3], sums[4]), list
}'
