# Finds the libraries (all of them Debian 12 packages, scripts/packages.txt) and says at once which
# packages are missing. What was found is listed by penstock_summary() of penstock_summary.cmake.

# penstock_find(NAME PACKAGE debian-package [PKG_CONFIG module]): records the version, or the
# missing package. With PKG_CONFIG the target is PkgConfig::NAME.
macro(penstock_find name)
  cmake_parse_arguments(FIND "" "PACKAGE;PKG_CONFIG" "" ${ARGN})
  if(FIND_PKG_CONFIG)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${FIND_PKG_CONFIG})
  else()
    find_package(${name} QUIET)
  endif()
  if(${name}_FOUND)
    penstock_report(${name} "${${name}_VERSION}")
  else()
    list(APPEND PENSTOCK_MISSING ${FIND_PACKAGE})
  endif()
endmacro()

set(PENSTOCK_MISSING "")
find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
if(NOT PkgConfig_FOUND)
  message(FATAL_ERROR "pkg-config is missing, without which no library is found; "
                      "run scripts/install-packages")
endif()

# ThreadSanitizer needs a oneTBB that is itself instrumented. A remembered place that is gone is
# looked up anew: find_package would quietly take the system's instead.
if(PENSTOCK_SANITIZE MATCHES "thread" AND NOT EXISTS "${TBB_DIR}/TBBConfig.cmake")
  if(DEFINED ENV{PENSTOCK_CACHE})
    set(tbb_tsan $ENV{PENSTOCK_CACHE}/tbb-tsan)
  else()
    set(tbb_tsan $ENV{HOME}/.cache/penstock/tbb-tsan)
  endif()
  file(REAL_PATH ${tbb_tsan} tbb_tsan)
  if(NOT EXISTS ${tbb_tsan}/lib/cmake/TBB/TBBConfig.cmake)
    message(FATAL_ERROR "No oneTBB built with ThreadSanitizer at ${tbb_tsan}; "
                        "run scripts/build-tbb-tsan, or set TBB_DIR")
  endif()
  set(TBB_DIR ${tbb_tsan}/lib/cmake/TBB CACHE PATH "oneTBB built with ThreadSanitizer"
      FORCE)
endif()

penstock_find(TBB PACKAGE libtbb-dev)
penstock_find(fmt PACKAGE libfmt-dev)
# Used as headers alone, without exceptions; its library, which throws, is not linked.
penstock_find(tomlplusplus PACKAGE libtomlplusplus-dev)
penstock_find(nlohmann_json PACKAGE nlohmann-json3-dev)
penstock_find(liburing PACKAGE liburing-dev PKG_CONFIG liburing)
penstock_find(hwloc PACKAGE libhwloc-dev PKG_CONFIG hwloc)
penstock_find(xxhash PACKAGE libxxhash-dev PKG_CONFIG libxxhash)
penstock_find(CLI11 PACKAGE libcli11-dev)
penstock_find(dnnl PACKAGE libdnnl-dev)
penstock_find(benchmark PACKAGE libbenchmark-dev)
if(PENSTOCK_BUILD_TESTS)
  penstock_find(GTest PACKAGE libgtest-dev)
  # Debian's Python: the packages that tests import (NumPy, PyTorch) are installed for that one.
  find_program(PENSTOCK_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  if(NOT PENSTOCK_PYTHON)
    list(APPEND PENSTOCK_MISSING python3)
  endif()
endif()

if(PENSTOCK_MISSING)
  list(JOIN PENSTOCK_MISSING " " packages)
  message(FATAL_ERROR "These Debian packages are missing: ${packages}\n"
                      "Run scripts/install-packages, or: sudo apt-get install ${packages}")
endif()
if(PENSTOCK_BUILD_TESTS)
  include(GoogleTest)
endif()
