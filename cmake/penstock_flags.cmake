# The one place where language level, warnings and sanitizers are set: link penstock_flags.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
find_program(PENSTOCK_CCACHE ccache)
if(PENSTOCK_CCACHE)
  # Relative paths in the cache's keys: another clone of the same sources finds its objects there.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
                                  CCACHE_NOHASHDIR=true ${PENSTOCK_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

add_library(penstock_flags INTERFACE)
target_compile_options(
  penstock_flags
  INTERFACE -Wall -Wextra -Wconversion $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
            $<$<BOOL:${PENSTOCK_WERROR}>:-Werror>
            # One IEEE operation per written operation: no fused multiply-add behind our back.
            -ffp-contract=off -fno-math-errno)
target_include_directories(penstock_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src
                                                    ${PROJECT_SOURCE_DIR}/include)
# Tests and commands wait more than they compute: penstock_test() and the CLI use these.
set(PENSTOCK_QUICK_TEST_FLAGS -O1)
set(PENSTOCK_QUICK_CLI_FLAGS)
set(PENSTOCK_SANITIZE_TEXT "none")
if(PENSTOCK_SANITIZE)
  set(PENSTOCK_SANITIZE_TEXT ${PENSTOCK_SANITIZE})
  target_compile_options(
    penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE} -fno-sanitize-recover=all
                             -fno-omit-frame-pointer -gline-tables-only)
  target_link_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
  # Half of the time of such a build went into checks within libraries that consist of headers, and
  # into optimizing tests and commands. Fuzzers keep the checks: they search those libraries, too.
  if(PENSTOCK_SANITIZE MATCHES "address|thread" AND NOT PENSTOCK_SANITIZE MATCHES "fuzzer")
    string(REGEX MATCH "address|thread" kind ${PENSTOCK_SANITIZE})
    target_compile_options(
      penstock_flags
      INTERFACE -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/cmake/sanitize_${kind}_ignore.txt)
    set(PENSTOCK_QUICK_TEST_FLAGS -O0)
    set(PENSTOCK_QUICK_CLI_FLAGS -O0)
  endif()
endif()
