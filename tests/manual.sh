#!/bin/sh
# The manual pages, as those meet them who read them: without a warning of groff or mandoc.
#
# usage: tests/manual.sh
#
# Given: man-db with groff, and mandoc; what is not installed is passed over, and said. Gives a line for each fault;
# status 1 if there is one. Knows nothing of what the pages say.
set -eu
cd "$(dirname "$0")/.."
faults=$(mktemp)
trap 'rm -f "$faults"' EXIT
has() { command -v "$1" > /dev/null || { echo "manual: $1 is not installed, and was not asked"; return 1; }; }
has mandoc && mandoc -Tlint -W warning man/*.[157] >> "$faults" || :
if has man && has groff; then
    # A word that is longer than a line is no fault of the page.
    for page in man/*.[157]; do
        MANWIDTH=100 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 > /dev/null | grep -v 'cannot adjust line' | sed "s|^|$page: |" >> "$faults" || :
    done
fi
# A page that is named must be there.
grep -oh '\\\\fBsptrace[^(]*fR([157])' man/*.[157] | sed 's/\\\\fB//; s/\\\\fR//; s/\\\\-/-/g; s/(\([157]\))/.\1/' | sort -u | while read -r named; do
    [ -e "man/$named" ] || echo "there is no page $named" >> "$faults"
done
cat "$faults"
[ ! -s "$faults" ]
