# shellcheck shell=bash
# What a user's value may be. Every check names the variable, what was given and what was wanted. Needs common.sh.
# Values reach a path, a command line or a log line only after these checks.

# check_choice NAME VALUE CHOICE...
check_choice() {
  local name=$1 value=$2 choice
  shift 2
  for choice in "$@"; do
    if [[ "$value" == "$choice" ]]; then return; fi
  done
  die "$name=$(shown "$value") is not known; choose from: $*"
}

# check_integer NAME VALUE LOWEST HIGHEST
check_integer() {
  if [[ "$2" =~ ^(0|[1-9][0-9]{0,9})$ ]] && (($2 >= $3 && $2 <= $4)); then return; fi
  die "$1=$(shown "$2") is not a whole number from $3 to $4"
}

# check_positive NAME VALUE: a positive decimal number such as 3e-4.
check_positive() {
  [[ "$2" =~ ^[0-9]{1,9}(\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?$ && "$2" =~ ^[0.]*[1-9] ]] ||
    die "$1=$(shown "$2") is not a positive number"
}

# check_amount NAME VALUE: as check_positive, or zero.
check_amount() { [[ "$2" == 0 ]] || check_positive "$1" "$2"; }

# check_dataset NAME VALUE
check_dataset() {
  [[ "$2" =~ ^[a-z0-9][a-z0-9_-]{0,63}$ ]] ||
    die "$1=$(shown "$2") is not the name of a data set: small letters, digits, '-' and '_', 64 at most"
}

# check_folder NAME VALUE: an existing folder, given and not empty.
check_folder() {
  [[ -n "$2" ]] || die "$1 is empty; give the folder that holds the recordings: $1=/path/to/folder"
  [[ -d "$2" ]] || die "$1=$(shown "$2") is not a folder"
}

# A value as it is printed back: quoted, on one line, not without end.
shown() {
  local text
  text=$(printf '%q' "$1")
  ((${#text} <= 80)) || text="${text:0:77}..."
  printf '%s' "$text"
}
