#!/usr/bin/env bash
# tune.sh: compares this machine with 99-fanfare.conf and limits.conf, sets the differing values, and verifies them.
#
#   tune.sh diff      prints each setting: its value, the wanted value, the action of apply. Changes nothing, needs no root
#   tune.sh apply     sets differing values, writes /etc/sysctl.d/99-fanfare.conf and /etc/security/limits.d/99-fanfare.conf, verifies
#   tune.sh verify    checks the values now and after a reboot
#
# Exit codes: 0 all values are right; 1 a value differs or could not be set; 64 invalid command line.
#
# A setting marked "at least" is never lowered: if this machine has a larger value, it is kept and written. A line with `-` may fail.
# To undo: remove the two files and reboot.
#
# PROC_SYS=/proc/sys and ETC=/etc can be changed for the build of an image, or for a test.
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
PROC_SYS="${PROC_SYS:-/proc/sys}"
ETC="${ETC:-/etc}"
SYSCTL_FILE="$ETC/sysctl.d/99-fanfare.conf"
LIMITS_FILE="$ETC/security/limits.d/99-fanfare.conf"

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 64
}

# settings: the lines of 99-fanfare.conf, as `KEY MUST AT_LEAST VALUE...`; MUST and AT_LEAST are yes or no.
settings() {
  local line key value must at_least=no
  while read -r line; do
    case "$line" in
      '# at least') at_least=yes ;;
      '' | '#'*) ;;
      *)
        must=yes
        [ "${line#-}" = "$line" ] || must=no
        line="${line#-}"
        read -r key value <<<"${line/=/ }"
        echo "$key $must $at_least $value"
        at_least=no
        ;;
    esac
  done <"$here/99-fanfare.conf"
}

path_of() { printf '%s/%s' "$PROC_SYS" "${1//.//}"; }

# value_of KEY: the current value, with one blank between its parts; empty if the key is missing or may not be read.
value_of() {
  local words
  read -r -a words 2>/dev/null <"$(path_of "$1")" || true
  echo "${words[*]:-}"
}

# exceeds VALUE WANTED: succeeds if VALUE is larger. A range (two numbers) is larger if it reaches further at both ends.
exceeds() {
  local -a have want
  read -r -a have <<<"$1"
  read -r -a want <<<"$2"
  [ "${#have[@]}" -eq "${#want[@]}" ] || return 1
  if [ "${#have[@]}" -eq 2 ]; then
    [ "${have[0]}" -le "${want[0]}" ] && [ "${have[1]}" -ge "${want[1]}" ]
  else
    # More digits mean a larger number: fs.file-max may exceed the integers of the shell.
    [ "${#1}" -gt "${#2}" ] || { [ "${#1}" -eq "${#2}" ] && [[ "$1" > "$2" ]]; }
  fi
}

# judge KEY AT_LEAST WANTED: sets `now` and `verdict`: same, larger, absent, or differs.
judge() {
  now="$(value_of "$1")"
  verdict=differs
  if [ -z "$now" ]; then
    verdict=absent
  elif [ "$now" = "$3" ]; then
    verdict=same
  elif [ "$2" = yes ] && exceeds "$now" "$3"; then
    verdict=larger
  fi
}

row() { printf '%-38s %-26s %-26s %s\n' "$@"; }

# The text to write: 99-fanfare.conf, with the larger values of this machine.
sysctl_text() {
  local line key rest must at_least wanted now verdict
  local -A larger=()
  while read -r key must at_least wanted; do
    judge "$key" "$at_least" "$wanted"
    [ "$verdict" != larger ] || larger[$key]="$now"
  done < <(settings)
  while IFS= read -r line; do
    read -r key rest <<<"${line#-}"
    if [ -n "$key" ] && [ -n "${larger[$key]:-}" ]; then
      echo "# This machine has more than${rest#=} and keeps it."
      echo "$key = ${larger[$key]}"
    else
      echo "$line"
    fi
  done <"$here/99-fanfare.conf"
}

diff_() {
  local key must at_least wanted now verdict differing=0
  row setting now wanted verdict
  while read -r key must at_least wanted; do
    judge "$key" "$at_least" "$wanted"
    case "$verdict" in
      same) row "$key" "$now" "$wanted" same ;;
      larger) row "$key" "$now" "$wanted" 'more: kept' ;;
      absent)
        row "$key" - "$wanted" 'not on this machine'
        [ "$must" = no ] || differing=1
        ;;
      differs)
        row "$key" "$now" "$wanted" "$([ "$must" = yes ] && echo 'apply sets it' || echo 'apply tries to set it')"
        differing=1
        ;;
    esac
  done < <(settings)
  if cmp -s "$here/limits.conf" "$LIMITS_FILE"; then
    row 'nofile for logins' 'as in limits.conf' 'as in limits.conf' same
  else
    row 'nofile for logins' "$(ulimit -Sn) soft, $(ulimit -Hn) hard" 'as in limits.conf' 'apply sets it for new logins'
    differing=1
  fi
  return "$differing"
}

apply() {
  local key must at_least wanted now verdict text failed=0
  text="$(sysctl_text)"
  while read -r key must at_least wanted; do
    judge "$key" "$at_least" "$wanted"
    [ "$verdict" = differs ] || continue
    if { printf '%s\n' "$wanted" >"$(path_of "$key")"; } 2>/dev/null; then
      echo "$key: $now -> $(value_of "$key")"
    elif [ "$must" = no ]; then
      echo "$key: cannot be set here, left at $now"
    else
      echo "$key: cannot be set, left at $now" >&2
      failed=1
    fi
  done < <(settings)
  mkdir -p "$(dirname "$SYSCTL_FILE")" "$(dirname "$LIMITS_FILE")" || return 1
  printf '%s\n' "$text" >"$SYSCTL_FILE" && cp "$here/limits.conf" "$LIMITS_FILE" || return 1
  echo "wrote $SYSCTL_FILE and $LIMITS_FILE"
  verify || failed=1
  return "$failed"
}

verify() {
  local key must at_least wanted now verdict count=0 wrong=0
  while read -r key must at_least wanted; do
    judge "$key" "$at_least" "$wanted"
    case "$verdict" in
      same | larger) count=$((count + 1)) ;;
      *)
        [ "$must" = yes ] || continue
        echo "$key is ${now:-not there}, not $wanted" >&2
        wrong=1
        ;;
    esac
  done < <(settings)
  if ! cmp -s <(sysctl_text) "$SYSCTL_FILE"; then
    echo "$SYSCTL_FILE is not there or not up to date: after a reboot the settings are gone" >&2
    wrong=1
  fi
  if ! cmp -s "$here/limits.conf" "$LIMITS_FILE"; then
    echo "$LIMITS_FILE is not there or not up to date" >&2
    wrong=1
  fi
  [ "$wrong" -eq 0 ] && echo "verified: $count settings, and both files"
  return "$wrong"
}

[ $# -eq 1 ] || usage
if [ ! -d "$PROC_SYS" ]; then
  echo "tune.sh: there is no $PROC_SYS: this is for Linux. What the same is on macOS: ops/sysctl/README.md" >&2
  exit 64
fi
case "$1" in
  diff) diff_ ;;
  apply) apply ;;
  verify) verify ;;
  *) usage ;;
esac
