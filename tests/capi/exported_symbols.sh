#!/bin/sh
# usage: exported_symbols.sh LIBRARY HEADER
# The library exports exactly the functions that the header declares.
set -eu
exported=$(nm -D --defined-only "$1" | awk '{print $3}' | sed 's/@.*//' | sort)
declared=$(grep -oE '\bpenstock_[a-z0-9_]+\(' "$2" | tr -d '(' | sort -u)
if [ -z "$exported" ]; then
  echo "nothing is exported by $1"
  exit 1
fi
for symbol in $exported; do
  case $symbol in
    penstock_*) ;;
    *) echo "exported, but not penstock_*: $symbol"; exit 1 ;;
  esac
  echo "$declared" | grep -qx "$symbol" || { echo "exported, but not declared: $symbol"; exit 1; }
done
for symbol in $declared; do
  echo "$exported" | grep -qx "$symbol" || { echo "declared, but not exported: $symbol"; exit 1; }
done
