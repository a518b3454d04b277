# Sourced by ./runtests and ./quickstart: installs Debian packages that are missing, or says which.
#
#   need_packages PACKAGE...
#
# As root it installs them by apt-get; otherwise, or where there is no apt-get, it names the command to run and fails.

need_packages() {
	missing=
	for package in "$@"; do
		dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
	done
	[ -z "$missing" ] && return 0
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
		echo "missing Debian packages; install them as root with: apt-get install$missing" >&2
		return 1
	fi
	echo "installing$missing" >&2
	log=$(mktemp)
	if ! { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing ||
	    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; }; } \
	    >"$log" 2>&1 </dev/null; then
		tail -n 20 "$log" >&2
		rm -f "$log"
		echo "apt-get could not install$missing" >&2
		return 1
	fi
	rm -f "$log"
}
