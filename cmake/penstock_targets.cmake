# penstock_library(NAME SOURCES file... [LINKS target...]): the static library penstock_NAME.
function(penstock_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(penstock_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(penstock_${name} PUBLIC penstock_flags ${ARG_LINKS})
endfunction()

# penstock_test(NAME SOURCES file... [LINKS target...] [LABELS label...] [TIMEOUT seconds]):
# one GoogleTest program; each of its tests is a CTest test.
function(penstock_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE penstock_flags ${ARG_LINKS} GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
