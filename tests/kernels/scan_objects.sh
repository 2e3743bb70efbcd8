#!/bin/sh
# Usage: scan_objects.sh ARCHIVE. Looks at every object of the kernel library:
#   - only the objects of an instruction set may use its registers: a leaked one is an illegal
#     instruction on an older processor, and only there
#   - the wide objects may define no weak symbol: the linker could pick their copy for everybody
# Exit 77: cannot be tested here.
set -eu

archive=$1
for tool in objdump nm ar; do
  if ! command -v "$tool" >/dev/null 2>&1; then
    echo "SKIPPED: $tool is missing; install the package binutils"
    exit 77
  fi
done
case $(uname -m) in
  x86_64) ;;
  *) echo "SKIPPED: instruction sets of x86-64, this machine is $(uname -m)"; exit 77 ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
archive=$(realpath "$archive")
(cd "$folder" && ar x "$archive")

failed=0
complain() {
  echo "FAILED: $1"
  failed=1
}
# How many instructions of object $1 match $2.
count() { objdump -d --no-show-raw-insn "$folder/$1" | grep -cE "$2" || true; }

evex='%zmm|%[xy]mm(1[6-9]|2[0-9]|3[01])|\{%k[0-7]\}'
vex='^ *[0-9a-f]+:[[:space:]]+v[a-z]'
scanned_avx2=0 scanned_avx512=0 scanned_other=0
for path in "$folder"/*.o; do
  object=$(basename "$path")
  case $object in
    *avx512*)
      scanned_avx512=$((scanned_avx512 + 1))
      # Proves that the pattern finds what it looks for.
      [ "$(count "$object" "$evex")" -gt 0 ] || complain "$object has no AVX-512 instruction"
      ;;
    *avx2*)
      scanned_avx2=$((scanned_avx2 + 1))
      [ "$(count "$object" "$vex")" -gt 0 ] || complain "$object has no AVX instruction"
      [ "$(count "$object" "$evex")" -eq 0 ] || complain "$object has AVX-512 instructions"
      ;;
    *)
      scanned_other=$((scanned_other + 1))
      [ "$(count "$object" "$vex")" -eq 0 ] || complain "$object has AVX instructions"
      ;;
  esac
  case $object in
    *avx*)
      weak=$(nm --defined-only "$path" | grep -E ' [WVu] ' || true)
      [ -z "$weak" ] || complain "$object defines weak symbols: $weak"
      ;;
  esac
done
[ $scanned_avx2 -gt 0 ] && [ $scanned_avx512 -gt 0 ] && [ $scanned_other -gt 0 ] ||
  complain "$archive does not hold objects of every kind"
echo "scanned $scanned_avx512 avx512, $scanned_avx2 avx2, $scanned_other other objects"
exit $failed
